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
  steps: number | null; // since its start
  read_byte_s: number | null; // estimated: its weights, once for each step since the sample before
}

function figure(engine: WatchedEngine, name: string): number | null {
  const value = engine.status?.engine?.[name];
  return engine.state === "ok" && typeof value === "number" ? value : null;
}

function read_rate(engine: WatchedEngine, at_ms: number, before: EngineSample | undefined): number | null {
  const steps = figure(engine, "steps");
  const weight_bytes = engine.status?.model?.weight_bytes;
  const seconds = at_ms / 1000 - (before?.time_s ?? Infinity);
  if (steps === null || before?.steps == null || typeof weight_bytes !== "number" || !(seconds > 0)) return null;
  return (Math.max(0, steps - before.steps) * weight_bytes) / seconds;
}

function sample_of(engine: WatchedEngine, at_ms: number, before: EngineSample | undefined): EngineSample {
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
    steps: figure(engine, "steps"),
    read_byte_s: read_rate(engine, at_ms, before),
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
        [...(this.samples[idx] ?? []), sample_of(engine, machine.at_ms, this.samples[idx]?.at(-1))].slice(-kKept),
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
