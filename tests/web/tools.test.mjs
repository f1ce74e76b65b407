// Tools and the form of answers; log-probs; the prompt as the model sees it.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  answers, ask, assert_no_overflow, button, field, last_answer, mock, notice, open, page, scripted, small_targets, until, use_page, wait_done, with_settings,
} from "./harness.mjs";

use_page();

const kTools = [
  { type: "function", function: { name: "get_weather", parameters: { type: "object", properties: { city: { type: "string" } } } } },
  { type: "function", function: { name: "get_time" } },
];
const with_tools = (more = {}) => with_settings({ tools: JSON.stringify(kTools), ...more });

test("tools are checked as they are typed; what is wrong is said, and nothing is sent with it", scripted, async () => {
  await open();
  await button("Settings").click();
  const tools = page.getByLabel("Tools", { exact: true });
  const state = page.locator("#tools-state");
  for (const [text, told] of [
    ['[{"type": "function"\n x', /not JSON: look at line 2, column 2/],
    ['{"a": 1}', /Tools are a list/],
    ['[{"type": "function", "function": {"name": "a b"}}]', /Tool 1 needs a name of 1 to 64/],
    ['[{"name": "a"}]', /Tool 1 needs "type": "function"/],
    [JSON.stringify([kTools[0], kTools[0]]), /Tool 2 has the name get_weather again/],
  ]) {
    await tools.fill(text);
    await until(`'${told}'`, async () => told.test(await state.innerText()));
    assert.equal(await tools.getAttribute("aria-invalid"), "true");
  }
  await ask("hello");
  await notice().hover();
  assert.match(await notice().innerText(), /Not sent\. Tools: Tool 2/);
  assert.equal(await field().inputValue(), "hello");
  assert.equal(mock.requests.length, 0);
  await tools.fill("");
  await button("Begin with an example").click();
  await until("its name", async () => /One tool: get_weather/.test(await state.innerText()));
  await field().press("Enter");
  await wait_done();
  assert.equal(mock.requests[0].tools[0].function.name, "get_weather");
  assert.equal("tool_choice" in mock.requests[0], false);
});

test("calls are cards; results are typed and continue the turn; both can be made again", scripted, async () => {
  mock.calls = [{ name: "get_weather", text: '{"city": "Zürich"}' }, { name: "get_time", text: "{}" }];
  await open({ before: with_tools() });
  await ask("please call");
  await wait_done();
  const cards = last_answer().locator(".card");
  assert.match(await cards.first().innerText(), /Calls get_weather[^]*"city": "Zürich"/);
  assert.match(await cards.last().innerText(), /Calls get_time/);
  assert.equal(await last_answer().locator("details.reasoning").getAttribute("open"), null);
  await page.getByLabel("Result of get_weather").fill("rain");
  await page.getByLabel("Result of get_time").fill("noon");
  await button("Send results").click();
  await until("the answer", async () => /It gave: rain, noon/.test(await last_answer().innerText()));
  await wait_done();
  assert.deepEqual(mock.requests[1].messages, [
    { role: "user", content: "please call" },
    {
      role: "assistant", content: "", reasoning_content: "A tool knows.",
      tool_calls: [
        { id: "call-0", type: "function", function: { name: "get_weather", arguments: '{"city": "Zürich"}' } },
        { id: "call-1", type: "function", function: { name: "get_time", arguments: "{}" } },
      ],
    },
    { role: "tool", tool_call_id: "call-0", name: "get_weather", content: "rain" },
    { role: "tool", tool_call_id: "call-1", name: "get_time", content: "noon" },
  ]);
  await page.locator("article.tool").getByRole("button", { name: "Edit" }).click();
  await page.getByLabel("Result of get_weather").fill("sun");
  await button("Send results").click();
  await until("the other answer", async () => /It gave: sun, noon/.test(await last_answer().innerText()));
  await wait_done();
  await page.reload();
  await until("both calls", async () => (await answers().first().locator(".card").count()) === 2);
  await page.locator("article.tool").getByRole("button", { name: "Previous version" }).click();
  await until("the first results", async () => /It gave: rain, noon/.test(await last_answer().innerText()));
});

test("a tool can be forced, and one that is gone is no choice", scripted, async () => {
  await open({ before: with_tools() });
  await button("Settings").click();
  await page.getByLabel("Calls", { exact: true }).selectOption("Only get_time");
  await ask("hello");
  await wait_done();
  assert.deepEqual(mock.requests[0].tool_choice, { type: "function", function: { name: "get_time" } });
  await page.getByLabel("Tools", { exact: true }).fill(JSON.stringify([kTools[0]]));
  await page.getByText("There is no tool get_time to be called.").waitFor();
  await ask("again");
  await notice().hover();
  assert.match(await notice().innerText(), /no tool get_time/);
  assert.equal(mock.requests.length, 1);
});

test("answers can be held to a schema, an expression or any object; a wrong schema is not sent", scripted, async () => {
  await open();
  await button("Settings").click();
  const form = page.getByLabel("Form of answers");
  await form.selectOption("Any JSON object");
  await ask("one");
  await wait_done();
  await form.selectOption("A regular expression");
  await page.getByLabel("Regular expression").fill("(yes|no)");
  await ask("two");
  await until("two answers", async () => (await answers().count()) === 2);
  await wait_done();
  await form.selectOption("JSON of a schema");
  await page.getByLabel("JSON schema").fill("[1]");
  await page.getByText("A schema is a JSON object").waitFor();
  await ask("three");
  await notice().hover();
  await page.getByLabel("JSON schema").fill('{"type": "integer"}');
  await field().press("Enter");
  await until("three answers", async () => (await answers().count()) === 3);
  await wait_done();
  assert.deepEqual(mock.requests.map(({ response_format }) => response_format), [
    { type: "json_object" }, { type: "regex", pattern: "(yes|no)" },
    { type: "json_schema", json_schema: { name: "answer", schema: { type: "integer" } } },
  ]);
});

test("how much the model thinks is asked for where the person says so, and thoughts are folded", scripted, async () => {
  await open();
  await ask("please call");
  await wait_done();
  await button("Settings").click();
  await page.getByLabel("Thinking").selectOption("Effort low");
  await ask("please call");
  await until("two answers", async () => (await answers().count()) === 2);
  await wait_done();
  assert.deepEqual(mock.requests.map(({ reasoning_effort }) => reasoning_effort), [undefined, "low"]);
  const thoughts = last_answer().locator("details.reasoning");
  assert.equal(await thoughts.locator("p").isVisible(), false);
  await thoughts.locator("summary").press("Enter");
  assert.equal(await thoughts.locator("p").innerText(), "A tool knows.");
});

for (const plain of [false, true]) {
  test(`tokens show their probability and what else could have come${plain ? ", of a model without a template too" : ""}`, scripted, async () => {
    if (plain) mock.chat_template = null;
    await open({ before: with_settings({ logprobs: true, top_logprobs: 2 }) });
    if (plain) await page.locator(".banner").waitFor();
    await ask("score");
    await wait_done();
    const { logprobs, top_logprobs } = mock.requests[0];
    assert.deepEqual([logprobs, top_logprobs], plain ? [2, undefined] : [true, 2]);
    await button("Tokens").click();
    const list = page.getByRole("listbox");
    await until("the tokens", async () => (await list.locator(".token").count()) === 5);
    const facts = page.locator(".token-facts");
    await list.locator(".token").nth(3).hover();
    assert.match(await facts.innerText(), /␣it[^]*5\.0 %[^]*token 4 of 5[^]*␣we[^]*81\.9 %/);
    await list.focus();
    await page.keyboard.press("Home");
    assert.match(await facts.innerText(), /Yes[^]*90\.5 %/);
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowRight");
    assert.match(await facts.innerText(), /⏎[^]*30\.1 %/);
    const active = await list.getAttribute("aria-activedescendant");
    assert.equal(await page.evaluate((id) => document.getElementById(id).getAttribute("aria-selected"), active), "true");
    await page.reload();
    await button("Tokens").click();
    await until("the tokens", async () => (await list.locator(".token").count()) === 5);
    await button("Tokens").click();
    assert.match(await last_answer().innerText(), /Yes,\s+it is\./);
  });
}

test("by touch a token shows its figures, and on a phone nothing overflows", scripted, async () => {
  mock.scores = [{ token: "x".repeat(300), logprob: -0.5, others: [["y".repeat(300), -1], [" z", -2]] }, { token: " b", logprob: -1, others: [] }];
  await open({ width: 390, height: 800, phone: true, before: with_settings({ logprobs: true }) });
  await field().fill("score");
  await button("Send").tap();
  await wait_done();
  await button("Tokens").tap();
  await page.locator(".token").nth(1).tap();
  await until("its figures", async () => /␣b[^]*36\.8 %/.test(await page.locator(".token-facts").innerText()));
  await page.locator(".token").first().tap();
  await assert_no_overflow();
});

test("the prompt shows special tokens apart from text that spells them, and the ids of all", scripted, async () => {
  await open({ before: with_settings({ system: "Be brief." }) });
  await ask("say <|user|> please");
  await wait_done();
  await ask("more");
  await until("two answers", async () => (await answers().count()) === 2);
  await wait_done();
  await answers().first().getByRole("button", { name: "Prompt" }).click();
  const dialog = page.getByRole("dialog");
  const text = dialog.locator(".prompt-text");
  await text.waitFor();
  assert.equal(await text.innerText(), "<|system|>Be brief.<|user|>say <|user|> please");
  assert.deepEqual(await text.locator("mark").allInnerTexts(), ["<|system|>", "<|user|>"]);
  const asked = mock.requests.findLast(({ path }) => path === "/render");
  assert.equal(asked.return_token_strs, true);
  assert.equal(asked.messages.length, 2); // up to this answer
  assert.match(await dialog.innerText(), /of 8,192/);
  await dialog.getByRole("button", { name: "Token ids" }).click();
  assert.match(await dialog.locator(".ids li").first().innerText(), /<\|system\|>\s*1000/);
  assert.equal(await dialog.locator(".ids .special").count(), 2);
  await dialog.getByRole("button", { name: "Copy ids" }).click();
  await until("the ids", async () => (await page.evaluate(() => navigator.clipboard.readText())).startsWith("[1000,1001,"));
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
});

test("on a phone calls, results, versions, settings and the prompt fit, and every target is 44 px", scripted, async () => {
  mock.calls = [{ name: "a_tool_with_a_name_that_is_as_long_as_names_may_ever_be_for_tools", text: JSON.stringify({ key: "wide".repeat(80) }) }];
  await open({ width: 390, height: 800, phone: true, before: with_tools({ logprobs: true, form: "json_schema" }) });
  const check = async () => {
    await assert_no_overflow();
    assert.deepEqual(await small_targets(), []);
  };
  await button("Settings").tap();
  await page.getByLabel("JSON schema").waitFor();
  await check();
  await page.getByLabel("Form of answers").selectOption("Text");
  await button("Settings").tap();
  await field().fill("call");
  await button("Send").tap();
  await page.locator("form.results").waitFor();
  await check();
  await page.locator("form.results textarea").fill("x".repeat(500));
  await button("Send result").tap();
  await until("the answer", async () => (await answers().count()) === 2);
  await wait_done();
  await page.locator("article.tool").getByRole("button", { name: "Edit" }).tap();
  await button("Send result").tap();
  await until("a second version", async () => (await page.locator(".versions").count()) === 1);
  await wait_done();
  await check();
  await button("Prompt").last().tap();
  await page.locator(".prompt-text").waitFor();
  await check();
  await button("Token ids").tap();
  await page.locator(".ids li").first().waitFor();
  await check();
});

test("Escape closes the prompt and leaves an answer that streams alone", scripted, async () => {
  await open();
  await ask("hello");
  await wait_done();
  await ask("slow");
  await until("words", async () => /word3/.test(await last_answer().innerText()));
  await button("Prompt").first().click();
  await page.locator(".prompt-text").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.equal(await button("Stop").isVisible(), true);
  await page.keyboard.press("Escape");
  await wait_done();
  assert.match(await last_answer().innerText(), /Stopped\./);
});
