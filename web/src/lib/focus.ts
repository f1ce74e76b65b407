// Where the focus goes when what had it goes away.

import { MediaQuery } from "svelte/reactivity";

// A finger and an on-screen keyboard, which comes up when a field gets the focus and has no Shift+Enter.
export const by_touch = new MediaQuery("(hover: none) and (pointer: coarse)");

// To the field to write in; by touch to the conversation, so that no keyboard covers it; to the header where neither
// is shown.
export function rest_focus(): void {
  const targets = [document.getElementById(by_touch.current ? "log" : "draft"), document.querySelector("header button")];
  for (const target of targets) {
    if (!(target instanceof HTMLElement) || !target.checkVisibility()) continue;
    target.focus({ preventScroll: true });
    return;
  }
}
