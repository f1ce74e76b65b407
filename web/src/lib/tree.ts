// A conversation as a tree. Its messages are a list in the order in which they were made; each follows an earlier one,
// or begins the conversation. Editing and asking again add messages and take none away.

import type { Message } from "./conversation";

type Node = Pick<Message, "parent">;

// The message that the one at `idx` follows; -1: none. Unless it says so, it is the one before it in the list.
export function parent_of(messages: readonly Node[], idx: number): number {
  return messages[idx]?.parent ?? idx - 1;
}

// The messages from the first one to `leaf`, which is what a reader sees and what the model gets to read.
export function path_to(messages: readonly Node[], leaf: number): number[] {
  const path: number[] = [];
  for (let idx = leaf; idx >= 0; idx = parent_of(messages, idx)) path.push(idx);
  return path.reverse();
}

// For each message all those that follow the same one, itself among them: the versions of it, oldest first.
export function versions_of(messages: readonly Node[]): number[][] {
  const children = new Map<number, number[]>();
  return messages.map((_, idx) => {
    const parent = parent_of(messages, idx);
    const found = children.get(parent) ?? [];
    found.push(idx);
    children.set(parent, found);
    return found;
  });
}

// The newest message that follows `idx`, however far away; `idx` itself where none does.
export function newest_below(messages: readonly Node[], idx: number): number {
  const below = new Set([idx]);
  let newest = idx;
  for (let at = idx + 1; at < messages.length; at++) {
    if (!below.has(parent_of(messages, at))) continue;
    below.add(at);
    newest = at;
  }
  return newest;
}
