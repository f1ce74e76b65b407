// Files that a person gives along: read as text, or refused with a reason.

import type { TextFile } from "./conversation";

export const kMostFiles = 16;
const kMostFileBytes = 1_000_000;
const kMostChars = 2_000_000; // of a message's files together: more than contexts hold
const kMostNameChars = 120;

// On one line, and never longer than a line.
export function file_name(name: string): string {
  const clean = name.replace(/[\p{C}\u2028\u2029]+/gu, " ").trim();
  return (clean.length > kMostNameChars ? `${clean.slice(0, kMostNameChars - 1)}…` : clean) || "file";
}

// UTF-8, or UTF-16 that says so. Null: this is no text.
export function decode_text(data: Uint8Array): string | null {
  const [first, second] = data;
  const wide = first === 0xff && second === 0xfe ? "utf-16le" : first === 0xfe && second === 0xff ? "utf-16be" : null;
  try {
    const text = new TextDecoder(wide ?? "utf-8", { fatal: true }).decode(data);
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}

// Throws an Error whose message tells the person why this file cannot be given along. others: of the same message.
export async function read_file(file: File, others: TextFile[]): Promise<TextFile> {
  const name = file_name(file.name);
  if (file.size > kMostFileBytes)
    throw new Error(`${name} has ${Math.ceil(file.size / 1e5) / 10} MB; a file may have ${kMostFileBytes / 1e6} MB.`);
  if (!file.size) throw new Error(`${name} is empty.`);
  const text = decode_text(new Uint8Array(await file.arrayBuffer()));
  if (text === null) throw new Error(`${name} is no text: only text files can be attached.`);
  const num_chars = others.reduce((sum, other) => sum + other.text.length, text.length);
  if (num_chars > kMostChars)
    throw new Error(`${name} is too much: the files of a message may have ${kMostChars / 1e6} million characters.`);
  return { name, text };
}
