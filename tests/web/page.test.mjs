// The page in a real browser. Against the scripted server by default, with the page from HEADRACE_PAGE (a folder);
// HEADRACE_URL runs those tests that do not need a script against a running `headrace serve` and its embedded page.

import assert from "node:assert/strict";
import { existsSync, mkdirSync } from "node:fs";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Browser } from "./browser.mjs";
import { kCode, MockServer } from "./mock_server.mjs";

const real_url = process.env.HEADRACE_URL;
const page_dir = process.env.HEADRACE_PAGE ?? fileURLToPath(new URL("../../build/release/web/dist", import.meta.url));
const scripted = real_url ? { skip: "needs the scripted server" } : {};
const kTimeout_ms = real_url ? 60000 : 10000;

let browser, mock, page;

async function open(options) {
  page = await browser.open(real_url ?? mock.url, options);
  page.setDefaultTimeout(kTimeout_ms);
  return page;
}

const field = () => page.getByLabel("Message", { exact: true });
const answers = () => page.locator("article.assistant");
const last_answer = () => answers().last();

async function ask(text) {
  await field().fill(text);
  await page.keyboard.press("Enter");
}

async function wait_done() {
  await page.getByRole("button", { name: "Regenerate" }).waitFor();
}

async function until(what, condition) {
  const deadline = Date.now() + kTimeout_ms;
  while (!(await condition())) {
    if (Date.now() > deadline) assert.fail(`timed out waiting for ${what}`);
    await new Promise((done) => setTimeout(done, 25));
  }
}

async function assert_no_overflow() {
  const wide = await page.evaluate(() => {
    const limit = document.documentElement.clientWidth;
    const scrolls = (node) => node && (node.closest("pre") !== null || node.closest(".offscreen, .skip") !== null);
    const nodes = [...document.querySelectorAll("body *")].filter((node) => !scrolls(node));
    return {
      page: document.documentElement.scrollWidth - limit,
      nodes: nodes.filter((node) => node.getBoundingClientRect().right > limit + 0.5).map((node) => node.outerHTML.slice(0, 80)),
    };
  });
  assert.deepEqual(wide, { page: 0, nodes: [] });
}

before(async () => {
  if (!real_url) {
    if (!existsSync(`${page_dir}/index.html`)) {
      throw new Error(`no page in ${page_dir}: build the target headrace_ui, or set HEADRACE_PAGE to a built page`);
    }
    mock = await MockServer.start(page_dir);
  }
  browser = await Browser.start();
});

after(async () => {
  await browser?.close();
  await mock?.close();
});

beforeEach(() => {
  if (mock) Object.assign(mock, { requests: [], num_cancelled: 0, api_key: "", sparse: false, idle: false, down: false });
});

afterEach(async () => {
  const problems = page?.problems ?? [];
  await page?.close();
  page = undefined;
  assert.deepEqual(problems, []);
});

test("a message sent by keyboard gets a streamed answer with its figures", async () => {
  await open();
  await field().focus();
  await page.keyboard.type("Say hello to the world and to all who live in it");
  await page.keyboard.press("Enter");
  assert.equal(await page.locator("article.user").innerText(), "Say hello to the world and to all who live in it");
  await wait_done();
  assert.notEqual((await last_answer().locator(".markdown").innerText()).trim(), "");
  assert.match(await last_answer().locator(".stats").innerText(), /TTFT [\d.]+ m?s.*[\d.]+ tokens\/s.*\d+ tokens/s);
  assert.equal(await field().inputValue(), "");
  assert.equal(await page.evaluate(() => document.activeElement?.id), "draft");
});

test("the request holds the conversation, the settings and the usage option", scripted, async () => {
  await open();
  await page.getByRole("button", { name: "Settings", exact: true }).click();
  await page.getByLabel("System prompt").fill("Be brief.");
  await page.getByLabel(/^Temperature/).fill("0.5");
  await page.getByLabel(/^Top-p/).fill("0.8");
  await page.getByLabel("Max tokens").fill("33");
  await page.getByLabel("Seed", { exact: true }).fill("7");
  await page.getByLabel("Model").selectOption("alias");
  await ask("one");
  await wait_done();
  await ask("two");
  await until("the second request", () => mock.requests.length === 2);
  await wait_done();
  assert.deepEqual(mock.requests[1], {
    model: "alias", temperature: 0.5, top_p: 0.8, max_tokens: 33, seed: 7, stream: true, stream_options: { include_usage: true },
    messages: [
      { role: "system", content: "Be brief." },
      { role: "user", content: "one" },
      { role: "assistant", content: "You said: one" },
      { role: "user", content: "two" },
    ],
  });
});

test("an emptied or impossible field falls back to a value the server takes", scripted, async () => {
  await open();
  await page.getByRole("button", { name: "Settings", exact: true }).click();
  await page.getByLabel("Max tokens").fill("");
  await page.getByLabel("Seed", { exact: true }).fill("-3");
  await ask("hello");
  await wait_done();
  assert.equal(mock.requests[0].max_tokens, 512);
  assert.equal(mock.requests[0].seed, 0);
  await page.getByRole("button", { name: "Reset settings" }).click();
  await page.getByRole("button", { name: "Regenerate" }).click();
  await until("the second request", () => mock.requests.length === 2);
  assert.ok(Number.isInteger(mock.requests[1].seed));
  await wait_done();
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
  assert.doesNotMatch(text, /word900/);
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
  await browser.context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await last_answer().getByRole("button", { name: "Copy code" }).click();
  await last_answer().getByRole("button", { name: "Copied" }).waitFor();
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^def race/);
});

test("a fast long answer is drawn in full, follows the end, and says that it was cut", scripted, async () => {
  await open();
  await ask("fast");
  await wait_done();
  const text = await last_answer().innerText();
  assert.match(text, /token3999 [^]*Cut off at the limit of tokens\./);
  assert.match(text, /4,000 tokens/);
  await page.waitForTimeout(200);
  assert.ok(await page.getByRole("log").evaluate((log) => log.scrollHeight - log.scrollTop - log.clientHeight < 3));
  assert.equal(await page.getByRole("button", { name: "Latest" }).count(), 0);
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
  await until("the long form", async () => (await last_answer().innerText()).includes("(https://"));
  await wait_done();
  assert.match(await last_answer().innerText(), /link and the end\./);
  await page.waitForTimeout(100);
  assert.equal(await page.getByRole("button", { name: "Latest" }).count(), 0);
  assert.ok(await page.getByRole("log").evaluate((log) => log.scrollHeight - log.scrollTop - log.clientHeight < 3));
});

test("regenerate replaces the answer; Shift+Enter breaks the line; New chat clears", scripted, async () => {
  await open();
  await field().fill("first");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("second");
  await page.keyboard.press("Enter");
  await wait_done();
  assert.equal(mock.requests[0].messages[0].content, "first\nsecond");
  await page.getByRole("button", { name: "Regenerate" }).click();
  await until("the second request", () => mock.requests.length === 2);
  await wait_done();
  assert.equal(await answers().count(), 1);
  assert.deepEqual(mock.requests[1].messages, mock.requests[0].messages);
  await page.getByRole("button", { name: "New chat" }).click();
  assert.equal(await page.locator("article").count(), 0);
});

test("the conversation and the settings survive a reload, also in the middle of an answer", scripted, async () => {
  await open();
  await ask("hello");
  await wait_done();
  await ask("slow");
  await until("some text", async () => (await last_answer().innerText()).includes("word3"));
  await page.reload();
  await field().waitFor();
  assert.equal(await answers().count(), 2);
  assert.match(await answers().first().innerText(), /You said: hello/);
  assert.match(await last_answer().innerText(), /word3[^]*Interrupted/);
  await page.getByRole("button", { name: "Send", exact: true }).waitFor();
});

test("the charts draw what the status says, and stop asking while the tab is hidden", async () => {
  await open();
  await page.locator(".chart canvas").nth(3).waitFor();
  await until("drawn lines", () =>
    page.locator(".chart canvas").first().evaluate((canvas) => {
      const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      return pixels.some((value, idx) => idx % 4 === 3 && value > 0);
    }),
  );
  await until("a model", async () => (await page.locator("dd").first().innerText()) !== "–");
  if (real_url) return;
  await until("three samples", () => mock.num_status >= 3);
  assert.match(await page.locator("aside").innerText(), /SmolLM|mock/);
  assert.match(await page.locator("aside").innerText(), /Q4_1 × 210, F32 × 61, Q8_0 × 1/);
  assert.match(await page.locator("header").innerText(), /tokens\/s[^]*running[^]*waiting/);
  await page.evaluate(() => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => true });
    document.dispatchEvent(new Event("visibilitychange"));
  });
  await page.waitForTimeout(200);
  const num_status = mock.num_status;
  await page.waitForTimeout(1500);
  assert.equal(mock.num_status, num_status);
  await page.evaluate(() => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => false });
    document.dispatchEvent(new Event("visibilitychange"));
  });
  await until("polling again", () => mock.num_status >= num_status + 2);
});

test("a status without fields shows dashes, not errors", scripted, async () => {
  mock.sparse = true;
  await open();
  await until("a status", () => mock.num_status > 0);
  assert.match(await page.locator("aside").innerText(), /Family\s+–/);
});

test("without a count of formats their name is shown", scripted, async () => {
  const { formats } = mock;
  mock.formats = {};
  await open();
  await page.locator("dd").getByText("Q4_1 mostly").waitFor();
  mock.formats = formats;
});

test("the speed is 0 while nothing runs", scripted, async () => {
  mock.idle = true;
  await open();
  await page.getByText("0 tokens/s", { exact: false }).first().waitFor();
  await until("idle charts", async () => /Decode\s+0 tokens\/s[^]*Prefill\s+0 tokens\/s/.test(await page.locator("aside").innerText()));
});

test("a server that goes away is named, and found again", scripted, async () => {
  await open();
  await page.getByText(/running · /).waitFor();
  mock.down = true;
  await page.getByText("Offline").waitFor();
  mock.down = false;
  await page.getByText(/running · /).waitFor();
});

test("a server with a key asks for it and then works", scripted, async () => {
  mock.api_key = "secret";
  await open();
  await page.locator("aside").getByText("The API key is missing or wrong.").waitFor();
  await page.getByRole("button", { name: "Settings", exact: true }).click();
  await page.getByLabel("API key").fill("secret");
  await page.getByText(/running · /).waitFor();
  await ask("hello");
  await wait_done();
  assert.match(await last_answer().innerText(), /You said: hello/);
});

test("the Tab key reaches every control in order, with a visible ring", async () => {
  await open();
  await page.getByRole("button", { name: "Settings", exact: true }).click();
  await until("the model list", async () => (await page.locator("#model option").count()) > 0);
  await field().fill("x");
  // A focus on the body puts the walk at the page's start.
  await page.evaluate(() => {
    document.body.tabIndex = -1;
    document.body.focus();
    document.body.removeAttribute("tabindex");
  });
  const wanted = await page.evaluate(() =>
    [...document.querySelectorAll("a[href], button, input, select, textarea, [tabindex='0']")]
      .filter((node) => !node.disabled && node.checkVisibility())
      .map((node) => (node.textContent?.trim() || node.id || node.className).slice(0, 40)),
  );
  assert.ok(wanted.length >= 14, String(wanted));
  const seen = [];
  for (let idx = 0; idx < wanted.length; idx++) {
    await page.keyboard.press("Tab");
    const [name, ring] = await page.evaluate(() => {
      const node = document.activeElement;
      return [(node.textContent?.trim() || node.id || node.className).slice(0, 40), getComputedStyle(node).outlineStyle];
    });
    seen.push(name);
    assert.equal(ring, "solid", name);
  }
  assert.deepEqual(seen, wanted);
  const unnamed = await page.evaluate(() =>
    [...document.querySelectorAll("input, select, textarea")].filter((node) => !node.labels?.length).map((node) => node.id),
  );
  assert.deepEqual(unnamed, []);
});

test("the conversation is a live region, busy while it streams", scripted, async () => {
  await open();
  const log = page.getByRole("log");
  assert.equal(await log.getAttribute("aria-live"), "polite");
  await ask("slow");
  await until("busy", async () => (await log.getAttribute("aria-busy")) === "true");
  await page.keyboard.press("Escape");
  await until("rest", async () => (await log.getAttribute("aria-busy")) === "false");
  assert.equal(await page.locator(".composer [role=status]").innerText(), "Stopped.");
});

test("on a phone of 360 px every view fits and works", async () => {
  await open({ width: 360, height: 720 });
  await assert_no_overflow();
  await page.getByRole("button", { name: "Engine", exact: true }).click();
  await page.locator(".chart canvas").nth(3).waitFor();
  await assert_no_overflow();
  assert.equal(await field().isVisible(), false);
  await page.getByRole("button", { name: "Settings", exact: true }).click();
  await page.getByLabel("Max tokens").fill("16");
  await assert_no_overflow();
  await page.getByRole("button", { name: "Chat", exact: true }).click();
  await ask("Hello there, with averyveryveryveryveryveryveryveryveryveryveryverylongwordthatcannotbreak");
  await wait_done();
  await assert_no_overflow();
});

// For people, on request: the views in both schemes and at both widths.
const screenshots = process.env.HEADRACE_SCREENSHOTS;
const when_asked = screenshots ? test : () => undefined;
when_asked("screenshots", scripted, async () => {
  mkdirSync(screenshots, { recursive: true });
  for (const [name, width, height] of [["desktop", 1280, 800], ["phone", 360, 720]]) {
    for (const dark of [false, true]) {
      const shot = (view) => page.screenshot({ path: `${screenshots}/${name}-${dark ? "dark" : "light"}-${view}.png` });
      await open({ width, height, dark });
      await shot("start");
      await ask("code");
      await wait_done();
      await page.waitForTimeout(6000);
      await shot("chat");
      await ask("refuse");
      await last_answer().locator(".error").waitFor();
      if (name === "phone") await page.getByRole("button", { name: "Engine", exact: true }).click();
      await page.waitForTimeout(1500);
      await shot("engine");
      await page.getByRole("button", { name: "Settings", exact: true }).click();
      await shot("settings");
      assert.deepEqual(page.problems, []);
      await page.close();
    }
  }
  page = undefined;
});
