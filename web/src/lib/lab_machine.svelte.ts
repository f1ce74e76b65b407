// The machine and the engines that the laboratory watches, asked for once a second while somebody looks.

import { error_text } from "./http";
import { get_machine } from "./lab_api";
import type { Machine, WatchedEngine } from "./lab_records";

const kPeriod_ms = 1000;
const kKept = 120;

export interface EngineSample {
  time_s: number;
  decode: number | null;
  prefill: number | null;
  running: number | null;
  waiting: number | null;
  kv_percent: number | null;
}

function figure(engine: WatchedEngine, name: string): number | null {
  const value = engine.status?.engine?.[name];
  return engine.state === "ok" && typeof value === "number" ? value : null;
}

function sample_of(engine: WatchedEngine, at_ms: number): EngineSample {
  const total = figure(engine, "kv_blocks_total");
  const used = figure(engine, "kv_blocks_used");
  const running = figure(engine, "running");
  return {
    time_s: at_ms / 1000,
    decode: running === 0 ? 0 : figure(engine, "decode_tokens_per_s"), // the rates are of the last second with work
    prefill: running === 0 ? 0 : figure(engine, "prefill_tokens_per_s"),
    running,
    waiting: figure(engine, "waiting"),
    kv_percent: total && used !== null ? (100 * used) / total : null,
  };
}

class MachineWatch {
  machine = $state.raw<Machine | null>(null);
  samples = $state.raw<EngineSample[][]>([]); // of each engine, oldest first
  problem = $state("");

  // Asks until the returned function is called.
  start(): () => void {
    let is_stopped = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = async () => {
      if (!document.hidden) await this.#look();
      if (!is_stopped) timer = setTimeout(() => void look(), kPeriod_ms);
    };
    void look();
    return () => {
      is_stopped = true;
      clearTimeout(timer);
    };
  }

  async #look(): Promise<void> {
    try {
      const machine = await get_machine();
      this.samples = machine.engines.map((engine, idx) =>
        [...(this.samples[idx] ?? []), sample_of(engine, machine.at_ms)].slice(-kKept),
      );
      this.machine = machine;
      this.problem = "";
    } catch (failure) {
      this.problem = error_text(failure); // figures that nobody can vouch for are not shown
      this.machine = null;
      this.samples = [];
    }
  }
}

export const machine_watch = new MachineWatch();
