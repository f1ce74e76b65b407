// Values that live as long as the browser tab. Storage may be refused or full: the page then works without it.

export function load<T extends object>(key: string, fallback: T): T {
  try {
    const text = sessionStorage.getItem(key);
    return text ? { ...fallback, ...(JSON.parse(text) as Partial<T>) } : fallback;
  } catch {
    return fallback;
  }
}

export function save(key: string, value: object): void {
  try {
    sessionStorage.setItem(key, JSON.stringify(value));
  } catch {
    // A conversation larger than the quota stays in memory only.
  }
}
