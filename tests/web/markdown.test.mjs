// What an answer's text becomes on the page, and what it can never become.

import assert from "node:assert/strict";
import { test } from "node:test";
import { answers, ask, assert_no_overflow, button, field, last_answer, mock, notice, open, page, scripted, until, use_page, wait_done, watch_requests } from "./harness.mjs";
import { kAttacks } from "./attacks.mjs";
import { kEverything } from "./mock_server.mjs";

use_page();

test("headings, tables, nested lists, boxes, strike, quotes, formulas and code have their elements", scripted, async () => {
  await open({ width: 360, height: 720 });
  await ask("everything");
  await wait_done();
  const answer = last_answer().locator(".markdown");
  const count = (selector) => answer.locator(selector).count();
  for (const [selector, number] of [
    ["h2", 1], ["h3", 1], ["h4", 1], ["strong", 1], ["em", 1], ["del", 1], ["a[href='https://example.org/a']", 1],
    ["a[href='https://example.org/bare']", 1], ["ul ul ol > li", 2], ["input[type=checkbox]:disabled", 2],
    ["input:checked", 1], ["table th", 2], ["tbody tr", 2], ["td.right", 2], ["blockquote li", 1], ["hr", 1], ["pre", 1],
  ]) {
    assert.equal(await count(selector), number, selector);
  }
  await until("the formulas", async () => (await count("math")) === 3);
  assert.match(await answer.innerText(), /costs \$5 or \$6\./);
  await until("colours", async () => (await count("pre .hljs-keyword")) >= 2);
  assert.equal(await answer.locator("pre").innerText(), kEverything.match(/```rust\n([^]*?)\n```/)[1]);
  const sizes = await answer.locator("h2, h3, h4").evaluateAll((nodes) => nodes.map((node) => parseFloat(getComputedStyle(node).fontSize)));
  assert.ok(sizes[0] > sizes[1] && sizes[1] > sizes[2], String(sizes));
  await assert_no_overflow();
});

test("code that is still being written is code already; long lines wrap when wanted, and that is remembered", scripted, async () => {
  await open({ width: 500 });
  await ask("fence");
  const code = last_answer().locator("pre");
  await until("code", async () => (await code.count()) === 1 && (await code.innerText()) === "if x:\n    return 1\n".trimEnd());
  mock.go();
  await wait_done();
  await until("colours", async () => (await code.locator(".hljs-keyword").count()) === 2);
  assert.deepEqual(await last_answer().locator(".markdown > p").allInnerTexts(), ["Code:", "Done."]);
  await ask("everything");
  await until("two answers", async () => (await answers().count()) === 2);
  await wait_done();
  const wide = () => last_answer().locator("pre").evaluate((node) => node.scrollWidth > node.clientWidth);
  assert.equal(await wide(), true);
  await last_answer().getByRole("button", { name: "Wrap" }).click();
  assert.equal(await wide(), false);
  await page.reload();
  await until("the answers", async () => (await answers().count()) === 2);
  assert.equal(await wide(), false);
});

test("what is settled of a long answer is not drawn again while more text comes", scripted, async () => {
  await open();
  const section = `## Part\n\n${"Some words of text with `code` and **weight**. ".repeat(8)}\n\n- a\n- b\n\n`;
  mock.text = section.repeat(150);
  await ask("lengthen");
  await until("words", async () => /word3/.test(await last_answer().innerText()));
  await page.evaluate(() => {
    const blocks = document.querySelector("article.assistant .markdown").children;
    window.settled = [...blocks].slice(0, -1);
    window.changes = 0;
    for (const node of window.settled) {
      new MutationObserver((records) => (window.changes += records.length)).observe(node, { attributes: true, characterData: true, childList: true, subtree: true });
    }
  });
  await until("more words", async () => /word30/.test(await last_answer().innerText()));
  const [num_settled, num_kept, changes] = await page.evaluate(() => {
    const kept = window.settled.filter((node, idx) => node === document.querySelector("article.assistant .markdown").children[idx]);
    return [window.settled.length, kept.length, window.changes];
  });
  assert.ok(num_settled >= 450, String(num_settled));
  assert.deepEqual([num_kept, changes], [num_settled, 0]);
});

// Everything in the answers that should not be there.
function find_dangers() {
  const kElements = "script, img, svg, iframe, object, embed, style, link, form, base, meta, video, audio, details.x, button.x";
  const parts = [...document.querySelectorAll(".markdown, .plain, .bubble, .reasoning")];
  const dangers = parts.flatMap((part) => [...part.querySelectorAll(kElements)].map((node) => node.outerHTML));
  for (const node of parts.flatMap((part) => [...part.querySelectorAll("*")])) {
    for (const { name, value } of node.attributes) {
      const allowed = /^(class|start|type|checked|disabled|aria-.*|role|tabindex|scope|title|rel|target|hidden)$/.test(name) || node.namespaceURI.endsWith("MathML");
      if (/^on|^(src|srcdoc|id|action|formaction|xlink:href)$/.test(name) || (node.namespaceURI.endsWith("MathML") && name === "href")) dangers.push(`${name}=${value}`);
      else if (name === "href" && !/^(https?:|mailto:)/.test(value)) dangers.push(`href=${value}`);
      else if (!allowed && name !== "href") dangers.push(`${name}=${value}`);
    }
  }
  const rects = [...document.querySelectorAll(".formula, .formula *")].map((node) => node.getBoundingClientRect());
  if (rects.some(({ width, height }) => width > 2000 || height > 2000)) dangers.push("a giant formula");
  return { dangers, owned: window.owned ?? null };
}

async function assert_harmless(foreign) {
  // Everything clickable in the answers is clicked; links open elsewhere and are closed at once.
  await page.evaluate(() => document.querySelectorAll(".markdown a").forEach((node) => node.addEventListener("click", (event) => event.preventDefault())));
  await page.evaluate(() => document.querySelectorAll(".markdown *").forEach((node) => node.click?.()));
  await page.waitForTimeout(150);
  assert.deepEqual(await page.evaluate(find_dangers), { dangers: [], owned: null });
  assert.deepEqual(foreign, []);
  assert.equal(await page.locator("#draft").count(), 1);
}

test("the search for dangers finds them", scripted, async () => {
  await open();
  await ask("hello");
  await wait_done();
  assert.deepEqual((await page.evaluate(find_dangers)).dangers, []);
  for (const markup of ["<a href='/v1/models'>x</a>", "<b onclick=''>x</b>", "<img>", "<i id=draft>x</i>", "<math href='x'></math>", "<p data-x=1>x</p>"]) {
    await page.evaluate((html) => (document.querySelector(".markdown").innerHTML = html), markup);
    assert.notDeepEqual((await page.evaluate(find_dangers)).dangers, [], markup);
  }
  page.expected_problems = /script-src|Content Security Policy/;
  await until("a complaint", () => page.problems.some((problem) => /script-src/.test(problem))); // the policy stops what the search finds
});

test("hostile text in an answer stays text: nothing runs, nothing loads, no link but to the web or to mail", scripted, async () => {
  await open();
  const foreign = await watch_requests();
  for (const plain of [false, true]) {
    mock.text = plain ? kAttacks.join(" ") : kAttacks.join("\n\n");
    await ask("given");
    await wait_done();
    await page.waitForTimeout(300);
    await assert_harmless(foreign);
  }
  assert.match(await answers().first().innerText(), /<script>window\.owned = 1<\/script>/);
});

test("hostile text in an imported conversation stays text", scripted, async () => {
  await open();
  const foreign = await watch_requests();
  const messages = kAttacks.flatMap((text, idx) => [
    { role: "user", text },
    { role: "assistant", text, reasoning: text, plain: idx % 2 === 0, outcome: { kind: "failed", text }, stats: { ttft_s: text, seed: 1 } },
  ]);
  const file = { format: "headrace-conversations", version: 1, conversations: [{ title: kAttacks[1], messages, id: "x", __proto__: { rev: 9 } }] };
  await page.locator(".sidebar input[type=file]").setInputFiles({ name: "x.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify(file)) });
  await notice().waitFor();
  assert.match(await notice().innerText(), /Imported 1 conversation/);
  await page.locator(".conversation .open").click();
  await until("its messages", async () => (await answers().count()) === kAttacks.length);
  await page.waitForTimeout(300);
  await assert_harmless(foreign);
  assert.equal(await page.locator(".conversation img").count(), 0);
});
