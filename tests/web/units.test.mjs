// The page's parsers without a browser: event streams cut at every place, Markdown, numbers.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import ts from "typescript";

// The page's sources are TypeScript without runtime parts, so removing the types is enough.
async function load(name) {
  const source = await readFile(new URL(`../../web/src/lib/${name}.ts`, import.meta.url), "utf8");
  const { outputText } = ts.transpileModule(source, { compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022 } });
  return import(`data:text/javascript,${encodeURIComponent(outputText)}`);
}

const { read_events } = await load("sse");
const { parse_inlines, parse_markdown } = await load("markdown");
const { format_bytes, format_duration, format_rate, format_seconds, format_short } = await load("format");

async function events_of(pieces) {
  const body = new ReadableStream({
    start(controller) {
      for (const piece of pieces) controller.enqueue(piece);
      controller.close();
    },
  });
  const events = [];
  for await (const data of read_events(body)) events.push(data);
  return events;
}

const kStream = ': hello\r\ndata: {"a":"é"}\r\n\r\nevent: x\nid: 7\ndata:no space\ndata: second\n\n\rdata: 🏇\r\rretry: 5\n\ndata: [DONE]\n\n';
const kEvents = ['{"a":"é"}', "no space\nsecond", "🏇", "[DONE]"];

test("events are the same wherever the stream is cut", async () => {
  const bytes = new TextEncoder().encode(kStream);
  assert.deepEqual(await events_of([bytes]), kEvents);
  assert.deepEqual(await events_of([...bytes].map((byte) => Uint8Array.of(byte))), kEvents);
  for (let cut = 1; cut < bytes.length; cut++) {
    assert.deepEqual(await events_of([bytes.slice(0, cut), bytes.slice(cut)]), kEvents, `cut at ${cut}`);
  }
});

test("an event without its blank line counts when the stream ends", async () => {
  assert.deepEqual(await events_of([new TextEncoder().encode("data: last")]), ["last"]);
  assert.deepEqual(await events_of([]), []);
});

test("markdown blocks", () => {
  const kinds = (text) => parse_markdown(text).map((block) => block.kind);
  assert.deepEqual(kinds("# T\ntext\nmore\n\n- a\n- b\n1. c\n> q\n---\n```py\nx\n```\nend"), [
    "heading", "paragraph", "list", "list", "quote", "rule", "code", "paragraph",
  ]);
  assert.deepEqual(parse_markdown("~~~c\n```\n~~~"), [{ kind: "code", language: "c", text: "```" }]);
  assert.deepEqual(parse_markdown("```\nstill open\n  kept"), [{ kind: "code", language: "", text: "still open\n  kept" }]);
  assert.equal(parse_markdown("3. a\n4. b")[0].start, 3);
  assert.deepEqual(parse_markdown(""), []);
});

test("markdown inlines", () => {
  const text = (source) => parse_inlines(source).map((part) => `${part.kind}:${part.text}`);
  assert.deepEqual(text("a **b** *c* `d*e*`"), ["text:a ", "strong:b", "text: ", "em:c", "text: ", "code:d*e*"]);
  assert.deepEqual(text("2 * 3 * 4 and a*b*c and **open"), ["text:2 * 3 * 4 and a*b*c and **open"]);
  assert.deepEqual(text("``a ` b`` `x"), ["code:a ` b", "text: `x"]);
  assert.deepEqual(parse_inlines("[x](https://example.org/a)"), [{ kind: "link", text: "x", href: "https://example.org/a" }]);
  assert.deepEqual(text("[x](javascript:alert(1))"), ["text:[x](javascript:alert(1))"]);
});

test("every character of the source survives parsing when nothing is marked up", () => {
  for (const source of ["**", "***", "`", "[", "[]()", "*a", "a*", "** a **", "`a", "[a](b)", "<b>&amp;</b>"]) {
    assert.equal(parse_inlines(source).map((part) => part.text).join(""), source);
  }
});

test("a model that repeats a mark for ever does not freeze the page", () => {
  const start = performance.now();
  for (const unit of ["*", "**a ", "*a ", "`", "`a``b", "[", "[a](", "> ", "- ", "#", "```", "_ ", "~~~\n"]) parse_markdown(unit.repeat(20000));
  const elapsed_ms = performance.now() - start;
  assert.ok(elapsed_ms < 3000, `${elapsed_ms} ms`);
});

test("numbers", () => {
  assert.equal(format_short(134515008), "134.5 M");
  assert.equal(format_short(999), "999");
  assert.equal(format_bytes(94200000), "94.2 MB");
  assert.equal(format_bytes(4.2e9), "4.20 GB");
  assert.equal(format_rate(87.64), "87.6");
  assert.equal(format_seconds(0.123), "123 ms");
  assert.equal(format_duration(3725), "1 h 2 min");
  for (const format of [format_short, format_bytes, format_rate, format_seconds, format_duration]) {
    assert.equal(format(undefined), "–");
    assert.equal(format(Number.NaN), "–");
  }
});
