// npm packages, unmodified, against the server at HEADRACE_URL.

import assert from "node:assert/strict";
import test from "node:test";

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, streamText } from "ai";
import OpenAI from "openai";
import { z } from "zod";

const baseURL = `${process.env.HEADRACE_URL}/v1`;
const answer = z.object({ colour: z.enum(["red", "green"]), sure: z.boolean() });

const models = {
  compatible: createOpenAICompatible({
    name: "headrace",
    baseURL,
    apiKey: "none",
    includeUsage: true,
    supportsStructuredOutputs: true,
  })("tiny"),
  chat: createOpenAI({ baseURL, apiKey: "none" }).chat("tiny"),
  responses: createOpenAI({ baseURL, apiKey: "none" }).responses("tiny"),
};

for (const [name, model] of Object.entries(models)) {
  test(`ai: ${name} answers and streams`, async () => {
    const options = { model, prompt: "Hello", maxOutputTokens: 20, temperature: 0, maxRetries: 0 };
    const whole = await generateText(options);
    const stream = streamText(options);
    let text = "";
    for await (const part of stream.textStream) text += part;
    assert.equal(text, whole.text);
    assert.ok((await stream.usage).outputTokens > 0);
  });

  test(`ai: ${name} structures its answer`, async () => {
    const { output } = await generateText({
      model,
      prompt: "Colour?",
      maxOutputTokens: 1500,
      maxRetries: 0,
      output: Output.object({ schema: answer }),
    });
    assert.ok(answer.safeParse(output).success);
  });

  test(`ai: ${name} calls a tool`, async () => {
    const { toolCalls } = await generateText({
      model,
      prompt: "Colour?",
      maxOutputTokens: 1500,
      maxRetries: 0,
      toolChoice: "required",
      tools: { paint: { description: "Paints the wall.", inputSchema: answer } },
    });
    assert.equal(toolCalls[0].toolName, "paint");
    assert.ok(answer.safeParse(toolCalls[0].input).success);
  });
}

test("openai: responses, whole and streamed", async () => {
  const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
  const options = { model: "tiny", input: "Hello", max_output_tokens: 20, temperature: 0 };
  const whole = await client.responses.create(options);
  let text = "";
  for await (const event of await client.responses.create({ ...options, stream: true })) {
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  assert.equal(text, whole.output_text);
  assert.equal((await client.responses.retrieve(whole.id)).output_text, text);
});
