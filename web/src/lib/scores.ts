// Log-probs of an answer's tokens: from the wire, as lines to keep, and as people read them.

export interface Score {
  token: string;
  logprob: number;
  others: [token: string, logprob: number][]; // the likeliest, the token itself maybe among them
}

type Fields = Record<string, unknown>;

function fields_of(value: unknown): Fields {
  return typeof value === "object" && value !== null ? (value as Fields) : {};
}

function is_number(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value);
}

// A token may be a part of a character; then its bytes are named.
function text_of({ token, bytes }: Fields): string {
  if (!Array.isArray(bytes)) return String(token ?? "");
  const data = Uint8Array.from(bytes.filter(is_number));
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    return [...data].map((byte) => `‹${byte.toString(16).padStart(2, "0")}›`).join("");
  }
}

function from_chat(value: unknown): Score {
  const token = fields_of(value);
  const others = Array.isArray(token.top_logprobs) ? token.top_logprobs.map(fields_of) : [];
  return {
    token: text_of(token),
    logprob: Number(token.logprob),
    others: others.map((other) => [text_of(other), Number(other.logprob)]),
  };
}

function from_completion({ tokens, token_logprobs, top_logprobs }: Fields): Score[] {
  if (!Array.isArray(tokens)) return [];
  return tokens.map((token, idx) => ({
    token: String(token),
    logprob: Number((token_logprobs as unknown[] | undefined)?.[idx]),
    others: Object.entries(fields_of((top_logprobs as unknown[] | undefined)?.[idx])).map(
      ([other, logprob]): [string, number] => [other, Number(logprob)],
    ),
  }));
}

// The `logprobs` of one choice of a chunk, of either endpoint.
export function scores_of(logprobs: unknown): Score[] {
  const fields = fields_of(logprobs);
  const scores = Array.isArray(fields.content) ? fields.content.map(from_chat) : from_completion(fields);
  return scores.filter(({ logprob }) => is_number(logprob));
}

// One line of JSON for each token: a long answer's are added to, not rewritten.
export function to_lines(scores: Score[]): string {
  return scores.map(({ token, logprob, others }) => `${JSON.stringify([token, logprob, others])}\n`).join("");
}

function from_line(line: string): Score[] {
  try {
    const [token, logprob, others] = JSON.parse(line) as unknown[];
    if (typeof token !== "string" || !is_number(logprob)) return [];
    const pairs = (Array.isArray(others) ? others : []).filter(
      (pair): pair is [string, number] => Array.isArray(pair) && typeof pair[0] === "string" && is_number(pair[1]),
    );
    return [{ token, logprob, others: pairs.map(([other, value]) => [other, value]) }];
  } catch {
    return [];
  }
}

// Lines of an imported file may hold anything: what is no token is left out.
export function from_lines(lines: string): Score[] {
  return lines.split("\n").flatMap((line) => (line ? from_line(line) : []));
}

export function probability(logprob: number): number {
  return Math.min(1, Math.exp(logprob));
}

export function format_percent(logprob: number): string {
  const percent = 100 * probability(logprob);
  if (percent >= 99.95 && percent < 100) return "> 99.9 %";
  if (percent < 0.01) return "< 0.01 %";
  return `${percent.toFixed(percent < 1 ? 2 : 1)} %`;
}

// How sure the model was, in five steps; the page has a shade for each.
export function sureness(logprob: number): number {
  return Math.min(4, Math.floor(5 * probability(logprob)));
}

// A token on its own, with what else could not be seen.
export function visible(token: string): string {
  const marked = token
    .replace(/^ +| +$/g, (blanks) => "␣".repeat(blanks.length))
    .replaceAll("\n", "⏎")
    .replaceAll("\t", "⇥");
  const shown = marked.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (char) => {
    return `‹U+${char.codePointAt(0)?.toString(16).toUpperCase().padStart(4, "0")}›`;
  });
  return shown || "(nothing)";
}
