// Texts of models, files and servers in each place beside answers' Markdown: they stay text.

import assert from "node:assert/strict";
import { test } from "node:test";
import { kAttacks } from "./attacks.mjs";
import {
  ask, button, field, mock, notice, open, page, scripted, until, use_page, wait_done, watch_requests, with_settings,
} from "./harness.mjs";

use_page();

// Elements and attributes that no text may have made, in the whole page; the page's own drawings are known by their box.
function find_foreign() {
  const own = (node) => node.closest('svg[viewBox="0 0 20 20"], .bar svg, .chart') !== null;
  const kElements = "script:not([src^='/assets/']), img, svg, iframe, object, embed, style, base, video, audio, math, form:not(.composer, .edit, dialog form)";
  const found = [...document.querySelectorAll(kElements)].filter((node) => !own(node)).map((node) => node.outerHTML.slice(0, 100));
  for (const node of document.querySelectorAll("#app *")) {
    for (const { name, value } of node.attributes) {
      if (name === "style" && node.localName === "textarea") continue; // the page sets its height
      if (/^on|^(src|srcdoc|style|action|formaction|xlink:href)$/.test(name)) found.push(`${name}=${value}`);
      if (name === "href" && !/^(#draft|\/licenses.txt|https:.*|mailto:.*)$/.test(value)) found.push(`href=${value}`);
    }
  }
  return { found, owned: window.owned ?? null, title: document.title };
}

async function assert_text_only(foreign) {
  await page.evaluate(() => document.querySelectorAll("a[target]").forEach((node) => node.addEventListener("click", (event) => event.preventDefault())));
  await page.waitForTimeout(100);
  assert.deepEqual(await page.evaluate(find_foreign), { found: [], owned: null, title: "headrace" });
  assert.deepEqual(foreign, []);
}

test("the search for foreign things finds them", scripted, async () => {
  await open();
  for (const markup of ["<img>", "<a href='javascript:x'>x</a>", "<b onclick=''>x</b>", "<svg></svg>", "<form></form>"]) {
    await page.evaluate((html) => (document.querySelector(".welcome").innerHTML = html), markup);
    assert.notDeepEqual((await page.evaluate(find_foreign)).found, [], markup);
  }
  page.expected_problems = /script-src|Content Security Policy/;
});

test("names and arguments of calls, results, thoughts and their versions", scripted, async () => {
  mock.calls = kAttacks.map((text) => ({ name: text, text: JSON.stringify({ [text]: text }) }));
  await open({ before: with_settings({ tools: '[{"type":"function","function":{"name":"f"}}]' }) });
  const foreign = await watch_requests();
  await ask("call");
  await wait_done();
  assert.equal(await page.locator("article.assistant .card").count(), kAttacks.length);
  await assert_text_only(foreign);
  for (const [idx, text] of kAttacks.entries()) await page.locator("form.results textarea").nth(idx).fill(text);
  await button("Send results").click();
  await until("the answer", async () => (await page.locator("article.assistant").count()) === 2);
  await wait_done();
  assert.equal(await page.locator("article.tool pre").first().innerText(), kAttacks[0]);
  await assert_text_only(foreign);
  await page.locator("article.assistant").last().getByRole("button", { name: "Regenerate" }).click();
  await wait_done();
  await assert_text_only(foreign);
});

test("tools and schemas that are typed, and what is wrong with them", scripted, async () => {
  await open();
  const foreign = await watch_requests();
  await button("Settings").click();
  for (const text of kAttacks.slice(0, 8)) {
    await page.getByLabel("Tools", { exact: true }).fill(text);
    await page.locator("#tools-state.bad").waitFor();
    await page.getByLabel("Tools", { exact: true }).fill(`[{"type":"function","function":{"name":${JSON.stringify(text)}}}]`);
    await page.locator("#tools-state.bad").waitFor();
  }
  await ask("hello");
  await notice().hover();
  await assert_text_only(foreign);
});

test("tokens and their alternatives, and scores of an imported file", scripted, async () => {
  mock.scores = kAttacks.map((text) => ({ token: text, logprob: -1, others: [[text, -1], [`${text}\u202e\u0007`, -2]] }));
  await open({ before: with_settings({ logprobs: true }) });
  const foreign = await watch_requests();
  await ask("score");
  await wait_done();
  await button("Tokens").click();
  await until("all tokens", async () => (await page.locator(".token").count()) === kAttacks.length);
  await page.getByRole("listbox").focus();
  for (let idx = 0; idx < kAttacks.length; idx++) {
    await page.keyboard.press("ArrowRight");
    assert.equal(await page.locator(".token-facts img, .token-facts script").count(), 0);
  }
  assert.match(await page.locator(".token-facts").innerText(), /‹U\+202E›‹U\+0007›/);
  await assert_text_only(foreign);
  const scores = ['["<img src=x onerror=window.owned=1>", -1, [["<script>", -2], 5, ["x", "y"]]]', "5", "[1]", "{", "null", '["a", null]'].join("\n");
  const file = { format: "headrace-conversations", version: 2, conversations: [{ title: "t", messages: [{ role: "user", text: "q" }, { role: "assistant", text: "a", scores }] }] };
  await page.locator(".sidebar input[type=file]").setInputFiles({ name: "x.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify(file)) });
  await page.locator(".conversation .title").getByText("t", { exact: true }).click();
  await button("Tokens").click();
  await until("one token", async () => (await page.locator(".token").count()) === 1);
  await assert_text_only(foreign);
});

test("names and texts of files", scripted, async () => {
  await open();
  const foreign = await watch_requests();
  const names = kAttacks.slice(0, 16).map((text) => text.replaceAll("/", "_").slice(0, 200));
  const files = names.map((name, idx) => ({ name, mimeType: "text/html", buffer: Buffer.from(kAttacks[idx]) }));
  await page.locator(".composer input[type=file]").setInputFiles(files);
  await until("all chips", async () => (await page.locator(".composer .chip").count()) === 16);
  await assert_text_only(foreign);
  await field().press("Enter");
  await wait_done();
  await page.evaluate(() => document.querySelectorAll(".chip details").forEach((node) => (node.open = true)));
  assert.equal(await page.locator("article.user .chip pre").first().innerText(), kAttacks[0]);
  await assert_text_only(foreign);
});

test("the prompt and its tokens", scripted, async () => {
  const text = kAttacks.join("");
  mock.prompt = {
    text, count: kAttacks.length, tokens: kAttacks.map((_, idx) => idx), token_strs: kAttacks,
    parts: kAttacks.map((part, idx) => ({ text: part, special: idx % 2 === 0, count: 1 })),
  };
  await open();
  const foreign = await watch_requests();
  await ask("hello");
  await wait_done();
  await button("Prompt").click();
  await page.locator(".prompt-text").waitFor();
  assert.equal(await page.locator(".prompt-text").evaluate((node) => node.textContent), text);
  await assert_text_only(foreign);
  await button("Token ids").click();
  await until("the ids", async () => (await page.locator(".ids li").count()) === kAttacks.length);
  await assert_text_only(foreign);
});

test("what a server says of requests", scripted, async () => {
  mock.finished = kAttacks.map((text) => ({ request_id: text, route: text, model: text, finish: text, ending: text, cache_miss: text, prompt_tokens: 1, cached_tokens: 0, status: text }));
  mock.running = kAttacks.map((text, idx) => ({ request_id: text, answer_id: `${idx}${text}`, model: text, seconds: 1 }));
  await open();
  const foreign = await watch_requests();
  await button("Requests").click();
  await until("the rows", async () => (await page.locator(".requests dl").count()) === kAttacks.length);
  await assert_text_only(foreign);
});
