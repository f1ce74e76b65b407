// Where conversations are kept: the browser's IndexedDB, or this tab's memory where the browser refuses one.
// A write names the revision it is based on; if another tab wrote since, it is refused rather than lost.

import { head_of, includes, matches, type Conversation, type Head } from "./conversation";

export interface Vault {
  readonly lasting: boolean;
  heads(): Promise<Head[]>;
  read(id: string): Promise<Conversation | undefined>;
  // Keeps the conversation with the next revision and answers its head; null when something newer is there that this
  // write would lose. Rejects with the browser's DOMException when it cannot be kept (QuotaExceededError: no room).
  write(conversation: Conversation): Promise<Head | null>;
  remove(id: string): Promise<void>;
  // Identities of the conversations that hold every one of the words.
  search(words: string[]): Promise<Set<string>>;
}

const kName = "headrace";
const kHeads = "heads";
const kBodies = "bodies";

function finished(transaction: IDBTransaction): Promise<void> {
  return new Promise((done, fail) => {
    transaction.oncomplete = () => done();
    transaction.onabort = () =>
      fail(transaction.error ?? new DOMException("The browser refused to keep it.", "AbortError"));
  });
}

function result<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((done, fail) => {
    request.onsuccess = () => done(request.result);
    request.onerror = () => fail(request.error);
  });
}

// What a write puts in the place of `stored`. A revision that the writer has not seen may be replaced only by something
// that includes it; the name that it may have got stays.
function successor(conversation: Conversation, stored: Conversation | undefined): Conversation | null {
  if (!stored || stored.rev === conversation.rev) return { ...conversation, rev: conversation.rev + 1 };
  return includes(conversation, stored) ? { ...conversation, title: stored.title, rev: stored.rev + 1 } : null;
}

class IndexedVault implements Vault {
  readonly lasting = true;
  #database: IDBDatabase;

  constructor(database: IDBDatabase) {
    this.#database = database;
    database.onversionchange = () => database.close(); // a newer page of this server wants to convert it
  }

  heads(): Promise<Head[]> {
    return result(this.#database.transaction(kHeads).objectStore(kHeads).getAll());
  }

  read(id: string): Promise<Conversation | undefined> {
    return result(this.#database.transaction(kBodies).objectStore(kBodies).get(id));
  }

  // The check and the write are one transaction, and transactions that write take turns, across tabs too.
  async write(conversation: Conversation): Promise<Head | null> {
    const transaction = this.#database.transaction([kHeads, kBodies], "readwrite");
    const done = finished(transaction);
    done.catch(() => undefined); // awaited below, but put() itself may throw before that
    const stored: Conversation | undefined = await result(transaction.objectStore(kBodies).get(conversation.id));
    const next = successor(conversation, stored);
    if (!next) return null;
    transaction.objectStore(kBodies).put(next);
    transaction.objectStore(kHeads).put(head_of(next));
    await done;
    return head_of(next);
  }

  async remove(id: string): Promise<void> {
    const transaction = this.#database.transaction([kHeads, kBodies], "readwrite");
    transaction.objectStore(kBodies).delete(id);
    transaction.objectStore(kHeads).delete(id);
    await finished(transaction);
  }

  search(words: string[]): Promise<Set<string>> {
    const found = new Set<string>();
    const request = this.#database.transaction(kBodies).objectStore(kBodies).openCursor();
    return new Promise((done, fail) => {
      request.onerror = () => fail(request.error);
      request.onsuccess = () => {
        const cursor = request.result;
        if (!cursor) return done(found);
        if (matches(cursor.value as Conversation, words)) found.add((cursor.value as Conversation).id);
        cursor.continue();
      };
    });
  }
}

class MemoryVault implements Vault {
  readonly lasting = false;
  #kept = new Map<string, Conversation>();

  async heads(): Promise<Head[]> {
    return [...this.#kept.values()].map(head_of);
  }

  async read(id: string): Promise<Conversation | undefined> {
    return structuredClone(this.#kept.get(id));
  }

  async write(conversation: Conversation): Promise<Head> {
    const next = { ...conversation, rev: conversation.rev + 1 };
    this.#kept.set(conversation.id, structuredClone(next));
    return head_of(next);
  }

  async remove(id: string): Promise<void> {
    this.#kept.delete(id);
  }

  async search(words: string[]): Promise<Set<string>> {
    return new Set([...this.#kept.values()].filter((kept) => matches(kept, words)).map(({ id }) => id));
  }
}

function open_database(): Promise<IDBDatabase> {
  const request = indexedDB.open(kName, 1);
  request.onupgradeneeded = () => {
    request.result.createObjectStore(kHeads, { keyPath: "id" });
    request.result.createObjectStore(kBodies, { keyPath: "id" });
  };
  return result(request);
}

export async function open_vault(): Promise<Vault> {
  try {
    return new IndexedVault(await open_database());
  } catch {
    return new MemoryVault();
  }
}
