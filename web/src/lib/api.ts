// The server's endpoints that the page uses, and their errors as sentences.

import { access } from "./access.svelte";
import type { WireMessage } from "./conversation";
import type { ChosenSampling, SamplingName } from "./settings.svelte";
import { read_events } from "./sse";

// How evenly a layer's experts are used: shares of its routed tokens.
export interface ExpertLoad {
  layer: number;
  experts: number;
  largest: number;
  smallest: number;
  unused: number;
}

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
  experts?: ExpertLoad[]; // of the layers that have experts
  sampling?: Partial<Record<SamplingName, number>>; // what holds for fields that a request does not send
  version?: { headrace?: string; build?: string };
}

export interface ChatBody extends ChosenSampling {
  model: string;
  messages: WireMessage[];
  continue_final_message?: boolean; // the last message is an answer that goes on
  add_generation_prompt?: boolean;
}

export interface CompletionBody extends ChosenSampling {
  model: string;
  prompt: string;
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
export class ApiError extends Error {
  readonly status: number; // of the response; 0 where there was none

  constructor(message: string, status = 0) {
    super(message);
    this.status = status;
  }
}

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
  return new ApiError((message || `The server answered with status ${response.status}.`) + hint, response.status);
}

function authorization(): Record<string, string> {
  return access.key ? { authorization: `Bearer ${access.key}` } : {};
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

// Whether the model has a chat template. A server that cannot tell is taken to have one.
export async function get_has_template(signal?: AbortSignal): Promise<boolean> {
  try {
    const info = (await get_json("/tokenizer_info", signal)) as { chat_template?: unknown } | null;
    return info?.chat_template !== null;
  } catch (failure) {
    if (failure instanceof ApiError) return true;
    throw failure;
  }
}

export function stream_chat(body: ChatBody, signal: AbortSignal): AsyncGenerator<Delta> {
  return stream("/v1/chat/completions", body, signal);
}

export function stream_completion(body: CompletionBody, signal: AbortSignal): AsyncGenerator<Delta> {
  return stream("/v1/completions", body, signal);
}

// Streams one answer. Ends without an error only when the server said that the answer is complete.
async function* stream(path: string, body: object, signal: AbortSignal): AsyncGenerator<Delta> {
  const response = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json", ...authorization() },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
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
  const text = choice?.delta?.content ?? choice?.text;
  if (text) delta.text = text;
  if (choice?.delta?.reasoning_content) delta.reasoning = choice.delta.reasoning_content;
  if (choice?.finish_reason) delta.finish_reason = choice.finish_reason;
  if (chunk.usage) delta.usage = chunk.usage;
  return delta;
}
