// Small values in the browser's storage. It may be refused (private windows) or full: the page then works without.

export function read_json(storage: () => Storage, key: string): unknown {
  try {
    return JSON.parse(storage().getItem(key) ?? "null");
  } catch {
    return null;
  }
}

// False when the value was not kept.
export function write_json(storage: () => Storage, key: string, value: unknown): boolean {
  try {
    if (value === null) storage().removeItem(key);
    else storage().setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

// Reading the property itself throws where storage is forbidden, hence functions.
export const local = () => localStorage;
export const session = () => sessionStorage;

// The fields of `fallback` that `value` has too, with a type that fits.
export function merge_known<T extends object>(fallback: T, value: unknown): T {
  if (typeof value !== "object" || value === null) return { ...fallback };
  const known = Object.entries(fallback).map(([key, standard]) => {
    const found = (value as Record<string, unknown>)[key];
    const fits = standard === null ? found === null || typeof found === "number" : typeof found === typeof standard;
    return [key, fits ? found : standard];
  });
  return Object.fromEntries(known) as T;
}

// An identity; not crypto.randomUUID, which plain http in a home network does not offer.
export function new_id(): string {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
