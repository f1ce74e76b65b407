// An answer's Markdown as data. markdown-it reads it (CommonMark, tables, strike, bare links; never HTML), and the
// components render the nodes as text: nothing that a model or a file says can become markup.

import MarkdownIt from "markdown-it";
import { add_math } from "./markdown_math";

export type Inline =
  | { kind: "text"; text: string }
  | { kind: "code"; text: string }
  | { kind: "strong"; inlines: Inline[] }
  | { kind: "em"; inlines: Inline[] }
  | { kind: "del"; inlines: Inline[] }
  | { kind: "link"; href: string; inlines: Inline[] }
  | { kind: "math"; tex: string; display: boolean }
  | { kind: "break" };

export interface ListItem {
  checked: boolean | null; // null: no box
  blocks: Block[];
}

export type Block =
  | { kind: "paragraph"; inlines: Inline[] }
  | { kind: "heading"; level: number; inlines: Inline[] }
  | { kind: "code"; language: string; text: string; closed: boolean }
  | { kind: "list"; ordered: boolean; start: number; items: ListItem[] }
  | { kind: "quote"; blocks: Block[] }
  | { kind: "table"; aligns: Align[]; head: Inline[][]; rows: Inline[][][] }
  | { kind: "math"; tex: string }
  | { kind: "rule" };

export type Align = "left" | "center" | "right" | "";
type Parser = InstanceType<typeof MarkdownIt>;
type Token = ReturnType<Parser["parse"]>[number];
type Environment = NonNullable<Parameters<Parser["parse"]>[1]>;

const kSchemes = new Set(["http:", "https:", "mailto:"]);
const kBox = /^\[([ xX])\]\s+/;

const parser = new MarkdownIt({ html: false, linkify: true });
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
parser.validateLink = (href) => safe_href(href) !== null;
parser.use(add_math);

// The address of a link that may be followed, or null. Only absolute addresses of three schemes: a relative one would
// point at this server.
export function safe_href(href: string): string | null {
  try {
    const url = new URL(href);
    return kSchemes.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

// Walks a flat list of tokens and makes a tree of it.
class Reader {
  #tokens: Token[];
  #at = 0;

  constructor(tokens: Token[]) {
    this.#tokens = tokens;
  }

  // Nodes up to the token that closes the current container, which is consumed, or to the end.
  blocks(lines: string[]): Block[] {
    const blocks: Block[] = [];
    for (let token = this.#take(); token && token.nesting >= 0; token = this.#take()) {
      const block = this.#block(token, lines);
      if (block) blocks.push(block);
    }
    return blocks;
  }

  #take(): Token | undefined {
    return this.#tokens[this.#at++];
  }

  #block(token: Token, lines: string[]): Block | null {
    switch (token.type) {
      case "paragraph_open":
        return { kind: "paragraph", inlines: this.#inlines() };
      case "heading_open":
        return { kind: "heading", level: Number(token.tag.slice(1)), inlines: this.#inlines() };
      case "fence":
        return {
          kind: "code",
          language: token.info.trim().split(/\s+/)[0] ?? "",
          text: body_of(token),
          closed: is_closed(token, lines),
        };
      case "code_block":
        return { kind: "code", language: "", text: body_of(token), closed: true };
      case "math_block":
        return { kind: "math", tex: token.content };
      case "hr":
        return { kind: "rule" };
      case "blockquote_open":
        return { kind: "quote", blocks: this.blocks(lines) };
      case "bullet_list_open":
      case "ordered_list_open":
        return this.#list(token, lines);
      case "table_open":
        return this.#table();
      default:
        return null;
    }
  }

  #inlines(): Inline[] {
    const content = this.#take();
    this.#take(); // the closing token
    return content?.children ? new InlineReader(content.children).read() : [];
  }

  #list(open: Token, lines: string[]): Block {
    const items: ListItem[] = [];
    for (let token = this.#take(); token?.type === "list_item_open"; token = this.#take()) {
      items.push(to_item(this.blocks(lines)));
    }
    const start = Number(attribute(open, "start") || 1);
    return { kind: "list", ordered: open.type === "ordered_list_open", start, items };
  }

  #table(): Block {
    const rows: Inline[][][] = [];
    const aligns: Align[] = [];
    for (let token = this.#take(); token && token.type !== "table_close"; token = this.#take()) {
      if (token.type === "tr_open") rows.push([]);
      if (token.type !== "th_open" && token.type !== "td_open") continue;
      if (token.type === "th_open") aligns.push((attribute(token, "style").split(":")[1] ?? "") as Align);
      rows.at(-1)?.push(this.#inlines());
    }
    return { kind: "table", aligns, head: rows[0] ?? [], rows: rows.slice(1) };
  }
}

class InlineReader {
  #tokens: Token[];
  #at = 0;

  constructor(tokens: Token[]) {
    this.#tokens = tokens;
  }

  read(): Inline[] {
    const out: Inline[] = [];
    for (let token = this.#tokens[this.#at++]; token && token.nesting >= 0; token = this.#tokens[this.#at++]) {
      const inline = this.#inline(token);
      const last = out.at(-1);
      if (inline.kind === "text" && last?.kind === "text") last.text += inline.text;
      else out.push(inline);
    }
    return out;
  }

  #inline(token: Token): Inline {
    switch (token.type) {
      case "code_inline":
        return { kind: "code", text: token.content };
      case "strong_open":
      case "em_open":
        return { kind: token.tag as "strong" | "em", inlines: this.read() };
      case "s_open":
        return { kind: "del", inlines: this.read() };
      case "link_open":
        return to_link(attribute(token, "href"), this.read());
      case "image": // the page loads nothing from elsewhere: a picture is a link to it
        return to_link(attribute(token, "src"), [{ kind: "text", text: token.content || attribute(token, "src") }]);
      case "math_inline":
        return { kind: "math", tex: token.content, display: token.markup === "display" };
      case "hardbreak":
        return { kind: "break" };
      case "softbreak":
        return { kind: "text", text: "\n" };
      default:
        return { kind: "text", text: token.content };
    }
  }
}

function attribute(token: Token, name: string): string {
  return String(token.attrGet(name) ?? "");
}

function to_link(address: string, inlines: Inline[]): Inline {
  const href = safe_href(address);
  return href ? { kind: "link", href, inlines } : { kind: "em", inlines };
}

function to_item(blocks: Block[]): ListItem {
  const first = blocks[0];
  const text = first?.kind === "paragraph" ? first.inlines[0] : undefined;
  const box = text?.kind === "text" ? text.text.match(kBox) : null;
  if (!box || text?.kind !== "text") return { checked: null, blocks };
  text.text = text.text.slice(box[0].length);
  return { checked: box[1] !== " ", blocks };
}

function body_of(token: Token): string {
  return token.content.replace(/\n$/, "");
}

// A fence that runs to the end of its container without its closing line is still being written.
function is_closed(token: Token, lines: string[]): boolean {
  const last = (lines[(token.map?.[1] ?? 0) - 1] ?? "").trim();
  const opened_here = (token.map?.[1] ?? 0) - (token.map?.[0] ?? 0) < 2;
  return (
    !opened_here &&
    last.endsWith(token.markup) &&
    last.replaceAll(token.markup[0] ?? "", "").replace(/[>\s]/g, "") === ""
  );
}

// Top-level blocks, each with the line where it starts.
function parse(text: string, environment: Environment): { blocks: Block[]; starts: number[] } {
  const tokens = parser.parse(text, environment);
  const lines = text.split("\n");
  const starts = tokens.filter((token) => token.level === 0 && token.nesting >= 0).map((token) => token.map?.[0] ?? 0);
  return { blocks: new Reader(tokens).blocks(lines), starts };
}

export function parse_markdown(text: string): Block[] {
  return parse(text, {}).blocks;
}

function offset_of_line(text: string, line_idx: number): number {
  let offset = 0;
  for (let i = 0; i < line_idx; i++) offset = text.indexOf("\n", offset) + 1;
  return offset;
}

// Parses a text that grows. More text can change only the last two blocks (the second to last because a line that is
// not complete may still turn out to belong to it), so only those are read again; the others keep their identity, and
// their components rest. A link may name a definition that comes later: `parse_markdown` at the end settles that.
export class GrowingMarkdown {
  #kept: Block[] = [];
  #kept_text = "";
  #environment: Environment = {};

  update(text: string): Block[] {
    if (text.includes("\r")) text = text.replace(/\r\n?/g, "\n");
    if (text.slice(0, this.#kept_text.length) !== this.#kept_text) {
      this.#kept = [];
      this.#kept_text = "";
      this.#environment = {};
    }
    const tail = text.slice(this.#kept_text.length);
    const { blocks, starts } = parse(tail, this.#environment);
    const all = this.#kept.concat(blocks);
    const num_settled = Math.max(0, blocks.length - 2);
    if (num_settled > 0) {
      this.#kept = all.slice(0, this.#kept.length + num_settled);
      this.#kept_text = text.slice(0, this.#kept_text.length + offset_of_line(tail, starts[num_settled] ?? 0));
    }
    return all;
  }
}
