// A server that behaves as its script says: the endpoints that the page uses, with answers chosen by the last word of
// the user's message (see kScripts). It serves a built page from a folder with the policy that web/README.md asks for.

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { extname, join, normalize } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const kMime = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".txt": "text/plain" };

export const kPolicy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; " +
  "form-action 'none'; frame-ancestors 'none'";

export const kCode = `Here is **bold** and \`inline\` text:

\`\`\`python
def race(x):
    return "${"wide ".repeat(40)}" + x  # <script>document.title = "owned"</script>
\`\`\`

1. first
2. second

<img src="/nothing" onerror="document.title = 'owned'"> [link](https://example.org/) [bad](javascript:alert(1))`;

// One of everything that Markdown of an answer may hold.
export const kEverything = `# One
## Two
### Three

Text with **bold**, *italic*, ~~struck~~ and \`code\`, a [link](https://example.org/a) and https://example.org/bare.
A second line.

- outer
  - inner
    1. deep
    2. deeper
- [ ] to do
- [x] done

| name | amount |
|:-----|-------:|
| a | 1 |
| b | 22 |

> quoted
>
> - list in it

Inline $a^2 + b^2 = c^2$ and \\(x_1\\), but it costs $5 or $6.

$$
\\int_0^1 x\\,dx = \\frac{1}{2}
$$

---

\`\`\`rust
fn main() { let x: u32 = 7; } // a comment that is so long that it has to scroll or to be wrapped, whichever is wanted here
\`\`\`
`;

class Stream {
  constructor(response, is_chat) {
    this.response = response;
    this.is_chat = is_chat;
    this.num_tokens = 0;
  }

  chunk(fields) {
    const base = { id: "chatcmpl-1", object: "chat.completion.chunk", created: 1, model: "mock" };
    return `data: ${JSON.stringify({ ...base, ...fields })}\n\n`;
  }

  text(content) {
    this.num_tokens++;
    const piece = this.is_chat ? { delta: { content } } : { text: content };
    return this.chunk({ choices: [{ index: 0, ...piece, finish_reason: null }] });
  }

  end(finish_reason = "stop") {
    return (
      this.chunk({ choices: [{ index: 0, ...(this.is_chat ? { delta: {} } : { text: "" }), finish_reason }] }) +
      this.chunk({ choices: [], usage: { prompt_tokens: 9, completion_tokens: this.num_tokens, total_tokens: 9 + this.num_tokens } }) +
      "data: [DONE]\n\n"
    );
  }

  async write(text) {
    this.response.write(text);
    while (this.response.writableNeedDrain && !this.response.destroyed) await sleep(1);
  }
}

// Word -> what the answer does. `open()` tells whether the client is still there. A script that stops half-way waits
// for mock.go(), which the test calls when the page shows what it is to show; nothing waits for a time.
const kScripts = {
  // Goes on until the client leaves.
  async slow(stream, open) {
    for (let idx = 0; open(); idx++) {
      await stream.write(stream.text(`word${idx} `));
      await sleep(20);
    }
  },
  // The test's text at once, then words without end.
  async lengthen(stream, open, body, mock) {
    await stream.write(stream.text(mock.text));
    await kScripts.slow(stream, open);
  },
  async fast(stream) {
    for (let idx = 0; idx < 4000; idx++) await stream.write(stream.text(`token${idx} `));
    await stream.write(stream.end("length"));
  },
  // A long address that becomes a short link when its last character arrives.
  async shrink(stream, open, body, mock) {
    await stream.write(stream.text("A line of text.\n\n".repeat(40)));
    await mock.told(1, open);
    await stream.write(stream.text(`[link](https://example.org/${"long".repeat(300)}`));
    await mock.told(2, open);
    await stream.write(stream.text(") and the end."));
    await mock.told(3, open);
    await stream.write(stream.end());
  },
  async code(stream) {
    for (const piece of kCode.match(/.{1,7}/gs)) await stream.write(stream.text(piece));
    await stream.write(stream.end());
  },
  async bytes(stream) {
    const events = ": a comment\n\n" + stream.text("Grüße, ") + stream.text("世界 🏇") + stream.end();
    for (const byte of Buffer.from(events.replaceAll("\n", "\r\n"))) {
      await stream.write(Buffer.from([byte]));
      await sleep(0);
    }
  },
  async fail(stream) {
    await stream.write(stream.text("Half an ans"));
    await stream.write(`data: ${JSON.stringify({ error: { message: "The engine was asked to fail.", type: "server_error" } })}\n\n`);
  },
  // A browser drops what it has received and not yet handed to the page when the connection breaks.
  async cut(stream, open, body, mock) {
    await stream.write(stream.text("Half an ans"));
    await mock.told(1, open);
    stream.response.destroy();
  },
  async unfinished(stream) {
    await stream.write(stream.text("Half an ans") + "data: [DONE]\n\n");
  },
  async everything(stream) {
    for (const piece of kEverything.match(/[^]{1,40}/g)) await stream.write(stream.text(piece));
    await stream.write(stream.end());
  },
  // What the test put into mock.text.
  async given(stream, open, body, mock) {
    await stream.write(stream.text(mock.text) + stream.end());
  },
  // A block of code that is not finished until the test says so.
  async fence(stream, open, body, mock) {
    await stream.write(stream.text("Code:\n\n```python\nif x:\n    return 1\n"));
    await mock.told(1, open);
    await stream.write(stream.text("```\n\nDone.") + stream.end());
  },
  // Cut by the limit until it is asked to go on.
  async limit(stream, open, body) {
    const goes_on = body.continue_final_message || body.prompt?.endsWith("one two");
    await stream.write(goes_on ? stream.text(" three four.") + stream.end() : stream.text("one two") + stream.end("length"));
  },
  async think(stream) {
    await stream.write(stream.chunk({ choices: [{ index: 0, delta: { reasoning_content: "Let me see." }, finish_reason: null }] }));
    await stream.write(stream.end("length"));
  },
  // Calls the tools of mock.calls, each in pieces; with their results it says what it was given.
  async call(stream, open, body, mock) {
    const results = body.messages.slice(body.messages.findLastIndex(({ role }) => role !== "tool") + 1);
    if (results.length > 0) return stream.write(stream.text(`It gave: ${results.map(({ content }) => content).join(", ")}`) + stream.end());
    const delta = (fields) => stream.chunk({ choices: [{ index: 0, delta: fields, finish_reason: null }] });
    await stream.write(delta({ reasoning_content: "A tool knows." }));
    for (const [index, { name, text }] of mock.calls.entries()) {
      await stream.write(delta({ tool_calls: [{ index, id: `call-${index}`, type: "function", function: { name, arguments: "" } }] }));
      for (const piece of text.match(/[^]{1,3}/gu)) await stream.write(delta({ tool_calls: [{ index, function: { arguments: piece } }] }));
    }
    await stream.write(stream.end("tool_calls"));
  },
  // The tokens of mock.scores with their log-probs, in the form of either endpoint.
  async score(stream, open, body, mock) {
    for (const { token, logprob, others } of mock.scores) {
      const row = (text, value) => ({ token: text, logprob: value, bytes: [...Buffer.from(text)] });
      const logprobs = stream.is_chat
        ? { content: [{ ...row(token, logprob), top_logprobs: others.map(([text, value]) => row(text, value)) }], refusal: null }
        : { tokens: [token], token_logprobs: [logprob], top_logprobs: [Object.fromEntries(others)], text_offset: [0] };
      const piece = stream.is_chat ? { delta: { content: token } } : { text: token };
      stream.num_tokens++;
      await stream.write(stream.chunk({ choices: [{ index: 0, ...piece, logprobs, finish_reason: null }] }));
    }
    await stream.write(stream.end());
  },
  // Breaks off before a first byte while mock.flaky.
  async flaky(stream, open, body, mock) {
    if (mock.flaky) stream.response.destroy();
    else await kScripts.echo(stream, open, body);
  },
  async echo(stream, open, body) {
    for (const word of `You said: ${body.messages?.at(-1).content ?? body.prompt}`.split(/(?<= )/)) {
      await stream.write(stream.text(word));
      await sleep(15);
    }
    await stream.write(stream.end());
  },
};

const kRefusals = {
  refuse: [400, {}, "The prompt has 9000 tokens, but the context has 8192; shorten the prompt."],
  busy: [429, { "retry-after": "3" }, "The queue is full."],
};

const kFormats = { Q4_1: 210, F32: 61, Q8_0: 1 };
const kSampling = { temperature: 0.6000000238418579, top_p: 0.949999988079071, top_k: 40, min_p: 0, repetition_penalty: 1 };

const kCalls = [{ name: "get_weather", text: '{"city": "Zürich"}' }];
const kScores = [
  { token: "Yes", logprob: -0.1, others: [["Yes", -0.1], ["No", -2.5]] },
  { token: ",", logprob: -0.001, others: [[",", -0.001], ["!", -7]] },
  { token: "\n", logprob: -1.2, others: [["\n", -1.2], [" ", -1.3]] },
  { token: " it", logprob: -3, others: [[" it", -3], [" we", -0.2]] },
  { token: " is.", logprob: -0.7, others: [] },
];

async function read_json(request) {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  return JSON.parse(Buffer.concat(pieces).toString());
}

export class MockServer {
  requests = []; // bodies of requests for answers, each with its path
  num_status = 0; // status requests so far
  num_cancelled = 0; // answers whose client left
  api_key = "";
  formats = kFormats;
  experts = [];
  sparse = false; // status without any field
  idle = false; // nothing runs, counters rest, rates are of the last work
  down = false; // drops every connection
  held = false; // status requests wait
  chat_template = "{{ messages }}"; // null: a model that only continues text
  sampling = kSampling;
  text = ""; // what the script `given` answers
  flaky = false;
  calls = kCalls; // what the script `call` calls
  scores = kScores;
  running = []; // of the list of requests
  finished = [];
  prompt = null; // what /render shows instead of a prompt made of the messages
  lab = null; // a MockLab; null: the server has no laboratory
  #num_told = 0; // how often the test said go()
  #num_open = 0; // answers that are being written

  static async start(page_dir) {
    const mock = new MockServer();
    mock.page_dir = page_dir;
    mock.server = createServer((request, response) => {
      mock.#handle(request, response).catch((failure) => {
        console.error(failure);
        response.destroy();
      });
    });
    mock.server.keepAliveTimeout = 0; // an idle connection that closes just as it is used again is no part of a test
    await new Promise((done) => mock.server.listen(0, "127.0.0.1", done));
    mock.url = `http://127.0.0.1:${mock.server.address().port}`;
    return mock;
  }

  // Forgets the last test, whose answers have to end first: their tabs are closed.
  async reset() {
    while (this.#num_open) await sleep(5);
    this.lab?.drop_readers();
    this.#num_told = 0;
    Object.assign(this, {
      requests: [], num_status: 0, num_cancelled: 0, api_key: "", formats: kFormats, experts: [], sparse: false, idle: false, down: false, held: false,
      chat_template: "{{ messages }}", sampling: kSampling, text: "", flaky: false, calls: kCalls, scores: kScores, running: [], finished: [], prompt: null, lab: null, profile: null,
    });
  }

  // Lets a waiting script take its next step.
  go() {
    this.#num_told++;
  }

  async told(count, open) {
    while (this.#num_told < count && open()) await sleep(5);
  }

  async close() {
    this.server.closeAllConnections();
    await new Promise((done) => this.server.close(done));
  }

  async #handle(request, response) {
    if (this.down) return response.destroy();
    const url = new URL(request.url, this.url);
    const path = url.pathname;
    if (!/^\/(v1\/|api\/|(tokenizer_info|render)$)/.test(path)) return this.#serve_page(path, response);
    if (this.api_key && request.headers.authorization !== `Bearer ${this.api_key}`) {
      return this.#json(response, 401, { error: { message: "The API key is missing or wrong.", type: "authentication_error" } });
    }
    if (path === "/v1/models") return this.#json(response, 200, { object: "list", data: [{ id: "mock" }, { id: "alias" }] });
    if (path === "/api/headrace/status") {
      while (this.held && !response.destroyed) await sleep(5);
      return this.#json(response, 200, this.#status());
    }
    if (path === "/api/headrace/requests") return this.#json(response, 200, { running: this.running, finished: this.finished });
    if (path === "/api/headrace/profile") return this.#json(response, this.profile ? 200 : 503, this.profile ?? { error: { message: "no step of 'mock' ran within 30 s" } });
    if (path === "/render") return this.#json(response, 200, { object: "prompts", prompts: [await this.#render(request)] });
    if (path === "/tokenizer_info") return this.#json(response, 200, { bos_token: null, chat_template: this.chat_template });
    if (path.startsWith("/api/lab/") && this.lab) {
      const is_write = request.method === "POST";
      if (is_write && !this.#check(request)) return this.#json(response, 403, { error: { message: "Not from this page." } });
      return this.lab.handle(request, response, url, is_write ? await read_json(request) : null);
    }
    const is_chat = path === "/v1/chat/completions";
    if ((is_chat || path === "/v1/completions") && request.method === "POST") return this.#answer(request, response, path, is_chat);
    return this.#json(response, 404, { error: { message: `No route ${path}.`, type: "not_found_error" } });
  }

  #json(response, status, body, headers = {}) {
    response.writeHead(status, { "content-type": "application/json", ...headers });
    response.end(JSON.stringify(body));
  }

  async #serve_page(path, response) {
    const file = normalize(join(this.page_dir, { "/": "index.html", "/lab": "lab.html", "/profile": "profile.html" }[path] ?? path));
    const content = file.startsWith(this.page_dir) ? await readFile(file).catch(() => null) : null;
    if (content === null) return this.#json(response, 404, { error: { message: `No page ${path}.` } });
    response.writeHead(200, {
      "content-type": `${kMime[extname(file)]}; charset=utf-8`,
      "content-security-policy": kPolicy,
      "x-content-type-options": "nosniff",
    });
    response.end(content);
  }

  #status() {
    const step = this.num_status++;
    if (this.sparse) return {};
    const wave = (1 + Math.sin(step / 4)) / 2;
    return {
      model: {
        id: "mock", family: "llama", architecture: "LlamaForCausalLM", parameters: 134515008, weight_bytes: 94200000,
        formats: this.formats, quantisation: "Q4_1 mostly", context: 8192, vocab_size: 49152, path: "smollm2-135m.gguf",
      },
      engine: {
        isa: "avx512", threads: 2, numerics_id: "6f1d20c4", kv_blocks_total: 2048, kv_blocks_used: Math.round(900 * wave),
        running: this.idle ? 0 : 1 + (step % 4), waiting: step % 3, decode_tokens_per_s: 80 + 40 * wave, prefill_tokens_per_s: 900 * wave,
        prompt_tokens: 1000 + (this.idle ? 0 : 90 * step), generation_tokens: 500 + (this.idle ? 0 : 80 * step), requests: 12 + step, preemptions: 0, uptime_s: 3700 + step,
      },
      ...(this.experts.length > 0 ? { experts: this.experts } : {}),
      sampling: this.sampling,
      version: { headrace: "0.1.0", build: "release g++ 12" },
    };
  }

  // One token for each mark and for each character.
  async #render(request) {
    const body = await read_json(request);
    this.requests.push({ path: "/render", ...body });
    if (this.prompt) return this.prompt;
    const parts = (body.messages ?? [{ role: "", content: body.prompt }]).flatMap(({ role, content }) => [
      { text: `<|${role}|>`, special: true, count: 1 }, { text: content, special: false, count: content.length },
    ]);
    const token_strs = parts.flatMap(({ text, special }) => (special ? [text] : text.split("")));
    const text = parts.map((part) => part.text).join("");
    return { text, count: token_strs.length, tokens: token_strs.map((_, idx) => 1000 + idx), token_strs, parts };
  }

  // Browsers send a page's own requests with the page's origin and, here, always as JSON.
  #check(request) {
    const { origin, "content-type": type, "sec-fetch-site": site } = request.headers;
    return type === "application/json" && origin === this.url && (site ?? "same-origin") === "same-origin";
  }

  async #answer(request, response, path, is_chat) {
    const body = await read_json(request);
    if (!this.#check(request)) return this.#json(response, 403, { error: { message: "Not from this page." } });
    this.requests.push({ path, ...body });
    const said = is_chat ? body.messages.findLast(({ role }) => role === "user").content : body.prompt.split("one two")[0];
    const word = said.trim().split(/\s+/).at(-1);
    const refusal = kRefusals[word];
    if (refusal) {
      return this.#json(response, refusal[0], { error: { message: refusal[2], type: "invalid_request_error", param: null, code: null } }, refusal[1]);
    }
    let open = true;
    this.#num_open++;
    response.on("close", () => {
      open = false;
      this.#num_open--;
      if (!response.writableFinished) this.num_cancelled++;
    });
    response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" });
    await (kScripts[word] ?? kScripts.echo)(new Stream(response, is_chat), () => open, body, this);
    if (!response.destroyed) response.end();
  }
}
