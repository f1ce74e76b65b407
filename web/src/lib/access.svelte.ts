// The API key of a server that wants one: asked for once, kept for the tab or, if the person says so, in the browser.

import { local, read_json, session, write_json } from "./store";

const kKey = "headrace.api_key";

class Access {
  key = $state("");
  keep = $state(false);
  wanted = $state(false); // the server refused for want of a key, and the person has not answered yet
  #declined = false;

  constructor() {
    const kept = read_json(local, kKey);
    const of_tab = read_json(session, kKey);
    this.keep = typeof kept === "string";
    this.key = typeof of_tab === "string" ? of_tab : typeof kept === "string" ? kept : "";
  }

  // The server answered 401. A person who declined is not asked again until they do something that needs the key.
  refused(by_person: boolean): void {
    if (by_person) this.#declined = false;
    if (!this.#declined) this.wanted = true;
  }

  set(key: string, keep: boolean): void {
    this.key = key.trim();
    this.keep = keep;
    this.wanted = false;
    this.#declined = false;
    write_json(session, kKey, this.key || null);
    write_json(local, kKey, keep && this.key ? this.key : null);
  }

  decline(): void {
    this.wanted = false;
    this.#declined = true;
  }
}

export const access = new Access();
