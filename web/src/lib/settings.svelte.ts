// What the person chose: model, system prompt and sampling. Kept for the tab.

import { load, save } from "./store";

const kKey = "headrace.settings";

export const kLimits = {
  temperature: { min: 0, max: 2, step: 0.05 },
  top_p: { min: 0.05, max: 1, step: 0.05 },
  max_tokens: { min: 1, max: 1048576, step: 1 },
  seed: { min: 0, max: Number.MAX_SAFE_INTEGER, step: 1 },
};

export const kDefaults = {
  api_key: "",
  model: "",
  system: "",
  temperature: 0.7,
  top_p: 0.95,
  max_tokens: 512,
  seed: null as number | null, // null: a fresh one per answer, shown with it
};

export const settings = $state(load(kKey, { ...kDefaults }));

export function save_settings(): void {
  save(kKey, settings);
}

// All but the key, which is no matter of taste.
export function reset_settings(): void {
  Object.assign(settings, { ...kDefaults, api_key: settings.api_key });
}

function clamp(value: unknown, { min, max }: { min: number; max: number }, fallback: number): number {
  return typeof value === "number" && Number.isFinite(value) ? Math.min(max, Math.max(min, value)) : fallback;
}

// The sampling fields of a request; an emptied or impossible field falls back to its default.
export function sampling() {
  const seed = settings.seed;
  return {
    temperature: clamp(settings.temperature, kLimits.temperature, kDefaults.temperature),
    top_p: clamp(settings.top_p, kLimits.top_p, kDefaults.top_p),
    max_tokens: Math.round(clamp(settings.max_tokens, kLimits.max_tokens, kDefaults.max_tokens)),
    seed:
      typeof seed === "number" && Number.isFinite(seed)
        ? Math.round(clamp(seed, kLimits.seed, 0))
        : (crypto.getRandomValues(new Uint32Array(1))[0] ?? 0),
  };
}
