// The server's state, asked while the tab is visible: every second while the figures are on the screen, else now and
// then, so that the page knows whether the server is there. Keeps the last five minutes.

import { access } from "./access.svelte";
import { get_has_template, get_models, get_status, type Status } from "./api";
import { ApiError, error_text } from "./http";

const kWatched_ms = 1000;
const kUnwatched_ms = 5000;
const kRetry_ms = 3000;
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
  has_template = $state(true); // without one, the model continues text and cannot chat
  state = $state<"connecting" | "online" | "offline" | "locked">("connecting");
  problem = $state(""); // why there are no figures, where the server says so
  #watched = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #polling = false;
  #stopped = true;

  // Polls until the returned function is called.
  start(): () => void {
    const wake = () => this.poke();
    this.#stopped = false;
    document.addEventListener("visibilitychange", wake);
    addEventListener("online", wake);
    void this.#poll();
    return () => {
      this.#stopped = true;
      clearTimeout(this.#timer);
      document.removeEventListener("visibilitychange", wake);
      removeEventListener("online", wake);
    };
  }

  // Says whether someone looks at the figures.
  watch(watched: boolean): void {
    this.#watched = watched;
    if (watched) this.poke();
  }

  // Asks at once.
  poke(): void {
    clearTimeout(this.#timer);
    if (!document.hidden && !this.#stopped) void this.#poll();
  }

  async #poll(): Promise<void> {
    if (document.hidden || this.#polling) return;
    this.#polling = true;
    await this.#poll_once();
    this.#polling = false;
    clearTimeout(this.#timer);
    const pause_ms = this.state !== "online" ? kRetry_ms : this.#watched ? kWatched_ms : kUnwatched_ms;
    if (!this.#stopped && !document.hidden) this.#timer = setTimeout(() => void this.#poll(), pause_ms);
  }

  async #poll_once(): Promise<void> {
    try {
      if (this.state !== "online" || !this.models.length) {
        this.models = await get_models(AbortSignal.timeout(kTimeout_ms));
        this.has_template = await get_has_template(AbortSignal.timeout(kTimeout_ms));
      }
      const before = this.status;
      this.status = await get_status(AbortSignal.timeout(kTimeout_ms));
      this.samples = [...this.samples, to_sample(this.status, before)].slice(-kKept);
      this.state = "online";
      this.problem = "";
    } catch (failure) {
      this.#lose(failure);
    }
  }

  // Figures that nobody can vouch for are not shown. A server that refuses these questions is alive.
  #lose(failure: unknown): void {
    const status = failure instanceof ApiError ? failure.status : 0;
    this.status = {};
    this.samples = [];
    this.state = status === 401 ? "locked" : status ? "online" : "offline";
    this.problem = error_text(failure);
    if (status === 401) access.refused(false);
  }
}

export const live = new Live();
