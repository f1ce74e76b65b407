// Tools and the form of answers as a person types them: read, or what is wrong with them.

export interface Tool {
  type: "function";
  function: { name: string; description?: string; parameters?: object };
}

export type Read<T> = { value: T; problem: "" } | { value: null; problem: string };

export type AnswerForm = "text" | "json_object" | "json_schema" | "regex";

export const kForms: [AnswerForm, string][] = [
  ["text", "Text"],
  ["json_object", "Any JSON object"],
  ["json_schema", "JSON of a schema"],
  ["regex", "A regular expression"],
];

export const kSampleTools = `[
  {
    "type": "function",
    "function": {
      "name": "get_weather",
      "description": "The weather in a city now.",
      "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"]
      }
    }
  }
]`;

export const kSampleSchema = `{
  "type": "object",
  "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
  "required": ["name", "age"]
}`;

const kMostTools = 128;

function bad<T>(problem: string): Read<T> {
  return { value: null, problem };
}

// Engines say where JSON breaks in their own ways: an offset, or a line and a column.
function json_problem(failure: unknown, text: string): string {
  const told = failure instanceof Error ? failure.message : String(failure);
  const offset = /position (\d+)/.exec(told)?.[1];
  if (offset === undefined) return `This is not JSON: ${told}.`;
  const before = text.slice(0, Number(offset)).split("\n");
  return `This is not JSON: look at line ${before.length}, column ${(before.at(-1)?.length ?? 0) + 1}.`;
}

function read_any(text: string): Read<unknown> {
  try {
    return { value: JSON.parse(text) as unknown, problem: "" };
  } catch (failure) {
    return bad(json_problem(failure, text));
  }
}

function is_object(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function tool_problem(value: unknown, names: Set<string>): string {
  if (!is_object(value) || value.type !== "function" || !is_object(value.function))
    return 'needs "type": "function" and a "function"';
  const { name, description, parameters } = value.function;
  if (typeof name !== "string" || !/^[\w.-]{1,64}$/.test(name))
    return "needs a name of 1 to 64 letters, digits, dots, dashes or underscores";
  if (names.has(name)) return `has the name ${name} again`;
  if (description !== undefined && typeof description !== "string") return "has a description that is no text";
  if (parameters !== undefined && !is_object(parameters)) return "has parameters that are no JSON schema";
  names.add(name);
  return "";
}

// A list of functions as the API takes it; empty: none.
export function read_tools(text: string): Read<Tool[]> {
  if (!text.trim()) return { value: [], problem: "" };
  const read = read_any(text);
  if (read.value === null && read.problem) return bad(read.problem);
  if (!Array.isArray(read.value)) return bad("Tools are a list: [ … ].");
  if (read.value.length > kMostTools) return bad(`There are ${read.value.length} tools; ${kMostTools} are the most.`);
  const names = new Set<string>();
  for (const [idx, value] of read.value.entries()) {
    const problem = tool_problem(value, names);
    if (problem) return bad(`Tool ${idx + 1} ${problem}.`);
  }
  return { value: read.value as Tool[], problem: "" };
}

export type ToolChoice = string | { type: "function"; function: { name: string } };

// "auto", "none", "required", or "=" and a name.
export function read_choice(text: string, tools: Tool[]): Read<ToolChoice> {
  if (!text.startsWith("=")) return { value: text, problem: "" };
  const name = text.slice(1);
  if (!tools.some((tool) => tool.function.name === name)) return bad(`There is no tool ${name} to be called.`);
  return { value: { type: "function", function: { name } }, problem: "" };
}

// `response_format`; undefined: answers are text.
export function read_form(form: AnswerForm, schema: string, pattern: string): Read<object | undefined> {
  if (form === "json_object") return { value: { type: "json_object" }, problem: "" };
  if (form === "regex") {
    if (!pattern) return bad("Write the regular expression that the whole answer has to match.");
    return { value: { type: "regex", pattern }, problem: "" };
  }
  if (form !== "json_schema") return { value: undefined, problem: "" };
  if (!schema.trim()) return bad("Write the JSON schema that answers have to hold to.");
  const read = read_any(schema);
  if (read.value === null && read.problem) return bad(read.problem);
  if (!is_object(read.value)) return bad("A schema is a JSON object: { … }.");
  return { value: { type: "json_schema", json_schema: { name: "answer", schema: read.value } }, problem: "" };
}

// A call's arguments on lines of their own, if they are JSON.
export function pretty_json(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
