// The server's status, asked once a second while the tab is visible, and the last five minutes of it.

import { ApiError, error_text, get_models, get_status, type Status } from "./api";

const kPeriod_ms = 1000;
const kRetry_ms = 4000;
const kTimeout_ms = 5000;
const kKept = 300;

export interface Sample {
  time_s: number;
  decode: number | null;
  prefill: number | null;
  running: number | null;
  waiting: number | null;
  kv_percent: number | null;
}

// The server's rates are of the last second with work: after it, the speed is none.
function is_idle(status: Status, before: Status): boolean {
  const { running, prompt_tokens, generation_tokens } = status.engine ?? {};
  if (running !== 0) return false;
  const last = before.engine;
  return !last || (generation_tokens === last.generation_tokens && prompt_tokens === last.prompt_tokens);
}

function to_sample(status: Status, before: Status): Sample {
  const engine = status.engine ?? {};
  const total = engine.kv_blocks_total;
  const idle = is_idle(status, before);
  return {
    time_s: Date.now() / 1000,
    decode: idle ? 0 : (engine.decode_tokens_per_s ?? null),
    prefill: idle ? 0 : (engine.prefill_tokens_per_s ?? null),
    running: engine.running ?? null,
    waiting: engine.waiting ?? null,
    kv_percent: total && engine.kv_blocks_used !== undefined ? (100 * engine.kv_blocks_used) / total : null,
  };
}

class Live {
  status = $state.raw<Status>({});
  samples = $state.raw<Sample[]>([]);
  newest = $derived(this.samples.at(-1));
  models = $state.raw<string[]>([]);
  state = $state<"connecting" | "online" | "offline">("connecting");
  problem = $state(""); // why there are no figures

  // Polls until the returned function is called.
  start(): () => void {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let stopped = false;
    const poll = async () => {
      timer = undefined;
      if (document.hidden) return;
      await this.#poll_once();
      if (!stopped && !document.hidden && timer === undefined) {
        timer = setTimeout(poll, this.problem ? kRetry_ms : kPeriod_ms);
      }
    };
    const wake = () => {
      clearTimeout(timer);
      timer = undefined;
      if (!document.hidden) void poll();
    };
    document.addEventListener("visibilitychange", wake);
    void poll();
    return () => {
      stopped = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", wake);
    };
  }

  async #poll_once(): Promise<void> {
    try {
      if (this.state !== "online" || !this.models.length) {
        this.models = await get_models(AbortSignal.timeout(kTimeout_ms));
      }
      const before = this.status;
      this.status = await get_status(AbortSignal.timeout(kTimeout_ms));
      this.samples = [...this.samples, to_sample(this.status, before)].slice(-kKept);
      this.state = "online";
      this.problem = "";
    } catch (failure) {
      // A server that refuses these questions is alive; one that does not answer is not.
      this.state = failure instanceof ApiError ? "online" : "offline";
      this.problem = error_text(failure);
    }
  }
}

export const live = new Live();
