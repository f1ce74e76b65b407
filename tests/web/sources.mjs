// The page's logic for tests without a browser.

import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import ts from "typescript";

const kSources = fileURLToPath(new URL("../../web/src/lib/", import.meta.url));
export const page_dir = process.env.HEADRACE_PAGE ?? fileURLToPath(new URL("../../build/release/web/dist", import.meta.url));
// Where the page's libraries are found; test files run side by side, each in a folder of its own.
const work_dir = join(dirname(page_dir), "node_modules", ".units", basename(process.argv[1], ".mjs"));

// The page's sources are TypeScript without runtime parts, so removing the types is enough.
export async function load(name) {
  for (const file of readdirSync(kSources).filter((file) => file.endsWith(".ts") && !file.endsWith(".svelte.ts"))) {
    const { outputText } = ts.transpileModule(readFileSync(join(kSources, file), "utf8"), {
      compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022 },
    });
    mkdirSync(work_dir, { recursive: true });
    writeFileSync(join(work_dir, file.replace(/ts$/, "mjs")), outputText.replace(/from "(\.\/[\w.]+)"/g, 'from "$1.mjs"'));
  }
  return import(pathToFileURL(join(work_dir, `${name}.mjs`)));
}
