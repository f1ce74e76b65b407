// What the tests of the page share: a browser, the scripted server, one tab per test, and words for what a person does.
// HEADRACE_PAGE names the folder with the built page; HEADRACE_URL runs those tests that need no script against a
// running `headrace serve` and its embedded page.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { after, afterEach, before } from "node:test";
import { fileURLToPath } from "node:url";
import { Browser } from "./browser.mjs";
import { MockServer } from "./mock_server.mjs";

export const real_url = process.env.HEADRACE_URL;
export const page_dir = process.env.HEADRACE_PAGE ?? fileURLToPath(new URL("../../build/release/web/dist", import.meta.url));
export const scripted = real_url ? { skip: "needs the scripted server" } : {};
const kTimeout_ms = 60000; // a busy machine is slow; what takes this long never comes

export let browser, mock, page, profile;
let pages = [];

// Opens the page in a fresh profile, which takes the place of `page`.
export async function open({ before: script, ...options } = {}) {
  await profile?.close();
  profile = await browser.profile(options);
  page = await open_tab(script);
  return page;
}

// Another tab of the same profile.
export async function open_tab(script) {
  const tab = await browser.open(real_url ?? mock.url, profile, script);
  tab.setDefaultTimeout(kTimeout_ms);
  pages.push(tab);
  return tab;
}

// Opens a view of the laboratory in a fresh profile, which takes the place of `page`.
export async function open_lab(view, { before: script, ...options } = {}) {
  await profile?.close();
  profile = await browser.profile(options);
  page = await browser.open(`${mock.url}/lab#/${view}`, profile, script, "#view");
  page.setDefaultTimeout(kTimeout_ms);
  pages.push(page);
  return page;
}

export const field = (tab = page) => tab.locator("#draft");
export const answers = (tab = page) => tab.locator("article.assistant");
export const last_answer = (tab = page) => answers(tab).last();
export const button = (name, tab = page) => tab.getByRole("button", { name, exact: true });
export const notice = (tab = page) => tab.locator(".notice");

export async function ask(text, tab = page) {
  await field(tab).fill(text);
  await field(tab).press("Enter");
}

export async function wait_done(tab = page) {
  await tab.getByRole("button", { name: /^(Regenerate|Retry)$/ }).last().waitFor();
}

// Puts settings where the page finds them, before its code runs.
export function with_settings(settings) {
  return new Function(`localStorage.getItem("headrace.settings") ?? localStorage.setItem("headrace.settings", ${JSON.stringify(JSON.stringify(settings))})`);
}

export async function until(what, condition) {
  const deadline = Date.now() + kTimeout_ms;
  while (!(await condition())) {
    if (Date.now() > deadline) assert.fail(`timed out waiting for ${what}`);
    await new Promise((done) => setTimeout(done, 25));
  }
}

export const at_end = () => page.getByRole("log").evaluate((log) => log.scrollHeight - log.scrollTop - log.clientHeight < 3);

// The log shows its end, and so does not offer to go there.
export async function until_at_end() {
  await until("the end", async () => (await at_end()) && (await button("Latest").count()) === 0);
}

// Takes the notice's way back. The pointer comes first: a notice under it does not go away by itself.
export async function undo() {
  await notice().hover();
  await notice().getByRole("button", { name: "Undo" }).click();
}

// The conversations that the browser keeps, as they are kept.
export function kept_conversations(tab = page) {
  return tab.evaluate(async () => {
    const result = (request) => new Promise((done, fail) => ((request.onsuccess = () => done(request.result)), (request.onerror = fail)));
    const database = await result(indexedDB.open("headrace"));
    const kept = await result(database.transaction("bodies").objectStore("bodies").getAll());
    database.close();
    return kept;
  });
}

// The last answer is kept in full: a page that closes now leaves nothing behind.
export async function until_kept(text, tab = page) {
  const ends_so = ({ messages }) => messages.at(-1)?.text === text && !messages.at(-1).outcome;
  await until(`'${text}' being kept`, async () => (await kept_conversations(tab)).some(ends_so));
}

export async function assert_no_overflow() {
  const wide = await page.evaluate(() => {
    const limit = document.documentElement.clientWidth;
    const scrolls = (node) => node && node.closest("pre, .table, .formula, .offscreen, .skip, .state .name, svg") !== null;
    const nodes = [...document.querySelectorAll("body *")].filter((node) => !scrolls(node));
    return {
      page: document.documentElement.scrollWidth - limit,
      nodes: nodes.filter((node) => node.getBoundingClientRect().right > limit + 0.5).map((node) => node.outerHTML.slice(0, 80)),
    };
  });
  assert.deepEqual(wide, { page: 0, nodes: [] });
}

// What a finger cannot hit: everything that is to be touched and has less than 44 px.
export function small_targets() {
  return page.evaluate(() =>
    [...document.querySelectorAll("button, select, input, textarea, summary")]
      .filter((node) => node.checkVisibility() && !node.closest(".offscreen, .task") && node.className !== "offscreen")
      .map((node) => ({ node: node.closest("label") ?? node, name: node.textContent.trim() || node.id || node.getAttribute("aria-label") }))
      .map(({ node, name }) => ({ name, width: node.getBoundingClientRect().width, height: node.getBoundingClientRect().height }))
      .filter(({ width, height }) => width < 44 || height < 44),
  );
}

// The address of every request that leaves this server.
export async function watch_requests() {
  const foreign = [];
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.origin !== mock.url && url.protocol !== "blob:") foreign.push(request.url());
  });
  return foreign;
}

// Registers the hooks of a test file.
export function use_page() {
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
  afterEach(async () => {
    const problems = pages.flatMap((tab) => tab.problems.filter((problem) => !tab.expected_problems?.test(problem)));
    await profile?.close();
    pages = [];
    profile = undefined;
    await mock?.reset();
    assert.deepEqual(problems, []);
  });
}
