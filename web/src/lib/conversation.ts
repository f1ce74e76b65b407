// What a conversation is, and its forms outside the page: Markdown, JSON, the model's view of it.

import { new_id } from "./store";

export interface AnswerStats {
  ttft_s?: number;
  tokens_per_s?: number;
  prompt_tokens?: number;
  completion_tokens?: number;
  seed?: number;
  temperature?: number;
}

// Why an answer is not simply complete. There is at most one reason, so there is at most one notice.
export interface Outcome {
  kind: "length" | "filtered" | "stopped" | "interrupted" | "failed";
  text: string;
}

export interface Message {
  role: "user" | "assistant";
  text: string;
  reasoning?: string;
  plain?: boolean; // a text that was continued by a model without a chat template: shown as it is
  outcome?: Outcome;
  stats?: AnswerStats;
}

export interface Conversation {
  id: string;
  title: string;
  created_ms: number;
  updated_ms: number;
  rev: number; // counts what was written; a writer that has not seen the newest may not overwrite it
  messages: Message[];
}

export type Head = Omit<Conversation, "messages">;

const kFormat = "headrace-conversations";
const kMostTitleChars = 60;
const kStats = new Set(["ttft_s", "tokens_per_s", "prompt_tokens", "completion_tokens", "seed", "temperature"]);
const kOutcomes = new Set(["length", "filtered", "stopped", "interrupted", "failed"]);

export function head_of({ id, title, created_ms, updated_ms, rev }: Conversation): Head {
  return { id, title, created_ms, updated_ms, rev };
}

export function title_of(messages: Message[]): string {
  const line =
    messages
      .find((message) => message.role === "user")
      ?.text.trim()
      .split("\n")[0] ?? "";
  return line.length > kMostTitleChars
    ? `${line.slice(0, kMostTitleChars - 1).trimEnd()}…`
    : line || "Empty conversation";
}

export function to_markdown({ title, messages }: Conversation): string {
  const parts = messages.map(({ role, text, outcome }) => {
    const note = outcome ? `\n\n*${outcome.text}*` : "";
    return `## ${role === "user" ? "You" : "Answer"}\n\n${text}${note}\n`;
  });
  return [`# ${title}\n`, ...parts].join("\n");
}

export function to_json(conversations: Conversation[]): string {
  const rows = conversations.map(({ title, created_ms, updated_ms, messages }) => ({
    title,
    created: new Date(created_ms).toISOString(),
    updated: new Date(updated_ms).toISOString(),
    messages,
  }));
  return `${JSON.stringify({ format: kFormat, version: 1, conversations: rows }, null, 1)}\n`;
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}

function read_stats(value: unknown): AnswerStats {
  const known = Object.entries(record(value)).filter(([name, number]) => kStats.has(name) && typeof number === "number");
  return Object.fromEntries(known);
}

function read_message(value: unknown, where: string): Message {
  const { role, text, reasoning, plain, outcome, stats } = record(value);
  if ((role !== "user" && role !== "assistant") || typeof text !== "string") {
    throw new Error(`${where} needs a role, user or assistant, and a text.`);
  }
  const message: Message = { role, text };
  if (typeof reasoning === "string") message.reasoning = reasoning;
  if (plain === true) message.plain = true;
  const { kind, text: reason } = record(outcome);
  if (kOutcomes.has(String(kind)) && typeof reason === "string")
    message.outcome = { kind: kind as Outcome["kind"], text: reason };
  if (stats) message.stats = read_stats(stats);
  return message;
}

function read_time(value: unknown): number {
  const time_ms = Date.parse(String(value));
  return Number.isNaN(time_ms) ? Date.now() : time_ms;
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
  if (file.version !== 1) throw new Error(`This file has version ${String(file.version)}; this page reads version 1.`);
  return file.conversations.map((value, idx) => {
    const { title, created, updated, messages } = record(value);
    if (!Array.isArray(messages)) throw new Error(`Conversation ${idx + 1} of the file has no list of messages.`);
    const read = messages.map((message, at) => read_message(message, `Message ${at + 1} of conversation ${idx + 1}`));
    return {
      id: new_id(),
      title: typeof title === "string" && title.trim() ? title.slice(0, 200) : title_of(read),
      created_ms: read_time(created),
      updated_ms: read_time(updated),
      rev: 0,
      messages: read,
    };
  });
}

export interface WireMessage {
  role: "system" | "user" | "assistant";
  content: string;
}

// What the model gets to read. An answer that broke off without text says nothing to it.
export function to_wire(messages: Message[], system: string): WireMessage[] {
  const wire: WireMessage[] = system.trim() ? [{ role: "system", content: system }] : [];
  for (const { role, text } of messages) {
    if (role === "user" || text) wire.push({ role, content: text });
  }
  return wire;
}

// The same for a model that only continues text: everything so far as one text; what a person adds begins a line.
export function to_prompt(messages: Message[]): string {
  return messages.reduce((text, message) => {
    const gap = message.role === "user" && text && !text.endsWith("\n") ? "\n" : "";
    return text + gap + message.text;
  }, "");
}

// Whether every word of the search is somewhere in the conversation.
export function matches(conversation: Conversation, words: string[]): boolean {
  const texts = [conversation.title, ...conversation.messages.map((message) => message.text)].map((text) =>
    text.toLowerCase(),
  );
  return words.every((word) => texts.some((text) => text.includes(word)));
}

// Whether replacing `older` by `newer` loses no text.
export function includes(newer: Conversation, older: Conversation): boolean {
  return older.messages.every(({ role, text }, idx) => {
    const message = newer.messages[idx];
    return message?.role === role && message.text.startsWith(text);
  });
}
