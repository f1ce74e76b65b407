// A conversation as the model gets to read it.

import type { Message, TextFile } from "./conversation";

export interface WireCall {
  id: string;
  type: "function";
  function: { name: string; arguments: string };
}

export interface WireMessage {
  role: "system" | "user" | "assistant" | "tool";
  content: string;
  reasoning_content?: string;
  tool_calls?: WireCall[];
  tool_call_id?: string;
  name?: string;
}

// Between lines of dashes that are longer than any in the text, so that no file can end before its end.
function file_block({ name, text }: TextFile): string {
  const longest = Math.max(4, ...(text.match(/-+/g) ?? []).map((run) => run.length));
  const dashes = "-".repeat(longest + 1);
  return `${dashes} file: ${name} ${dashes}\n${text}${text.endsWith("\n") ? "" : "\n"}${dashes} end of ${name} ${dashes}`;
}

// What a person wrote, with the files above it.
export function content_of({ text, files }: Pick<Message, "text" | "files">): string {
  return [...(files ?? []).map(file_block), ...(text || !files?.length ? [text] : [])].join("\n\n");
}

// An answer that broke off without text or calls says nothing to the model. What was thought before a call belongs to
// the same turn, which some models read again.
function answer_to_wire({ text, calls, reasoning }: Message): WireMessage[] {
  if (!text && !calls?.length) return [];
  if (!calls?.length) return [{ role: "assistant", content: text }];
  const tool_calls = calls.map(
    (call): WireCall => ({ id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } }),
  );
  return [{ role: "assistant", content: text, ...(reasoning ? { reasoning_content: reasoning } : {}), tool_calls }];
}

function results_to_wire({ results }: Message): WireMessage[] {
  return (results ?? []).map(({ id, name, text }) => ({ role: "tool", tool_call_id: id, name, content: text }));
}

export function to_wire(messages: Message[], system: string): WireMessage[] {
  const wire: WireMessage[] = system.trim() ? [{ role: "system", content: system }] : [];
  for (const message of messages) {
    if (message.role === "user") wire.push({ role: "user", content: content_of(message) });
    else wire.push(...(message.role === "tool" ? results_to_wire(message) : answer_to_wire(message)));
  }
  return wire;
}

// The same for a model that only continues text: everything so far as one text; what a person adds begins a line.
export function to_prompt(messages: Message[]): string {
  return messages.reduce((text, message) => {
    const gap = message.role === "user" && text && !text.endsWith("\n") ? "\n" : "";
    return text + gap + content_of(message);
  }, "");
}
