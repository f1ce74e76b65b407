// The conversation: sends, streams, stops, retries. Kept for the tab.

import { ApiError, error_text, stream_chat, type Delta, type WireMessage } from "./api";
import { sampling, settings } from "./settings.svelte";
import { load, save } from "./store";

export interface AnswerStats {
  ttft_s?: number;
  tokens_per_s?: number;
  prompt_tokens?: number;
  completion_tokens?: number;
  seed?: number;
  temperature?: number;
}

export interface Message {
  role: "user" | "assistant";
  text: string;
  reasoning?: string;
  error?: string;
  note?: string;
  stats?: AnswerStats;
}

const kKey = "headrace.chat";
const kFrame_ms = 33;
const kNotes: Record<string, string> = {
  length: "Cut off at the limit of tokens.",
  content_filter: "Stopped by the server's filter.",
};

class Chat {
  messages = $state<Message[]>(load(kKey, { messages: [] as Message[] }).messages);
  streaming = $state(false);
  announcement = $state(""); // for screen readers, once per answer
  #abort: AbortController | null = null;

  constructor() {
    addEventListener("pagehide", () => {
      const last = this.messages.at(-1);
      if (this.streaming && last) last.note = "Interrupted: the page was closed.";
      this.#save();
    });
  }

  send(text: string, model: string): void {
    if (this.streaming || !text.trim()) return;
    this.messages.push({ role: "user", text });
    void this.#answer(model);
  }

  // Drops the last answer and asks again.
  regenerate(model: string): void {
    if (this.streaming) return;
    if (this.messages.at(-1)?.role === "assistant") this.messages.pop();
    if (this.messages.length) void this.#answer(model);
  }

  stop(): void {
    this.#abort?.abort();
  }

  clear(): void {
    this.stop();
    this.messages = [];
    this.announcement = "New chat.";
    this.#save();
  }

  #save(): void {
    save(kKey, { messages: $state.snapshot(this.messages) });
  }

  // An answer that broke off without text says nothing to the model.
  #history(): WireMessage[] {
    const history: WireMessage[] = [];
    if (settings.system.trim()) history.push({ role: "system", content: settings.system });
    for (const { role, text } of this.messages) {
      if (role === "user" || text) history.push({ role, content: text });
    }
    return history;
  }

  async #answer(model: string): Promise<void> {
    const chosen = sampling();
    const request = { model, messages: this.#history(), ...chosen };
    this.messages.push({ role: "assistant", text: "", stats: { seed: chosen.seed, temperature: chosen.temperature } });
    const answer = this.messages.at(-1)!; // read back: the pushed object's reactive twin
    const abort = new AbortController();
    this.#abort = abort;
    this.streaming = true;
    this.announcement = "Answering.";
    this.#save();
    const meter = new Meter();
    const pen = new Pen(answer, meter);
    try {
      for await (const delta of stream_chat(request, abort.signal)) {
        meter.add(delta);
        pen.add(delta);
      }
      if (!meter.finished) throw new ApiError("The answer ended without saying why.");
      this.announcement = "Answer complete.";
    } catch (failure) {
      if (abort.signal.aborted) {
        answer.note = "Stopped.";
        this.announcement = "Stopped.";
      } else {
        answer.error = error_text(failure);
        this.announcement = "";
      }
    }
    pen.flush();
    if (this.#abort === abort) {
      this.#abort = null;
      this.streaming = false;
      this.#save();
    }
  }
}

// Writes an answer at most some thirty times a second, however fast the model is: drawing costs more than a token.
class Pen {
  #answer: Message;
  #meter: Meter;
  #text = "";
  #reasoning = "";
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(answer: Message, meter: Meter) {
    this.#answer = answer;
    this.#meter = meter;
  }

  add(delta: Delta): void {
    this.#text += delta.text ?? "";
    this.#reasoning += delta.reasoning ?? "";
    const note = delta.finish_reason && kNotes[delta.finish_reason];
    if (note) this.#answer.note = note;
    this.#timer ??= setTimeout(() => this.flush(), kFrame_ms);
  }

  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#answer.text += this.#text;
    if (this.#reasoning) this.#answer.reasoning = (this.#answer.reasoning ?? "") + this.#reasoning;
    this.#answer.stats = { ...this.#answer.stats, ...this.#meter.stats() };
    this.#text = "";
    this.#reasoning = "";
  }
}

// Times one answer as its reader sees it: from the click to the first text, and from there to the last.
class Meter {
  finished = false;
  #start_ms = performance.now();
  #first_ms = 0;
  #last_ms = 0;
  #num_chunks = 0;
  #prompt_tokens: number | undefined;
  #completion_tokens: number | undefined;

  add(delta: Delta): void {
    if (delta.text || delta.reasoning) {
      this.#last_ms = performance.now();
      if (!this.#num_chunks++) this.#first_ms = this.#last_ms;
    }
    if (delta.finish_reason) this.finished = true;
    this.#prompt_tokens = delta.usage?.prompt_tokens ?? this.#prompt_tokens;
    this.#completion_tokens = delta.usage?.completion_tokens ?? this.#completion_tokens;
  }

  // Until the server tells the count, one chunk counts as one token.
  stats(): AnswerStats {
    if (!this.#num_chunks) return {};
    const num_tokens = this.#completion_tokens ?? this.#num_chunks;
    const elapsed_s = (this.#last_ms - this.#first_ms) / 1000;
    const stats: AnswerStats = {
      ttft_s: (this.#first_ms - this.#start_ms) / 1000,
      completion_tokens: num_tokens,
    };
    // What arrives in one piece has no speed.
    if (num_tokens > 1 && elapsed_s > 0.01) stats.tokens_per_s = (num_tokens - 1) / elapsed_s;
    if (this.#prompt_tokens !== undefined) stats.prompt_tokens = this.#prompt_tokens;
    return stats;
  }
}

export const chat = new Chat();
