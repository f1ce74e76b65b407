// The laboratory as it is now: read once, then kept up to date by the server's events; and what a person does to it.

import { access } from "./access.svelte";
import { ApiError, error_text } from "./http";
import { follow, get_newest_log, get_overview, get_queue, post_action } from "./lab_api";
import { moves_between, with_entries, type Move } from "./lab_text";
import type { ExperimentSummary, HypothesisSummary, LogEntry, Overview, Queue } from "./lab_records";
import { notices } from "./notices.svelte";
import { local, read_json, write_json } from "./store";

const kKey = "headrace.lab.by";
const kFirstEntries = 500;
const kMostEntries = 5000;
const kRefresh_ms = 400; // between an event and the look at what it changed
const kRetries_ms = [500, 1000, 2000, 4000, 8000];

class LabFeed {
  state = $state<"connecting" | "online" | "offline" | "locked">("connecting");
  problem = $state(""); // why it is not online
  overview = $state.raw<Overview | null>(null);
  queue = $state.raw<Queue>({ running: [], queue: [], paused: [] });
  moves = $state.raw<Move[]>([]); // of the newest change of the queue
  log = $state.raw<LogEntry[]>([]); // oldest first
  by = $state(""); // who acts on this page
  experiments = $derived(new Map(this.overview?.experiments.map((each) => [each.id, each]) ?? []));
  hypotheses = $derived(new Map(this.overview?.hypotheses.map((each) => [each.id, each]) ?? []));
  #aborter = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #wake: () => void = () => undefined;

  constructor() {
    const kept = read_json(local, kKey);
    this.by = typeof kept === "string" ? kept : "";
  }

  // Follows the laboratory until the returned function is called.
  start(): () => void {
    this.#aborter = new AbortController();
    const wake = () => this.#wake();
    addEventListener("online", wake);
    void this.#follow(this.#aborter.signal);
    return () => {
      removeEventListener("online", wake);
      clearTimeout(this.#timer);
      this.#aborter.abort();
      this.#wake();
    };
  }

  // Tries again at once.
  retry(): void {
    this.#wake();
  }

  sign(by: string): void {
    this.by = by.trim();
    write_json(local, kKey, this.by || null);
  }

  experiment(id: number): ExperimentSummary | undefined {
    return this.experiments.get(id);
  }

  hypothesis(id: number | null): HypothesisSummary | undefined {
    return id === null ? undefined : this.hypotheses.get(id);
  }

  // Does something in the person's name. What it changed comes by the events. False where the server refused.
  async act(name: string, values: object): Promise<boolean> {
    try {
      await post_action(name, this.by || "page", values);
      return true;
    } catch (failure) {
      if (failure instanceof ApiError && failure.status === 401) access.refused(true);
      notices.add(error_text(failure));
      return false;
    }
  }

  async #follow(stop: AbortSignal): Promise<void> {
    let num_failed = 0;
    while (!stop.aborted) {
      try {
        await this.#load();
        const opened = () => {
          num_failed = 0;
          this.state = "online";
          this.problem = "";
        };
        for await (const { event, data } of follow(this.log.at(-1)?.id ?? 0, stop, opened)) this.#take(event, data);
        this.#lose(new ApiError("The connection to the server ended."));
      } catch (failure) {
        if (stop.aborted) return;
        this.#lose(failure);
      }
      await this.#pause(kRetries_ms[Math.min(num_failed++, kRetries_ms.length - 1)] ?? 0);
    }
  }

  async #pause(pause_ms: number): Promise<void> {
    await new Promise<void>((done) => {
      const timer = setTimeout(done, pause_ms);
      this.#wake = () => {
        clearTimeout(timer);
        done();
      };
    });
    this.#wake = () => undefined;
  }

  // The log before the overview: what happens between both comes again as an event. A laboratory whose newest entry is
  // older than one that was seen is another one.
  async #load(): Promise<void> {
    const first = this.log.length === 0 ? await get_newest_log(kFirstEntries) : [];
    const overview = await get_overview();
    if (overview.last_log < (this.log.at(-1)?.id ?? 0)) this.log = await get_newest_log(kFirstEntries);
    else this.log = with_entries(this.log, first, kMostEntries);
    this.overview = overview;
  }

  #take(event: string, data: string): void {
    const value = JSON.parse(data) as unknown;
    if (event === "log") {
      this.log = with_entries(this.log, [value as LogEntry], kMostEntries);
      this.#refresh_soon();
    } else if (event === "queue") {
      this.#set_queue(value as Queue);
      this.#refresh_soon();
    } else if (event === "error") {
      throw new ApiError((value as { message?: string }).message ?? "The laboratory cannot be read.");
    }
  }

  #set_queue(queue: Queue): void {
    if (JSON.stringify(queue) === JSON.stringify(this.queue)) return;
    this.moves = moves_between(this.queue, queue);
    this.queue = queue;
  }

  #refresh_soon(): void {
    if (this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      void this.refresh();
    }, kRefresh_ms);
  }

  // Looks at queue and records now. An older queue that an event still brings is followed by the newest one.
  async reread(): Promise<void> {
    const queue = await get_queue().catch(() => null);
    if (queue) this.#set_queue(queue);
    await this.refresh();
  }

  // Looks at the records anew. A failure shows at the events, too; what is shown stays.
  async refresh(): Promise<void> {
    const overview = await get_overview().catch(() => null);
    if (overview && overview.last_log >= (this.overview?.last_log ?? 0)) this.overview = overview;
  }

  #lose(failure: unknown): void {
    const is_locked = failure instanceof ApiError && failure.status === 401;
    this.state = is_locked ? "locked" : "offline";
    this.problem = error_text(failure);
    if (is_locked) access.refused(false);
  }
}

export const lab = new LabFeed();
