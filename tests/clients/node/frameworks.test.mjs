// The Vercel AI SDK with each of its providers, and LangChain, against the server at HEADRACE_URL.

import assert from "node:assert/strict";
import test from "node:test";

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { ChatAnthropic } from "@langchain/anthropic";
import { tool as langchainTool } from "@langchain/core/tools";
import { ChatOllama } from "@langchain/ollama";
import { ChatOpenAI } from "@langchain/openai";
import { embedMany, generateText, Output, stepCountIs, streamText } from "ai";
import { createOllama } from "ollama-ai-provider-v2";
import { z } from "zod";

const url = process.env.HEADRACE_URL;
const baseURL = `${url}/v1`;
const apiKey = "none";
const answer = z.object({ colour: z.enum(["red", "green"]), sure: z.boolean() });
const compatible = createOpenAICompatible({
  name: "headrace",
  baseURL,
  apiKey,
  includeUsage: true,
  supportsStructuredOutputs: true,
});

const models = {
  compatible,
  chat: (name) => createOpenAI({ baseURL, apiKey }).chat(name),
  responses: (name) => createOpenAI({ baseURL, apiKey }).responses(name),
  anthropic: createAnthropic({ baseURL, apiKey }),
  ollama: createOllama({ baseURL: `${url}/api` }),
};
const forcing = ["compatible", "chat", "responses", "anthropic"];  // Ollama's dialect has no choice of tools
const paint = (execute) => ({ description: "Paints the wall.", inputSchema: answer, ...(execute && { execute }) });

for (const [name, model] of Object.entries(models)) {
  test(`ai: ${name} answers and streams`, async () => {
    const options = { model: model("script"), prompt: "Hello", maxOutputTokens: 20, temperature: 0, maxRetries: 0 };
    const whole = await generateText(options);
    const stream = streamText(options);
    let text = "";
    for await (const part of stream.textStream) text += part;
    assert.equal(text, "Plain text.");
    assert.equal(text, whole.text);
    assert.ok((await stream.usage).outputTokens > 0);
  });

  test(`ai: ${name} structures its answer`, async () => {
    const { output } = await generateText({
      model: model("tiny"),
      prompt: "Colour?",
      maxOutputTokens: 1500,
      maxRetries: 0,
      output: Output.object({ schema: answer }),
    });
    assert.ok(answer.safeParse(output).success);
  });

  test(`ai: ${name} goes its whole way with a tool`, async () => {
    const painted = [];
    const execute = async (given) => painted.push(given) && "done";
    const options = {
      model: model("script"),
      prompt: "Paint.",
      maxRetries: 0,
      stopWhen: stepCountIs(3),
      tools: { paint: paint(execute) },
    };
    assert.equal((await generateText(options)).text, "It is green.");
    assert.equal(await streamText(options).text, "It is green.");
    assert.deepEqual(painted, [{ colour: "green", sure: true }, { colour: "green", sure: true }]);
  });

  if (!forcing.includes(name)) continue;
  test(`ai: ${name} is forced to call a tool`, async () => {
    const { toolCalls } = await generateText({
      model: model("tiny"),
      prompt: "Colour?",
      maxOutputTokens: 1500,
      maxRetries: 0,
      toolChoice: "required",
      tools: { paint: paint() },
    });
    assert.equal(toolCalls[0].toolName, "paint");
    assert.ok(answer.safeParse(toolCalls[0].input).success);
  });
}

test("ai: embeddings", async () => {
  const { embeddings } = await embedMany({ model: compatible.embeddingModel("tiny"), values: ["a", "b"] });
  assert.equal(embeddings.length, 2);
  assert.ok(embeddings[0].length > 8);
});

const chats = {
  openai: (model) => new ChatOpenAI({ model, apiKey, maxTokens: 1500, maxRetries: 0, configuration: { baseURL } }),
  anthropic: (model) => new ChatAnthropic({ model, apiKey, maxTokens: 1500, maxRetries: 0, anthropicApiUrl: url }),
  ollama: (model) => new ChatOllama({ model, baseUrl: url, numPredict: 1500, maxRetries: 0 }),
};

for (const [name, chat] of Object.entries(chats)) {
  test(`langchain: ${name} calls a tool and takes its result`, async () => {
    const tool = langchainTool(async () => "done", { name: "paint", description: "Paints.", schema: answer });
    const bound = chat("script").bindTools([tool]);
    const called = await bound.invoke("Paint.");
    assert.equal(called.tool_calls.length, 1);
    assert.deepEqual(called.tool_calls[0].args, { colour: "green", sure: true });
    const result = await tool.invoke(called.tool_calls[0]);
    assert.equal((await bound.invoke([["user", "Paint."], called, result])).text, "It is green.");
  });

  test(`langchain: ${name} streams`, async () => {
    let text = "";
    for await (const chunk of await chat("script").stream("Hello")) text += chunk.text;
    assert.equal(text, "Plain text.");
  });
}

test("langchain: a form", async () => {
  for (const name of ["openai", "anthropic"]) {
    const given = await chats[name]("tiny").withStructuredOutput(answer).invoke("Colour?");
    assert.ok(answer.safeParse(given).success, name);
  }
});
