// Asking and answering in a real browser.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  answers, ask, assert_no_overflow, button, field, last_answer, mock, open, page, real_url, scripted, undo, until, until_at_end, use_page,
  wait_done,
} from "./harness.mjs";
import { kCode } from "./mock_server.mjs";

use_page();

test("a message sent by keyboard gets a streamed answer with its figures", async () => {
  await open();
  await field().focus();
  await page.keyboard.type("Say hello to the world and to all who live in it");
  await page.keyboard.press("Enter");
  assert.equal(await page.locator("article.user .bubble").innerText(), "Say hello to the world and to all who live in it");
  await wait_done();
  assert.notEqual((await last_answer().locator(".markdown").innerText()).trim(), "");
  assert.match(await last_answer().locator(".stats").innerText(), /TTFT [\d.]+ m?s.*[\d.]+ tokens\/s.*\d+ tokens/s);
  assert.equal(await field().inputValue(), "");
  assert.equal(await page.evaluate(() => document.activeElement?.id), "draft");
});

test("text appears while the answer streams; Escape stops it and the server notices", scripted, async () => {
  await open();
  await ask("slow");
  await until("the first words", async () => (await last_answer().innerText()).includes("word3"));
  assert.equal(await page.getByRole("button", { name: "Stop", exact: true }).isVisible(), true);
  await page.keyboard.press("Escape");
  await wait_done();
  const text = await last_answer().innerText();
  assert.match(text, /Stopped\./);
  await until("the cancellation", () => mock.num_cancelled === 1);
  await page.waitForTimeout(150);
  assert.equal(await last_answer().innerText(), text);
});

test("the Stop button stops; the next message works", async () => {
  await open();
  await page.getByRole("button", { name: "Settings", exact: true }).click();
  await page.getByLabel("Max tokens").fill("2000");
  await ask(real_url ? "Write a very long story about a mill race." : "slow");
  await until("some text", async () => (await last_answer().locator(".markdown").innerText()).length > 10);
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await wait_done();
  assert.match(await last_answer().innerText(), /Stopped\./);
  await page.getByLabel("Max tokens").fill("8");
  await ask("Again");
  await until("the second answer", async () => (await answers().count()) === 2);
  await wait_done();
  assert.equal(await last_answer().locator(".error").count(), 0);
});

test("the server's refusal is shown in its own words", async () => {
  await open();
  if (real_url) {
    await page.getByRole("button", { name: "Settings", exact: true }).click();
    await page.getByLabel("System prompt").fill("word ".repeat(200000));
  }
  await ask("refuse");
  await last_answer().locator(".error").waitFor();
  const text = await last_answer().locator(".error").innerText();
  if (!real_url) assert.match(text, /9000 tokens, but the context has 8192/);
  assert.ok(text.length > 20 && !text.includes("status 4"), text);
  assert.equal(await last_answer().locator(".error").getAttribute("role"), "alert");
});

test("a full queue says when to try again", scripted, async () => {
  await open();
  await ask("busy");
  await last_answer().locator(".error").waitFor();
  assert.match(await last_answer().innerText(), /The queue is full\. Try again in 3 s\./);
});

for (const [word, message] of [
  ["fail", /Half an ans[^]*The engine was asked to fail\./],
  ["cut", /Half an ans[^]*The connection closed before the answer was complete\./],
  ["unfinished", /Half an ans[^]*The answer ended without saying why\./],
]) {
  test(`an answer that ends in '${word}' keeps its text and says what happened`, scripted, async () => {
    await open();
    await ask(word);
    await until("the half", async () => /Half an ans/.test(await last_answer().innerText()));
    mock.go();
    await last_answer().locator(".error").waitFor();
    assert.match(await last_answer().innerText(), message);
  });
}

test("a stream of single bytes gives the same text", scripted, async () => {
  await open();
  await ask("bytes");
  await wait_done();
  assert.equal(await last_answer().locator(".markdown").innerText(), "Grüße, 世界 🏇");
});

test("a model cannot write markup; code scrolls in its own box and can be copied", scripted, async () => {
  await open({ width: 360, height: 720 });
  await ask("code");
  await wait_done();
  assert.equal(await last_answer().locator("img, script").count(), 0);
  assert.equal(await last_answer().locator("a").count(), 1);
  assert.equal(await page.title(), "headrace");
  assert.equal(await last_answer().locator("pre").innerText(), kCode.match(/```python\n([^]*?)\n```/)[1]);
  assert.ok(await last_answer().locator("pre").evaluate((node) => node.scrollWidth > node.clientWidth));
  await assert_no_overflow();
  const copy = last_answer().getByRole("button", { name: "Copy code" });
  await copy.evaluate((node) => {
    window.labels = []; // it says so for a moment only
    new MutationObserver(() => window.labels.push(node.textContent)).observe(node, { childList: true, characterData: true, subtree: true });
  });
  await copy.click();
  await until("the word", () => page.evaluate(() => window.labels[0] === "Copied"));
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^def race/);
});

test("a fast long answer is drawn in full, follows the end, and says that it was cut", scripted, async () => {
  await open();
  await ask("fast");
  await wait_done();
  const text = await last_answer().innerText();
  assert.match(text, /token3999\b[^]*The answer reached the limit of tokens\./);
  assert.match(text, /4,000 tokens/);
  await until_at_end();
});

test("scrolling up while it streams is respected; Latest goes back to the end", scripted, async () => {
  await open({ width: 500, height: 400 });
  await ask("fast");
  await wait_done();
  await ask("slow");
  const log = page.getByRole("log");
  await until("new text", async () => (await last_answer().innerText()).includes("word3"));
  await log.evaluate((node) => node.scrollTo(0, 0));
  await page.getByRole("button", { name: "Latest" }).waitFor();
  await until("more text", async () => (await last_answer().innerText()).includes("word25"));
  assert.equal(await log.evaluate((node) => node.scrollTop), 0);
  await page.getByRole("button", { name: "Latest" }).click();
  await until("the end", () => log.evaluate((node) => node.scrollHeight - node.scrollTop - node.clientHeight < 60));
  await page.keyboard.press("Escape");
  await wait_done();
});

test("text that shrinks while it streams does not count as scrolling up", scripted, async () => {
  await open({ width: 500, height: 400 });
  await ask("shrink");
  for (const [what, shown] of [["the lines", "A line of text."], ["the long form", "(https://"], ["the short form", "link and the end."]]) {
    await until(what, async () => (await last_answer().innerText()).includes(shown));
    await until_at_end();
    mock.go();
  }
  await wait_done();
  await until_at_end();
});

test("regenerate asks again; Shift+Enter breaks the line; New chat clears", scripted, async () => {
  await open();
  await field().fill("first");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("second");
  await page.keyboard.press("Enter");
  await wait_done();
  assert.equal(mock.requests[0].messages[0].content, "first\nsecond");
  await button("Regenerate").click();
  await until("the second request", () => mock.requests.length === 2);
  await wait_done();
  assert.equal(await answers().count(), 1);
  assert.deepEqual(mock.requests[1].messages, mock.requests[0].messages);
  await page.locator("header").getByRole("button", { name: "New chat" }).click();
  assert.equal(await page.locator("article").count(), 0);
});

test("the request holds the conversation and the settings that were made, and nothing that was not", scripted, async () => {
  await open();
  await ask("zero");
  await wait_done();
  assert.deepEqual(Object.keys(mock.requests[0]).sort(), ["messages", "model", "path", "seed", "stream", "stream_options"]);
  await button("Settings").click();
  for (const [label, value] of [["System prompt", "Be brief."], ["Temperature", "0.5"], ["Top-p", "0.8"], ["Top-k", "7"], ["Max tokens", "33"], ["Seed", "9"]]) {
    await page.getByLabel(label, { exact: true }).fill(value);
  }
  await page.getByLabel("Model").selectOption("alias");
  await ask("one");
  await until("the second answer", async () => (await answers().count()) === 2);
  await wait_done();
  assert.deepEqual(mock.requests[1], {
    path: "/v1/chat/completions", model: "alias", temperature: 0.5, top_p: 0.8, top_k: 7, max_tokens: 33, seed: 9,
    stream: true, stream_options: { include_usage: true },
    messages: [
      { role: "system", content: "Be brief." },
      { role: "user", content: "zero" },
      { role: "assistant", content: "You said: zero" },
      { role: "user", content: "one" },
    ],
  });
});

test("an empty setting shows what the server takes; an impossible one becomes possible; a reset can be undone", scripted, async () => {
  await open();
  await button("Settings").click();
  const temperature = page.getByLabel("Temperature", { exact: true });
  await until("the server's default", async () => (await temperature.getAttribute("placeholder")) === "Default 0.6");
  assert.equal(await page.getByLabel("Top-k", { exact: true }).getAttribute("placeholder"), "Default 40");
  assert.equal(await page.getByLabel("Max tokens").getAttribute("placeholder"), "No limit");
  await temperature.fill("9");
  await page.getByLabel("Seed", { exact: true }).fill("-3");
  await ask("hello");
  await wait_done();
  assert.equal(mock.requests[0].temperature, 2);
  assert.equal(mock.requests[0].seed, 0);
  await button("Reset settings").click();
  assert.equal(await temperature.inputValue(), "");
  await undo();
  assert.equal(await temperature.inputValue(), "9");
});

test("a server that does not tell its sampling defaults leaves the fields without figures", scripted, async () => {
  mock.sampling = undefined;
  await open();
  await page.locator(".state.online").waitFor();
  await button("Settings").click();
  assert.equal(await page.getByLabel("Temperature", { exact: true }).getAttribute("placeholder"), "Server's default");
});

test("an answer that the limit cut goes on where it stopped", scripted, async () => {
  await open();
  await ask("limit");
  await button("Continue").click();
  await until("the rest", async () => (await last_answer().locator(".markdown").innerText()) === "one two three four.");
  await wait_done();
  assert.equal(await button("Continue").count(), 0);
  assert.equal(await answers().count(), 1);
  const { messages, continue_final_message, add_generation_prompt } = mock.requests[1];
  assert.deepEqual([messages.at(-1), continue_final_message, add_generation_prompt], [{ role: "assistant", content: "one two" }, true, false]);
});

test("a limit that fell among the thoughts says what to do", scripted, async () => {
  await open();
  await ask("think");
  await wait_done();
  assert.match(await last_answer().innerText(), /still thinking: raise Max tokens/);
  assert.equal(await button("Continue").count(), 0);
});

test("Retry asks again after the network failed, with one notice in between", scripted, async () => {
  await open();
  mock.flaky = true;
  await ask("flaky");
  await last_answer().locator(".error").waitFor();
  assert.equal(await last_answer().locator(".error, .note").count(), 1);
  mock.flaky = false;
  await button("Retry").click();
  await until("the answer", async () => /You said: flaky/.test(await last_answer().innerText()));
  await wait_done();
  assert.equal(await last_answer().locator(".error, .note").count(), 0);
  assert.equal(await answers().count(), 1);
});

test("a model without a chat template says so and goes on with the text", scripted, async () => {
  mock.chat_template = null;
  await open();
  await page.locator(".banner").waitFor();
  assert.match(await page.locator(".banner").innerText(), /no chat template: it continues your text/);
  await page.locator(".state.online").waitFor(); // the model's context is known
  await ask("Say limit");
  await button("Continue").click();
  await until("the rest", async () => (await last_answer().locator(".plain").innerText()) === "one two three four.");
  await wait_done();
  await ask("More");
  await until("the next text", async () => (await answers().count()) === 2);
  await wait_done();
  assert.deepEqual(mock.requests.map(({ path, prompt, max_tokens }) => [path, prompt, max_tokens]), [
    ["/v1/completions", "Say limit", 8192],
    ["/v1/completions", "Say limitone two", 8192],
    ["/v1/completions", "Say limitone two three four.\nMore", 8192],
  ]);
});

test("a server with a key asks for it once, and the tab keeps it", scripted, async () => {
  mock.api_key = "secret";
  await open();
  const dialog = page.getByRole("dialog");
  await dialog.waitFor();
  await button("Not now").click();
  const asked = page.waitForResponse((response) => response.status() === 401);
  await page.evaluate(() => dispatchEvent(new Event("online")));
  await asked; // the page asked the server again, but not the person
  await page.waitForTimeout(50);
  assert.equal(await dialog.isVisible(), false);
  await ask("hello");
  await dialog.waitFor();
  await page.getByLabel("Key", { exact: true }).fill("wrong");
  await page.keyboard.press("Enter");
  await dialog.getByText("did not accept").waitFor();
  await page.getByLabel("Key", { exact: true }).fill("secret");
  await page.keyboard.press("Enter");
  await until("the answer", async () => /You said: hello/.test(await last_answer().innerText()));
  await page.locator(".state.online").waitFor();
  assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes("secret")), false);
  await page.reload();
  await page.locator(".state.online").waitFor();
  assert.equal(await dialog.isVisible(), false);
});

test("screen readers hear that an answer begins and then the answer, not each of its words", scripted, async () => {
  await open();
  await page.evaluate(() => {
    window.heard = [];
    const status = document.querySelector(".composer [role=status]");
    new MutationObserver(() => window.heard.push(status.textContent)).observe(status, { childList: true, characterData: true, subtree: true });
  });
  assert.equal(await page.getByRole("log").getAttribute("aria-live"), "off");
  await ask("hello dear world");
  await wait_done();
  assert.deepEqual(await page.evaluate(() => window.heard), ["Answering.", "Answer complete. You said: hello dear world"]);
});

test("the focus is never lost: what had it and goes away hands it on", scripted, async () => {
  for (const phone of [false, true]) {
    await open({ width: phone ? 360 : 1280, height: 400, phone });
    const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.localName);
    const wanted = phone ? "log" : "draft";
    const press = async (name) => {
      await button(name).click();
      await until("a focus", async () => (await focused()) === wanted);
    };
    await field().fill("limit");
    await press("Send");
    await press("Continue");
    await wait_done();
    await press("Regenerate");
    await wait_done();
    await field().fill("long fast");
    await press("Send");
    await until("a long answer", async () => (await answers().count()) === 2);
    await wait_done();
    await page.getByRole("log").evaluate((node) => node.scrollTo(0, 0));
    await press("Latest");
    await page.locator("article.user").first().hover();
    await page.locator("article.user").first().getByRole("button", { name: "Edit" }).click();
    await page.getByLabel("Edit message").fill("changed");
    await page.locator(".edit").getByRole("button", { name: "Send" }).click();
    await until("a focus", async () => (await focused()) === wanted);
    await wait_done();
  }
});
