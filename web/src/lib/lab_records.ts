// What a laboratory's server tells (docs/lab-api.md). Texts come from whoever wrote them, and are only ever shown as text.

export type HypothesisState = "open" | "validated" | "ruled out";
export type ExperimentState = "queued" | "running" | "done" | "failed" | "cancelled";

// Relative improvement of a side over the first, with its 95 % interval: 0.1 is 10 % better.
export interface Effect {
  rounds: number;
  improvement: number;
  low: number;
  high: number;
  log_ratio: number;
  verdict: string;
}

export interface Hypothesis {
  id: number;
  statement: string;
  metric: string;
  more_is_better: boolean;
  predicted: number;
  reason: string;
  worth: number;
  state: HypothesisState;
  verdict: string;
  author: string;
  made_ms: number;
}

export interface HypothesisSummary extends Hypothesis {
  belief: number; // the probability that the prediction holds
  experiments: number[];
  effects: (Effect & { experiment: number })[]; // of those that have run
}

export interface Side {
  name: string;
  command: string[];
  hypothesis?: number; // of its own, beside the first side
}

export interface Experiment {
  id: number;
  hypothesis: number | null;
  title: string;
  rationale: string;
  metric: string;
  sides: Side[];
  cost_s: number;
  max_rounds: number;
  state: ExperimentState;
  state_reason: string;
  pinned: boolean;
  paused: boolean;
  place: number | null;
  author: string;
  made_ms: number;
}

export interface ExperimentSummary extends Experiment {
  effect: Effect | null;
  runs_done: number;
  queue_place: number | null;
  priority: number | null;
  reason: string; // of its place in the queue, else of its state
}

export interface Run {
  id: number;
  side: number;
  round: number;
  state: string;
  metrics: unknown;
  machine: unknown;
  error: string;
  seconds: number;
  started_ms: number;
  artifacts: { name: string; bytes: number }[];
}

export interface ExperimentDetail extends Experiment {
  effects: (Effect & { side: string; by_round: { round: number; improvement: number }[] })[];
  difference: { side: string; removed: string[]; added: string[] }[];
  runs: Run[];
  about: Hypothesis | null;
  learnings: Learning[];
  log: LogEntry[];
}

export interface HypothesisDetail extends Hypothesis {
  belief: number;
  effects: HypothesisSummary["effects"];
  experiments: ExperimentSummary[];
  learnings: Learning[];
}

export interface Learning {
  id: number;
  text: string;
  links: string[];
  author: string;
  made_ms: number;
}

export interface LogEntry {
  id: number;
  at_ms: number;
  author: string;
  subject: string;
  text: string;
}

export interface Overview {
  last_log: number;
  counts: { runs_done?: number };
  hypotheses: HypothesisSummary[];
  experiments: ExperimentSummary[];
  learnings: Learning[];
}

export interface Place {
  experiment: number;
  bits: number;
  seconds: number;
  value: number;
  reason: string;
}

export interface Queue {
  running: number[];
  queue: Place[];
  paused: number[];
}

export interface GraphNode {
  id: string;
  kind: string;
  label: string;
  state: string;
}

export interface GraphEdge {
  from: string;
  to: string;
  kind: string;
}

export interface Graph {
  nodes: GraphNode[];
  edges: GraphEdge[];
}

export interface EngineStep {
  index: number;
  duration_us: number;
  predicted_us?: number;
  tokens?: number;
  prompt_tokens?: number;
}

export interface WatchedEngine {
  name: string;
  url: string;
  state: string;
  error: string;
  at_ms: number;
  status:
    | null
    | (Partial<Record<"model" | "engine", Record<string, unknown>>> & {
        steps?: EngineStep[];
      });
}

export interface Machine {
  at_ms: number;
  processor: string;
  cores: { busy: number | null; mhz: number | null }[];
  busy: number | null;
  load: number[];
  memory: { total_bytes?: number; available_bytes?: number; swap_total_bytes?: number; swap_free_bytes?: number };
  read_limit_byte_s: number | null; // measured; null where the laboratory has no machine.json
  temperatures: { name: string; celsius: number }[];
  devices: { name: string; kind: string; state: string }[];
  engines: WatchedEngine[];
}
