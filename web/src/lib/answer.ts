// Writing down one answer as it arrives, and timing it.

import { tick } from "svelte";
import type { CallPiece, Delta } from "./api";
import type { AnswerStats, Call, Message, Outcome } from "./conversation";
import { to_lines } from "./scores";

const kFrame_ms = 33;
const kRestPerWork = 4; // drawing takes at most a fifth of the time, however long the answer
const kMostCalls = 128;
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
  #calls: CallPiece[] = [];
  #scores = "";
  #timer: ReturnType<typeof setTimeout> | undefined;
  #pause_ms = kFrame_ms;

  constructor(answer: Message, meter: Meter) {
    this.#answer = answer;
    this.#meter = meter;
  }

  add(delta: Delta): void {
    this.#text += delta.text ?? "";
    this.#reasoning += delta.reasoning ?? "";
    this.#calls.push(...(delta.calls ?? []));
    this.#scores += to_lines(delta.scores ?? []);
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
    if (this.#calls.length) this.#answer.calls = with_pieces(this.#answer.calls ?? [], this.#calls);
    if (this.#scores) this.#answer.scores = (this.#answer.scores ?? "") + this.#scores;
    this.#answer.stats = { ...this.#answer.stats, ...this.#meter.stats() };
    this.#text = "";
    this.#reasoning = "";
    this.#calls = [];
    this.#scores = "";
  }
}

// The calls of an answer, and what came of them since.
export function with_pieces(calls: readonly Call[], pieces: CallPiece[]): Call[] {
  const grown = calls.map((call) => ({ ...call }));
  for (const { index, id, name, arguments: text } of pieces) {
    if (!Number.isInteger(index) || index < 0 || index >= kMostCalls) continue;
    while (grown.length <= index) grown.push({ id: "", name: "", arguments: "" });
    const call = grown[index]!;
    call.id ||= id;
    call.name += name;
    call.arguments += text;
  }
  return grown;
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
    if (delta.text || delta.reasoning || delta.calls?.length) {
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
