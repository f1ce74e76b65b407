// The open conversation: sends, streams, stops, retries, goes on, edits; and keeps itself in the library.

import { access } from "./access.svelte";
import { Meter, Pen } from "./answer";
import { ApiError, error_text, stream_chat, stream_completion, type Delta } from "./api";
import { title_of, to_prompt, to_wire, type Conversation, type Message } from "./conversation";
import { library } from "./library.svelte";
import { live } from "./live.svelte";
import { notices } from "./notices.svelte";
import { chosen_sampling, settings, type ChosenSampling } from "./settings.svelte";
import { new_id, read_json, session, write_json } from "./store";

const kOpen = "headrace.open"; // the tab's conversation
const kSaveEvery_ms = 1000; // while an answer streams
const kMostSpokenChars = 800;

class Chat {
  id = $state(new_id());
  title = $state("");
  messages = $state<Message[]>([]);
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
    Object.assign(this, { id, title, messages });
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

  // --- what a person does

  send(text: string, model: string): void {
    if (this.streaming || this.loading || !text.trim()) return;
    this.messages.push({ role: "user", text });
    this.#begin(model);
  }

  // Drops the last answer and asks again.
  regenerate(model: string): void {
    if (this.streaming) return;
    if (this.messages.at(-1)?.role === "assistant") this.messages.pop();
    if (this.messages.length) this.#begin(model);
  }

  // The last answer goes on where it broke off.
  go_on(model: string): void {
    const last = this.messages.at(-1);
    if (this.streaming || last?.role !== "assistant" || !last.text) return;
    this.#begin(model, last);
  }

  // Replaces the message at `idx` and asks from there; what followed it can be had back.
  edit(idx: number, text: string, model: string): void {
    if (this.streaming || !text.trim()) return;
    const before = $state.snapshot(this.messages);
    const id = this.id;
    this.messages = [...before.slice(0, idx), { role: "user", text }];
    this.#begin(model);
    const undo = async () => {
      if (this.id !== id) return;
      await this.#settle();
      this.messages = before;
      this.#touch();
    };
    if (before.length > idx + 1)
      notices.add("Asked again from the edited message.", { action: { label: "Undo", run: () => void undo() } });
  }

  stop(): void {
    this.#abort?.abort();
  }

  // The person gave the key that was missing.
  unlocked(model: string): void {
    if (!this.#locked_out) return;
    if (this.messages.at(-1)?.text) this.go_on(model);
    else this.regenerate(model);
  }

  // --- asking

  #request(model: string, chosen: ChosenSampling, goes_on: boolean, signal: AbortSignal): AsyncGenerator<Delta> {
    if (!live.has_template) {
      // This endpoint's own default is a few words; the server takes what fits the context.
      const max_tokens = chosen.max_tokens ?? live.status.model?.context ?? 2048;
      return stream_completion({ model, prompt: to_prompt(this.messages), ...chosen, max_tokens }, signal);
    }
    const going_on = goes_on ? { continue_final_message: true, add_generation_prompt: false } : {};
    return stream_chat({ model, messages: to_wire(this.messages, settings.system), ...going_on, ...chosen }, signal);
  }

  #begin(model: string, going_on: Message | null = null): void {
    this.#answering = this.#answer(model, going_on);
  }

  // Asks for a new answer, or for more of `going_on`.
  async #answer(model: string, going_on: Message | null): Promise<void> {
    const chosen = chosen_sampling();
    const abort = new AbortController();
    const deltas = this.#request(model, chosen, going_on !== null, abort.signal);
    const stats = { seed: chosen.seed, temperature: chosen.temperature ?? live.status.sampling?.temperature ?? 1 };
    if (!going_on)
      this.messages.push({ role: "assistant", text: "", stats, ...(live.has_template ? {} : { plain: true }) });
    const answer = this.messages.at(-1)!; // read back: the pushed object's reactive twin
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
      this.announcement = `Answer complete. ${spoken(answer.text)}`;
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
    return { id: this.id, title, created_ms: this.#created_ms, updated_ms: this.#updated_ms, rev: this.#rev, messages };
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
    const last = this.messages.at(-1);
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

function spoken(text: string): string {
  return text.length > kMostSpokenChars
    ? `${text.slice(0, kMostSpokenChars)} … The whole answer is in the conversation.`
    : text;
}

export const chat = new Chat();
