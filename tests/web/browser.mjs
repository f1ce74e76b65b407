// Debian's Chromium, and pages in fresh profiles that record everything that went wrong on them. Its headless shell, which
// draws in half the time, or the whole browser.

import { existsSync } from "node:fs";
import { chromium } from "playwright-core";

const kFlags = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];

const kPrograms = ["/usr/bin/chromium-headless-shell", "/usr/bin/chromium"];

export class Browser {
  static async start() {
    const executablePath = process.env.HEADRACE_CHROMIUM ?? kPrograms.find(existsSync);
    if (!executablePath || !existsSync(executablePath)) {
      const where = executablePath ?? kPrograms.join(" or ");
      throw new Error(`no Chromium at ${where}: install the package chromium-headless-shell, or set HEADRACE_CHROMIUM`);
    }
    const browser = new Browser();
    browser.chromium = await chromium.launch({ executablePath, headless: true, args: kFlags, timeout: 120000 });
    return browser;
  }

  close() {
    return this.chromium.close();
  }

  // A profile of its own: nothing kept, no other tabs.
  profile({ width = 1280, height = 800, dark = false, phone = false, still = false } = {}) {
    return this.chromium.newContext({
      viewport: { width, height },
      colorScheme: dark ? "dark" : "light",
      reducedMotion: still ? "reduce" : "no-preference",
      permissions: ["clipboard-read", "clipboard-write"],
      ...(phone ? { hasTouch: true, isMobile: true } : {}),
    });
  }

  // A new tab at `url`. page.problems collects console errors, exceptions and policy violations, of which a test may
  // expect some (page.expected_problems, a pattern); the browser's own line about a refused request is not one, since
  // tests ask for refusals. `before` runs in the page ahead of its code; `ready` is there once the page is.
  async open(url, profile, before, ready = "#draft") {
    const page = await profile.newPage();
    page.problems = [];
    page.on("console", (message) => {
      const expected = /^Failed to load resource: (the server responded with a status of|net::ERR_)/;
      if (message.type() === "error" && !expected.test(message.text())) page.problems.push(message.text());
    });
    page.on("pageerror", (failure) => page.problems.push(String(failure)));
    await page.addInitScript(() => {
      addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
    });
    if (before) await page.addInitScript(before);
    page.setDefaultTimeout(60000);
    await page.goto(url);
    await page.locator(ready).waitFor({ state: "attached" });
    return page;
  }
}
