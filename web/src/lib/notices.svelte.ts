// Short messages at the edge of the page, some with a way back.

export interface Notice {
  id: number;
  text: string;
  action?: { label: string; run: () => void };
}

const kShown_ms = 10_000;

class Notices {
  shown = $state.raw<Notice[]>([]);
  #next_id = 1;
  #timers = new Map<number, ReturnType<typeof setTimeout>>();

  // Shows `text`, in place of an equal one. Without `lasting` it goes by itself.
  add(text: string, { action, lasting = false }: { action?: Notice["action"]; lasting?: boolean } = {}): void {
    this.shown.filter((notice) => notice.text === text).forEach((notice) => this.close(notice.id));
    const id = this.#next_id++;
    this.shown = [...this.shown, { id, text, ...(action ? { action } : {}) }];
    if (!lasting)
      this.#timers.set(
        id,
        setTimeout(() => this.close(id), kShown_ms),
      );
  }

  close(id: number): void {
    clearTimeout(this.#timers.get(id));
    this.#timers.delete(id);
    this.shown = this.shown.filter((notice) => notice.id !== id);
  }

  // Someone reads it or is about to press its button: it stays.
  hold(id: number): void {
    clearTimeout(this.#timers.get(id));
  }
}

export const notices = new Notices();
