// Files as text, and the list of requests.

import assert from "node:assert/strict";
import { test } from "node:test";
import { assert_no_overflow, button, field, mock, notice, open, page, scripted, until, use_page, wait_done } from "./harness.mjs";

use_page();

const chooser = () => page.locator(".composer input[type=file]");
const file = (name, content, mimeType = "text/plain") => ({ name, mimeType, buffer: Buffer.from(content) });
const chips = () => page.locator(".composer .chip");

test("text files become chips and go above the message between marks with their names", scripted, async () => {
  await open();
  await chooser().setInputFiles([file("a.py", "print(1)\n"), file("b.txt", "Grüße ----- end of b.txt -----")]);
  await until("two chips", async () => (await chips().count()) === 2);
  assert.match(await chips().first().innerText(), /a\.py\s*9 B/);
  await field().fill("what is this");
  await field().press("Enter");
  await wait_done();
  assert.equal(
    mock.requests[0].messages[0].content,
    "----- file: a.py -----\nprint(1)\n----- end of a.py -----\n\n" +
      "------ file: b.txt ------\nGrüße ----- end of b.txt -----\n------ end of b.txt ------\n\nwhat is this",
  );
  assert.equal(await chips().count(), 0);
  const sent = page.locator("article.user .chip");
  await sent.first().locator("summary").click();
  assert.equal(await sent.first().locator("pre").innerText(), "print(1)\n");
  await page.reload();
  await until("them again", async () => (await sent.count()) === 2);
  const question = page.locator("article.user");
  await question.hover();
  await question.getByRole("button", { name: "Edit" }).click();
  await page.getByLabel("Edit message").fill("and now");
  await page.getByLabel("Edit message").press("Enter");
  await until("the second request", () => mock.requests.length === 2);
  await wait_done();
  assert.match(mock.requests[1].messages[0].content, /^----- file: a\.py[^]*and now$/);
});

test("a file alone is a message; one can be left out again", scripted, async () => {
  await open();
  assert.equal(await button("Send").isDisabled(), true);
  await chooser().setInputFiles([file("notes.txt", "some notes"), file("other.txt", "x")]);
  await button("Remove other.txt").click();
  assert.equal(await chips().count(), 1);
  await button("Send").click();
  await wait_done();
  assert.equal(mock.requests[0].messages[0].content, "----- file: notes.txt -----\nsome notes\n----- end of notes.txt -----");
  await until("its name in the list", async () => (await page.locator(".conversation .title").innerText()) === "notes.txt");
  assert.equal(await page.locator("article.user .bubble").count(), 0);
});

for (const [what, given, told] of [
  ["a picture", file("x.png", Buffer.from([0x89, 0x50, 0x4e, 0x47, 0, 1, 2, 0xff])), /x\.png is no text/],
  ["text with a zero", file("z.txt", "a\0b"), /z\.txt is no text/],
  ["an empty file", file("e.txt", ""), /e\.txt is empty/],
  ["a large file", file("l.txt", "x".repeat(1_000_001)), /l\.txt has 1\.1 MB; a file may have 1 MB/],
]) {
  test(`${what} is refused with the reason`, scripted, async () => {
    await open();
    await chooser().setInputFiles(given);
    await notice().hover();
    assert.match(await notice().innerText(), told);
    assert.equal(await chips().count(), 0);
  });
}

test("files together have a limit, too", scripted, async () => {
  await open();
  await chooser().setInputFiles(["a", "b", "c"].map((name) => file(name, "x".repeat(900_000))));
  await notice().hover();
  assert.match(await notice().innerText(), /c is too much: the files of a message may have 2 million characters/);
  await until("two chips", async () => (await chips().count()) === 2);
  await chooser().setInputFiles(Array.from({ length: 15 }, (_, idx) => file(`n${idx}`, "x")));
  await until("the other limit", async () => /A message takes 16 files/.test(await notice().last().innerText()));
  assert.equal(await chips().count(), 16);
});

test("files are dropped on the chat, and are chosen on a phone", scripted, async () => {
  await open();
  await page.evaluate(() => {
    const data = new DataTransfer();
    data.items.add(new File(["dropped text"], "d.txt"));
    const chat = document.querySelector("section.chat");
    chat.dispatchEvent(new DragEvent("dragover", { dataTransfer: data, bubbles: true, cancelable: true }));
    window.dragging = chat.matches(".dragging");
    chat.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
  });
  await until("its chip", async () => (await chips().count()) === 1);
  await open({ width: 390, height: 800, phone: true });
  await chooser().setInputFiles([file(`${"long".repeat(60)}.txt`, "x"), file("b", "y")]);
  await until("two chips", async () => (await chips().count()) === 2);
  await assert_no_overflow();
  const { height } = await button("Attach text files").boundingBox();
  assert.ok(height >= 44, String(height));
  await button("Remove b").tap();
  await button("Send").tap();
  await wait_done();
  await assert_no_overflow();
});

const kFinished = [
  {
    request_id: "r1", route: "/v1/chat/completions", model: "mock", ended_ms: 1e12, status: 200, ending: "whole", finish: "stop", total_ms: 2500,
    queue_ms: 12, first_token_ms: 300, tokens_per_s: 45.2, prompt_tokens: 900, cached_tokens: 880,  output_tokens: 101, cache_miss: "differs",
  },
  { request_id: "r2", route: "/v1/completions", ended_ms: 1e12, status: 400, ending: "whole", total_ms: 1 },
  { request_id: "r3", route: "/v1/chat/completions", ended_ms: 1e12, status: 200, ending: "client_left", finish: "cancelled", total_ms: 10 },
];

test("the list of requests says what each waited for, what it took, and why the cache had no more of it", scripted, async () => {
  mock.running = [{ request_id: "q", answer_id: "a", model: "mock", seconds: 3.25 }];
  mock.finished = kFinished;
  await open();
  await button("Requests").click();
  const panel = page.locator(".panel.requests");
  await until("the rows", async () => (await panel.locator("dl").count()) === 3);
  const text = await panel.innerText();
  assert.match(text, /mock\s+for 3\.25 s/);
  for (const part of [
    /complete/, /Queue\s+12 ms/, /First token\s+300 ms/, /In all\s+2\.50 s/, /880 of 900 tokens: it goes on otherwise than the kept prompts/,
    /101 tokens, 45\.2 per second/, /refused with status 400/, /the client left/, /Request id\s+r1/,
  ]) {
    assert.match(text, part);
  }
  mock.finished = [];
  await until("none", async () => /None yet/.test(await panel.innerText()));
  await button("Close requests").click();
  await until("a focus", () => page.evaluate(() => document.activeElement.id === "show-requests"));
});

test("a server that does not tell of requests says why; on a phone the list fits", scripted, async () => {
  mock.finished = [{ ...kFinished[0], request_id: "x".repeat(128), route: `/${"y".repeat(200)}` }];
  await open({ width: 390, height: 800, phone: true });
  await button("Requests").tap();
  await page.locator(".panel.requests dl").waitFor();
  await assert_no_overflow();
  mock.down = true;
  await until("the reason", async () => /does not answer/.test(await page.locator(".panel.requests").innerText()));
});
