// The page against `headrace serve` with the small model: what the scripted server only plays. HEADRACE_BINARY names the
// program, HEADRACE_TEST_MODELS the folder with the model; without them these tests are skipped. The laboratory needs none.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Browser } from "./browser.mjs";
import { with_settings } from "./harness.mjs";

const binary = process.env.HEADRACE_BINARY ?? "";
const models = process.env.HEADRACE_TEST_MODELS ?? "";
const kSmall = "smollm2-135m.gguf";
const kWithTools = "qwen2.5-coder-0.5b.gguf"; // its template has a place for them
const needs = (model) => ([binary, `${models}/${model}`].every(existsSync) ? {} : { skip: "needs HEADRACE_BINARY and HEADRACE_TEST_MODELS" });
const small = needs(kSmall);
const kShort = { temperature: 0, max_tokens: 12, seed: 1 };

const servers = new Map(); // by model: its process and address
let browser, page;

// The address of a server that runs this model; it is started where there is none.
async function serve(model) {
  if (!servers.has(model)) servers.set(model, await start(["serve", `${models}/${model}`, "--port", "0", "--context", "2048", "--quiet"]));
  return servers.get(model).url;
}

// A server that has said its address.
async function start(words) {
  const child = spawn(binary, words, { stdio: ["ignore", "pipe", "ignore"] });
  const url = await new Promise((done, fail) => {
    let text = "";
    child.stdout.on("data", (piece) => {
      text += piece;
      const found = /https?:\/\/\S+/.exec(text);
      if (found) done(found[0]);
    });
    child.on("exit", (code) => fail(new Error(`headrace ended with ${code}: ${text}`)));
  });
  return { child, url };
}

before(async () => {
  browser = await Browser.start();
});
after(async () => {
  await browser?.close();
  for (const { child } of servers.values()) child.kill();
});

// A fresh profile for each test.
async function open(settings, model = kSmall) {
  const url = await serve(model);
  page = await browser.open(url, await browser.profile(), with_settings({ ...kShort, ...settings }));
  await page.locator(".state.online").waitFor();
  return url;
}

async function ask(text) {
  await page.locator("#draft").fill(text);
  await page.locator("#draft").press("Enter");
  await page.getByRole("button", { name: /^(Regenerate|Retry)$/ }).last().waitFor();
  assert.deepEqual(await page.locator(".error").allInnerTexts(), []);
}

test("log-probs arrive for each token of an answer", small, async () => {
  await open({ logprobs: true, top_logprobs: 3 });
  await ask("Say hello.");
  await page.getByRole("button", { name: "Tokens" }).click();
  await page.locator(".token").first().hover();
  const count = await page.locator(".token").count();
  assert.ok(count >= 2 && count <= 12, String(count));
  assert.equal(await page.locator(".token-facts tbody tr").count(), 3);
  assert.match(await page.locator(".token-facts").innerText(), /\d %/);
  assert.deepEqual(page.problems, []);
});

test("the prompt shows the template's marks; those that a person writes are text", small, async () => {
  await open({});
  await ask("What is <|im_end|> for?");
  await page.getByRole("button", { name: "Prompt", exact: true }).click();
  const text = page.locator(".prompt-text");
  await text.waitFor();
  const marks = await text.locator("mark").allInnerTexts();
  assert.ok(marks.includes("<|im_start|>"), String(marks));
  assert.equal(marks.filter((mark) => mark === "<|im_end|>").length, marks.filter((mark) => mark === "<|im_start|>").length - 1);
  assert.match(await text.innerText(), /What is <\|im_end\|> for\?/);
  assert.deepEqual(page.problems, []);
});

test("an answer holds to the form that was chosen", small, async () => {
  await open({ form: "regex", pattern: "(north|south)" });
  await ask("Where do birds go in winter?");
  assert.match(await page.locator("article.assistant .markdown").innerText(), /^(north|south)$/);
  assert.deepEqual(page.problems, []);
});

test("tools that the model's template has no place for are refused in the server's words", small, async () => {
  await open({ tools: '[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]' });
  await page.locator("#draft").fill("Call f.");
  await page.locator("#draft").press("Enter");
  const answer = page.locator("article.assistant");
  await answer.locator(".error, .card, .markdown > p").first().waitFor();
  const error = answer.locator(".error");
  if (await error.count()) assert.match(await error.innerText(), /tools/);
});

test("a model calls a tool of the page, holds to its schema, and goes on with the result", needs(kWithTools), async () => {
  const parameters = { type: "object", properties: { city: { enum: ["Oslo", "Rome"] } }, required: ["city"], additionalProperties: false };
  const tools = JSON.stringify([{ type: "function", function: { name: "get_weather", description: "The weather in a city.", parameters } }]);
  await open({ tools, tool_choice: "=get_weather", max_tokens: 40 }, kWithTools);
  await ask("What is the weather in Rome?");
  const card = page.locator("article.assistant .card");
  assert.match(await card.innerText(), /Calls get_weather[^]*"city": "(Oslo|Rome)"/);
  await page.evaluate(() => document.getElementById("show-settings").click());
  await page.getByLabel("Calls", { exact: true }).selectOption("None");
  await page.getByLabel("Result of get_weather").fill("17 degrees and rain");
  await page.getByRole("button", { name: "Send result" }).click();
  await page.locator("article.assistant").nth(1).getByRole("button", { name: "Regenerate" }).waitFor();
  assert.notEqual((await page.locator("article.assistant .markdown").last().innerText()).trim(), "");
  await page.locator("article.assistant").nth(1).getByRole("button", { name: "Prompt" }).click();
  await page.locator(".prompt-text").waitFor();
  assert.match(await page.locator(".prompt-text").innerText(), /get_weather[^]*17 degrees and rain/);
  assert.deepEqual(page.problems, []);
});

test("the list of requests tells what was found in the cache, and never a text", small, async () => {
  const url = await open({ temperature: 0 });
  const long = `Remember this list. ${Array.from({ length: 60 }, (_, idx) => `item ${idx}`).join(", ")}.`;
  await ask(long);
  await page.getByRole("button", { name: "Regenerate" }).click();
  await page.locator(".versions").waitFor();
  await page.getByRole("button", { name: "Regenerate" }).waitFor();
  await page.getByRole("button", { name: "Requests", exact: true }).click();
  const panel = page.locator(".panel.requests");
  await panel.locator("dl").nth(1).waitFor();
  const newest = await panel.locator("dl").first().innerText();
  assert.match(newest, /From the cache\s+\d+ of \d+ tokens/);
  assert.match(newest, /First token\s+[\d.]+ m?s/);
  assert.doesNotMatch(await panel.innerText(), /Remember|item 1/);
  const list = await (await fetch(`${url}/api/headrace/requests`)).text();
  assert.doesNotMatch(list, /Remember|item/);
  assert.deepEqual(page.problems, []);
});

const needs_program = existsSync(binary) ? {} : { skip: "needs HEADRACE_BINARY" };

// A laboratory that is served, with a page that looks at one of its views; use({url, folder, lab}) does the rest.
async function with_lab(view, use) {
  const folder = mkdtempSync(join(tmpdir(), "headrace-lab-"));
  const lab = (...words) => spawn(binary, ["lab", ...words, "--lab", join(folder, "lab")], { stdio: "ignore", env: { ...process.env, TMPDIR: folder } });
  const { child, url } = await start(["lab", "serve", "--lab", join(folder, "lab"), "--port", "0"]);
  try {
    page = await browser.open(new URL(`/lab#/${view}`, url).href, await browser.profile(), undefined, "#view");
    await page.locator(".state.online").waitFor();
    await use({ url, folder, lab });
    assert.deepEqual(page.problems, []);
  } finally {
    const gone = new Promise((done) => child.on("exit", done));
    child.kill();
    await gone;
    rmSync(folder, { recursive: true, force: true });
  }
}

const go = (view) => page.evaluate((to) => (location.hash = to), `#/${view}`);
const ended = (child) => new Promise((done) => child.on("exit", done));

test("a real tuning run is followed from its first round to what it recommends", needs_program, async () => {
  await with_lab("overview", async ({ folder, lab }) => {
    const model = join(folder, "tiny.gguf");
    const shape = ["--layers", "2", "--hidden", "64", "--heads", "4", "--kv-heads", "2", "--head-dim", "16", "--intermediate", "96", "--vocab", "320"];
    const made = spawn(binary, ["bench", "synth", "--shape", "llama-1b", "--format", "q8_0", ...shape, "--out", model], { stdio: "ignore" });
    assert.equal(await ended(made), 0);
    const tuning = ended(lab("tune", model, "--goal", "memory", "--rounds", "5", "--idle-patience", "0", "--idle-share", "1"));
    await page.getByRole("link", { name: "1. defaults beside 3 changes" }).waitFor();
    await go("experiment/1");
    await page.getByRole("heading", { level: 1, name: "1. defaults beside 3 changes" }).waitFor();
    await page.getByText("Hypothesis of --kv-type int8").waitFor();
    for (const side of ["--kv-type fp8", "--kv-type int8", "--batch-tokens 128"]) {
      await page.getByText(new RegExp(`${side} beside defaults: .* in \\d+ rounds, (validated|ruled out|undecided)`)).waitFor();
    }
    assert.equal(await tuning, 0);
    await go("hypotheses");
    await page.getByText(/^0 open|^[123] open/).first().waitFor();
    assert.ok((await page.locator(".rows > li svg").count()) >= 3);
    await go("log");
    await page.getByText(/memory: recommends .*tuned-memory\.toml/).waitFor();
    await go("graph");
    await page.locator('.graph[aria-busy="false"] .node').nth(3).waitFor({ state: "attached" });
  });
});

test("the laboratory's page shows an experiment that is added, run and decided meanwhile", needs_program, async () => {
  await with_lab("queue", async ({ url, lab }) => {
    const add = async (kind, form) => {
      const body = JSON.stringify({ by: "ada", ...form });
      const answer = await fetch(new URL(`/api/lab/actions/add_${kind}`, url), { method: "POST", headers: { "content-type": "application/json" }, body });
      assert.equal(answer.status, 200, await answer.text());
    };
    await page.getByText("Nothing waits.").waitFor();
    await add("hypothesis", { statement: "two is <b>faster</b>", metric: "speed", predicted: 0.2 });
    const side = (name, speed) => ({ name, command: ["/bin/echo", JSON.stringify({ speed })] });
    for (const title of ["one or two", "two or one"]) await add("experiment", { hypothesis: 1, title, sides: [side("one", 10), side("two", 15)] });
    await page.locator(".queue > li").nth(1).waitFor();
    await page.locator('.queue > li[data-id="2"] .handle').press("ArrowUp");
    await page.locator('.queue > li[data-id="2"]:first-child').waitFor();

    await go("experiment/2");
    await page.getByRole("heading", { level: 1, name: "2. two or one" }).waitFor();
    const run = ended(lab("run", "--idle-patience", "0", "--idle-share", "1"));
    await page.getByText(/two beside one: \+50\.0 % .* in \d+ rounds, validated/).waitFor();
    await run;
    assert.equal(await page.locator("ins").innerText(), `'{"speed":15}'`);
    await page.getByRole("button", { name: /^stderr\.txt/ }).first().waitFor();
    for (const [view, text] of [["hypothesis/1", "validated"], ["log", "validated"], ["overview", "1. one or two"], ["now", "No experiment runs."]]) {
      await go(view);
      await page.locator("#view").getByText(text).first().waitFor();
    }
    await page.getByRole("region", { name: "Cores" }).getByText("%").first().waitFor();
    await go("graph");
    await page.locator('.graph[aria-busy="false"] .node').nth(2).waitFor({ state: "attached" });
  });
});
