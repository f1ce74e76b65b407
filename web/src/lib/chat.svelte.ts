// The open conversation: sends, streams, stops, asks again, goes on, edits, shows branches; and keeps itself in the
// library.

import { access } from "./access.svelte";
import { Meter, Pen } from "./answer";
import { stream_chat, stream_completion, type ChatBody, type CompletionBody, type Delta } from "./api";
import { ApiError, error_text } from "./http";
import {
  says_nothing,
  shown_leaf,
  title_of,
  type CallResult,
  type Conversation,
  type Message,
  type TextFile,
} from "./conversation";
import { library } from "./library.svelte";
import { live } from "./live.svelte";
import { notices } from "./notices.svelte";
import {
  chosen_effort,
  chosen_form,
  chosen_logprobs,
  chosen_sampling,
  chosen_tools,
  form_problem,
  settings,
} from "./settings.svelte";
import { new_id, read_json, session, write_json } from "./store";
import { newest_below, parent_of, path_to, versions_of } from "./tree";
import { to_prompt, to_wire } from "./wire";

const kOpen = "headrace.open"; // the tab's conversation
const kSaveEvery_ms = 1000; // while an answer streams
const kMostSpokenChars = 800;

// An answer that is there already: one that goes on, or an empty one that makes room.
interface OldAnswer {
  going_on?: number;
  replaced?: number;
}

class Chat {
  id = $state(new_id());
  title = $state("");
  messages = $state<Message[]>([]); // of all branches: see tree.ts
  shown = $state(-1); // the last message of the branch that is shown; -1: none
  streaming = $state(false);
  loading = $state(false);
  announcement = $state(""); // for screen readers: once when an answer begins, once when it is there
  #created_ms = Date.now();
  #updated_ms = Date.now();
  #rev = 0;
  #abort: AbortController | null = null;
  #opening = 0; // counts what was opened, so that a slow one does not replace a later one
  #answering = Promise.resolve();
  #saving = Promise.resolve();
  #unsaved = false; // a write is on its way
  #kept = true; // the library has it as it is
  #locked_out = false; // the last answer failed for want of a key

  constructor() {
    const open = read_json(session, kOpen);
    if (typeof open === "string") void this.open(open);
    addEventListener("pagehide", () => this.#leave());
    addEventListener("pageshow", (event) => {
      if (event.persisted) library.stay(this.id);
    });
    library.watch(({ ids, removed }) => {
      if (!ids.includes(this.id) || this.streaming || !this.#kept) return;
      if (removed) this.#show(empty());
      else void this.#reload();
    });
  }

  // --- which conversation

  async open(id: string): Promise<void> {
    const ticket = ++this.#opening;
    this.loading = true;
    await this.#settle();
    const kept = await library.read(id);
    if (ticket !== this.#opening) return; // the person has done something else meanwhile
    this.#show(kept ?? empty());
    this.loading = false;
  }

  async start_new(): Promise<void> {
    ++this.#opening;
    this.loading = false;
    await this.#settle();
    this.#show(empty());
    this.announcement = "New chat.";
  }

  async remove(ids: string[]): Promise<void> {
    if (ids.includes(this.id)) await this.start_new();
    await library.remove(ids);
  }

  // Ends the answer that streams, if any, and keeps what there is of it.
  async #settle(): Promise<void> {
    this.stop();
    await this.#answering;
    await this.#saving;
  }

  #show(conversation: Conversation): void {
    const { id, title, created_ms, updated_ms, rev, messages } = conversation;
    Object.assign(this, { id, title, messages, shown: shown_leaf(conversation) });
    this.#created_ms = created_ms;
    this.#updated_ms = updated_ms;
    this.#rev = rev;
    this.#unsaved = false;
    this.#kept = true;
    write_json(session, kOpen, messages.length ? id : null);
  }

  // Another tab, or the list, wrote it.
  async #reload(): Promise<void> {
    const kept = await library.read(this.id);
    if (kept && kept.rev > this.#rev && !this.streaming && this.#kept) this.#show(kept);
  }

  // --- the branch that is shown

  // Where its messages are, first to last.
  path = $derived(path_to(this.messages, this.shown));
  #versions = $derived(versions_of(this.messages));

  // The other versions of a message, and it.
  versions(idx: number): number[] {
    return this.#versions[idx] ?? [idx];
  }

  // Shows this message, and what was made last of all that follows it.
  show(idx: number): void {
    if (this.streaming || !this.messages[idx]) return;
    this.shown = newest_below(this.messages, idx);
    const versions = this.versions(idx);
    this.announcement = `Version ${versions.indexOf(idx) + 1} of ${versions.length}.`;
    this.#touch();
  }

  #last(): Message | undefined {
    return this.messages[this.shown];
  }

  // It follows `parent`, and is shown.
  #add(message: Message, parent: number): Message {
    const is_usual = parent === this.messages.length - 1;
    this.messages.push(is_usual ? message : { ...message, parent });
    this.shown = this.messages.length - 1;
    return this.messages[this.shown]!; // read back: the pushed object's reactive twin
  }

  // --- what a person does; false: not now, and why is told

  send(text: string, files: TextFile[], model: string): boolean {
    if (this.loading || !(text.trim() || files.length) || !this.#may_ask()) return false;
    this.#add({ role: "user", text, ...(files.length ? { files } : {}) }, this.shown);
    this.#begin(model);
    return true;
  }

  // What the tools gave that the last answer called.
  give_results(results: CallResult[], model: string): void {
    if (!this.#last()?.calls || !this.#may_ask()) return;
    this.#add({ role: "tool", text: "", results }, this.shown);
    this.#begin(model);
  }

  // Asks again for the answer at `idx`, or for one to what is shown last. What there was stays beside it.
  regenerate(model: string, idx = this.shown): void {
    if (!this.#may_ask()) return;
    const is_answer = this.messages[idx]?.role === "assistant";
    const asked = is_answer ? parent_of(this.messages, idx) : idx;
    if (asked < 0) return;
    const is_empty = says_nothing(this.messages[idx]) && newest_below(this.messages, idx) === idx;
    this.shown = asked;
    this.#begin(model, is_answer && is_empty ? { replaced: idx } : {});
  }

  // The last answer goes on where it broke off.
  go_on(model: string): void {
    const last = this.#last();
    if (last?.role !== "assistant" || !last.text || last.calls || !this.#may_ask()) return;
    this.#begin(model, { going_on: this.shown });
  }

  // A new version of the message at `idx`, with its files, is asked.
  edit(idx: number, text: string, model: string): void {
    const { files } = this.messages[idx] ?? {};
    if (!(text.trim() || files?.length) || !this.#may_ask()) return;
    this.#add({ role: "user", text, ...(files ? { files } : {}) }, parent_of(this.messages, idx));
    this.#begin(model);
  }

  // The same of results.
  edit_results(idx: number, results: CallResult[], model: string): void {
    if (!this.#may_ask()) return;
    this.#add({ role: "tool", text: "", results }, parent_of(this.messages, idx));
    this.#begin(model);
  }

  #may_ask(): boolean {
    if (this.streaming) return false;
    const problem = form_problem(live.has_template);
    if (problem) notices.add(`Not sent. ${problem} See Settings.`);
    return !problem;
  }

  stop(): void {
    this.#abort?.abort();
  }

  // The person gave the key that was missing.
  unlocked(model: string): void {
    if (!this.#locked_out) return;
    if (this.#last()?.text) this.go_on(model);
    else this.regenerate(model);
  }

  // --- asking

  // What a request for an answer that follows the message at `leaf` would be.
  request_after(leaf: number, model: string, goes_on = false): ChatBody | CompletionBody {
    const messages = path_to(this.messages, leaf).map((idx) => this.messages[idx]!);
    const chosen = { ...chosen_sampling(), ...chosen_form(goes_on) };
    const num_top = chosen_logprobs();
    if (!live.has_template) {
      // This endpoint's own default is a few words; the server takes what fits the context.
      const max_tokens = chosen.max_tokens ?? live.status.model?.context ?? 2048;
      const scored = num_top === null ? {} : { logprobs: num_top };
      return { model, prompt: to_prompt(messages), ...chosen, ...scored, max_tokens };
    }
    const going_on = goes_on ? { continue_final_message: true, add_generation_prompt: false } : {};
    const scored = num_top === null ? {} : { logprobs: true, top_logprobs: num_top };
    const asked = { ...chosen_tools(), ...chosen_effort(), ...going_on, ...chosen, ...scored };
    return { model, messages: to_wire(messages, settings.system), ...asked };
  }

  // What the request for the answer at `idx` would be today.
  request_before(idx: number, model: string): ChatBody | CompletionBody {
    return this.request_after(parent_of(this.messages, idx), model);
  }

  #begin(model: string, old: OldAnswer = {}): void {
    this.#answering = this.#answer(model, old);
  }

  // The message that an answer is written into.
  #place(body: ChatBody | CompletionBody, { going_on, replaced }: OldAnswer): Message {
    if (going_on !== undefined) return this.messages[going_on]!;
    const stats = { seed: body.seed, temperature: body.temperature ?? live.status.sampling?.temperature ?? 1 };
    const plain = "prompt" in body ? { plain: true } : {};
    if (replaced === undefined) return this.#add({ role: "assistant", text: "", stats, ...plain }, this.shown);
    this.shown = replaced;
    return Object.assign(this.messages[replaced]!, { stats });
  }

  // Asks for a new answer, or for more of an old one.
  async #answer(model: string, old: OldAnswer): Promise<void> {
    const abort = new AbortController();
    const body = this.request_after(this.shown, model, old.going_on !== undefined);
    const deltas = "prompt" in body ? stream_completion(body, abort.signal) : stream_chat(body, abort.signal);
    const answer = this.#place(body, old);
    delete answer.outcome;
    this.#abort = abort;
    this.streaming = true;
    this.#locked_out = false;
    this.announcement = "Answering.";
    this.#touch();
    const saver = setInterval(() => this.#touch(), kSaveEvery_ms);
    await this.#write_down(answer, deltas, abort.signal);
    clearInterval(saver);
    this.#abort = null;
    this.streaming = false;
    this.#touch();
  }

  async #write_down(answer: Message, deltas: AsyncGenerator<Delta>, signal: AbortSignal): Promise<void> {
    const meter = new Meter();
    const pen = new Pen(answer, meter);
    try {
      for await (const delta of deltas) {
        meter.add(delta);
        pen.add(delta);
      }
      pen.flush();
      if (!meter.finished) throw new ApiError("The answer ended without saying why.");
      this.announcement = `Answer complete. ${spoken(answer)}`;
    } catch (failure) {
      pen.flush();
      this.#fail(answer, failure, signal.aborted);
    }
  }

  #fail(answer: Message, failure: unknown, stopped: boolean): void {
    if (stopped) {
      answer.outcome ??= { kind: "stopped", text: "Stopped." };
      this.announcement = answer.outcome.text;
      return;
    }
    answer.outcome = { kind: "failed", text: error_text(failure) };
    this.announcement = ""; // the notice itself is an alert
    if (failure instanceof ApiError && failure.status === 401) {
      this.#locked_out = true;
      access.refused(true);
    }
    if (!(failure instanceof ApiError) || failure.status === 0) live.poke();
  }

  // --- keeping

  #snapshot(): Conversation {
    const messages = $state.snapshot(this.messages);
    const title = this.title || title_of(messages);
    const times = { created_ms: this.#created_ms, updated_ms: this.#updated_ms };
    return { id: this.id, title, ...times, rev: this.#rev, messages, shown: this.shown };
  }

  // Something changed: it will be kept. Writes follow one another; one that waits takes the newest state along.
  #touch(): void {
    this.#updated_ms = Date.now();
    this.#kept = false;
    write_json(session, kOpen, this.id);
    if (this.#unsaved) return;
    this.#unsaved = true;
    this.#saving = this.#saving.then(() => this.#save());
  }

  async #save(): Promise<void> {
    if (!this.#unsaved) return;
    const snapshot = this.#snapshot();
    this.#unsaved = false;
    const head = await library.write(snapshot);
    if (!head || this.id !== snapshot.id) return;
    this.id = head.id;
    this.title = head.title;
    this.#rev = head.rev;
    this.#kept = !this.#unsaved;
    if (head.id !== snapshot.id) write_json(session, kOpen, head.id);
  }

  // The page goes away: an answer that still streams ends here.
  #leave(): void {
    const last = this.#last();
    if (this.streaming && last) {
      last.outcome = { kind: "interrupted", text: "Interrupted: the page was closed." };
      this.stop();
    } else if (this.#kept) {
      return;
    }
    library.leave(this.#snapshot());
  }
}

function empty(): Conversation {
  return { id: new_id(), title: "", created_ms: Date.now(), updated_ms: Date.now(), rev: 0, messages: [] };
}

function spoken({ text, calls }: Message): string {
  if (calls?.length) return `It calls ${calls.map(({ name }) => name).join(", ")}. ${text}`.trim();
  return text.length > kMostSpokenChars
    ? `${text.slice(0, kMostSpokenChars)} … The whole answer is in the conversation.`
    : text;
}

export const chat = new Chat();
