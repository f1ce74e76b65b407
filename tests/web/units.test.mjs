// The page's logic without a browser: event streams cut at every place, Markdown, conversations as files, numbers, and
// the size of what is embedded.

import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";
import ts from "typescript";
import { kEverything } from "./mock_server.mjs";

const kSources = fileURLToPath(new URL("../../web/src/lib/", import.meta.url));
const page_dir = process.env.HEADRACE_PAGE ?? fileURLToPath(new URL("../../build/release/web/dist", import.meta.url));
const work_dir = join(dirname(page_dir), "node_modules", ".units"); // where the page's libraries are found

// The page's sources are TypeScript without runtime parts, so removing the types is enough.
async function load(name) {
  for (const file of readdirSync(kSources).filter((file) => file.endsWith(".ts") && !file.endsWith(".svelte.ts"))) {
    const { outputText } = ts.transpileModule(readFileSync(join(kSources, file), "utf8"), {
      compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022 },
    });
    mkdirSync(work_dir, { recursive: true });
    writeFileSync(join(work_dir, file.replace(/ts$/, "mjs")), outputText.replace(/from "(\.\/[\w.]+)"/g, 'from "$1.mjs"'));
  }
  return import(pathToFileURL(join(work_dir, `${name}.mjs`)));
}

const { read_events } = await load("sse");
const { format_bytes, format_duration, format_rate, format_seconds, format_setting, format_short } = await load("format");
const { from_json, includes, matches, title_of, to_json, to_markdown, to_prompt, to_wire } = await load("conversation");
const { line_path, nice_top } = await load("chart");
const { GrowingMarkdown, parse_markdown, safe_href } = await load("markdown");
const { colour } = await load("colour");

// What `work` costs, whatever else the machine does meanwhile.
function cpu_ms(work) {
  const before = process.cpuUsage();
  work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

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
  assert.deepEqual(kinds("# T\ntext\nmore\n\n- a\n- b\n\n1. c\n\n> q\n\n---\n```py\nx\n```\nend\n\n$$\nx\n$$"), [
    "heading", "paragraph", "list", "list", "quote", "rule", "code", "paragraph", "math",
  ]);
  const code = (text) => parse_markdown(text)[0];
  assert.deepEqual(code("~~~c\n```\n~~~"), { kind: "code", language: "c", text: "```", closed: true });
  assert.deepEqual(code("```\nstill open\n  kept"), { kind: "code", language: "", text: "still open\n  kept", closed: false });
  assert.equal(code("```").closed, false);
  assert.equal(code("```js\nx\n``").closed, false);
  assert.equal(code("> ```\n> x\n> ```").blocks[0].closed, true);
  assert.equal(parse_markdown("3. a\n4. b")[0].start, 3);
  assert.deepEqual(parse_markdown("- [ ] a\n- [x] b\n- c")[0].items.map((item) => item.checked), [false, true, null]);
  assert.deepEqual(parse_markdown("|a|b|\n|:-:|-:|\n|1|2|")[0].aligns, ["center", "right"]);
  assert.deepEqual(parse_markdown(""), []);
});

test("formulas are told from money", () => {
  const kinds = (text) => parse_markdown(text)[0].inlines.map((inline) => (inline.kind === "math" ? `<${inline.tex}>` : inline.text)).join("");
  for (const [text, wanted] of [
    ["$x$ and $a_1$", "<x> and <a_1>"], ["\\(x\\) and \\[y\\] here", "<x> and <y> here"], ["it costs $5 and $6", "it costs $5 and $6"],
    ["$5-$10", "$5-$10"], ["US$20 to US$30.", "US$20 to US$30."], ["\\$x\\$", "$x$"], ["$ x $", "$ x $"], ["$$x$$ here", "<x> here"],
    ["$x", "$x"], ["\\(x", "(x"], ["`$x$`", "$x$"],
  ]) {
    assert.equal(kinds(text), wanted, text);
  }
});

test("only web and mail addresses can be followed", () => {
  assert.equal(safe_href("https://example.org/a?b#c"), "https://example.org/a?b#c");
  assert.equal(safe_href("mailto:a@example.org"), "mailto:a@example.org");
  for (const href of ["javascript:x", " JAVASCRIPT:x", "java\nscript:x", "data:text/html,x", "/v1/models", "#a", "//example.org", "file:///a", "blob:x", ""]) {
    assert.equal(safe_href(href), null, href);
  }
});

test("a growing text gives the same blocks as the whole, wherever it is cut, and settled blocks stay the same objects", () => {
  const texts = [kEverything, "para\n***bold***\n\n- a\n\n      b\n\n    c\n- d\n\n# h\n```\nx\n\n```\n> q\nlazy\n\nSet\n===\n\n| a |\n|---|\n| b |\n", "a\r\n\r\nb\r\n"];
  for (const text of texts) {
    for (const size of [1, 2, 3, 7, 50]) {
      const growing = new GrowingMarkdown();
      for (let end = 0; end < text.length + size; end += size) {
        const part = text.slice(0, end);
        assert.deepEqual(growing.update(part), parse_markdown(part), JSON.stringify(part.slice(-40)));
      }
    }
  }
  const growing = new GrowingMarkdown();
  const before = growing.update("one\n\ntwo\n\nthree\n\nfour");
  const after = growing.update("one\n\ntwo\n\nthree\n\nfour and more\n\nfive");
  assert.ok(before[0] === after[0] && before[1] === after[1]);
  assert.equal(growing.update("new")[0].inlines[0].text, "new"); // another text altogether
});

test("a long answer costs the same per token at its end as at its beginning", () => {
  const growing = new GrowingMarkdown();
  const section = "## Part\n\nSome words with `code` and **weight**.\n\n- a\n- b\n\n";
  let text = "";
  const time = (count) =>
    cpu_ms(() => {
      for (let idx = 0; idx < count; idx++) growing.update((text += section));
    });
  time(200);
  const early = time(300);
  time(2000);
  const late = time(300);
  assert.ok(late < 8 * early + 50, `${early} ms, then ${late} ms`);
});

test("a model that repeats a mark for ever does not freeze the page", () => {
  const units = [
    "*", "**a ", "*a ", "**a*b ", "a**b_", "`", "`a``b", "[", "[a](", "![", "[x][", "> ", "- ", "- a\n  ", "1. \n", "#", "```", "_ ", "~~~\n",
    "~~a ", "| a ", "|-", "a\n|-|\n", "<a ", "<!--", "&amp", "http://", "https://a.b ", "a@", "$", "$a ", "$$", "$$\n", "\\(", "\\[\n", "\\[a\n\n",
  ];
  for (const unit of units) {
    const spent_ms = cpu_ms(() => parse_markdown(unit.repeat(Math.floor(60000 / unit.length))));
    assert.ok(spent_ms < 4000, `${JSON.stringify(unit)}: ${spent_ms} ms`);
  }
});

test("colours change no character; what is no known language or too long has none", () => {
  const code = 'fn main() { println!("<b>{}</b>", 1); } // x';
  assert.equal(colour(code, "Rust").map((piece) => piece.text).join(""), code);
  assert.ok(colour(code, "rust").some((piece) => piece.style === "hljs-keyword"));
  for (const language of ["", "klingon", "__proto__", "constructor"]) assert.equal(colour(code, language), null);
  assert.equal(colour("x ".repeat(40000), "js"), null);
});

const kConversation = {
  id: "a", title: "T", created_ms: 1000, updated_ms: 2000, rev: 3,
  messages: [
    { role: "user", text: "Hi" },
    { role: "assistant", text: "Ho", reasoning: "hm", outcome: { kind: "length", text: "Cut." }, stats: { seed: 7, ttft_s: 0.5 } },
  ],
};

test("a conversation survives export and import, under a new identity and without what nobody knows", () => {
  const [read] = from_json(to_json([kConversation]));
  assert.notEqual(read.id, "a");
  assert.deepEqual({ ...read, id: "a", rev: 3 }, kConversation);
  const file = JSON.parse(to_json([kConversation]));
  Object.assign(file.conversations[0].messages[1], { evil: 1, stats: { seed: "7", x: 2 }, outcome: { kind: "odd", text: "x" }, reasoning: 5 });
  assert.deepEqual(from_json(JSON.stringify(file))[0].messages[1], { role: "assistant", text: "Ho", stats: {} });
  assert.equal(to_markdown(kConversation), "# T\n\n## You\n\nHi\n\n## Answer\n\nHo\n\n*Cut.*\n");
});

test("what the model reads, what a search finds, what a title is, what may be replaced", () => {
  const { messages } = kConversation;
  assert.deepEqual(to_wire([...messages, { role: "assistant", text: "" }], " s "), [
    { role: "system", content: " s " }, { role: "user", content: "Hi" }, { role: "assistant", content: "Ho" },
  ]);
  assert.equal(to_prompt([...messages, { role: "user", text: "go" }]), "HiHo\ngo");
  assert.ok(matches(kConversation, ["hi", "ho"]) && !matches(kConversation, ["hi", "nowhere"]));
  assert.equal(title_of([{ role: "user", text: "\nline one\ntwo" }]), "line one");
  assert.equal(title_of([{ role: "user", text: "x".repeat(99) }]).length, 60);
  const longer = { ...kConversation, messages: [messages[0], { role: "assistant", text: "Ho ho" }] };
  assert.ok(includes(longer, kConversation) && !includes(kConversation, longer));
});

test("a chart's line has gaps where values are missing and only the last two minutes", () => {
  const frame = { left: 0, right: 120, top: 0, bottom: 100, max: 10, newest_s: 1000 };
  assert.equal(line_path([800, 880, 940, 970, 1000], [1, 0, null, 5, 20], frame), "M0.0 100.0M90.0 50.0L120.0 0.0");
  assert.deepEqual([4, 10, 101, 4100].map(nice_top), [4, 10, 200, 10000]);
});

test("the page is small: what opens first, and everything", { skip: existsSync(page_dir) ? false : "no built page" }, () => {
  const files = readdirSync(page_dir, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const sizes = files.map((entry) => [entry.name, gzipSync(readFileSync(join(entry.parentPath, entry.name)), { level: 9 }).length]);
  const sum = (rows) => rows.reduce((total, [, bytes]) => total + bytes, 0);
  assert.ok(sum(sizes) < 200_000, JSON.stringify(sizes));
  assert.ok(sum(sizes.filter(([name]) => /^index/.test(name))) < 100_000, JSON.stringify(sizes));
  const licenses = readFileSync(join(page_dir, "licenses.txt"), "utf8");
  for (const library of ["svelte", "markdown-it", "linkify-it", "highlight.js", "lowlight", "temml"]) assert.ok(licenses.includes(library), library);
});

test("numbers", () => {
  assert.equal(format_short(134515008), "134.5 M");
  assert.equal(format_short(999), "999");
  assert.equal(format_bytes(94200000), "94.2 MB");
  assert.equal(format_bytes(4.2e9), "4.20 GB");
  assert.equal(format_rate(87.64), "87.6");
  assert.equal(format_seconds(0.123), "123 ms");
  assert.equal(format_duration(3725), "1 h 2 min");
  assert.equal(format_setting(0.6000000238418579), "0.6");
  for (const format of [format_short, format_bytes, format_rate, format_seconds, format_duration]) {
    assert.equal(format(undefined), "–");
    assert.equal(format(Number.NaN), "–");
  }
});
