// The server's endpoints that the chat uses.

import type { Tool, ToolChoice } from "./form";
import { ApiError, get_json, post_json } from "./http";
import { scores_of, type Score } from "./scores";
import type { ChosenSampling, SamplingName } from "./settings.svelte";
import { read_events } from "./sse";
import type { WireMessage } from "./wire";

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

// Of both endpoints; their numbers of alternatives are told in different ways.
export interface AnswerFields extends ChosenSampling {
  response_format?: object;
  logprobs?: boolean | number;
}

export interface ChatBody extends AnswerFields {
  model: string;
  messages: WireMessage[];
  tools?: Tool[];
  tool_choice?: ToolChoice;
  reasoning_effort?: string;
  top_logprobs?: number;
  continue_final_message?: boolean; // the last message is an answer that goes on
  add_generation_prompt?: boolean;
}

export interface CompletionBody extends AnswerFields {
  model: string;
  prompt: string;
}

export interface Usage {
  prompt_tokens?: number;
  completion_tokens?: number;
}

// A piece of a call: id and name come with its first, arguments with any.
export interface CallPiece {
  index: number;
  id: string;
  name: string;
  arguments: string;
}

// One step of an answer; every field may be absent.
export interface Delta {
  text?: string;
  reasoning?: string;
  calls?: CallPiece[];
  scores?: Score[];
  finish_reason?: string;
  usage?: Usage;
}

// A prompt as the model sees it.
export interface RenderedPrompt {
  text: string;
  count: number;
  tokens: number[];
  token_strs?: string[];
  parts?: { text: string; special: boolean; count: number }[]; // special: a token that stands for a mark
}

// A request of anyone who may be seen; times in ms. Every field of one that ended may be absent.
export interface RunningRequest {
  request_id: string;
  answer_id: string;
  model: string;
  seconds: number;
}

export interface FinishedRequest {
  request_id?: string;
  route?: string;
  model?: string;
  ended_ms?: number;
  status?: number;
  ending?: string;
  finish?: string;
  total_ms?: number;
  queue_ms?: number;
  first_token_ms?: number;
  tokens_per_s?: number;
  prompt_tokens?: number;
  cached_tokens?: number;
  output_tokens?: number;
  cache_miss?: string;
}

export async function get_status(signal?: AbortSignal): Promise<Status> {
  return ((await get_json("/api/headrace/status", signal)) ?? {}) as Status;
}

export async function get_models(signal?: AbortSignal): Promise<string[]> {
  const body = (await get_json("/v1/models", signal)) as { data?: { id?: unknown }[] } | null;
  return (body?.data ?? []).map((row) => row.id).filter((id): id is string => typeof id === "string");
}

export async function get_requests(
  signal?: AbortSignal,
): Promise<{ running: RunningRequest[]; finished: FinishedRequest[] }> {
  const body = (await get_json("/api/headrace/requests", signal)) as { running?: unknown; finished?: unknown } | null;
  const list = (value: unknown) => (Array.isArray(value) ? value : []);
  return { running: list(body?.running), finished: list(body?.finished) };
}

// The prompt that a request for an answer would have.
export async function render(body: ChatBody | CompletionBody, signal?: AbortSignal): Promise<RenderedPrompt> {
  const response = await post_json("/render", { ...body, return_token_strs: true }, signal ?? null);
  const answer = (await response.json()) as { prompts?: RenderedPrompt[] } | null;
  const prompt = answer?.prompts?.[0];
  if (!prompt) throw new ApiError("The server shows no prompt.");
  return prompt;
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
  const asked = { ...body, stream: true, stream_options: { include_usage: true } };
  const response = await post_json(path, asked, signal);
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

interface WireCallPiece {
  index?: number;
  id?: string;
  function?: { name?: string; arguments?: string };
}

function read_calls(pieces: WireCallPiece[]): CallPiece[] {
  return pieces.map(({ index, id, function: called }, at) => ({
    index: index ?? at,
    id: id ?? "",
    name: called?.name ?? "",
    arguments: called?.arguments ?? "",
  }));
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
  if (Array.isArray(choice?.delta?.tool_calls)) delta.calls = read_calls(choice.delta.tool_calls);
  if (choice?.logprobs) delta.scores = scores_of(choice.logprobs);
  if (choice?.finish_reason) delta.finish_reason = choice.finish_reason;
  if (chunk.usage) delta.usage = chunk.usage;
  return delta;
}
