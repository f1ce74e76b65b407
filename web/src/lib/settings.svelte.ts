// What the person chose: model, system prompt, sampling, tools, form of answers, looks. Kept in the browser and shared by its tabs.

import type { AnswerFields, ChatBody } from "./api";
import { kForms, read_choice, read_form, read_tools, type AnswerForm } from "./form";
import { local, merge_known, read_json, write_json } from "./store";

const kKey = "headrace.settings";

interface Field {
  label: string;
  min: number;
  max: number;
  step: number;
  hint: string;
}

export type SamplingName = "temperature" | "top_p" | "top_k" | "min_p" | "repetition_penalty";

// A field that is empty is not sent: the server's own default for its model holds.
export const kSampling: Record<SamplingName, Field> = {
  temperature: { label: "Temperature", min: 0, max: 2, step: 0.05, hint: "0 always takes the most likely token." },
  top_p: {
    label: "Top-p",
    min: 0.05,
    max: 1,
    step: 0.05,
    hint: "Sample among the most likely tokens that make up this probability.",
  },
  top_k: { label: "Top-k", min: 0, max: 1000, step: 1, hint: "Sample among this many tokens; 0 means all." },
  min_p: {
    label: "Min-p",
    min: 0,
    max: 1,
    step: 0.01,
    hint: "Leave out tokens below this share of the likeliest one's probability.",
  },
  repetition_penalty: {
    label: "Repetition penalty",
    min: 0.5,
    max: 2,
    step: 0.05,
    hint: "Above 1, tokens that were there already become less likely.",
  },
};

export const kLengths = {
  max_tokens: { min: 1, max: 1048576, step: 1 },
  seed: { min: 0, max: Number.MAX_SAFE_INTEGER, step: 1 },
};

const kTopLogprobs = { min: 0, max: 20 };

export type Theme = "system" | "light" | "dark";

const kDefaults = {
  model: "",
  system: "",
  temperature: null as number | null,
  top_p: null as number | null,
  top_k: null as number | null,
  min_p: null as number | null,
  repetition_penalty: null as number | null,
  max_tokens: null as number | null, // null: until the answer ends
  seed: null as number | null, // null: a fresh one per answer, shown with it
  tools: "", // a JSON list
  tool_choice: "auto", // see read_choice
  effort: "", // of reasoning; empty: the model's own
  form: "text" as AnswerForm,
  schema: "",
  pattern: "",
  logprobs: false,
  top_logprobs: 5 as number | null,
  theme: "system" as Theme,
  wrap_code: false,
};

type Settings = typeof kDefaults;

function load(): Settings {
  const loaded = merge_known(kDefaults, read_json(local, kKey));
  if (!["system", "light", "dark"].includes(loaded.theme)) loaded.theme = "system";
  if (!kForms.some(([form]) => form === loaded.form)) loaded.form = "text";
  return loaded;
}

export const settings = $state<Settings>(load());
let kept: Settings = { ...settings }; // what this tab last wrote or read

// Another tab's choice becomes this one's.
addEventListener("storage", (event) => {
  if (event.key !== kKey && event.key !== null) return;
  kept = load();
  Object.assign(settings, kept);
});

// Writes only what this tab changed, into what is there now: two tabs do not undo each other's choices.
export function save_settings(): void {
  const now = $state.snapshot(settings);
  const changed = Object.entries(now).filter(([key, value]) => kept[key as keyof Settings] !== value);
  if (!changed.length) return;
  kept = { ...load(), ...Object.fromEntries(changed) };
  write_json(local, kKey, kept);
  Object.assign(settings, kept);
}

// All but the looks. Returns what undoes it.
export function reset_settings(): () => void {
  const before = $state.snapshot(settings);
  Object.assign(settings, { ...kDefaults, theme: settings.theme, wrap_code: settings.wrap_code });
  return () => Object.assign(settings, before);
}

function clamp(value: unknown, { min, max }: { min: number; max: number }): number | undefined {
  return typeof value === "number" && Number.isFinite(value) ? Math.min(max, Math.max(min, value)) : undefined;
}

export type ChosenSampling = Partial<Record<SamplingName | "max_tokens", number>> & { seed: number };

// The sampling fields of a request: what was chosen, and a seed so that the answer can be had again.
export function chosen_sampling(): ChosenSampling {
  const chosen: ChosenSampling = {
    seed: clamp(settings.seed, kLengths.seed) ?? crypto.getRandomValues(new Uint32Array(1))[0] ?? 0,
  };
  chosen.seed = Math.round(chosen.seed);
  for (const name of Object.keys(kSampling) as SamplingName[]) {
    const value = clamp(settings[name], kSampling[name]);
    if (value !== undefined) chosen[name] = name === "top_k" ? Math.round(value) : value;
  }
  const max_tokens = clamp(settings.max_tokens, kLengths.max_tokens);
  if (max_tokens !== undefined) chosen.max_tokens = Math.round(max_tokens);
  return chosen;
}

// What is wrong with the tools or the form as they were typed; empty: nothing. has_template: of the model.
export function form_problem(has_template: boolean): string {
  const tools = has_template ? read_tools(settings.tools) : read_tools("");
  if (tools.value === null) return `Tools: ${tools.problem}`;
  const choice = tools.value.length ? read_choice(settings.tool_choice, tools.value) : null;
  const form = read_form(settings.form, settings.schema, settings.pattern);
  return choice?.problem || form.problem;
}

// The tools of a request; only good ones.
export function chosen_tools(): Pick<ChatBody, "tools" | "tool_choice"> {
  const tools = read_tools(settings.tools).value;
  if (!tools?.length) return {};
  const choice = read_choice(settings.tool_choice, tools).value;
  return { tools, ...(choice && choice !== "auto" ? { tool_choice: choice } : {}) };
}

export const kEfforts = ["none", "low", "medium", "high"];

export function chosen_effort(): Pick<ChatBody, "reasoning_effort"> {
  return kEfforts.includes(settings.effort) ? { reasoning_effort: settings.effort } : {};
}

// goes_on: the answer has begun, and what begins again would not fit its form.
export function chosen_form(goes_on: boolean): Pick<AnswerFields, "response_format"> {
  const form = goes_on ? undefined : read_form(settings.form, settings.schema, settings.pattern).value;
  return form ? { response_format: form } : {};
}

// How many alternatives to each token are asked for; null: no log-probs.
export function chosen_logprobs(): number | null {
  return settings.logprobs ? Math.round(clamp(settings.top_logprobs, kTopLogprobs) ?? 0) : null;
}
