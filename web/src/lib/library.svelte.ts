// The kept conversations: the list, search, rename, delete with a way back, export and import. Shared by all tabs.

import { includes, type Conversation, type Head } from "./conversation";
import { download } from "./download";
import { from_json, to_json, to_markdown } from "./interchange";
import { notices } from "./notices.svelte";
import { local, new_id, read_json, write_json } from "./store";
import { open_vault, type Vault } from "./vault";

const kUnsaved = "headrace.unsaved.";
const kMostImportBytes = 64e6;

// What one tab tells the others.
export interface Change {
  ids: string[];
  removed: boolean;
}

class Library {
  heads = $state.raw<Head[]>([]); // newest first
  found = $state.raw<Set<string> | null>(null); // what a search left, or null
  lasting = $state(true);
  #vault: Promise<Vault>;
  #channel = "BroadcastChannel" in window ? new BroadcastChannel("headrace") : null;
  #watchers: ((change: Change) => void)[] = [];
  #search = "";
  #full = false; // the person has been told

  constructor() {
    this.#vault = this.#open();
    this.#channel?.addEventListener("message", ({ data }: MessageEvent<Change>) => {
      void this.refresh();
      this.#inform(data);
    });
  }

  #inform(change: Change): void {
    for (const watcher of this.#watchers) watcher(change);
  }

  async #open(): Promise<Vault> {
    const vault = await open_vault();
    this.lasting = vault.lasting;
    await this.#recover(vault);
    this.heads = sorted(await vault.heads());
    return vault;
  }

  // What a closing page could only leave in local storage (see `leave`) moves to its place.
  async #recover(vault: Vault): Promise<void> {
    for (const key of keys_with(kUnsaved)) {
      const left = read_json(local, key) as Conversation | null;
      const no_room = await recover(vault, left).then(
        () => false,
        (failure) => failure instanceof DOMException, // anything else: it cannot be read, now or later
      );
      if (!no_room) write_json(local, key, null);
    }
  }

  // Tells what other tabs changed, and what was renamed here.
  watch(watcher: (change: Change) => void): void {
    this.#watchers.push(watcher);
  }

  async refresh(): Promise<void> {
    this.heads = sorted(await (await this.#vault).heads());
    if (this.#search) await this.search(this.#search);
  }

  async read(id: string): Promise<Conversation | undefined> {
    return (await this.#vault).read(id);
  }

  // Keeps the conversation. Returns its identity and revision, which are new where another tab wrote in the meantime:
  // both versions are then kept. Null when the browser could not keep it.
  async write(conversation: Conversation): Promise<Head | null> {
    const vault = await this.#vault;
    try {
      let head = await vault.write(conversation);
      if (!head) {
        head = await vault.write({ ...conversation, id: new_id(), title: `${conversation.title} (other tab)`, rev: 0 });
        notices.add("This conversation was changed in another tab. Both versions are kept.");
      }
      this.#full = false;
      if (head) await this.#changed({ ids: [head.id], removed: false });
      return head;
    } catch (failure) {
      this.#tell(failure);
      return null;
    }
  }

  #tell(failure: unknown): void {
    if (this.#full) return;
    this.#full = true;
    const full = failure instanceof DOMException && failure.name === "QuotaExceededError";
    const text = full
      ? "The browser's storage is full: the newest messages are not kept. Export or delete conversations to make room."
      : `The browser could not keep this conversation (${failure instanceof Error ? failure.message : String(failure)}). Export it if you need it.`;
    notices.add(text, { lasting: true });
  }

  // The page goes away, and only local storage can be written at once.
  leave(conversation: Conversation): void {
    if (this.lasting) write_json(local, kUnsaved + conversation.id, conversation);
  }

  // It came back after all (the browser's back button), or what it left was kept in time.
  stay(id: string): void {
    write_json(local, kUnsaved + id, null);
  }

  async rename(id: string, title: string): Promise<void> {
    const conversation = await this.read(id);
    const name = title.trim().slice(0, 200);
    if (!conversation || !name || name === conversation.title) return;
    await this.write({ ...conversation, title: name });
    this.#inform({ ids: [id], removed: false });
  }

  async remove(ids: string[]): Promise<void> {
    const vault = await this.#vault;
    const removed = (await Promise.all(ids.map((id) => vault.read(id)))).filter((found) => found !== undefined);
    for (const id of ids) await vault.remove(id);
    await this.#changed({ ids, removed: true });
    const undo = async () => {
      for (const conversation of removed)
        await vault.write(conversation).catch((failure: unknown) => this.#tell(failure));
      await this.#changed({ ids, removed: false });
    };
    const what = removed.length === 1 ? `Deleted “${removed[0]?.title}”.` : `Deleted ${removed.length} conversations.`;
    if (removed.length) notices.add(what, { action: { label: "Undo", run: () => void undo() } });
  }

  async search(text: string): Promise<void> {
    this.#search = text;
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length ? await (await this.#vault).search(words) : null;
    if (this.#search === text) this.found = found; // the person may have typed on
  }

  async export(ids: string[], form: "markdown" | "json"): Promise<void> {
    const read = await Promise.all(ids.map((id) => this.read(id)));
    const conversations = read.filter((found) => found !== undefined);
    const name = conversations.length === 1 ? (conversations[0]?.title ?? "") : "headrace conversations";
    if (form === "json") download(name, "json", to_json(conversations));
    else download(name, "md", conversations.map(to_markdown).join("\n"));
  }

  async import(file: File): Promise<void> {
    try {
      if (file.size > kMostImportBytes)
        throw new Error(
          `The file has ${Math.round(file.size / 1e6)} MB; import takes up to ${kMostImportBytes / 1e6} MB.`,
        );
      const conversations = from_json(await file.text());
      const vault = await this.#vault;
      for (const conversation of conversations) await vault.write(conversation);
      await this.#changed({ ids: conversations.map(({ id }) => id), removed: false });
      notices.add(`Imported ${conversations.length} conversation${conversations.length === 1 ? "" : "s"}.`);
    } catch (failure) {
      if (failure instanceof DOMException) this.#tell(failure);
      else notices.add(failure instanceof Error ? failure.message : String(failure), { lasting: true });
    }
  }

  async #changed(change: Change): Promise<void> {
    this.#channel?.postMessage(change);
    await this.refresh();
  }
}

async function recover(vault: Vault, left: Conversation | null): Promise<void> {
  if (!left?.id || !Array.isArray(left.messages)) return;
  const stored = await vault.read(left.id);
  // Of the same words, only the one that was left says that the page closed before the answer ended.
  if (stored && includes(stored, left) && !includes(left, stored)) return; // it was kept in time
  const written = await vault.write(left);
  if (!written) await vault.write({ ...left, id: new_id(), rev: 0, title: `${left.title} (recovered)` });
}

function sorted(heads: Head[]): Head[] {
  return heads.toSorted((a, b) => b.updated_ms - a.updated_ms);
}

function keys_with(prefix: string): string[] {
  try {
    return Object.keys(localStorage).filter((key) => key.startsWith(prefix));
  } catch {
    return [];
  }
}

export const library = new Library();
