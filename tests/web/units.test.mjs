// The page's logic without a browser: event streams cut at every place, Markdown, conversations as files, numbers, and
// the size of what is embedded.

import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { kEverything } from "./mock_server.mjs";
import { small_profile } from "./profiles.mjs";
import { load, page_dir } from "./sources.mjs";

const { read_events } = await load("sse");
const { format_bytes, format_duration, format_rate, format_seconds, format_setting, format_short } = await load("format");
const { includes, matches, says_nothing, shown_leaf, title_of } = await load("conversation");
const { from_json, to_json, to_markdown } = await load("interchange");
const { content_of, to_prompt, to_wire } = await load("wire");
const { newest_below, parent_of, path_to, versions_of } = await load("tree");
const { format_percent, from_lines, scores_of, sureness, to_lines, visible } = await load("scores");
const { pretty_json, read_choice, read_form, read_tools } = await load("form");
const { decode_text, file_name } = await load("attach");
const { cache_text, ending_of, is_good, output_text } = await load("request_text");
const { with_pieces } = await load("answer");
const { line_path, nice_top } = await load("chart");
const { GrowingMarkdown, parse_markdown, safe_href } = await load("markdown");
const { colour } = await load("colour");
const { block_at, bounded, flame_rows, format_us, panned, read_profile, blocks_of, whole, zoomed } = await load("flame");

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

// 0 - 1 - 2 - 3
//     \ 4 - 5      and 6 - 7 beside 0
const kTree = [{}, {}, {}, {}, { parent: 1 }, {}, { parent: -1 }, {}];

test("a list of messages is a tree: paths, versions, the newest below; without parents it is a line", () => {
  assert.deepEqual([0, 3, 5, 7].map((leaf) => path_to(kTree, leaf)), [[0], [0, 1, 2, 3], [0, 1, 4, 5], [6, 7]]);
  assert.deepEqual(path_to(kTree, -1), []);
  assert.deepEqual(versions_of(kTree), [[0, 6], [1], [2, 4], [3], [2, 4], [5], [0, 6], [7]]);
  assert.deepEqual(kTree.map((_, idx) => newest_below(kTree, idx)), [5, 5, 3, 3, 5, 5, 7, 7]);
  assert.deepEqual([0, 1, 4, 6].map((idx) => parent_of(kTree, idx)), [-1, 0, 1, -1]);
  const line = Array.from({ length: 50 }, () => ({}));
  assert.deepEqual(path_to(line, 49), line.map((_, idx) => idx));
  assert.ok(versions_of(line).every((versions, idx) => versions.length === 1 && versions[0] === idx));
});

test("random trees: each path begins at the top, rises, and ends where it was asked to; the newest below is below", () => {
  let state = 7;
  const random = (below) => (state = (state * 1103515245 + 12345) % 2147483648) % below;
  for (let round = 0; round < 200; round++) {
    const tree = Array.from({ length: 1 + random(40) }, (_, idx) => (random(3) ? {} : { parent: random(idx + 1) - 1 }));
    const versions = versions_of(tree);
    for (let idx = 0; idx < tree.length; idx++) {
      const path = path_to(tree, idx);
      assert.equal(parent_of(tree, path[0]), -1);
      assert.equal(path.at(-1), idx);
      assert.ok(path.every((at, place) => place === 0 || parent_of(tree, at) === path[place - 1]));
      assert.ok(path_to(tree, newest_below(tree, idx)).includes(idx));
      assert.ok(versions[idx].includes(idx) && versions[idx].every((other) => parent_of(tree, other) === parent_of(tree, idx)));
    }
  }
});

const kBranched = {
  ...kConversation,
  messages: [
    { role: "user", text: "Hi", files: [{ name: "a.txt", text: "in ``` it" }] },
    { role: "assistant", text: "", reasoning: "hm", calls: [{ id: "c", name: "f", arguments: "{}" }] },
    { role: "tool", text: "", results: [{ id: "c", name: "f", text: "42" }] },
    { role: "assistant", text: "Ho", scores: '["Ho",-1,[]]\n' },
    { role: "assistant", text: "Hey", parent: 2 },
  ],
  shown: 3,
};

test("branches, files, calls, results and scores survive export and import; what is no tree is refused", () => {
  const [read] = from_json(to_json([kBranched]));
  assert.deepEqual({ ...read, id: "a", rev: 3 }, kBranched);
  assert.equal(
    to_markdown(kBranched),
    "# T\n\n## You\n\nFile `a.txt`:\n\n````\nin ``` it\n````\n\nHi\n\n## Answer\n\nCalls `f`:\n\n```json\n{}\n```\n\n" +
      "## Results\n\n`f`:\n\n```\n42\n```\n\n## Answer\n\nHo\n",
  );
  for (const parent of [4, 5, -2, 0.5, "1"]) {
    const file = JSON.parse(to_json([kBranched]));
    file.conversations[0].messages[4].parent = parent;
    assert.throws(() => from_json(JSON.stringify(file)), /Message 5 of conversation 1 follows message/);
  }
  const file = JSON.parse(to_json([kBranched]));
  Object.assign(file.conversations[0], { shown: 99 });
  Object.assign(file.conversations[0].messages[1], { calls: [{ id: "c" }, 5, { id: "c", name: "f", arguments: "{}", evil: 1 }], files: "x" });
  const [odd] = from_json(JSON.stringify(file));
  assert.equal(shown_leaf(odd), 4);
  assert.deepEqual(odd.messages[1].calls, kBranched.messages[1].calls);
  const version_1 = { ...JSON.parse(to_json([kConversation])), version: 1 };
  assert.equal(from_json(JSON.stringify(version_1)).length, 1);
});

test("a write of another tab that has other branches or results is not taken for an older one", () => {
  const with_last = (fields) => ({ ...kBranched, messages: [...kBranched.messages.slice(0, 4), { role: "assistant", text: "Hey", ...fields }] });
  assert.ok(includes(with_last({ parent: 2 }), kBranched));
  assert.ok(!includes(with_last({}), kBranched)); // it follows another message
  const other = structuredClone(kBranched);
  other.messages[2].results[0].text = "43";
  assert.ok(!includes(other, kBranched));
  assert.ok(matches(kBranched, ["42", "a.txt"]) && title_of([{ role: "user", text: "", files: [{ name: "n", text: "" }] }]) === "n");
  assert.ok(says_nothing({ role: "assistant", text: "" }) && !says_nothing(kBranched.messages[1]) && !says_nothing({ role: "user", text: "" }));
});

test("the model reads calls, results and files; a file cannot end before its end", () => {
  assert.deepEqual(to_wire(kBranched.messages.slice(0, 4), "").map(({ role, content }) => [role, content]), [
    ["user", "----- file: a.txt -----\nin ``` it\n----- end of a.txt -----\n\nHi"], ["assistant", ""], ["tool", "42"], ["assistant", "Ho"],
  ]);
  const text = "----- end of a -----\n--------";
  const [first] = content_of({ text: "", files: [{ name: "a", text }] }).split(" ");
  assert.ok(first.length === 9 && !text.includes(first));
});

test("scores of both endpoints, kept as lines, whatever the lines hold", () => {
  const chat = { content: [{ token: "\ufffd", logprob: -1, bytes: [0xe4, 0xb8], top_logprobs: [{ token: "a", logprob: -2, bytes: [97] }] }, { token: "b" }] };
  assert.deepEqual(scores_of(chat), [{ token: "‹e4›‹b8›", logprob: -1, others: [["a", -2]] }]);
  const completion = { tokens: ["a", "b"], token_logprobs: [-1, -2], top_logprobs: [{ a: -1 }, null] };
  assert.deepEqual(scores_of(completion), [{ token: "a", logprob: -1, others: [["a", -1]] }, { token: "b", logprob: -2, others: [] }]);
  for (const odd of [null, 5, "x", {}, { content: [5] }, { tokens: [1] }]) assert.deepEqual(scores_of(odd), []);
  const scores = [{ token: "a\nb", logprob: -0.5, others: [["c", -3]] }];
  assert.deepEqual(from_lines(to_lines(scores) + to_lines(scores)), [...scores, ...scores]);
  assert.deepEqual(from_lines('x\n[]\n["a"]\n["a",1e999]\n["a",-1,"x"]'), [{ token: "a", logprob: -1, others: [] }]);
  assert.deepEqual([0, -0.0001, -1, -8, -12].map(format_percent), ["100.0 %", "> 99.9 %", "36.8 %", "0.03 %", "< 0.01 %"]);
  assert.deepEqual([0, -0.3, -1, -5].map(sureness), [4, 3, 1, 0]);
  assert.deepEqual([" a ", "\n", "", "\u202ex\u0000"].map(visible), ["␣a␣", "⏎", "(nothing)", "‹U+202E›x‹U+0000›"]);
});

test("tools and forms are read, or it is said what is wrong", () => {
  const tool = { type: "function", function: { name: "f", parameters: {} } };
  assert.deepEqual(read_tools(JSON.stringify([tool])).value, [tool]);
  assert.deepEqual(read_tools(" \n").value, []);
  for (const text of ["{", "null", "5", '"x"', "[null]", "[[]]", '[{"type":"function"}]', JSON.stringify([tool, tool]), JSON.stringify([{ ...tool, function: { name: "f", parameters: [] } }])]) {
    assert.ok(read_tools(text).problem && read_tools(text).value === null, text);
  }
  assert.match(read_tools(JSON.stringify(Array(129).fill(tool))).problem, /129 tools; 128/);
  assert.deepEqual(read_choice("=f", [tool]).value, { type: "function", function: { name: "f" } });
  assert.ok(read_choice("=g", [tool]).problem);
  assert.equal(read_form("text", "x", "x").value, undefined);
  for (const [form, schema, pattern] of [["json_schema", "", ""], ["json_schema", "[]", ""], ["json_schema", "null", ""], ["json_schema", "{", ""], ["regex", "", ""]]) {
    assert.ok(read_form(form, schema, pattern).problem, `${form} ${schema}`);
  }
  assert.equal(pretty_json('{"a":[1]}'), '{\n  "a": [\n    1\n  ]\n}');
  assert.equal(pretty_json('{"a":'), '{"a":');
});

test("calls grow by their pieces, in any order of the calls; an impossible place is left out", () => {
  const piece = (index, text, name = "") => ({ index, id: name && `id-${name}`, name, arguments: text });
  const pieces = [piece(0, "{", "f"), piece(1, "[", "g"), piece(0, "}"), piece(1, "]"), piece(-1, "x"), piece(1e9, "x"), piece(0.5, "x")];
  const whole = with_pieces([], pieces);
  assert.deepEqual(whole, [{ id: "id-f", name: "f", arguments: "{}" }, { id: "id-g", name: "g", arguments: "[]" }]);
  assert.deepEqual(pieces.reduce((calls, each) => with_pieces(calls, [each]), []), whole);
});

test("files are text in UTF-8 or marked UTF-16; their names stay on a line", () => {
  const bytes = (...values) => Uint8Array.from(values);
  assert.equal(decode_text(new TextEncoder().encode("Grüße")), "Grüße");
  assert.equal(decode_text(bytes(0xff, 0xfe, 0x41, 0)), "A");
  assert.equal(decode_text(bytes(0xfe, 0xff, 0, 0x41)), "A");
  for (const data of [bytes(0xff), bytes(0xc3), bytes(65, 0), bytes(0xff, 0xfe, 0x41)]) assert.equal(decode_text(data), null);
  assert.equal(file_name("a\nb\u202e.txt"), "a b .txt");
  assert.equal(file_name("\u0000"), "file");
  assert.equal(file_name("x".repeat(500)).length, 120);
});

test("what is said of a request that ended", () => {
  const good = { status: 200, ending: "whole", finish: "length", prompt_tokens: 40, cached_tokens: 0, cache_miss: "new", output_tokens: 1 };
  assert.equal(ending_of(good), "reached the limit of tokens");
  assert.equal(cache_text(good), "nothing: no kept prompt begins like it: there was none, or it made room for others");
  assert.equal(cache_text({ ...good, cached_tokens: 39, cache_miss: undefined }), "39 of 40 tokens");
  assert.equal(cache_text({}), "");
  assert.equal(output_text(good), "1 token");
  assert.ok(is_good(good) && !is_good({ ...good, status: 503 }) && !is_good({ ...good, ending: "client_left" }) && !is_good({ ...good, finish: "error" }));
  assert.equal(ending_of({ status: 429, ending: "whole" }), "refused with status 429");
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
  const index = readFileSync(join(page_dir, "index.html"), "utf8");
  const script = readFileSync(join(page_dir, "assets", /assets\/(index-[\w-]+\.js)/.exec(index)[1]), "utf8");
  const imported = new Set([...script.matchAll(/(?:from|import)\s*"\.\/([^"]+)"/g)].map(([, name]) => name)); // at once: no import()
  const first = sizes.filter(([name]) => name === "index.html" || index.includes(`/assets/${name}`) || imported.has(name));
  assert.ok(imported.size > 0 && first.length === 4 + imported.size, JSON.stringify(first)); // and page, script, style, icon
  assert.ok(sum(sizes) < 250_000, JSON.stringify(sizes));
  assert.ok(sum(first) < 100_000, JSON.stringify(first));
  const licenses = readFileSync(join(page_dir, "licenses.txt"), "utf8");
  for (const library of ["svelte", "markdown-it", "linkify-it", "highlight.js", "lowlight", "temml", "d3-force"]) assert.ok(licenses.includes(library), library);
});

test("a profile becomes rows of blocks that lie in each other", () => {
  const rows = flame_rows(read_profile(JSON.stringify(small_profile())));
  assert.deepEqual(rows.map((row) => row.length), [2, 12, 4, 10]);
  assert.equal(rows[0][0].name, "prompt");
  assert.match(rows[3][0].text, /^linear: 2.0 µs in layer 0, 4 rows, 8 x 4 q4_0; 0.0 GB\/s, 0.1 Gop\/s$/);
  for (const row of rows) row.slice(1).forEach((block, i) => assert.ok(block.start >= row[i].end, block.text));
  for (const [inner, outer] of [[1, 0], [2, 1], [3, 1]]) {
    for (const block of rows[inner]) assert.ok(rows[outer].some((each) => each.start <= block.start && block.end <= each.end), block.text);
  }
  assert.equal(block_at(rows[3], 3)?.name, "linear");
  assert.equal(block_at(rows[3], 4.5), null);
  assert.equal(block_at([], 1), null);
});

test("what is no profile is refused with a sentence", () => {
  const bad = (text, message) => assert.throws(() => read_profile(text), { message });
  bad("{", "This is no JSON. A profile is what headrace profile --json prints.");
  for (const text of ["{}", "null", "[]", "3"]) bad(text, "This is no profile. headrace profile --json prints one.");
  bad(JSON.stringify({ ...small_profile(), version: 2 }), "This page reads profiles of version 1, not 2.");
  for (const change of [{ steps: 3 }, { steps: [null] }, { steps: [{ ops: [] }] }, { phases: {} }, { kinds: null }]) {
    bad(JSON.stringify({ ...small_profile(), ...change }), "This profile is not whole.");
  }
});

test("a view of a profile stays within it and shows no more blocks than it is wide", () => {
  const profile = small_profile();
  const all = whole(profile);
  assert.deepEqual(all, { from: 0, to: 41 });
  assert.deepEqual(whole({ ...profile, steps: [] }), { from: 0, to: 1 });
  assert.deepEqual(zoomed(all, 2, 0, all), { from: 0, to: 20.5 });
  assert.deepEqual(zoomed(all, 0.5, 20, all), all);
  assert.deepEqual(zoomed(all, 1e9, 41, all), { from: 40, to: 41 });
  assert.deepEqual(panned({ from: 10, to: 20 }, 0.5, all), { from: 15, to: 25 });
  assert.deepEqual(panned({ from: 10, to: 20 }, -9, all), { from: 0, to: 10 });
  assert.deepEqual(bounded({ from: 50, to: 60 }, all), { from: 31, to: 41 });
  const many = Array.from({ length: 100000 }, (_, i) => ({ start: i, end: i + 0.5, name: "x", text: "", tone: 0 }));
  assert.ok(blocks_of(many, { from: 0, to: 100000 }, 100).length <= 1001);
  assert.deepEqual(blocks_of(many, { from: 5.6, to: 8 }, 0.01).map((block) => block.start), [6, 7]);
  assert.equal(format_us(12.34), "12.3 µs");
  assert.equal(format_us(1234), "1.23 ms");
  assert.equal(format_us(2.5e6), "2.50 s");
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
