// Versions of questions and answers: a conversation is a tree.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import {
  answers, ask, assert_no_overflow, button, kept_conversations, last_answer, mock, notice, open, page, scripted, until, use_page, wait_done,
} from "./harness.mjs";

use_page();

const questions = () => page.locator("article.user");
const texts = () => page.locator("article .bubble, article .markdown").allInnerTexts();
const versions = () => page.locator(".versions > span").allInnerTexts();

async function edit(question, text) {
  await question.hover();
  await question.getByRole("button", { name: "Edit" }).click();
  await page.getByLabel("Edit message").fill(text);
  await page.getByLabel("Edit message").press("Enter");
  await until("the new question", async () => (await questions().allInnerTexts()).some((shown) => shown.includes(text)));
  await wait_done();
}

async function until_texts(wanted) {
  await until(`the branch ${wanted}`, async () => JSON.stringify(await texts()) === JSON.stringify(wanted));
}

async function ask_two() {
  await open();
  await ask("first");
  await wait_done();
  await ask("second");
  await until("two answers", async () => (await answers().count()) === 2);
  await wait_done();
}

test("an edited message is asked from there, and the old branch is two clicks away and kept over a reload", scripted, async () => {
  await ask_two();
  await edit(questions().first(), "changed");
  assert.deepEqual(mock.requests[2].messages, [{ role: "user", content: "changed" }]);
  await until_texts(["changed", "You said: changed"]);
  assert.deepEqual(await versions(), ["2/2"]);
  assert.equal(await notice().count(), 0);
  await button("Previous version").click();
  await until_texts(["first", "You said: first", "second", "You said: second"]);
  assert.deepEqual(await versions(), ["1/2"]);
  await until("it being kept", async () => (await kept_conversations())[0].shown === 3);
  await page.reload();
  await until_texts(["first", "You said: first", "second", "You said: second"]);
  await button("Next version").click();
  await until_texts(["changed", "You said: changed"]);
  assert.equal((await kept_conversations())[0].messages.length, 6);
});

test("each answer can be made again, also one in the middle; the model reads the branch that is shown", scripted, async () => {
  await ask_two();
  await answers().first().getByRole("button", { name: "Regenerate" }).click();
  await until("the third request", () => mock.requests.length === 3);
  await wait_done();
  await until_texts(["first", "You said: first"]);
  assert.deepEqual(await versions(), ["2/2"]);
  await ask("third");
  await until("its answer", async () => (await answers().count()) === 2);
  await wait_done();
  assert.deepEqual(mock.requests.at(-1).messages.map(({ content }) => content), ["first", "You said: first", "third"]);
  await button("Previous version").click();
  await until_texts(["first", "You said: first", "second", "You said: second"]);
  await button("Next version").click();
  await until_texts(["first", "You said: first", "third", "You said: third"]);
  await edit(questions().last(), "fourth");
  await edit(questions().last(), "fifth");
  assert.deepEqual(await versions(), ["2/2", "3/3"]);
  await button("Next version").last().click(); // round about
  await until_texts(["first", "You said: first", "third", "You said: third"]);
});

test("versions are walked by keyboard, the focus stays on the arrow, and it is said which is shown", scripted, async () => {
  await ask_two();
  await edit(questions().last(), "other");
  const arrow = button("Previous version");
  await arrow.focus();
  for (const wanted of ["1/2", "2/2", "1/2"]) {
    await page.keyboard.press("Enter");
    await until("the other version", async () => (await versions())[0] === wanted);
    assert.equal(await arrow.evaluate((node) => node === document.activeElement), true);
  }
  assert.match(await page.locator(".composer [role=status]").innerText(), /Version 1 of 2/);
});

test("a field that is open does not edit the message of another branch", scripted, async () => {
  await ask_two();
  await answers().first().getByRole("button", { name: "Regenerate" }).click();
  await until("the third request", () => mock.requests.length === 3);
  await wait_done();
  await ask("third");
  await until("its answer", async () => (await answers().count()) === 2);
  await wait_done();
  await questions().last().hover();
  await questions().last().getByRole("button", { name: "Edit" }).click();
  await page.getByLabel("Edit message").fill("half an edit");
  await button("Previous version").click();
  await until_texts(["first", "You said: first", "second", "You said: second"]);
  assert.equal(await page.getByLabel("Edit message").count(), 0);
});

test("no branch can be changed while an answer streams, and an answer without a word leaves no version behind", scripted, async () => {
  await ask_two();
  await edit(questions().first(), "other");
  await ask("slow");
  await until("words", async () => /word3/.test(await last_answer().innerText()));
  assert.equal(await button("Previous version").isDisabled(), true);
  await button("Stop").click();
  await wait_done();
  assert.equal(await button("Previous version").isDisabled(), false);
  await ask("flaky");
  await until("its answer", async () => /You said: flaky/.test(await last_answer().innerText()));
  await wait_done();
  mock.flaky = true;
  await button("Regenerate").last().click();
  await button("Retry").waitFor();
  mock.flaky = false;
  await button("Retry").click();
  await until("an answer", async () => /You said: flaky/.test(await last_answer().innerText()));
  await wait_done();
  assert.deepEqual(await versions(), ["2/2", "2/2"]);
});

test("an export keeps all branches and the one that was shown; Markdown has that one", scripted, async () => {
  await ask_two();
  await edit(questions().first(), "changed");
  await button("Previous version").click();
  await until_texts(["first", "You said: first", "second", "You said: second"]);
  await until("it being kept", async () => (await kept_conversations())[0].shown === 3);
  const download = async (click) => {
    const [file] = await Promise.all([page.waitForEvent("download"), click()]);
    return readFile(await file.path(), "utf8");
  };
  const all = await download(() => button("Export all").click());
  await button("Actions for first").click();
  const markdown = await download(() => page.locator(".conversation .actions").getByRole("button", { name: "Markdown" }).click());
  assert.equal(markdown, "# first\n\n## You\n\nfirst\n\n## Answer\n\nYou said: first\n\n## You\n\nsecond\n\n## Answer\n\nYou said: second\n");
  await open();
  await page.locator(".sidebar input[type=file]").setInputFiles({ name: "x.json", mimeType: "application/json", buffer: Buffer.from(all) });
  await page.locator(".conversation .open").click();
  await until_texts(["first", "You said: first", "second", "You said: second"]);
  await button("Next version").click();
  await until_texts(["changed", "You said: changed"]);
});

test("a conversation that was kept before there were branches opens and grows some", scripted, async () => {
  await open();
  await page.evaluate(async () => {
    const database = await new Promise((done) => ((indexedDB.open("headrace").onsuccess = ({ target }) => done(target.result))));
    const head = { id: "old", title: "old one", created_ms: 1, updated_ms: 2, rev: 1 };
    const messages = [{ role: "user", text: "early" }, { role: "assistant", text: "Yes.", stats: { seed: 1 } }];
    const transaction = database.transaction(["heads", "bodies"], "readwrite");
    transaction.objectStore("heads").put(head);
    transaction.objectStore("bodies").put({ ...head, messages });
    await new Promise((done) => (transaction.oncomplete = done));
    database.close();
  });
  await page.reload();
  await page.locator(".conversation .open").click();
  await until_texts(["early", "Yes."]);
  await button("Regenerate").click();
  await until_texts(["early", "You said: early"]);
  await wait_done();
  await button("Previous version").click();
  await until_texts(["early", "Yes."]);
});

test("on a phone the arrows are as large as a finger and nothing overflows", scripted, async () => {
  await open({ width: 390, height: 800, phone: true });
  await ask("first");
  await button("Send").tap();
  await wait_done();
  await button("Regenerate").tap();
  await until("the second version", async () => (await versions())[0] === "2/2");
  await wait_done();
  for (const name of ["Previous version", "Next version"]) {
    const { width, height } = await button(name).boundingBox();
    assert.ok(width >= 44 && height >= 44, `${width} ${height}`);
  }
  await assert_no_overflow();
  await button("Previous version").tap();
  await until("the first version", async () => (await versions())[0] === "1/2");
});
