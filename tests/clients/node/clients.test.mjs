// npm packages that speak OpenAI's dialects, unmodified, against the server at HEADRACE_URL.

import assert from "node:assert/strict";
import test from "node:test";

import { Agent, OpenAIProvider, Runner, setTracingDisabled, tool as agentTool } from "@openai/agents";
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const baseURL = `${process.env.HEADRACE_URL}/v1`;
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const answer = z.object({ colour: z.enum(["red", "green"]), sure: z.boolean() });
const messages = [{ role: "user", content: "Which colour?" }];
const parameters = z.toJSONSchema(answer);
const tools = [{ type: "function", function: { name: "paint", description: "Paints.", parameters } }];

test("openai: responses, whole and streamed", async () => {
  const options = { model: "tiny", input: "Hello", max_output_tokens: 20, temperature: 0 };
  const whole = await client.responses.create(options);
  let text = "";
  for await (const event of await client.responses.create({ ...options, stream: true })) {
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  assert.equal(text, whole.output_text);
  assert.equal((await client.responses.retrieve(whole.id)).output_text, text);
});

test("openai: chat parses into a form", async () => {
  const options = { model: "tiny", messages, max_tokens: 1500, response_format: zodResponseFormat(answer, "answer") };
  const parsed = await client.chat.completions.parse(options);
  assert.ok(answer.safeParse(parsed.choices[0].message.parsed).success);
  const streamed = await client.chat.completions.stream(options).finalChatCompletion();
  assert.ok(answer.safeParse(streamed.choices[0].message.parsed).success);
});

test("openai: responses parse into a form", async () => {
  const options = {
    model: "tiny",
    input: "Which colour?",
    max_output_tokens: 1500,
    text: { format: zodTextFormat(answer, "answer") },
  };
  const parsed = await client.responses.parse(options);
  assert.ok(answer.safeParse(parsed.output_parsed).success);
  const streamed = await client.responses.stream(options).finalResponse();
  assert.ok(answer.safeParse(streamed.output_parsed).success);
});

test("openai: a runner calls tools and answers", async () => {
  const painted = [];
  const runner = client.chat.completions.runTools({
    model: "script",
    messages,
    stream: true,
    tools: [{ type: "function", function: { ...tools[0].function, parse: JSON.parse, function: (given) => painted.push(given) } }],
  });
  assert.equal(await runner.finalContent(), "It is green.");
  assert.deepEqual(painted, [{ colour: "green", sure: true }]);
});

test("openai: the stream of responses has calls", async () => {
  const final = await client.responses
    .stream({ model: "script", input: "Paint.", tools: [{ type: "function", ...tools[0].function }] })
    .finalResponse();
  assert.deepEqual(final.output.map((item) => item.type), ["reasoning", "message", "function_call"]);
  assert.deepEqual(JSON.parse(final.output[2].arguments), { colour: "green", sure: true });
});

for (const useResponses of [false, true]) {
  test(`openai agents: whole way, ${useResponses ? "responses" : "chat"}`, async () => {
    setTracingDisabled(true);
    const paint = agentTool({ name: "paint", description: "Paints.", parameters: answer, execute: async () => "done" });
    const agent = new Agent({ name: "painter", instructions: "Be brief.", model: "script", tools: [paint] });
    const runner = new Runner({ modelProvider: new OpenAIProvider({ openAIClient: client, useResponses }) });
    assert.equal((await runner.run(agent, "Paint.")).finalOutput, "It is green.");
    const streamed = await runner.run(agent, "Paint.", { stream: true });
    await streamed.completed;
    assert.equal(streamed.finalOutput, "It is green.");
  });
}
