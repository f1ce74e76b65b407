// Requests to the server, with the key where there is one, and its errors as sentences.

import { access } from "./access.svelte";

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

export async function refusal(response: Response): Promise<ApiError> {
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

export function authorization(): Record<string, string> {
  return access.key ? { authorization: `Bearer ${access.key}` } : {};
}

export async function get_json(path: string, signal?: AbortSignal): Promise<unknown> {
  const response = await fetch(path, { headers: authorization(), signal: signal ?? null, cache: "no-store" });
  if (!response.ok) throw await refusal(response);
  return response.json();
}

// The answer may be a stream.
export async function post_json(path: string, body: object, signal: AbortSignal | null): Promise<Response> {
  const response = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json", ...authorization() },
    body: JSON.stringify(body),
    signal,
  });
  if (!response.ok) throw await refusal(response);
  return response;
}
