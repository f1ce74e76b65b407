// The laboratory's page against a laboratory of 300 experiments that a seed makes.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { test } from "node:test";
import { kAttacks } from "./attacks.mjs";
import { assert_no_overflow, button, mock, open, open_lab, page, scripted, small_targets, until, use_page, watch_requests } from "./harness.mjs";
import { MockLab } from "./mock_lab.mjs";

use_page();

const kViews = ["now", "overview", "queue", "hypotheses", "learnings", "graph", "log"];
const link = (name) => page.getByRole("link", { name, exact: true });
const go = (hash) => page.evaluate((to) => (location.hash = to), `#/${hash}`);
const live = () => page.locator(".state.online").waitFor();
const heading = () => page.locator("h1").first().innerText();
const queue_ids = () => page.locator(".queue > li").evaluateAll((rows) => rows.map((row) => Number(row.dataset.id)));
const server_queue = () => mock.lab.queue().queue.map(({ experiment }) => experiment);

async function open_with(view, lab = new MockLab(), options = {}) {
  mock.lab = lab;
  await open_lab(view, options);
  await live();
  return lab;
}

const until_queue = (what) => until(what, async () => JSON.stringify(await queue_ids()) === JSON.stringify(server_queue()));

test("every view shows its part of 300 experiments, and nothing leaves the server", scripted, async () => {
  mock.lab = new MockLab();
  await open_lab("overview");
  const foreign = await watch_requests();
  await live();
  await page.locator(".counts").waitFor();
  assert.match(await page.locator(".counts").innerText(), /1 running[^]*20 waiting[^]*60 learnings/);
  assert.equal(await page.locator(".rows").nth(1).locator("> li").count(), 5);
  for (const view of kViews) {
    await link(view[0].toUpperCase() + view.slice(1)).click();
    await until(view, async () => (await heading()).toLowerCase() === view);
    assert.match(await page.title(), new RegExp(`^${view}`, "i"));
    assert.equal(await page.evaluate(() => document.activeElement.id), "view");
  }
  assert.equal(await page.locator(".entry").count(), 200);
  await button("Show 200 more").click();
  await until("more entries", async () => (await page.locator(".entry").count()) === 400);
  assert.deepEqual(foreign, []);
});

test("the overview finds past experiments, and says why each was made", scripted, async () => {
  await open_with("overview");
  await page.getByLabel("Search").fill("variant 34");
  await page.getByRole("link", { name: /^34\. / }).waitFor();
  await page.getByLabel("Search").fill("");
  await page.getByLabel("State").selectOption("failed");
  await until("failed ones", async () => /^1[0-9] experiments$/.test(await page.locator("p[role=status]").innerText()));
  const row = page.locator(".rows").nth(2).locator("> li").first();
  await row.getByText("Why").click();
  await row.getByText(/Because hypothesis \d+ needs it/).waitFor();
});

test("what happens shows at once: the log, the queue with its move and reason, the overview", scripted, async () => {
  const lab = await open_with("queue");
  await until_queue("the queue");
  const last = server_queue().at(-1);
  lab.change(last, { value: 5 }, `moved from place 20 to 1: 5.00 bits expected`);
  await until_queue("the new order");
  const row = page.locator(`.queue > li[data-id="${last}"]`);
  await row.getByText("↑ up 19").waitFor();
  await row.getByText("5.00 bits expected").waitFor();
  await page.getByText(/moved from place 20 to 1/).first().waitFor();
  lab.change(last, { state: "running", state_reason: "runs" }, "running: its turn");
  await until_queue("the queue without it");
  await page.locator(".rows").first().getByText(`experiment ${last}`).waitFor();
  await go("log");
  await page.locator(".entry").first().getByText("running: its turn").waitFor();
  lab.note("queue", "something new", "ada");
  await page.locator(".entry").first().getByText("something new").waitFor();
  await go("overview");
  await page.locator(".counts").getByText("2 running").waitFor();
});

test("a person moves by keys and keeps the focus, pins, pauses and cancels, in their own name", scripted, async () => {
  const lab = await open_with("queue");
  await until_queue("the queue");
  await page.getByLabel("Acting as").fill("ada");
  const [first, second, third] = server_queue();
  const handle = page.locator(`.queue > li[data-id="${third}"] .handle`);
  await handle.focus();
  await handle.press("ArrowUp");
  await until("the move", async () => JSON.stringify((await queue_ids()).slice(0, 3)) === JSON.stringify([first, third, second]));
  await until("the end of it", async () => (await page.locator(".queue").getAttribute("aria-busy")) === "false");
  await until("its focus", () => handle.evaluate((node) => node === document.activeElement));
  await handle.press("ArrowUp");
  await until("the top", async () => (await queue_ids())[0] === third);
  await until_queue("the server's order");
  assert.ok(lab.actions.length > 0 && lab.actions.every(({ name, by }) => name === "move" && by === "ada"));
  await until("the end of it", async () => (await page.locator(".queue").getAttribute("aria-busy")) === "false");

  const last = server_queue().at(-1);
  await button(`Pin experiment ${last}`).click();
  await until("the pinned one", async () => (await queue_ids())[0] === last);
  await button(`Pause experiment ${first}`).click();
  await button(`Resume experiment ${first}`).click();
  await button(`Cancel experiment ${second}`).click();
  await until("both changes", async () => (await queue_ids()).includes(first) && !(await queue_ids()).includes(second));
  assert.equal(lab.find(second).state, "cancelled");
  assert.deepEqual(lab.actions.slice(-4).map(({ name, by }) => [name, by]), [["pin", "ada"], ["pause", "ada"], ["resume", "ada"], ["cancel", "ada"]]);
  await page.reload();
  await live();
  assert.equal(await page.getByLabel("Acting as").inputValue(), "ada");
});

test("a row is dragged to another place by its handle", scripted, async () => {
  await open_with("queue", undefined, { still: true, height: 1100 });
  await until_queue("the queue");
  const [first, second, third] = server_queue();
  const box = (id) => page.locator(`.queue > li[data-id="${id}"] .handle`).boundingBox();
  const middle = ({ x, y, width, height }) => [x + width / 2, y + height / 2];
  const [from, to] = [middle(await box(first)), middle(await box(third))];
  await page.mouse.move(...from);
  await page.mouse.down();
  await page.mouse.move(from[0], (from[1] + to[1]) / 2);
  await page.mouse.move(...to);
  await page.mouse.up();
  await until("the order", async () => JSON.stringify((await queue_ids()).slice(0, 3)) === JSON.stringify([second, third, first]));
  await until_queue("the server's order");
});

test("a hypothesis shows its prediction beside what was measured, and its evidence is one click away", scripted, async () => {
  const lab = await open_with("hypotheses");
  await page.getByLabel("State").selectOption("validated");
  await page.getByText("10 hypotheses").waitFor();
  const row = page.locator(".rows > li").first();
  const plot = await row.locator("svg").getAttribute("aria-label");
  assert.match(plot, /Effect: experiment \d+: .*% to .*; predicted \+\d+/);
  const evidence = row.getByRole("link", { name: /^experiment \d+$/ }).first();
  const id = Number((await evidence.innerText()).split(" ")[1]);
  await evidence.click();
  await page.getByRole("heading", { level: 1, name: `${id}. ${lab.find(id).title}` }).waitFor();
  await page.getByRole("link", { name: /^hypothesis \d+: / }).click();
  await page.getByRole("heading", { name: "Evidence" }).waitFor();
  assert.equal(await page.locator(".rows").first().locator("> li").count(), lab.experiments.filter((each) => each.hypothesis === lab.find(id).hypothesis).length);
});

test("an experiment shows difference, plots, raw rows and files, grows as it runs, and runs again", scripted, async () => {
  const lab = await open_with("experiment/40");
  await page.getByRole("heading", { name: "What differs" }).waitFor();
  assert.equal(await page.locator("ins").innerText(), lab.find(40).sides[1].command.slice(4).join(" "));
  assert.equal(await page.locator("tbody").nth(1).locator("tr").count(), 12);
  assert.equal(await page.locator(".dot-mark").count(), 6 + 12);
  await page.getByLabel("Metric drawn").selectOption("step.ms");
  await page.locator("figcaption").getByText("step.ms").waitFor();
  await page.getByText("JSON").first().click();
  await page.locator("pre").filter({ hasText: `"tokens_per_s"` }).first().waitFor();
  const saving = page.waitForEvent("download");
  await button("stderr.txt (12 B)").first().click();
  assert.equal((await saving).suggestedFilename(), "stderr.txt");
  lab.runs.get(40).push({ ...lab.runs.get(40)[0], id: 4099, round: 7 });
  lab.note("experiment:40", "run 4099 is done");
  await page.getByRole("rowheader", { name: "4099" }).waitFor();
  await button("Run again").click();
  await button("Cancel").waitFor();
  assert.deepEqual(lab.actions, [{ name: "rerun", by: "page", id: 40 }]);
  await go("experiment/9999");
  await page.getByText("there is no experiments 9999").waitFor();
});

test("the graph of 300 experiments: labels without overlap, search, filter, click and keys", scripted, async () => {
  await open_with("graph");
  await page.locator('.graph[aria-busy="false"] .node').nth(300).waitFor({ state: "attached" });
  assert.equal(await page.locator(".node").count(), 400);
  const overlaps = await page.locator(".label").evaluateAll((labels) => {
    const boxes = labels.map((label) => label.getBoundingClientRect());
    const meet = (a, b) => a.left < b.right - 2 && b.left < a.right - 2 && a.top < b.bottom - 2 && b.top < a.bottom - 2;
    return boxes.flatMap((a, idx) => boxes.slice(idx + 1).filter((b) => meet(a, b))).length;
  });
  assert.ok((await page.locator(".label").count()) > 5);
  assert.equal(overlaps, 0);

  await page.getByLabel("Search").fill("variant 77");
  await page.getByText("3 found").waitFor(); // and 177, 277
  await page.getByRole("button", { name: /\(experiment 77\)/ }).click();
  await page.locator(".picked h2").getByText("experiment 77").waitFor();
  await page.locator(".picked").getByText("Connected with").waitFor();
  await page.getByLabel("Search").fill("");
  const canvas = page.getByRole("application");
  await canvas.focus();
  await canvas.press("ArrowRight");
  await until("another node", async () => (await page.locator(".picked h2").innerText()).trim() !== "experiment 77");
  const picked = /^\w+ \d+/.exec(await page.locator(".picked h2").innerText())[0];
  await canvas.press("Enter");
  await until("its page", () => page.evaluate((to) => location.hash === to, `#/${picked.replace(" ", "/")}`));

  await go("graph");
  await page.locator('.graph[aria-busy="false"] .node').nth(300).waitFor({ state: "attached" });
  await page.getByLabel("Experiments").uncheck();
  await until("no experiments", async () => (await page.locator(".node").count()) === 100);
  await page.locator('.graph[aria-busy="false"]').waitFor();
  const node = page.locator(".node").first();
  const id = await node.getAttribute("data-id");
  const { x, y, width, height } = await node.boundingBox();
  await page.mouse.click(x + width / 2, y + height / 2);
  await page.locator(".picked h2").getByText(id.replace(":", " ")).waitFor();
});

test("a lost connection is said, what was shown stays, and the events go on where they ended", scripted, async () => {
  const lab = await open_with("log");
  const last = lab.log.length;
  mock.down = true;
  lab.drop_readers();
  await page.getByText("Not connected").waitFor();
  await page.getByText("What is shown may be old.").waitFor();
  assert.equal(await page.locator(".entry").count(), 200);
  lab.note("queue", "while nobody listened", "ada");
  await button("Try again now").waitFor();
  mock.down = false;
  await page.evaluate(() => dispatchEvent(new Event("online")));
  await page.locator(".entry").first().getByText("while nobody listened").waitFor();
  await live();
  assert.equal(lab.event_requests.at(-1), String(last));
  assert.equal(await page.getByText("while nobody listened").count(), 1);
});

test("an empty laboratory, one that cannot be read, none at all, and one that needs a key", scripted, async () => {
  await open_with("overview", new MockLab({ experiments: 0, hypotheses: 0, learnings: 0 }));
  await page.getByText("No experiments yet.").waitFor();
  for (const [view, text] of [["hypotheses", "No hypotheses yet."], ["learnings", "Nothing noted yet."], ["queue", "Nothing waits."], ["graph", "Nothing to connect yet."], ["log", "Nothing has happened yet."]]) {
    await go(view);
    await page.getByText(text).waitFor();
  }
  mock.lab.broken = "The laboratory is busy.";
  await open_lab("overview");
  await page.getByRole("alert").getByText("The laboratory is busy.").waitFor();
  await button("Try again").waitFor();
  mock.lab.broken = "";
  await live();
  mock.lab = null;
  await open_lab("overview");
  await page.getByRole("alert").getByText("No route").waitFor();
  [mock.lab, mock.api_key] = [new MockLab(), "secret"];
  await open_lab("overview");
  await page.getByLabel("Key", { exact: true }).fill("secret");
  await button("Use key").click();
  await live();
  await page.getByText("20 waiting").waitFor();
});

test("the machine and its engines are shown, those that do not answer as well", scripted, async () => {
  const steps = Array.from({ length: 20 }, (_, index) => ({ index, duration_us: 9000 + 100 * index, predicted_us: 9500, tokens: 4, prompt_tokens: index % 3 }));
  let looks = 0;
  const engine = { get steps() { return 20 * ++looks; }, kv_blocks_total: 200, kv_blocks_used: 50, running: 3, waiting: 2, decode_tokens_per_s: 81.5, prefill_tokens_per_s: 900 };
  const lab = await open_with("now");
  await page.getByText("No accelerator: everything runs on the processor.").waitFor();
  await page.getByText("No engine is watched.").waitFor();
  lab.machine = {
    ...lab.machine, get at_ms() { return 1e12 + 1000 * looks; }, read_limit_byte_s: 5e9, temperatures: [{ name: "package", celsius: 61.5 }], devices: [{ name: "H100", kind: "gpu", state: "idle" }],
    engines: [
      { name: "here", url: "", state: "ok", error: "", at_ms: 1e12, status: { model: { id: "small", weight_bytes: 1e8 }, engine, steps } },
      { name: "there", url: "http://there:8080", state: "unreachable", error: "connection refused", at_ms: 1e12, status: null },
    ],
  };
  const here = page.getByRole("region", { name: "Engine here" });
  await here.getByText("small").waitFor();
  assert.match(await here.innerText(), /50 of 200[^]*81\.5 decode\/s[^]*3 running[^]*2 waiting/);
  assert.equal(await here.locator(".forecast").count(), 20);
  await here.getByText("2.00 GB/s of 5.00 GB/s measured, 40 %").waitFor(); // 20 steps of 0.1 GB a second
  await page.getByRole("region", { name: "Machine" }).getByText("2.00 GB/s of 5.00 GB/s measured, 40 %").waitFor();
  await page.getByRole("region", { name: "Engine there" }).getByText("connection refused").waitFor();
  const all = await page.locator(".view").innerText();
  assert.match(all, /75 %[^]*2,400 MHz[^]*H100[^]*idle[^]*61\.5 °C/);
  mock.down = true;
  await page.getByText("The server does not answer.").first().waitFor();
});

test("texts of the laboratory stay texts", scripted, async () => {
  const lab = new MockLab({ experiments: kAttacks.length, hypotheses: kAttacks.length, learnings: kAttacks.length });
  kAttacks.forEach((attack, idx) => {
    Object.assign(lab.experiments[idx], { title: attack, rationale: attack, author: attack, metric: attack, state: "queued", state_reason: attack });
    Object.assign(lab.experiments[idx].sides[1], { name: attack, command: ["a", "b", "c", "d", attack] });
    Object.assign(lab.hypotheses[idx], { statement: attack, reason: attack, verdict: attack, author: attack });
    Object.assign(lab.learnings[idx], { text: attack, links: [attack, "experiment:1"] });
    lab.note(attack, attack, attack);
    lab.runs.set(idx + 1, [{ id: idx, side: 0, round: 1, state: attack, metrics: { [attack]: 1 }, machine: attack, error: attack, seconds: 1, started_ms: 1, artifacts: [{ name: attack, bytes: 1 }] }]);
  });
  await open_with("overview", lab);
  const foreign = await watch_requests();
  for (const view of [...kViews, ...["experiment", "hypothesis", "learning"].flatMap((kind) => [1, 20].map((id) => `${kind}/${id}`))]) {
    await go(view);
    await page.locator("h1").first().waitFor();
    if (view === "graph") await page.locator('.graph[aria-busy="false"] .node').nth(50).waitFor({ state: "attached" });
    if (/^(experiment|hypothesis)/.test(view)) await page.getByRole("heading", { level: 1, name: /^\d+\. / }).waitFor();
    const addresses = await page.locator("#view a").evaluateAll((links) => links.map((each) => each.getAttribute("href")));
    assert.ok(addresses.every((address) => /^#\/[a-z]+(\/\d+)?$/.test(address)), String(addresses));
    assert.equal(await page.locator("#view").locator("script, img, iframe, style, object, base, form[action]").count(), 0);
  }
  assert.equal(await page.evaluate(() => window.owned), undefined);
  assert.deepEqual(foreign, []);
});

for (const dark of [false, true]) {
  test(`every view fits a phone and can be hit by a finger, ${dark ? "dark" : "light"}`, scripted, async () => {
    await open_with("now", undefined, { width: 360, height: 720, phone: true, dark });
    for (const view of [...kViews, "experiment/40", "hypothesis/3"]) {
      await go(view);
      await page.locator("h1").first().waitFor();
      if (view === "graph") await page.locator('.graph[aria-busy="false"] .node').nth(300).waitFor({ state: "attached" });
      await assert_no_overflow();
      assert.deepEqual(await small_targets(), [], view);
    }
  });
}

test("the chat does not load what only the laboratory needs", scripted, async () => {
  const seen = [];
  await open({ before: () => undefined });
  page.on("request", (request) => seen.push(request.url()));
  await page.reload();
  await page.locator(".state.online").waitFor();
  assert.ok(seen.length > 3 && !seen.some((url) => /lab/.test(url)), String(seen));
});

// For people, on request.
const screenshots = process.env.HEADRACE_SCREENSHOTS;
const when_asked = screenshots ? test : () => undefined;
when_asked("screenshots of the laboratory", scripted, async () => {
  mkdirSync(screenshots, { recursive: true });
  for (const [name, width, height, phone] of [["desktop", 1280, 800, false], ["phone", 360, 720, true]]) {
    for (const dark of [false, true]) {
      await open_with("now", undefined, { width, height, dark, phone });
      for (const view of [...kViews, "experiment/40", "hypothesis/3"]) {
        await go(view);
        await page.waitForTimeout(view === "graph" ? 3000 : 700);
        await page.screenshot({ path: `${screenshots}/lab-${name}-${dark ? "dark" : "light"}-${view.replace("/", "-")}.png` });
      }
    }
  }
});
