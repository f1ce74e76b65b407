// The OpenAI Node SDK, unmodified, against the server at HEADRACE_URL.

import assert from "node:assert/strict";
import test from "node:test";

import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.env.HEADRACE_URL}/v1`, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "Hello there" }];

test("lists models", async () => {
  const models = [];
  for await (const model of client.models.list()) models.push(model.id);
  assert.ok(models.includes("gpt-4o-mini"));
  assert.equal((await client.models.retrieve("gpt-4o-mini")).object, "model");
});

test("chat, whole and streamed", async () => {
  const options = { model: "gpt-4o-mini", messages, max_tokens: 24, temperature: 0 };
  const whole = await client.chat.completions.create(options);
  assert.equal(whole.choices[0].message.role, "assistant");
  const stream = await client.chat.completions.create({
    ...options,
    stream: true,
    stream_options: { include_usage: true },
  });
  let text = "";
  let finish = null;
  let usage = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? "";
    finish = chunk.choices[0]?.finish_reason ?? finish;
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(finish, whole.choices[0].finish_reason);
  assert.equal(usage.total_tokens, whole.usage.total_tokens);
});

test("the stream helper assembles the answer", async () => {
  const runner = client.chat.completions.stream({ model: "gpt-4o-mini", messages, max_tokens: 12, temperature: 0 });
  const answer = await runner.finalChatCompletion();
  assert.equal(answer.choices[0].message.role, "assistant");
  assert.equal(typeof answer.choices[0].message.content, "string");
});

test("the stream helper has each log-prob once", async () => {
  const options = { model: "gpt-4o-mini", messages, max_tokens: 12, temperature: 1.5, seed: 3, n: 2, logprobs: true };
  const whole = await client.chat.completions.create(options);
  const answer = await client.chat.completions.stream(options).finalChatCompletion();
  const tokens = ({ choices }) => choices.map(({ logprobs }) => logprobs.content.map(({ token }) => token));
  assert.deepEqual(tokens(answer), tokens(whole));
});

test("completions", async () => {
  const options = { model: "gpt-4o-mini", prompt: ["abc", "d"], max_tokens: 6, temperature: 0, logprobs: 2 };
  const whole = await client.completions.create(options);
  assert.equal(whole.choices.length, 2);
  assert.equal(whole.choices[0].logprobs.tokens.length, whole.choices[0].logprobs.token_logprobs.length);
  const texts = ["", ""];
  for await (const chunk of await client.completions.create({ ...options, stream: true })) {
    for (const choice of chunk.choices) texts[choice.index] += choice.text;
  }
  assert.deepEqual(texts, whole.choices.map((choice) => choice.text));
});

test("an abandoned stream does not disturb the next", async () => {
  const stream = await client.completions.create({
    model: "gpt-4o-mini", prompt: "abc", max_tokens: 400, stream: true, ignore_eos: true,
  });
  for await (const chunk of stream) {
    assert.ok(chunk.id);
    break;
  }
  const answer = await client.completions.create({ model: "gpt-4o-mini", prompt: "abc", max_tokens: 2 });
  assert.equal(answer.choices.length, 1);
});

test("errors have the right class, status and parameter", async () => {
  const ask = (change) => client.chat.completions.create({ model: "gpt-4o-mini", messages, max_tokens: 2, ...change });
  await assert.rejects(ask({ temperature: -1 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.status, 400);
    assert.equal(error.param, "temperature");
    assert.match(error.message, /temperature is -1, but it must be a number from 0 to 100/);
    return true;
  });
  await assert.rejects(ask({ model: "absent" }), OpenAI.NotFoundError);
  await assert.rejects(ask({ messages: [{ role: "user", content: "x".repeat(600) }] }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.match(error.message, /maximum context length is 512 tokens/);
    return true;
  });
});

test("responses, whole, streamed and kept", async () => {
  const options = { model: "gpt-4o-mini", input: "Hello there", max_output_tokens: 24, temperature: 0 };
  const whole = await client.responses.create(options);
  let text = "";
  let last = null;
  for await (const event of await client.responses.create({ ...options, stream: true })) {
    if (event.type === "response.output_text.delta") text += event.delta;
    last = event;
  }
  assert.equal(text, whole.output_text);
  assert.ok(["response.completed", "response.incomplete"].includes(last.type));
  assert.equal((await client.responses.retrieve(whole.id)).output_text, text);
});
