// A profile as blocks in four rows over time: steps, their parts, layers, ops. Without a browser.

export interface PhaseOp {
  op: string;
  shape: string;
  count: number;
  us: number;
  share_of_time: number;
  bytes: number;
  operations: number;
  share_of_limit?: number;
}

export interface Phase {
  name: string;
  steps: number;
  tokens: number;
  us: number;
  waiting_us: number;
  between_ops_us: number;
  parts: Record<string, number>;
  ops: PhaseOp[];
}

// [kind, layer, rows, start in us, us, bytes, operations]
export type Op = [number, number, number, number, number, number, number];

export interface Step {
  index: number;
  start_us: number;
  us: number;
  tokens: number;
  prompt_tokens: number;
  sequences: number;
  parts: [string, number, number][];
  ops: Op[];
}

export interface Profile {
  model: string;
  isa: string;
  threads: number;
  complete: boolean;
  phases: Phase[];
  steps: Step[];
  kinds: [string, string][];
}

export interface Block {
  start: number; // us
  end: number;
  name: string;
  text: string; // what there is to say of it
  tone: number; // blocks of one name have one
}

export interface View {
  from: number; // us
  to: number;
}

// Throws an Error with a sentence for people.
export function read_profile(text: string): Profile {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Error("This is no JSON. A profile is what headrace profile --json prints.");
  }
  const profile = value as Profile & { format?: unknown; version?: unknown };
  if (profile?.format !== "headrace-profile") {
    throw new Error("This is no profile. headrace profile --json prints one.");
  }
  if (profile.version !== 1) throw new Error(`This page reads profiles of version 1, not ${String(profile.version)}.`);
  const is_whole =
    [profile.phases, profile.steps, profile.kinds].every(Array.isArray) &&
    profile.steps.every((step) => Array.isArray(step?.ops) && Array.isArray(step.parts) && Number.isFinite(step.us));
  if (!is_whole) throw new Error("This profile is not whole.");
  return profile;
}

export function format_us(us: number): string {
  if (us >= 1e6) return `${(us / 1e6).toFixed(2)} s`;
  return us >= 1e3 ? `${(us / 1e3).toFixed(2)} ms` : `${us.toFixed(1)} µs`;
}

// What an op does in a second: 12.3 of a unit of 1e9.
function rate(amount: number, us: number): string {
  return us > 0 ? (amount / us / 1e3).toFixed(1) : "0.0";
}

function tone_of(name: string): number {
  let tone = 0;
  for (const letter of name) tone = (tone * 31 + letter.charCodeAt(0)) % 997;
  return tone % 12;
}

function block(start: number, us: number, name: string, more: string): Block {
  return { start, end: start + us, name, text: `${name}: ${format_us(us)}${more}`, tone: tone_of(name) };
}

function op_block(op: Op, kinds: [string, string][]): Block {
  const [kind, layer, rows, start, us, bytes, operations] = op;
  const [name, shape] = kinds[kind] ?? ["op", ""];
  const place = layer < 0 ? "" : ` in layer ${layer}`;
  const speed = `${rate(bytes, us)} GB/s, ${rate(operations, us)} Gop/s`;
  return block(start, us, name, `${place}, ${rows} rows${shape && `, ${shape}`}; ${speed}`);
}

// Neighbours of one layer as one block.
function layer_blocks(ops: Op[]): Block[] {
  const blocks: Block[] = [];
  let last = -1;
  for (const [, layer, , start, us] of ops) {
    const open = blocks.at(-1);
    if (layer >= 0 && layer === last && open) open.end = start + us;
    else if (layer >= 0) blocks.push({ start, end: start + us, name: `layer ${layer}`, text: "", tone: layer % 12 });
    last = layer;
  }
  for (const each of blocks) each.text = `${each.name}: ${format_us(each.end - each.start)}`;
  return blocks;
}

export function flame_rows(profile: Profile): Block[][] {
  const rows: Block[][] = [[], [], [], []];
  for (const step of profile.steps) {
    const what = step.prompt_tokens > 0 ? "prompt" : "answer";
    const more = `; ${step.tokens} tokens of ${step.sequences} sequences, number ${step.index}`;
    rows[0]!.push(block(step.start_us, step.us, what, more));
    rows[1]!.push(...step.parts.map(([name, start, us]) => block(start, us, name, "")));
    rows[2]!.push(...layer_blocks(step.ops));
    rows[3]!.push(...step.ops.map((op) => op_block(op, profile.kinds)));
  }
  return rows;
}

export function whole(profile: Profile): View {
  const last = profile.steps.at(-1);
  return { from: 0, to: last ? Math.max(last.start_us + last.us, 1) : 1 };
}

// The first block that ends after `time`, by halving.
function first_after(blocks: Block[], time: number): number {
  let [low, high] = [0, blocks.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (blocks[middle]!.end > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

// The blocks of a row that a view shows: of those that are narrower than `least` one stands for its neighbours, so that
// there are never more than the view is wide.
export function blocks_of(blocks: Block[], view: View, least: number): Block[] {
  const shown: Block[] = [];
  for (let i = first_after(blocks, view.from); i < blocks.length && blocks[i]!.start < view.to; ++i) {
    const each = blocks[i]!;
    const last = shown.at(-1);
    if (last && each.end - last.start < least) continue;
    shown.push(each);
  }
  return shown;
}

export function block_at(blocks: Block[], time: number): Block | null {
  const found = blocks[first_after(blocks, time)];
  return found && found.start <= time ? found : null;
}

// Within `all`, and never narrower than a microsecond.
export function bounded(view: View, all: View): View {
  const width = Math.min(Math.max(view.to - view.from, 1), all.to - all.from);
  const from = Math.min(Math.max(view.from, all.from), all.to - width);
  return { from, to: from + width };
}

// `at` stays where it is.
export function zoomed(view: View, factor: number, at: number, all: View): View {
  const width = Math.min(Math.max((view.to - view.from) / factor, 1), all.to - all.from);
  const share = (at - view.from) / (view.to - view.from);
  return bounded({ from: at - share * width, to: at - share * width + width }, all);
}

export function panned(view: View, share: number, all: View): View {
  const shift = share * (view.to - view.from);
  return bounded({ from: view.from + shift, to: view.to + shift }, all);
}
