// What the browser keeps: conversations and settings, over reloads and across tabs.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import {
  answers, ask, button, field, kept_conversations, last_answer, mock, notice, open, open_tab, page, scripted, undo, until, until_kept, use_page,
  wait_done,
} from "./harness.mjs";

use_page();

const rows = (tab = page) => tab.locator(".conversation .title");
const titles = (tab = page) => rows(tab).allInnerTexts();

async function start_new() {
  await page.locator("header").getByRole("button", { name: "New chat" }).click();
  await page.locator(".welcome").waitFor();
}

async function converse(...texts) {
  for (const text of texts) {
    await ask(text);
    await until("an answer", async () => (await answers().count()) > 0);
    await wait_done();
    await start_new();
  }
}

async function act(title, action) {
  const expander = button(`Actions for ${title}`);
  if ((await expander.getAttribute("aria-expanded")) === "false") await expander.click();
  await page.locator(".conversation .actions").getByRole("button", { name: action, exact: true }).click();
}

async function download_of(run) {
  const [download] = await Promise.all([page.waitForEvent("download"), run()]);
  return { name: download.suggestedFilename(), text: await readFile(await download.path(), "utf8") };
}

async function import_text(text, name = "file.json") {
  await page.locator(".sidebar input[type=file]").setInputFiles({ name, mimeType: "application/json", buffer: Buffer.from(text) });
}

test("conversations are listed, found by their words, renamed, deleted and brought back", scripted, async () => {
  await open();
  await converse("apples", "pears", "plums");
  assert.deepEqual(await titles(), ["plums", "pears", "apples"]);
  await page.getByLabel("Search conversations").fill("said: PEARS");
  await until("what was found", async () => (await rows().count()) === 1);
  assert.deepEqual(await titles(), ["pears"]);
  await act("pears", "Rename");
  await page.getByLabel("New name").fill("Green ones");
  await page.keyboard.press("Enter");
  await until("the new name", async () => (await titles())[0] === "Green ones");
  await page.getByLabel("Search conversations").fill("");
  await until("the whole list", async () => (await rows().count()) === 3);
  await act("Green ones", "Delete");
  await until("a shorter list", async () => (await rows().count()) === 2);
  await until("a focus", () => page.evaluate(() => document.activeElement.matches(".conversation .open")));
  await undo();
  await until("the list as it was", async () => (await rows().count()) === 3);
  await rows().getByText("Green ones").click();
  assert.match(await last_answer().innerText(), /You said: pears/);
  await until("a focus", () => page.evaluate(() => document.activeElement.id === "draft"));
});

test("all conversations can be deleted, and brought back", scripted, async () => {
  await open();
  await converse("apples", "pears");
  await button("Settings").click();
  await button("Delete all conversations").click();
  await until("an empty list", async () => (await rows().count()) === 0);
  await undo();
  await until("both", async () => (await rows().count()) === 2);
});

test("a reload in the middle of an answer keeps the text so far and says so once; the draft stays", scripted, async () => {
  await open();
  await ask("hello");
  await wait_done();
  await ask("slow");
  await until("some text", async () => /word3/.test(await last_answer().innerText()));
  await field().fill("unsent");
  await page.reload();
  await until("both answers", async () => (await answers().count()) === 2);
  assert.match(await answers().first().innerText(), /You said: hello/);
  assert.match(await last_answer().innerText(), /word3[^]*Interrupted/);
  assert.equal(await page.locator(".note, .error, .notice").count(), 1);
  assert.equal(await field().inputValue(), "unsent");
  await until("a focus", () => page.evaluate(() => document.activeElement.id === "draft"));
  await button("Continue").waitFor();
  assert.deepEqual(await titles(), ["hello"]);
});

test("leaving a conversation while it answers keeps what there is of it", scripted, async () => {
  await open();
  await ask("slow");
  await until("some text", async () => /word5/.test(await last_answer().innerText()));
  await start_new();
  await until("the cancellation", () => mock.num_cancelled === 1);
  await rows().first().click();
  await until("its text", async () => (await answers().count()) === 1);
  assert.match(await last_answer().innerText(), /word5[^]*Stopped\./);
});

test("tabs share the list, a conversation open in both follows, and settings of both hold", scripted, async () => {
  await open();
  await ask("apples");
  await wait_done();
  const other = await open_tab();
  assert.equal(await answers(other).count(), 0);
  await rows(other).first().click();
  await until("the conversation", async () => (await answers(other).count()) === 1);
  await ask("more", other);
  await until("it here", async () => (await answers().count()) === 2);
  await wait_done(other);
  await until("its text here", async () => /You said: more/.test(await last_answer().innerText()));
  for (const tab of [page, other]) await button("Settings", tab).click();
  await page.getByLabel("Temperature", { exact: true }).fill("0.3");
  await until("the first's setting", async () => (await other.getByLabel("Temperature", { exact: true }).inputValue()) === "0.3");
  await other.getByLabel("Max tokens").fill("50");
  await until("the other's setting", async () => (await page.getByLabel("Max tokens").inputValue()) === "50");
  for (const tab of [page, other]) assert.equal(await tab.getByLabel("Temperature", { exact: true }).inputValue(), "0.3");
});

test("two tabs that write one conversation at once lose nothing", scripted, async () => {
  await open();
  await ask("apples");
  await until_kept("You said: apples");
  // The other tab tells what it writes, but does not hear in time what is written here.
  const other = await open_tab(() => {
    BroadcastChannel.prototype.addEventListener = () => undefined;
  });
  await rows(other).first().click();
  await until("the conversation", async () => (await answers(other).count()) === 1);
  await ask("here slow");
  await ask("there slow", other);
  await until("two conversations", async () => (await rows().count()) === 2); // they are kept while they are written
  await button("Stop").click();
  await button("Stop", other).click();
  const stopped = ({ messages }) => messages.at(-1).outcome?.kind === "stopped";
  await until("both being kept", async () => (await kept_conversations()).every(stopped));
  const questions = (await kept_conversations()).map(({ messages }) => messages.at(-2).text);
  assert.deepEqual(questions.sort(), ["here slow", "there slow"]);
  for (const title of ["apples (other tab)", "apples"]) {
    await rows().getByText(title, { exact: true }).click();
    await page.locator(".conversation.current").getByText(title, { exact: true }).waitFor();
    const question = await page.locator("article.user .bubble").last().innerText();
    assert.equal(question, questions.splice(questions.indexOf(question), 1)[0]);
  }
  assert.deepEqual(questions, []);
});

test("a conversation comes out as Markdown and as JSON, and JSON goes in again", scripted, async () => {
  await open();
  await converse("apples", "pears");
  const markdown = await download_of(() => act("pears", "Markdown"));
  assert.deepEqual(markdown, { name: "pears.md", text: "# pears\n\n## You\n\npears\n\n## Answer\n\nYou said: pears\n" });
  const all = await download_of(() => button("Export all").click());
  assert.equal(JSON.parse(all.text).conversations.length, 2);
  await open();
  await import_text(all.text);
  await until("both", async () => (await rows().count()) === 2);
  assert.deepEqual(await titles(), ["pears", "apples"]);
  await rows().last().click();
  await until("its answer", async () => /You said: apples/.test(await last_answer().innerText()));
});

for (const [what, text, told] of [
  ["no JSON", "# hello", /not JSON/],
  ["other JSON", '{"a": 1}', /no headrace conversations/],
  ["another version", '{"format": "headrace-conversations", "version": 9, "conversations": []}', /version 9; this page reads versions 1 and 2/],
  ["a wrong role", '{"format": "headrace-conversations", "version": 1, "conversations": [{"messages": [{"role": "x", "text": "y"}]}]}', /Message 1 of conversation 1 needs a role/],
]) {
  test(`an import of ${what} says what is wrong with the file and keeps nothing`, scripted, async () => {
    await open();
    await import_text(text);
    await notice().waitFor();
    assert.match(await notice().innerText(), told);
    assert.equal(await rows().count(), 0);
  });
}

test("a full storage is told once, and the conversation goes on", scripted, async () => {
  await open({
    before: () => {
      IDBObjectStore.prototype.put = () => {
        throw new DOMException("full", "QuotaExceededError");
      };
    },
  });
  await ask("one");
  await wait_done();
  await ask("two");
  await until("two answers", async () => (await answers().count()) === 2);
  await wait_done();
  await until("one notice", async () => (await notice().count()) === 1);
  assert.match(await notice().innerText(), /storage is full: the newest messages are not kept/);
});

test("a browser that forbids storage still chats, and says what that means", scripted, async () => {
  await open({
    before: () => {
      for (const name of ["localStorage", "sessionStorage", "indexedDB"]) {
        Object.defineProperty(window, name, {
          get() {
            throw new DOMException("forbidden", "SecurityError");
          },
        });
      }
    },
  });
  await converse("apples", "pears");
  assert.deepEqual(await titles(), ["pears", "apples"]);
  await page.getByText("conversations last until this tab is closed").waitFor();
  await rows().last().click();
  await until("its answer", async () => /You said: apples/.test(await last_answer().innerText()));
});

test("what a closing page could only leave behind is found by the next, and rubbish there harms nothing", scripted, async () => {
  await open();
  await ask("apples");
  await until_kept("You said: apples");
  const { url } = mock;
  await page.goto(`${url}/licenses.txt`); // the same storage, and no page that could write to it now
  await page.evaluate(() => {
    const id = JSON.parse(sessionStorage.getItem("headrace.open"));
    const left = { title: "x", created_ms: 1, updated_ms: Date.now(), rev: 1 };
    const answer = (text) => [{ role: "user", text: "apples" }, { role: "assistant", text }];
    const leave = (key, value) => localStorage.setItem(`headrace.unsaved.${key}`, JSON.stringify(value));
    leave(id, { ...left, id, messages: answer("You said: apples and more") }); // goes on from what was kept
    leave("other", { ...left, id: "other", title: "left alone", messages: answer("something") });
    leave("bad", { id, messages: [null, 5] });
    leave("worse", "text");
  });
  await page.goto(url);
  await until("its text", async () => /You said: apples and more/.test(await last_answer().innerText()));
  assert.deepEqual((await titles()).sort(), ["apples", "left alone"]);
  assert.deepEqual(await page.evaluate(() => Object.keys(localStorage).filter((key) => key.includes("unsaved"))), []);
});

test("an answer whose words were kept just before its page closed still says that it was interrupted", scripted, async () => {
  await open();
  await ask("apples");
  await until_kept("You said: apples");
  const { url } = mock;
  await page.goto(`${url}/licenses.txt`);
  await page.evaluate(() => {
    const id = JSON.parse(sessionStorage.getItem("headrace.open"));
    const outcome = { kind: "interrupted", text: "Interrupted: the page was closed." };
    const messages = [{ role: "user", text: "apples" }, { role: "assistant", text: "You said: apples", outcome }];
    const left = { id, title: "apples", created_ms: 1, updated_ms: Date.now(), rev: 0, messages }; // before the last write
    localStorage.setItem(`headrace.unsaved.${id}`, JSON.stringify(left));
  });
  await page.goto(url);
  await until("its text", async () => /You said: apples[^]*Interrupted/.test(await last_answer().innerText()));
  assert.deepEqual(await titles(), ["apples"]);
});
