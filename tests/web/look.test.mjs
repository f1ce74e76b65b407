// Panels, themes, figures, keyboard and phone.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { test } from "node:test";
import {
  answers, ask, assert_no_overflow, button, field, last_answer, mock, open, open_tab, page, real_url, scripted, small_targets, until, use_page, wait_done, with_settings,
} from "./harness.mjs";

use_page();

// The server goes; the page is told to look, as a browser does when its network changes.
async function take_server_down() {
  mock.down = true;
  await page.evaluate(() => dispatchEvent(new Event("online")));
  await page.getByText("Offline", { exact: true }).waitFor();
}

async function open_engine() {
  await button("Engine").click();
  await page.locator(".chart").nth(3).waitFor();
}

test("the engine's figures appear only when asked for, and stay as the reader left them", scripted, async () => {
  await open();
  await page.locator(".state.online").waitFor();
  assert.equal(await page.locator(".chart").count(), 0);
  await open_engine();
  await page.reload();
  await page.locator(".chart").first().waitFor();
  await button("Close engine").click();
  await until("a focus", () => page.evaluate(() => document.activeElement.id === "show-engine"));
  await page.reload();
  await page.locator(".state.online").waitFor();
  assert.equal(await page.locator(".chart").count(), 0);
});

test("a network with experts says how evenly they are used, one without says nothing of it", scripted, async () => {
  await open();
  await open_engine();
  await until("a model", async () => (await page.locator("dd").first().innerText()) !== "–");
  assert.doesNotMatch(await page.locator("aside").innerText(), /Busiest expert/);
  mock.experts = [
    { layer: 1, experts: 64, largest: 0.05, smallest: 0.001, unused: 0 },
    { layer: 7, experts: 64, largest: 0.125, smallest: 0, unused: 3 },
  ];
  await page.getByText("Busiest expert").waitFor();
  assert.match(await page.locator("aside").innerText(), /12.5 % of its tokens, layer 7[^]*Never used\s+3/);
});

test("the charts draw what the status says, and stop asking while the tab is hidden", async () => {
  await open({
    before: () => {
      const asks = window.fetch;
      window.num_asked = 0;
      window.fetch = (...given) => (window.num_asked++, asks(...given));
    },
  });
  await open_engine();
  await until("drawn lines", () => page.locator(".chart path").first().evaluate((path) => path.getTotalLength() > 0));
  await until("a model", async () => (await page.locator("dd").first().innerText()) !== "–");
  if (real_url) return;
  await until("three samples", () => mock.num_status >= 3);
  assert.match(await page.locator("aside").innerText(), /Q4_1 × 210, F32 × 61, Q8_0 × 1/);
  const hide = (hidden) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event("visibilitychange"));
  };
  await page.evaluate(hide, true);
  const num_asked = await page.evaluate(() => window.num_asked);
  await page.waitForTimeout(1300);
  assert.equal(await page.evaluate(() => window.num_asked), num_asked);
  await page.evaluate(hide, false);
  await until("polling again", () => page.evaluate((before) => window.num_asked >= before + 2, num_asked));
});

test("a status without fields shows dashes, not errors; without a count of formats their name is shown", scripted, async () => {
  mock.sparse = true;
  await open();
  await open_engine();
  assert.match(await page.locator("aside").innerText(), /Family\s+–/);
  assert.doesNotMatch(await page.locator("aside").innerText(), /undefined|NaN|null/);
  Object.assign(mock, { sparse: false, formats: {} });
  await page.locator("dd").getByText("Q4_1 mostly").waitFor();
});

test("the speed is 0 while nothing runs", scripted, async () => {
  mock.idle = true;
  await open();
  await open_engine();
  await until("idle charts", async () => /Decode\s+0 tokens\/s[^]*Prefill\s+0 tokens\/s/.test(await page.locator("aside").innerText()));
});

test("a server that goes away leaves no old figures, and is found again", scripted, async () => {
  await open();
  await open_engine();
  await until("figures", async () => /SmolLM|mock/.test(await page.locator("aside dl").first().innerText()));
  await take_server_down();
  assert.doesNotMatch(await page.locator(".panel").innerText(), /[1-9]\d* (tokens\/s|running)|mock|avx512|\d+ of \d+/);
  assert.equal(await page.locator(".chart path").first().getAttribute("d"), "");
  mock.down = false;
  await until("figures again", async () => /mock/.test(await page.locator("aside dl").first().innerText()));
});

test("the theme follows the system until one is chosen, which holds for every tab", scripted, async () => {
  await open({ dark: true });
  const ground = (tab) => tab.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.equal(await ground(page), "rgb(21, 23, 26)");
  await button("Settings").click();
  await page.getByLabel("Light").check();
  assert.equal(await ground(page), "rgb(247, 247, 245)");
  const other = await open_tab();
  await until("the light here", async () => (await ground(other)) === "rgb(247, 247, 245)");
  await page.getByLabel("Dark").check();
  await until("the other tab", async () => (await ground(other)) === "rgb(21, 23, 26)");
});

// The contrast of every text with the ground it stands on, computed in the page; the worst comes first.
function contrasts() {
  const numbers = (color) => color.match(/[\d.]+/g).map(Number);
  const light = (color) => {
    const [r, g, b] = numbers(color).map((value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if ((numbers(color)[3] ?? 1) === 1) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const nodes = [...document.querySelectorAll("body *")].filter(
    (node) => node.checkVisibility({ opacityProperty: true }) && !node.closest("button:disabled, .skip, svg, math") &&
      [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()),
  );
  const rows = nodes.map((node) => {
    const [a, b] = [light(getComputedStyle(node).color), light(ground(node))].sort((x, y) => y - x);
    return { ratio: (a + 0.05) / (b + 0.05), text: node.textContent.trim().slice(0, 30), node: node.className || node.localName };
  });
  return rows.sort((x, y) => x.ratio - y.ratio);
}

for (const dark of [false, true]) {
  test(`every text can be read in the ${dark ? "dark" : "light"} theme`, scripted, async () => {
    mock.finished = [{ status: 400, ending: "whole", route: "/v1/completions", total_ms: 1, request_id: "r" }];
    await open({ dark, before: with_settings({ logprobs: true }) });
    await ask("everything");
    await wait_done();
    await until("colours", async () => (await page.locator(".hljs-keyword").count()) > 0);
    await ask("refuse");
    await page.locator(".error").waitFor();
    await page.locator(".composer input[type=file]").setInputFiles({ name: "a.txt", mimeType: "text/plain", buffer: Buffer.from("x") });
    await ask("score");
    await wait_done();
    await button("Tokens").click();
    await page.locator(".token").nth(3).hover();
    await ask("call");
    await page.locator("form.results").waitFor();
    await button("Regenerate").last().click();
    await until("a second version", async () => (await page.locator(".versions").count()) === 1);
    await wait_done();
    await button("Prompt").last().click();
    await page.locator(".prompt-text mark").first().waitFor();
    assert.deepEqual((await page.evaluate(contrasts)).filter(({ ratio }) => ratio < 4.5), []);
    await button("Close the prompt").click();
    for (const panel of ["Settings", "Engine", "Requests"]) {
      await button(panel).click();
      await page.locator("aside").getByRole("heading", { name: panel, level: 2 }).waitFor();
      if (panel === "Settings") await page.getByLabel("Tools", { exact: true }).fill("["); // the marks of what is wrong, too
      const rows = await page.evaluate(contrasts);
      assert.ok(rows.length > 40, String(rows.length));
      assert.deepEqual(rows.filter(({ ratio }) => ratio < 4.5), []);
    }
  });
}

test("nothing moves for readers who want no motion", scripted, async () => {
  await open({ still: true });
  await ask("slow");
  await page.locator(".caret").waitFor();
  assert.equal(await page.locator(".caret").evaluate((node) => getComputedStyle(node).animationName), "none");
});

// A focus may scroll, and "Latest" comes and goes with that in the frames that follow.
function settle() {
  return page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
}

// Walks with the Tab key over everything that can be reached, from the page's start, or within an open dialog.
async function walk_by_tab(least) {
  const wanted = await page.evaluate(() => {
    const dialog = document.querySelector("dialog[open]");
    if (!dialog) document.body.tabIndex = -1; // a focus on the body puts the walk at the page's start
    if (!dialog) document.body.focus();
    document.body.removeAttribute("tabindex");
    const nodes = [...(dialog ?? document).querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")];
    const reached = nodes.filter((node) => !node.disabled && node.tabIndex >= 0 && node.checkVisibility() && !(node.type === "radio" && !node.checked));
    window.name_of = (node) => `${node.localName} ${node.getAttribute("aria-label") || node.labels?.[0]?.textContent?.trim() || node.textContent?.trim() || node.className}`.slice(0, 50);
    return reached.map(window.name_of);
  });
  assert.ok(wanted.length >= least, String(wanted));
  const seen = [];
  for (let idx = 0; idx < wanted.length; idx++) {
    const already = await page.evaluate(() => window.name_of(document.activeElement)); // a dialog has the focus on its first
    if (idx > 0 || already !== wanted[0]) await page.keyboard.press("Tab");
    await settle();
    const [name, ring] = await page.evaluate(() => [window.name_of(document.activeElement), getComputedStyle(document.activeElement).outlineStyle]);
    seen.push(name);
    assert.equal(ring, "solid", name);
  }
  assert.deepEqual(seen, wanted);
  assert.deepEqual(wanted.filter((name) => /^\w+\s*$/.test(name)), []);
}

test("the Tab key reaches every control in order, with a visible ring, and each has a name", scripted, async () => {
  await open();
  await button("Settings").click();
  await until("the model list", async () => (await page.locator("#model option").count()) > 0);
  await ask("hello");
  await wait_done();
  await until("a row", async () => (await page.locator(".conversation").count()) === 1);
  await field().fill("x");
  await walk_by_tab(24);
});

test("the Tab key reaches files, versions, tokens, calls, results and the prompt as well", scripted, async () => {
  await open({ before: with_settings({ logprobs: true, tools: "[]" }) });
  const file = { name: "a.txt", mimeType: "text/plain", buffer: Buffer.from("x") };
  const chooser = page.locator(".composer input[type=file]");
  await chooser.setInputFiles(file);
  await ask("score");
  await wait_done();
  await button("Regenerate").click();
  await until("a second version", async () => (await page.locator(".versions").count()) === 1);
  await wait_done();
  await button("Tokens").click();
  await page.getByRole("listbox").waitFor();
  await ask("call");
  await page.locator("form.results").waitFor();
  await chooser.setInputFiles(file);
  await button("Remove a.txt").waitFor();
  await field().fill("x");
  await walk_by_tab(30);
  await button("Prompt").last().press("Enter"); // by keyboard: the dialog's first control shows its ring
  await page.locator(".prompt-text").waitFor();
  await walk_by_tab(5);
});

test("on a phone Enter breaks the line, the button sends, and every target is 44 px", scripted, async () => {
  await open({ width: 360, height: 720, phone: true });
  await field().tap();
  await page.keyboard.type("first");
  await page.keyboard.press("Enter");
  await page.keyboard.type("second");
  assert.equal(await field().getAttribute("enterkeyhint"), "enter");
  assert.equal(mock.requests.length, 0);
  await button("Send").tap();
  await wait_done();
  assert.equal(mock.requests[0].messages[0].content, "first\nsecond");
  await ask("everything");
  await button("Send").tap();
  await until("two answers", async () => (await answers().count()) === 2);
  await wait_done();
  for (const view of ["Conversations", "Requests", "Engine", "Settings"]) {
    assert.deepEqual(await small_targets(), []);
    await button(view).tap();
    await page.locator(`button[aria-label="${view}"][aria-expanded="true"]`).waitFor();
    await page.locator("main").waitFor({ state: "hidden" });
    await assert_no_overflow();
  }
  assert.deepEqual(await small_targets(), []);
  assert.equal(await field().isVisible(), false);
  await button("Settings").tap();
  await field().waitFor({ state: "visible" });
});

test("the header stays where it is while the keyboard comes, the text grows and the server goes", scripted, async () => {
  await open({ width: 360, height: 720, phone: true });
  const header = () => page.locator("header").boundingBox();
  const before = await header();
  await field().fill("line\n".repeat(30));
  await page.setViewportSize({ width: 360, height: 380 });
  await page.evaluate(() => window.visualViewport.dispatchEvent(new Event("resize")));
  await until("the smaller page", () => page.evaluate(() => document.querySelector(".app").getBoundingClientRect().height === 380));
  assert.deepEqual(await header(), before);
  assert.ok(await button("Send").isVisible());
  await take_server_down();
  assert.deepEqual(await header(), before);
  assert.deepEqual(await page.evaluate(() => [scrollY, document.documentElement.scrollHeight]), [0, 380]);
});

test("the header fits a narrow screen, whatever is known of the server", scripted, async () => {
  mock.held = true;
  await open({ width: 320, height: 700 });
  await page.locator(".state.connecting").waitFor();
  await assert_no_overflow();
  mock.held = false;
  await page.locator(".state.online").waitFor();
  await assert_no_overflow();
  await take_server_down();
  await assert_no_overflow();
  Object.assign(mock, { down: false, api_key: "secret" });
  await page.evaluate(() => dispatchEvent(new Event("online")));
  await button("Not now").click();
  await page.locator(".state.locked").waitFor();
  await assert_no_overflow();
});

// For people, on request: the views in both schemes and at both widths.
const screenshots = process.env.HEADRACE_SCREENSHOTS;
const when_asked = screenshots ? test : () => undefined;
when_asked("screenshots", scripted, async () => {
  mkdirSync(screenshots, { recursive: true });
  for (const [name, width, height, phone] of [["desktop", 1280, 800, false], ["phone", 360, 720, true]]) {
    for (const dark of [false, true]) {
      const shot = (view) => page.screenshot({ path: `${screenshots}/${name}-${dark ? "dark" : "light"}-${view}.png` });
      await open({ width, height, dark, phone });
      await shot("start");
      for (const word of ["everything", "limit", "refuse"]) {
        await field().fill(`Please show ${word}`);
        await button("Send").click();
        await button("Stop").waitFor({ state: "detached" });
        await page.waitForTimeout(800);
        await shot(word);
      }
      await page.getByRole("log").evaluate((log) => log.scrollTo(0, 0));
      await shot("top");
      if (phone) await button("Conversations").click();
      await page.locator(".conversation .icon").first().click();
      await shot("list");
      await button("Engine").click();
      await page.waitForTimeout(4000);
      await shot("engine");
      await button("Settings").click();
      await shot("settings");
    }
  }
});
