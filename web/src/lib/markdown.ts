// The part of Markdown that models use most, parsed to data; components render it as text nodes, so nothing
// that a model writes can become markup.

export type Inline =
  | { kind: "text" | "code" | "strong" | "em"; text: string }
  | { kind: "link"; text: string; href: string };

export type Block =
  | { kind: "code"; language: string; text: string }
  | { kind: "heading"; level: number; inlines: Inline[] }
  | { kind: "list"; ordered: boolean; start: number; items: Inline[][] }
  | { kind: "quote" | "paragraph"; inlines: Inline[] }
  | { kind: "rule" };

const kFence = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)[^`]*$/;
const kHeading = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const kItem = /^\s*(?:([-*+])|(\d{1,9})[.)])\s+(.*)$/;
const kQuote = /^ {0,3}>\s?(.*)$/;
const kRule = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const kMark = /[`*[]/g;
const kLink = /\[([^\][]{1,300})\]\((https?:\/\/[^\s()]{1,2000})\)/y;

// Finds closing marks in one pass over the text: a mark that was not found once is not looked for again, so that
// a model that repeats an opening mark for ever costs linear time.
class Closers {
  #text: string;
  #hopeless = new Set<string>();

  constructor(text: string) {
    this.#text = text;
  }

  find(mark: string, from: number): number {
    if (this.#hopeless.has(mark)) return -1;
    for (let at = this.#text.indexOf(mark, from); at >= 0; at = this.#text.indexOf(mark, at + 1)) {
      if (this.#closes(mark, at)) return at;
    }
    this.#hopeless.add(mark);
    return -1;
  }

  #closes(mark: string, at: number): boolean {
    const before = this.#text[at - 1] ?? " ";
    const after = this.#text[at + mark.length] ?? " ";
    const alone = before !== mark[0] && after !== mark[0];
    return alone && (mark[0] === "`" || /\S/.test(before));
  }
}

function read_inline(text: string, at: number, closers: Closers): [Inline, number] | null {
  kLink.lastIndex = at;
  const link = text[at] === "[" && kLink.exec(text);
  if (link) return [{ kind: "link", text: link[1] ?? "", href: link[2] ?? "" }, at + link[0].length];
  const first = text[at] ?? "";
  if (first !== "`" && first !== "*") return null;
  let start = at;
  while (text[start] === first) start++;
  const mark = text.slice(at, start);
  const starts = first === "`" || (mark.length <= 2 && /\S/.test(text[start] ?? " ") && !/\w/.test(text[at - 1] ?? " "));
  const end = starts ? closers.find(mark, start + 1) : -1;
  if (end < 0) return [{ kind: "text", text: mark }, start];
  const kind = first === "`" ? "code" : mark.length === 2 ? "strong" : "em";
  return [{ kind, text: text.slice(start, end) }, end + mark.length];
}

export function parse_inlines(text: string): Inline[] {
  const out: Inline[] = [];
  const closers = new Closers(text);
  let plain = "";
  for (let at = 0; at < text.length; ) {
    kMark.lastIndex = at;
    const next = kMark.exec(text)?.index ?? text.length;
    plain += text.slice(at, next);
    at = next;
    if (at === text.length) break;
    const [inline, end] = read_inline(text, at, closers) ?? [{ kind: "text" as const, text: text[at] ?? "" }, at + 1];
    at = end;
    if (inline.kind === "text") {
      plain += inline.text;
      continue;
    }
    if (plain) out.push({ kind: "text", text: plain });
    plain = "";
    out.push(inline);
  }
  if (plain) out.push({ kind: "text", text: plain });
  return out;
}

// Reads a fenced block that opens at `first`; a fence that is still open (a stream) runs to the end.
function parse_fence(lines: string[], first: number, fence: RegExpMatchArray): [Block, number] {
  const mark = fence[1] ?? "";
  const body: string[] = [];
  let line_idx = first + 1;
  for (; line_idx < lines.length; line_idx++) {
    const line = (lines[line_idx] ?? "").trim();
    if (line.length >= mark.length && line === (mark[0] ?? "").repeat(line.length)) break;
    body.push(lines[line_idx] ?? "");
  }
  return [{ kind: "code", language: fence[2] ?? "", text: body.join("\n") }, line_idx + 1];
}

function parse_list(lines: string[], first: number, item: RegExpMatchArray): [Block, number] {
  const ordered = item[2] !== undefined;
  const items: string[] = [];
  let line_idx = first;
  for (; line_idx < lines.length; line_idx++) {
    const line = lines[line_idx] ?? "";
    const next = line.match(kItem);
    if (next && (next[2] !== undefined) === ordered) items.push(next[3] ?? "");
    else if (/^\s{2,}\S/.test(line) && !next && !kFence.test(line)) items.push(`${items.pop()}\n${line.trim()}`);
    else break;
  }
  const start = Number(item[2] ?? 1);
  return [{ kind: "list", ordered, start, items: items.map(parse_inlines) }, line_idx];
}

export function parse_markdown(text: string): Block[] {
  const lines = text.split("\n");
  const blocks: Block[] = [];
  let paragraph: string[] = [];
  let quote: string[] = [];
  const flush = () => {
    if (paragraph.length) blocks.push({ kind: "paragraph", inlines: parse_inlines(paragraph.join("\n")) });
    if (quote.length) blocks.push({ kind: "quote", inlines: parse_inlines(quote.join("\n")) });
    paragraph = [];
    quote = [];
  };
  for (let line_idx = 0; line_idx < lines.length; ) {
    const line = lines[line_idx] ?? "";
    const fence = line.match(kFence);
    const item = kRule.test(line) ? null : line.match(kItem);
    const quoted = line.match(kQuote);
    if (!quoted && quote.length) flush();
    if (fence || item) {
      flush();
      const [block, next] = fence ? parse_fence(lines, line_idx, fence) : parse_list(lines, line_idx, item!);
      blocks.push(block);
      line_idx = next;
      continue;
    }
    const heading = line.match(kHeading);
    if (quoted) {
      if (paragraph.length) flush();
      quote.push(quoted[1] ?? "");
    } else if (heading) {
      flush();
      blocks.push({ kind: "heading", level: (heading[1] ?? "#").length, inlines: parse_inlines(heading[2] ?? "") });
    } else if (kRule.test(line)) {
      flush();
      blocks.push({ kind: "rule" });
    } else if (line.trim() === "") {
      flush();
    } else {
      paragraph.push(line);
    }
    line_idx++;
  }
  flush();
  return blocks;
}
