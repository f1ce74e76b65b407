// Which panels are open, kept for the next visit; and the size of what the reader can see.

import { local, merge_known, read_json, write_json } from "./store";

const kKey = "headrace.layout";

const kPanels = ["engine", "requests", "settings"] as const;
export type Panel = "" | (typeof kPanels)[number];

class Layout {
  sidebar = $state(true);
  panel = $state<Panel>(""); // on a wide screen, beside the chat
  view = $state<Panel | "list">(""); // on a narrow one, instead of it; "" is the chat

  constructor() {
    const { sidebar, panel } = merge_known({ sidebar: true, panel: "" }, read_json(local, kKey));
    this.sidebar = sidebar;
    this.panel = kPanels.find((name) => name === panel) ?? "";
  }

  toggle(name: Exclude<Panel, "">, wide: boolean): void {
    if (wide) this.panel = this.panel === name ? "" : name;
    else this.view = this.view === name ? "" : name;
    this.#save();
  }

  toggle_list(wide: boolean): void {
    if (wide) this.sidebar = !this.sidebar;
    else this.view = this.view === "list" ? "" : "list";
    this.#save();
  }

  #save(): void {
    write_json(local, kKey, { sidebar: this.sidebar, panel: this.panel });
  }
}

export const layout = new Layout();

// Keeps the page exactly as high as what an on-screen keyboard leaves, and in place: browsers that do not shrink the
// page for the keyboard scroll it instead, and the header would leave the screen.
export function follow_viewport(): () => void {
  const view = window.visualViewport;
  if (!view) return () => undefined;
  const update = () => {
    if (view.scale > 1.01) return; // the reader zooms: let them
    const style = document.documentElement.style;
    style.setProperty("--page-height", `${view.height}px`);
    style.setProperty("--page-top", `${view.offsetTop}px`);
  };
  view.addEventListener("resize", update);
  view.addEventListener("scroll", update);
  update();
  return () => {
    view.removeEventListener("resize", update);
    view.removeEventListener("scroll", update);
  };
}
