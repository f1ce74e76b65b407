// Light, dark, or as the system has it. The style sheets know both (light-dark()); this only says which.

import type { Theme } from "./settings.svelte";

const kBars = { light: "#f7f7f5", dark: "#15171a" }; // --back of styles/tokens.css, for the browser's own bars

export function apply_theme(theme: Theme): void {
  const root = document.documentElement;
  if (theme === "system") delete root.dataset.theme;
  else root.dataset.theme = theme;
  for (const meta of document.querySelectorAll<HTMLMetaElement>("meta[name=theme-color]")) {
    const own = meta.media.includes("dark") ? "dark" : "light";
    meta.content = kBars[theme === "system" ? own : theme];
  }
}
