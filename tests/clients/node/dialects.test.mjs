// The packages of Anthropic and Ollama for Node, unmodified, against the server at HEADRACE_URL.

import assert from "node:assert/strict";
import test from "node:test";

import Anthropic from "@anthropic-ai/sdk";
import { Ollama } from "ollama";

const url = process.env.HEADRACE_URL;
const claude = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
const llama = new Ollama({ host: url });
const messages = [{ role: "user", content: "Hello" }];
const parameters = {
  type: "object",
  properties: { city: { type: "string", maxLength: 5 } },
  required: ["city"],
  additionalProperties: false,
};

test("anthropic: a stream is the same message", async () => {
  const body = { model: "tiny", max_tokens: 20, messages, temperature: 0 };
  const whole = await claude.messages.create(body);
  const final = await claude.messages.stream(body).finalMessage();
  assert.deepEqual(final.content.map((block) => block.text), whole.content.map((block) => block.text));
  assert.equal(final.stop_reason, whole.stop_reason);
  assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
});

test("anthropic: tokens are counted", async () => {
  const { input_tokens: counted } = await claude.messages.countTokens({ model: "tiny", messages });
  const { usage } = await claude.messages.create({ model: "tiny", max_tokens: 1, messages });
  assert.equal(counted, usage.input_tokens + usage.cache_read_input_tokens);
});

test("anthropic: a forced tool is called", async () => {
  const body = {
    model: "tiny",
    max_tokens: 200,
    messages,
    tools: [{ name: "weather", description: "Weather of a city", input_schema: parameters }],
    tool_choice: { type: "tool", name: "weather" },
  };
  for (const message of [await claude.messages.create(body), await claude.messages.stream(body).finalMessage()]) {
    const call = message.content.find((block) => block.type === "tool_use");
    assert.equal(call.name, "weather");
    assert.equal(typeof call.input.city, "string");
    assert.equal(message.stop_reason, "tool_use");
  }
});

test("anthropic: errors are the right classes", async () => {
  await assert.rejects(claude.messages.create({ model: "absent", max_tokens: 1, messages }), Anthropic.NotFoundError);
  await assert.rejects(claude.messages.create({ model: "tiny", max_tokens: 0, messages }), Anthropic.BadRequestError);
});

test("ollama: chat, whole and streamed", async () => {
  const body = { model: "tiny", messages, options: { temperature: 0, num_predict: 20 } };
  const whole = await llama.chat(body);
  let text = "";
  let last;
  for await (const part of await llama.chat({ ...body, stream: true })) {
    text += part.message.content;
    last = part;
  }
  assert.equal(text, whole.message.content);
  assert.equal(last.done, true);
  assert.equal(last.eval_count, whole.eval_count);
});

test("ollama: an answer holds to a schema", async () => {
  const answer = await llama.chat({ model: "tiny", messages, format: parameters, options: { num_predict: 200 } });
  assert.equal(typeof JSON.parse(answer.message.content).city, "string");
});

test("ollama: generate, embed, list, show", async () => {
  const made = await llama.generate({ model: "tiny", prompt: "Hello", options: { num_predict: 5 } });
  assert.ok(made.context.length > 5);
  const { embeddings } = await llama.embed({ model: "tiny", input: ["a", "b"] });
  assert.equal(embeddings.length, 2);
  assert.ok((await llama.list()).models.some((model) => ["tiny", "tiny:latest"].includes(model.name)));
  assert.ok((await llama.show({ model: "tiny" })).capabilities.includes("completion"));
  await assert.rejects(llama.show({ model: "absent" }), /absent/);
});

test("anthropic: a tool is called of its own accord", async () => {
  const tools = [
    {
      name: "paint",
      description: "Paints.",
      input_schema: { type: "object", properties: { colour: { enum: ["red", "green"] }, sure: { type: "boolean" } } },
    },
  ];
  const first = await claude.messages.stream({ model: "script", max_tokens: 400, messages, tools }).finalMessage();
  assert.deepEqual(first.content.map((block) => block.type), ["thinking", "text", "tool_use"]);
  assert.deepEqual(first.content[2].input, { colour: "green", sure: true });
  const results = [{ type: "tool_result", tool_use_id: first.content[2].id, content: "done" }];
  const turns = [...messages, { role: "assistant", content: first.content }, { role: "user", content: results }];
  const second = await claude.messages.create({ model: "script", max_tokens: 400, messages: turns, tools });
  assert.equal(second.content[0].text, "It is green.");
});

test("ollama: a tool is called of its own accord", async () => {
  const tools = [{ type: "function", function: { name: "paint", description: "Paints.", parameters: { type: "object" } } }];
  const first = await llama.chat({ model: "script", messages, tools });
  assert.equal(first.message.thinking, "The wall is grey.");
  assert.deepEqual(first.message.tool_calls[0].function.arguments, { colour: "green", sure: true });
  const turns = [...messages, first.message, { role: "tool", tool_name: "paint", content: "done" }];
  assert.equal((await llama.chat({ model: "script", messages: turns, tools })).message.content, "It is green.");
});
