// What is said of a request that has ended.

import type { FinishedRequest } from "./api";
import { format_count, format_rate } from "./format";

const kMisses: Record<string, string> = {
  new: "no kept prompt begins like it: there was none, or it made room for others",
  differs: "it goes on otherwise than the kept prompts do",
  short: "it is shorter than a block of the cache",
  scored: "its own tokens were asked about, so all of it was computed",
};
const kFinishes: Record<string, string> = {
  stop: "complete",
  length: "reached the limit of tokens",
  tool_calls: "called tools",
  cancelled: "cancelled",
  error: "failed",
};

// How it ended, in a few words.
export function ending_of({ status, finish, ending }: FinishedRequest): string {
  if (ending === "client_left") return "the client left";
  if (status !== undefined && status >= 400) return `refused with status ${status}`;
  if (ending === "dropped") return "dropped";
  return finish === undefined ? `status ${status ?? "unknown"}` : (kFinishes[finish] ?? finish);
}

export function is_good({ status, finish, ending }: FinishedRequest): boolean {
  return ending === "whole" && (status ?? 0) < 400 && finish !== "error" && finish !== "cancelled";
}

// What the prefix cache had of the prompt, and why not more; empty where nothing is known.
export function cache_text({ prompt_tokens, cached_tokens, cache_miss }: FinishedRequest): string {
  if (prompt_tokens === undefined || cached_tokens === undefined) return "";
  const found = cached_tokens > 0 ? `${format_count(cached_tokens)} of ${format_count(prompt_tokens)} tokens` : "nothing";
  const reason = cache_miss ? (kMisses[cache_miss] ?? cache_miss) : "";
  return reason ? `${found}: ${reason}` : found;
}

export function output_text({ output_tokens, tokens_per_s }: FinishedRequest): string {
  if (output_tokens === undefined) return "";
  const count = `${format_count(output_tokens)} ${output_tokens === 1 ? "token" : "tokens"}`;
  return tokens_per_s === undefined ? count : `${count}, ${format_rate(tokens_per_s)} per second`;
}
