// Writing down one answer as it arrives, and timing it.

import { tick } from "svelte";
import type { Delta } from "./api";
import type { AnswerStats, Message, Outcome } from "./conversation";

const kFrame_ms = 33;
const kRestPerWork = 4; // drawing takes at most a fifth of the time, however long the answer
const kOutcomes: Record<string, Outcome> = {
  length: { kind: "length", text: "The answer reached the limit of tokens." },
  content_filter: { kind: "filtered", text: "Stopped by the server's filter." },
};

// Writes an answer at most some thirty times a second, and less often when drawing it takes long.
export class Pen {
  #answer: Message;
  #meter: Meter;
  #text = "";
  #reasoning = "";
  #timer: ReturnType<typeof setTimeout> | undefined;
  #pause_ms = kFrame_ms;

  constructor(answer: Message, meter: Meter) {
    this.#answer = answer;
    this.#meter = meter;
  }

  add(delta: Delta): void {
    this.#text += delta.text ?? "";
    this.#reasoning += delta.reasoning ?? "";
    const outcome = delta.finish_reason && kOutcomes[delta.finish_reason];
    if (outcome) this.#answer.outcome = { ...outcome };
    this.#timer ??= setTimeout(() => void this.#draw(), this.#pause_ms);
  }

  async #draw(): Promise<void> {
    const start_ms = performance.now();
    this.flush();
    await tick();
    this.#pause_ms = Math.max(kFrame_ms, kRestPerWork * (performance.now() - start_ms));
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
export class Meter {
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
