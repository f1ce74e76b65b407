// Debian's Chromium with a fresh profile, and pages that record everything that went wrong on them.

import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const kFlags = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];

export class Browser {
  static async start() {
    const executablePath = process.env.HEADRACE_CHROMIUM ?? "/usr/bin/chromium";
    if (!existsSync(executablePath)) {
      throw new Error(`no Chromium at ${executablePath}: install the package chromium, or set HEADRACE_CHROMIUM`);
    }
    const browser = new Browser();
    browser.profile = mkdtempSync(join(tmpdir(), "headrace-web-"));
    browser.context = await chromium.launchPersistentContext(browser.profile, { executablePath, headless: true, args: kFlags });
    return browser;
  }

  async close() {
    await this.context.close();
    rmSync(this.profile, { recursive: true, force: true });
  }

  // A new tab at `url`. page.problems collects console errors, exceptions and policy violations; the browser's own
  // line about a refused request is not one, since tests ask for refusals.
  async open(url, { width = 1280, height = 800, dark = false } = {}) {
    const page = await this.context.newPage();
    page.problems = [];
    page.on("console", (message) => {
      const expected = /^Failed to load resource: (the server responded with a status of|net::ERR_)/;
      if (message.type() === "error" && !expected.test(message.text())) page.problems.push(message.text());
    });
    page.on("pageerror", (failure) => page.problems.push(String(failure)));
    await page.addInitScript(() => {
      addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
    });
    await page.setViewportSize({ width, height });
    await page.emulateMedia({ colorScheme: dark ? "dark" : "light" });
    await page.goto(url);
    await page.getByLabel("Message", { exact: true }).waitFor();
    return page;
  }
}
