// What a conversation is, what is said of it in a list, and what may take its place.

import { parent_of } from "./tree";

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

// A call of a tool, as the model wrote it.
export interface Call {
  id: string;
  name: string;
  arguments: string; // JSON, if the model kept to it
}

export interface CallResult {
  id: string; // of the call
  name: string;
  text: string;
}

export interface TextFile {
  name: string;
  text: string;
}

export interface Message {
  role: "user" | "assistant" | "tool"; // tool: results of the calls that it follows
  text: string;
  parent?: number; // see tree.ts
  files?: TextFile[]; // of a user
  calls?: Call[]; // of an answer
  results?: CallResult[]; // of a tool
  reasoning?: string;
  plain?: boolean; // a text that was continued by a model without a chat template: shown as it is
  outcome?: Outcome;
  stats?: AnswerStats;
  scores?: string; // log-probs of the answer's tokens: see scores.ts
}

export interface Conversation {
  id: string;
  title: string;
  created_ms: number;
  updated_ms: number;
  rev: number; // counts what was written; a writer that has not seen the newest may not overwrite it
  messages: Message[]; // a tree: see tree.ts
  shown?: number; // the last message of the branch that is shown; absent: of all
}

export type Head = Omit<Conversation, "messages" | "shown">;

const kMostTitleChars = 60;

export function head_of({ id, title, created_ms, updated_ms, rev }: Conversation): Head {
  return { id, title, created_ms, updated_ms, rev };
}

export function shown_leaf({ messages, shown }: Pick<Conversation, "messages" | "shown">): number {
  return shown !== undefined && shown >= 0 && shown < messages.length ? shown : messages.length - 1;
}

export function title_of(messages: Message[]): string {
  const first = messages.find((message) => message.role === "user");
  const line = first?.text.trim().split("\n")[0] || first?.files?.[0]?.name || "";
  return line.length > kMostTitleChars
    ? `${line.slice(0, kMostTitleChars - 1).trimEnd()}…`
    : line || "Empty conversation";
}

// An answer that broke off before its first word: another one may take its place.
export function says_nothing(message: Message | undefined): boolean {
  return message?.role === "assistant" && !message.text && !message.reasoning && !message.calls?.length;
}

function words_in({ text, files, calls, results }: Message): string[] {
  return [
    text,
    ...(files ?? []).flatMap((file) => [file.name, file.text]),
    ...(calls ?? []).flatMap((call) => [call.name, call.arguments]),
    ...(results ?? []).map((result) => result.text),
  ];
}

// Whether every word of the search is somewhere in the conversation, on any branch.
export function matches(conversation: Conversation, words: string[]): boolean {
  const texts = [conversation.title, ...conversation.messages.flatMap(words_in)].map((text) => text.toLowerCase());
  return words.every((word) => texts.some((text) => text.includes(word)));
}

// Whether replacing `older` by `newer` loses no text.
export function includes(newer: Conversation, older: Conversation): boolean {
  return older.messages.every((message, idx) => {
    const other = newer.messages[idx];
    if (other?.role !== message.role) return false;
    if (parent_of(newer.messages, idx) !== parent_of(older.messages, idx)) return false;
    const [words, others] = [words_in(message), words_in(other)];
    return words.every((text, at) => others[at]?.startsWith(text));
  });
}
