// Conversations outside the page: as Markdown for people, as JSON for another browser.

import {
  shown_leaf,
  title_of,
  type AnswerStats,
  type Call,
  type CallResult,
  type Conversation,
  type Message,
  type Outcome,
  type TextFile,
} from "./conversation";
import { new_id } from "./store";
import { path_to } from "./tree";

const kFormat = "headrace-conversations";
const kVersion = 2; // 1 had no branches, files, calls and results
const kStats = new Set(["ttft_s", "tokens_per_s", "prompt_tokens", "completion_tokens", "seed", "temperature"]);
const kOutcomes = new Set(["length", "filtered", "stopped", "interrupted", "failed"]);
const kHeadings = { user: "You", assistant: "Answer", tool: "Results" };

// A block of code that ends where it should, whatever the text holds.
function fenced(text: string, language = ""): string {
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((run) => run.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${language}\n${text}\n${fence}`;
}

function in_code(text: string): string {
  return `\`${text.replaceAll("`", "'").replace(/\s+/g, " ")}\``;
}

function message_to_markdown({ role, text, files, calls, results, outcome }: Message): string {
  const parts = [
    ...(files ?? []).map((file) => `File ${in_code(file.name)}:\n\n${fenced(file.text)}`),
    ...(text || !(files || calls || results) ? [text] : []),
    ...(calls ?? []).map((call) => `Calls ${in_code(call.name)}:\n\n${fenced(call.arguments, "json")}`),
    ...(results ?? []).map((result) => `${in_code(result.name)}:\n\n${fenced(result.text)}`),
    ...(outcome ? [`*${outcome.text}*`] : []),
  ];
  return `## ${kHeadings[role]}\n\n${parts.join("\n\n")}\n`;
}

// The branch that is shown.
export function to_markdown(conversation: Conversation): string {
  const { title, messages } = conversation;
  const path = path_to(messages, shown_leaf(conversation));
  return [`# ${title}\n`, ...path.map((idx) => message_to_markdown(messages[idx]!))].join("\n");
}

// All branches.
export function to_json(conversations: Conversation[]): string {
  const rows = conversations.map(({ title, created_ms, updated_ms, messages, shown }) => ({
    title,
    created: new Date(created_ms).toISOString(),
    updated: new Date(updated_ms).toISOString(),
    shown,
    messages,
  }));
  return `${JSON.stringify({ format: kFormat, version: kVersion, conversations: rows }, null, 1)}\n`;
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}

function read_stats(value: unknown): AnswerStats {
  const known = Object.entries(record(value)).filter(([name, number]) => kStats.has(name) && typeof number === "number");
  return Object.fromEntries(known);
}

// Those of a list's objects that have all these texts, with nothing else.
function read_texts<Name extends string>(value: unknown, names: readonly Name[]): Record<Name, string>[] {
  if (!Array.isArray(value)) return [];
  return value
    .map(record)
    .filter((each) => names.every((name) => typeof each[name] === "string"))
    .map((each) => Object.fromEntries(names.map((name) => [name, each[name]])) as Record<Name, string>);
}

function read_parent(value: unknown, idx: number, where: string): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (!Number.isInteger(value) || (value as number) < -1 || (value as number) >= idx)
    throw new Error(`${where} follows message ${String(value)}, which does not come before it.`);
  return value as number;
}

function read_outcome(value: unknown): Outcome | undefined {
  const { kind, text } = record(value);
  if (!kOutcomes.has(String(kind)) || typeof text !== "string") return undefined;
  return { kind: kind as Outcome["kind"], text };
}

function read_message(value: unknown, idx: number, where: string): Message {
  const { role, text, parent, reasoning, plain, outcome, stats, scores, ...lists } = record(value);
  if ((role !== "user" && role !== "assistant" && role !== "tool") || typeof text !== "string") {
    throw new Error(`${where} needs a role (user, assistant or tool) and a text.`);
  }
  const files: TextFile[] = read_texts(lists.files, ["name", "text"]);
  const calls: Call[] = read_texts(lists.calls, ["id", "name", "arguments"]);
  const results: CallResult[] = read_texts(lists.results, ["id", "name", "text"]);
  const follows = read_parent(parent, idx, where);
  const ended = read_outcome(outcome);
  return {
    role,
    text,
    ...(follows === undefined ? {} : { parent: follows }),
    ...(files.length ? { files } : {}),
    ...(calls.length ? { calls } : {}),
    ...(results.length ? { results } : {}),
    ...(typeof reasoning === "string" ? { reasoning } : {}),
    ...(plain === true ? { plain } : {}),
    ...(ended ? { outcome: ended } : {}),
    ...(stats ? { stats: read_stats(stats) } : {}),
    ...(typeof scores === "string" ? { scores } : {}),
  };
}

function read_time(value: unknown): number {
  const time_ms = Date.parse(String(value));
  return Number.isNaN(time_ms) ? Date.now() : time_ms;
}

function read_conversation(value: unknown, where: string): Conversation {
  const { title, created, updated, messages, shown } = record(value);
  if (!Array.isArray(messages)) throw new Error(`${where} of the file has no list of messages.`);
  const read = messages.map((message, at) => read_message(message, at, `Message ${at + 1} of ${where.toLowerCase()}`));
  return {
    id: new_id(),
    title: typeof title === "string" && title.trim() ? title.slice(0, 200) : title_of(read),
    created_ms: read_time(created),
    updated_ms: read_time(updated),
    rev: 0,
    messages: read,
    ...(Number.isInteger(shown) ? { shown: shown as number } : {}),
  };
}

// Reads an exported file; takes only the fields that are known, and gives everything a new identity. Throws an Error
// whose message tells the person what is wrong with the file.
export function from_json(text: string): Conversation[] {
  let file: Record<string, unknown>;
  try {
    file = record(JSON.parse(text));
  } catch {
    throw new Error("This file is not JSON. Import takes what Export as JSON wrote.");
  }
  if (file.format !== kFormat || !Array.isArray(file.conversations)) {
    throw new Error("This JSON file holds no headrace conversations. Import takes what Export as JSON wrote.");
  }
  if (file.version !== 1 && file.version !== kVersion) {
    throw new Error(`This file has version ${String(file.version)}; this page reads versions 1 and ${kVersion}.`);
  }
  return file.conversations.map((value, idx) => read_conversation(value, `Conversation ${idx + 1}`));
}
