// The server's endpoints that the page uses, and their errors as sentences.

import { settings } from "./settings.svelte";
import { read_events } from "./sse";

export interface Status {
  model?: {
    id?: string;
    family?: string;
    architecture?: string;
    parameters?: number;
    weight_bytes?: number;
    quantisation?: string;
    formats?: Record<string, number>;
    context?: number;
    vocab_size?: number;
    path?: string;
  };
  engine?: {
    isa?: string;
    threads?: number;
    numerics_id?: string;
    kv_blocks_total?: number;
    kv_blocks_used?: number;
    running?: number;
    waiting?: number;
    decode_tokens_per_s?: number;
    prefill_tokens_per_s?: number;
    prompt_tokens?: number;
    generation_tokens?: number;
    requests?: number;
    preemptions?: number;
    uptime_s?: number;
  };
  version?: { headrace?: string; build?: string };
}

export interface WireMessage {
  role: "system" | "user" | "assistant";
  content: string;
}

export interface ChatRequest {
  model: string;
  messages: WireMessage[];
  temperature: number;
  top_p: number;
  max_tokens: number;
  seed: number;
}

export interface Usage {
  prompt_tokens?: number;
  completion_tokens?: number;
}

// One step of an answer; every field may be absent.
export interface Delta {
  text?: string;
  reasoning?: string;
  finish_reason?: string;
  usage?: Usage;
}

// A failure that the person at the page can read.
export class ApiError extends Error {}

export function error_text(failure: unknown): string {
  if (failure instanceof ApiError) return failure.message;
  const silent = failure instanceof TypeError || (failure instanceof DOMException && failure.name === "TimeoutError");
  if (silent) return "The server does not answer. Check that headrace is running.";
  return failure instanceof Error ? failure.message : String(failure);
}

async function refusal(response: Response): Promise<ApiError> {
  const body = await response.text();
  let message = "";
  try {
    const parsed = JSON.parse(body);
    message = parsed?.error?.message ?? (typeof parsed?.error === "string" ? parsed.error : "");
  } catch {
    message = body.length < 300 ? body.trim() : "";
  }
  const wait = response.headers.get("retry-after");
  const hint = wait && /^\d+$/.test(wait) ? ` Try again in ${wait} s.` : "";
  return new ApiError((message || `The server answered with status ${response.status}.`) + hint);
}

function authorization(): Record<string, string> {
  return settings.api_key ? { authorization: `Bearer ${settings.api_key}` } : {};
}

async function get_json(path: string, signal?: AbortSignal): Promise<unknown> {
  const response = await fetch(path, { headers: authorization(), signal: signal ?? null, cache: "no-store" });
  if (!response.ok) throw await refusal(response);
  return response.json();
}

export async function get_status(signal?: AbortSignal): Promise<Status> {
  return ((await get_json("/api/headrace/status", signal)) ?? {}) as Status;
}

export async function get_models(signal?: AbortSignal): Promise<string[]> {
  const body = (await get_json("/v1/models", signal)) as { data?: { id?: unknown }[] } | null;
  return (body?.data ?? []).map((row) => row.id).filter((id): id is string => typeof id === "string");
}

// Streams one answer. Ends without an error only when the server said that the answer is complete.
export async function* stream_chat(request: ChatRequest, signal: AbortSignal): AsyncGenerator<Delta> {
  const response = await fetch("/v1/chat/completions", {
    method: "POST",
    headers: { "content-type": "application/json", ...authorization() },
    body: JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  if (!response.ok) throw await refusal(response);
  if (!response.body) throw new ApiError("The server's answer has no body.");
  try {
    for await (const data of read_events(response.body)) {
      if (data === "[DONE]") return;
      yield parse_chunk(data);
    }
  } catch (failure) {
    if (!(failure instanceof TypeError)) throw failure; // a TypeError is how a broken connection shows
  }
  throw new ApiError("The connection closed before the answer was complete.");
}

function parse_chunk(data: string): Delta {
  let chunk;
  try {
    chunk = JSON.parse(data);
  } catch {
    throw new ApiError("The server sent a piece of the answer that is not JSON.");
  }
  if (chunk.error) throw new ApiError(chunk.error.message ?? "The server stopped the answer with an error.");
  const choice = chunk.choices?.[0];
  const delta: Delta = {};
  if (choice?.delta?.content) delta.text = choice.delta.content;
  if (choice?.delta?.reasoning_content) delta.reasoning = choice.delta.reasoning_content;
  if (choice?.finish_reason) delta.finish_reason = choice.finish_reason;
  if (chunk.usage) delta.usage = chunk.usage;
  return delta;
}
