// The page /profile: a profile from the server and from a file, the flame view by mouse and keyboard, what is refused.

import assert from "node:assert/strict";
import { test } from "node:test";
import { button, mock, open, page, scripted, use_page } from "./harness.mjs";
import { small_profile } from "./profiles.mjs";

use_page();

async function open_profile() {
  await open();
  await page.goto(new URL("/profile", mock.url).href);
  await page.getByRole("heading", { name: "Where the time of steps goes" }).waitFor();
}

test("a profile is recorded, looked at and read from a file; what is none is refused", scripted, async () => {
  await open_profile();
  await button("Record").click();
  await page.getByRole("alert").getByText("no step of 'mock' ran").waitFor();
  mock.profile = small_profile();
  await button("Record").click();
  await page.getByRole("heading", { name: "Steps with prompts" }).waitFor();
  assert.equal(await page.getByRole("alert").count(), 0);
  assert.equal(await page.locator("table").count(), 2);
  assert.ok(await page.getByRole("row", { name: /^linear 8 x 4 q4_0 4/ }).first().isVisible());

  const canvas = page.locator("canvas");
  const box = await canvas.boundingBox();
  const told = page.getByRole("status");
  const range = page.locator(".range");
  const everything = await range.textContent();
  await page.mouse.move(box.x + 5, box.y + 10);
  await told.getByText(/^prompt: .* tokens of 1 sequences/).waitFor();
  await page.mouse.click(box.x + 5, box.y + 10);
  assert.notEqual(await range.textContent(), everything);
  await canvas.press("Home");
  assert.equal(await range.textContent(), everything);
  await canvas.press("+");
  assert.notEqual(await range.textContent(), everything);
  await button("Show all").click();
  assert.equal(await range.textContent(), everything);

  const file = (text) => ({ name: "profile.json", mimeType: "application/json", buffer: Buffer.from(text) });
  await page.getByLabel("Open a file").setInputFiles(file("{}"));
  await page.getByRole("alert").getByText("This is no profile.").waitFor();
  await page.getByLabel("Open a file").setInputFiles(file(JSON.stringify({ ...small_profile(), model: "from a file" })));
  await page.getByText("from a file on avx2").waitFor();
});

test("a server with keys is asked with one", scripted, async () => {
  await open_profile();
  mock.profile = small_profile();
  mock.api_key = "sesame";
  await button("Record").click();
  await page.getByLabel("Key with the scope admin").fill("sesame");
  await button("Record").click();
  await page.getByRole("heading", { name: "Steps with answers" }).waitFor();
});
