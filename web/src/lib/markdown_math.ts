// Formulas in Markdown: $a$ and \(a\) within a line, $$a$$ and \[a\] as blocks. An amount of money is not a formula.

import type MarkdownIt from "markdown-it";

const kMostChars = 4000; // of one formula: a mark without its partner must not be looked for without end
const kMostLines = 200;

// The end of the formula that starts at `from`, or -1. Formulas do not nest: another `open` ends the search, so that a
// text of nothing but opening marks is read in linear time.
function find_close(text: string, from: number, open: string, close: string): number {
  const end = Math.min(text.length, from + kMostChars);
  for (let at = from; at < end; at++) {
    if (text.startsWith(close, at)) return at;
    if (text.startsWith(open, at)) return -1;
    if (text[at] === "\\") at++;
  }
  return -1;
}

// $5 and $6 are no formula: a dollar closes only when no space is before it and no digit behind it.
function read_dollar(text: string, at: number): { start: number; end: number; close: string } | null {
  const close = text[at + 1] === "$" ? "$$" : "$";
  const start = at + close.length;
  if (close === "$" && /[\s$]/.test(text[start] ?? " ")) return null;
  const end = find_close(text, start, close, close);
  if (end <= start) return null;
  if (close === "$" && (/\s/.test(text[end - 1] ?? " ") || /[\d$]/.test(text[end + 1] ?? ""))) return null;
  return { start, end, close };
}

function read_escaped(text: string, at: number): { start: number; end: number; close: string } | null {
  const close = text[at + 1] === "(" ? "\\)" : text[at + 1] === "[" ? "\\]" : "";
  if (!close) return null;
  const start = at + 2;
  const end = find_close(text, start, text.slice(at, start), close);
  return end > start ? { start, end, close } : null;
}

export function add_math(parser: InstanceType<typeof MarkdownIt>): void {
  parser.inline.ruler.before("escape", "math", (state, silent) => {
    const first = state.src[state.pos];
    if (first !== "$" && first !== "\\") return false;
    const text = state.src.slice(state.pos, Math.min(state.posMax, state.pos + kMostChars + 4));
    const found = first === "$" ? read_dollar(text, 0) : read_escaped(text, 0);
    if (!found) return false;
    if (!silent) {
      const token = state.push("math_inline", "", 0);
      token.content = text.slice(found.start, found.end).trim();
      token.markup = found.close === "$$" || found.close === "\\]" ? "display" : "inline";
    }
    state.pos += found.end + found.close.length;
    return true;
  });

  parser.block.ruler.before(
    "fence",
    "math_block",
    (state, first_line, last_line, silent) => {
      const line = (idx: number) =>
        state.src.slice((state.bMarks[idx] ?? 0) + (state.tShift[idx] ?? 0), state.eMarks[idx]).trimEnd();
      const opening = line(first_line);
      const close = opening.startsWith("$$") ? "$$" : opening.startsWith("\\[") ? "\\]" : "";
      if (!close) return false;
      const rest = opening.slice(2);
      const body: string[] = [];
      let line_idx = first_line;
      for (let text = rest; ; text = line(line_idx)) {
        const at = text.indexOf(close);
        body.push(at < 0 ? text : text.slice(0, at));
        if (at >= 0 && text.slice(at + close.length).trim() !== "") return false; // text goes on behind it: a line's matter
        if (at >= 0) break;
        if (line_idx > first_line && (text === "" || text.startsWith(opening.slice(0, 2)))) return false; // as in TeX
        if (
          ++line_idx >= last_line ||
          line_idx - first_line > kMostLines ||
          (state.sCount[line_idx] ?? 0) < state.blkIndent
        )
          return false;
      }
      if (silent) return true;
      const token = state.push("math_block", "", 0);
      token.block = true;
      token.content = body.join("\n").trim();
      token.map = [first_line, line_idx + 1];
      state.line = line_idx + 1;
      return true;
    },
    { alt: ["paragraph", "reference", "blockquote", "list"] },
  );
}
