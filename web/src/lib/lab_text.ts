// What the laboratory's pages say: where a page is, effects, metrics and moves in words. Without state.

import type { Effect, ExperimentState, LogEntry, Queue } from "./lab_records";

export const kViews = ["now", "overview", "queue", "hypotheses", "learnings", "graph", "log"] as const;
export type View = (typeof kViews)[number];

// A view, or a record in the view that it belongs to.
export interface Route {
  view: View;
  record: "" | "experiment" | "hypothesis" | "learning";
  id: number;
}

const kHomes = { experiment: "overview", hypothesis: "hypotheses", learning: "learnings" } as const;

// "#/queue", "#/experiment/3". What is no address of a page is the overview.
export function route_of(hash: string): Route {
  const [, view = "", id = ""] = /^#\/([a-z]+)(?:\/(\d{1,15}))?$/.exec(hash) ?? [];
  if (id && (view === "experiment" || view === "hypothesis" || view === "learning")) {
    return { view: kHomes[view], record: view, id: Number(id) };
  }
  return { view: kViews.find((name) => name === view && !id) ?? "overview", record: "", id: 0 };
}

// The page of a record: "experiment:3" -> "#/experiment/3"; empty for a file, an option, a model.
export function address_of(subject: string): string {
  const found = /^(experiment|hypothesis|learning):(\d{1,15})$/.exec(subject);
  return found ? `#/${found[1]}/${found[2]}` : "";
}

// 0.123 -> "+12.3 %"
export function signed_percent(share: number): string {
  if (!Number.isFinite(share)) return "–";
  const value = 100 * share;
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 1 ? 1 : 2;
  const text = Math.abs(value).toFixed(digits);
  return `${Number(text) === 0 ? "±" : value > 0 ? "+" : "−"}${text} %`;
}

export function effect_text(effect: Effect): string {
  if (effect.rounds < 1) return "no whole round yet";
  const rounds = `${effect.rounds} ${effect.rounds === 1 ? "round" : "rounds"}`;
  if (effect.rounds < 2) return `${signed_percent(effect.improvement)} in ${rounds}`;
  const interval = `${signed_percent(effect.low)} to ${signed_percent(effect.high)}`;
  return `${signed_percent(effect.improvement)} (${interval}) in ${rounds}`;
}

// Every number of what a run printed, by its name: {"a": {"b": 1}} -> [["a.b", 1]].
export function numbers_of(metrics: unknown, prefix = ""): [string, number][] {
  if (typeof metrics === "number") return prefix ? [[prefix, metrics]] : [];
  if (typeof metrics !== "object" || metrics === null || Array.isArray(metrics)) return [];
  return Object.entries(metrics).flatMap(([name, value]) => numbers_of(value, prefix ? `${prefix}.${name}` : name));
}

export function metric_of(metrics: unknown, name: string): number | null {
  return numbers_of(metrics).find(([each]) => each === name)?.[1] ?? null;
}

// A command as one would type it.
export function command_text(words: string[]): string {
  return words.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`)).join(" ");
}

export interface Move {
  experiment: number;
  from: number; // places count from 1
  to: number;
}

// What stands elsewhere, beyond what left or came: the places among those that both queues have.
export function moves_between(before: Queue, after: Queue): Move[] {
  const stays = (queue: Queue, other: Queue) => {
    const there = new Set(other.queue.map((place) => place.experiment));
    return queue.queue.map((place) => place.experiment).filter((id) => there.has(id));
  };
  const old = new Map(stays(before, after).map((id, idx) => [id, idx + 1]));
  return stays(after, before)
    .map((experiment, idx) => ({ experiment, from: old.get(experiment) ?? idx + 1, to: idx + 1 }))
    .filter(({ from, to }) => from !== to);
}

// The actions that put one experiment of the queue at another place (from 0) and leave the order of the others as it
// is. The server orders pinned ones, then moved ones by their numbers, then the rest by itself; so all that stand
// before the place become moved ones, and those that were moved keep an increasing number.
export function actions_to_move(
  order: { id: number; place: number | null }[],
  id: number,
  to: number,
): { id: number; place: number }[] {
  const moved = order.find((each) => each.id === id);
  if (!moved) return [];
  const wanted = order.filter((each) => each !== moved);
  wanted.splice(to, 0, moved);
  const num_placed =
    1 +
    Math.max(
      to,
      wanted.findLastIndex((each) => each !== moved && each.place !== null),
    );
  const actions: { id: number; place: number }[] = [];
  let last = 0;
  for (const each of wanted.slice(0, num_placed)) {
    const keeps = each !== moved && each.place !== null && each.place > last;
    last = keeps ? (each.place ?? 0) : last + 1;
    if (last !== each.place) actions.push({ id: each.id, place: last });
  }
  return actions;
}

export function has_ended(state: ExperimentState): boolean {
  return state === "done" || state === "failed" || state === "cancelled";
}

// Whether every word stands somewhere in the texts.
export function says(search: string, ...texts: string[]): boolean {
  const text = texts.join("\n").toLowerCase();
  return search
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

// The entries behind those that are there, and no more than `most` in all.
export function with_entries(log: LogEntry[], more: LogEntry[], most: number): LogEntry[] {
  const last = log.at(-1)?.id ?? 0;
  const fresh = more.filter((entry) => entry.id > last);
  return fresh.length ? [...log, ...fresh].slice(-most) : log;
}
