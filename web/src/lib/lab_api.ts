// The laboratory's endpoints.

import { ApiError, authorization, get_json, post_json, refusal } from "./http";
import type { ExperimentDetail, Graph, HypothesisDetail, LogEntry, Machine, Overview, Queue } from "./lab_records";
import { read_named_events, type ServerEvent } from "./sse";

const kTimeout_ms = 20_000; // a busy machine is what a laboratory makes

async function read<T>(path: string): Promise<T> {
  return (await get_json(`/api/lab/${path}`, AbortSignal.timeout(kTimeout_ms))) as T;
}

export const get_overview = () => read<Overview>("overview");
export const get_queue = () => read<Queue>("queue");
export const get_experiment = (id: number) => read<ExperimentDetail>(`experiments/${id}`);
export const get_hypothesis = (id: number) => read<HypothesisDetail>(`hypotheses/${id}`);
export const get_graph = () => read<Graph>("graph");
export const get_machine = () => read<Machine>("machine");

export async function get_newest_log(count: number): Promise<LogEntry[]> {
  return (await read<{ log: LogEntry[] }>(`log?last=${count}`)).log;
}

// What happens behind entry `after`, until the connection ends. `opened` is called once the server has answered.
export async function* follow(after: number, signal: AbortSignal, opened: () => void): AsyncGenerator<ServerEvent> {
  const response = await fetch("/api/lab/events", {
    headers: { accept: "text/event-stream", "last-event-id": String(after), ...authorization() },
    cache: "no-store",
    signal,
  });
  if (!response.ok) throw await refusal(response);
  if (!response.body) throw new ApiError("The server's events have no body.");
  opened();
  yield* read_named_events(response.body);
}

export async function post_action(name: string, by: string, values: object): Promise<void> {
  await post_json(`/api/lab/actions/${name}`, { by, ...values }, AbortSignal.timeout(kTimeout_ms));
}

// A file of a run. A link would not carry the key.
export async function get_artifact(run: number, name: string): Promise<Blob> {
  const response = await fetch(`/api/lab/artifacts/${run}/${encodeURIComponent(name)}`, { headers: authorization() });
  if (!response.ok) throw await refusal(response);
  return response.blob();
}
