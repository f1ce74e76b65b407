// A laboratory that a seed makes: hypotheses, experiments with runs, learnings and a log, over the API of
// docs/lab-api.md; tests let things happen in it.

const kMetric = "tokens_per_s";
const kSides = [["--activations", "f32"], ["--kv-type", "q8"], ["--threads", "2"], ["--batch-tokens", "256"], ["--weight-cache", "off"]];
const kSubjects = ["prefill of short prompts", "decoding alone", "decoding in batches", "a cold start", "long contexts", "shared prefixes"];

// Numbers from 0 to 1 that a seed makes (mulberry32).
function random_from(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

export class MockLab {
  hypotheses = [];
  experiments = [];
  runs = new Map(); // by experiment
  learnings = [];
  log = [];
  actions = []; // what the page posted, with its name
  event_requests = []; // the Last-Event-ID of each
  broken = ""; // the message that every reading answers with
  machine = {
    at_ms: 1e12, processor: "A processor", busy: 0.4, load: [1.5, 1.25, 1], cores: [{ busy: 0.75, mhz: 2400 }, { busy: 0.05, mhz: null }],
    memory: { total_bytes: 16e9, available_bytes: 10e9, swap_total_bytes: 0, swap_free_bytes: 0 }, temperatures: [], devices: [], engines: [],
    read_limit_byte_s: null,
  };
  #readers = new Set();

  constructor({ seed = 1, experiments = 300, hypotheses = 40, learnings = 60 } = {}) {
    const random = random_from(seed);
    const pick = (list) => list[Math.floor(random() * list.length)];
    for (let id = 1; id <= hypotheses; id++) this.#add_hypothesis(id, random, pick);
    for (let id = 1; id <= experiments; id++) this.#add_experiment(id, experiments, random, pick);
    for (let id = 1; id <= learnings && experiments; id++) {
      const links = [`experiment:${1 + Math.floor(random() * experiments)}`, `hypothesis:${1 + Math.floor(random() * hypotheses)}`];
      this.learnings.push({ id, text: `Learning ${id}: ${pick(kSubjects)} is bound by memory`, links: [...links, "option:--threads"], author: "ada", made_ms: 1e12 });
      this.note(`learning:${id}`, `new: Learning ${id}`, "ada");
    }
  }

  #add_hypothesis(id, random, pick) {
    const state = id % 4 === 0 ? "validated" : id % 4 === 1 ? "ruled out" : "open";
    this.hypotheses.push({
      id, statement: `Option ${id} makes ${pick(kSubjects)} faster`, metric: kMetric, more_is_better: true, predicted: 0.05 + 0.2 * random(),
      reason: "Fewer bytes are read.", worth: 1 + Math.floor(3 * random()), state, verdict: state === "open" ? "" : "decided by the runs", author: "ada", made_ms: 1e12,
    });
    this.note(`hypothesis:${id}`, `new: Option ${id}`, "ada");
  }

  #add_experiment(id, count, random, pick) {
    const hypothesis = this.hypotheses[(id - 1) % Math.max(1, this.hypotheses.length)];
    const state = id === 1 ? "running" : id > count - 20 ? "queued" : id % 17 === 0 ? "failed" : id % 23 === 0 ? "cancelled" : "done";
    const [option, value] = pick(kSides);
    const command = ["headrace", "bench", "step", "model.gguf"];
    this.experiments.push({
      id, hypothesis: hypothesis?.id ?? null, title: `Try ${option} ${value}, variant ${id}`, rationale: `Because hypothesis ${hypothesis?.id} needs it.`, metric: kMetric,
      sides: [{ name: "as it is", command }, { name: "changed", command: [...command, option, value] }], cost_s: 10 + Math.floor(50 * random()), max_rounds: 20,
      limits: { seconds: 600, memory_bytes: 0, output_bytes: 1048576 }, folder: "", state, state_reason: state === "done" ? "decided" : state, pinned: false, paused: false,
      place: null, author: "ada", made_ms: 1e12, value: random(),
    });
    this.runs.set(id, state === "queued" ? [] : this.#runs_of(id, state, random));
    this.note(`experiment:${id}`, `new: variant ${id}`, "ada");
  }

  #runs_of(id, state, random) {
    const rounds = state === "done" ? 6 : 2;
    const gain = 1 + 0.3 * (random() - 0.3);
    return Array.from({ length: 2 * rounds }, (_, idx) => {
      const speed = 100 * (idx % 2 ? gain : 1) * (1 + 0.04 * random());
      return {
        id: id * 100 + idx, side: idx % 2, round: 1 + Math.floor(idx / 2), state: "done", metrics: { [kMetric]: speed, step: { ms: 1000 / speed } }, machine: { cores: 2 },
        error: "", seconds: 4 + random(), started_ms: 1e12, artifacts: [{ name: "stderr.txt", bytes: 12 }],
      };
    });
  }

  effects_on(hypothesis) {
    const about = this.experiments.filter((each) => each.hypothesis === hypothesis);
    return about.flatMap(({ id }) => (this.effect_of(id) ? [{ ...this.effect_of(id), experiment: id }] : []));
  }

  find(id) {
    return this.experiments.find((each) => each.id === id);
  }

  effect_of(id) {
    const runs = this.runs.get(id);
    const rounds = Math.floor(runs.length / 2);
    if (!rounds) return null;
    const improvement = this.#by_round(id).reduce((sum, each) => sum + each.improvement, 0) / rounds;
    return { rounds, improvement, low: improvement - 0.02, high: improvement + 0.02, log_ratio: 2, verdict: "undecided" };
  }

  #by_round(id) {
    const value = (run) => run.metrics[kMetric];
    const runs = this.runs.get(id);
    return runs.filter((run) => run.side === 1).map((run) => ({ round: run.round, improvement: value(run) / value(runs.find((each) => each.side === 0 && each.round === run.round)) - 1 }));
  }

  queue() {
    const group = (each) => (each.pinned ? 0 : each.place !== null ? 1 : 2);
    const waiting = this.experiments.filter((each) => each.state === "queued");
    const order = waiting.filter((each) => !each.paused).sort((a, b) => group(a) - group(b) || (a.place ?? 0) - (b.place ?? 0) || b.value - a.value || a.id - b.id);
    return {
      running: this.experiments.filter((each) => each.state === "running").map((each) => each.id),
      queue: order.map((each) => ({ experiment: each.id, bits: each.value, seconds: each.cost_s * 40, value: each.value / each.cost_s, reason: `${each.value.toFixed(2)} bits expected` })),
      paused: waiting.filter((each) => each.paused).map((each) => each.id),
    };
  }

  #summary(experiment) {
    const { value, ...rest } = experiment; // the value is the mock's own
    const place = this.queue().queue.findIndex((each) => each.experiment === experiment.id);
    const reason = place < 0 ? experiment.state_reason : `place ${place + 1}`;
    return { ...rest, runs_done: this.runs.get(experiment.id).length, effect: this.effect_of(experiment.id), queue_place: place < 0 ? null : place + 1, priority: place < 0 ? null : value, reason };
  }

  // Something happens: an entry of the log for all who listen, and the queue where it changed.
  note(subject, text, author = "runner") {
    this.log.push({ id: this.log.length + 1, at_ms: 1e12 + 1000 * this.log.length, author, subject, text });
    for (const reader of this.#readers) this.#tell(reader);
  }

  change(id, values, text) {
    Object.assign(this.find(id), values);
    this.note(`experiment:${id}`, text);
  }

  // Every listener loses its connection.
  drop_readers() {
    for (const reader of this.#readers) reader.response.destroy();
    this.#readers.clear();
  }

  get num_readers() {
    return this.#readers.size;
  }

  #tell(reader) {
    for (const entry of this.log.slice(reader.after)) reader.response.write(`id: ${entry.id}\nevent: log\ndata: ${JSON.stringify(entry)}\n\n`);
    reader.after = this.log.length;
    const queue = JSON.stringify(this.queue());
    if (queue !== reader.queue) reader.response.write(`: still here\n\nevent: queue\ndata: ${queue}\n\n`);
    reader.queue = queue;
  }

  #listen(request, response) {
    const last = request.headers["last-event-id"];
    this.event_requests.push(last);
    response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
    const reader = { response, after: last === undefined ? this.log.length : Number(last), queue: "" };
    this.#readers.add(reader);
    response.on("close", () => this.#readers.delete(reader));
    this.#tell(reader);
  }

  #graph() {
    const node = (kind, id, label, state = "") => ({ id: `${kind}:${id}`, kind, label, state });
    return {
      nodes: [
        ...this.hypotheses.map((each) => node("hypothesis", each.id, each.statement, each.state)),
        ...this.experiments.map((each) => node("experiment", each.id, each.title, each.state)),
        ...this.learnings.map((each) => node("learning", each.id, each.text)),
        ...(this.learnings.length ? [node("other", "x", "option:--threads")].map((each) => ({ ...each, id: "option:--threads" })) : []),
      ],
      edges: [
        ...this.experiments.filter((each) => each.hypothesis !== null).map((each) => ({ from: `experiment:${each.id}`, to: `hypothesis:${each.hypothesis}`, kind: "tests" })),
        ...this.learnings.flatMap((each) => each.links.map((to) => ({ from: `learning:${each.id}`, to, kind: "rests on" }))),
      ],
    };
  }

  #overview() {
    const mine = (id) => this.experiments.filter((each) => each.hypothesis === id).map((each) => each.id);
    return {
      last_log: this.log.length, counts: { runs_done: [...this.runs.values()].reduce((sum, runs) => sum + runs.length, 0) },
      hypotheses: this.hypotheses.map((each) => ({ ...each, belief: 0.75, experiments: mine(each.id), effects: this.effects_on(each.id) })),
      experiments: this.experiments.map((each) => this.#summary(each)), learnings: this.learnings,
    };
  }

  #experiment(id) {
    const found = this.find(id);
    if (!found) return null;
    const effect = this.effect_of(id);
    const { value, ...record } = found;
    return {
      ...record, runs: this.runs.get(id), effects: effect ? [{ ...effect, side: "changed", by_round: this.#by_round(id) }] : [],
      difference: [{ side: "changed", removed: [], added: found.sides[1].command.slice(4) }], log: this.log.filter((entry) => entry.subject === `experiment:${id}`),
      about: this.hypotheses.find((each) => each.id === found.hypothesis) ?? null, learnings: this.learnings.filter((each) => each.links.includes(`experiment:${id}`)),
    };
  }

  #hypothesis(id) {
    const found = this.hypotheses.find((each) => each.id === id);
    if (!found) return null;
    const experiments = this.experiments.filter((each) => each.hypothesis === id).map((each) => this.#summary(each));
    return { ...found, belief: 0.75, experiments, effects: this.effects_on(id), learnings: this.learnings.filter((each) => each.links.includes(`hypothesis:${id}`)), log: [] };
  }

  // What a reading answers; null: there is no such thing.
  #read(path, query) {
    const [kind, word] = path.split("/");
    if (path === "overview") return this.#overview();
    if (path === "queue") return this.queue();
    if (path === "graph") return this.#graph();
    if (path === "machine") return this.machine;
    if (path === "log") return { log: this.log.slice(query.get("last") ? -Number(query.get("last")) : Number(query.get("after") ?? 0)) };
    if (kind === "experiments") return this.#experiment(Number(word));
    if (kind === "hypotheses") return this.#hypothesis(Number(word));
    return null;
  }

  // A person's actions, as the program does them.
  act(name, { by, id, place }) {
    const changes = {
      pin: { pinned: true }, unpin: { pinned: false }, pause: { paused: true }, resume: { paused: false }, move: { place },
      cancel: { state: "cancelled", state_reason: "asked for" }, rerun: { state: "queued", state_reason: "asked for again" },
    };
    Object.assign(this.find(id), changes[name]);
    this.note(`experiment:${id}`, name === "move" ? `moved to place ${place} by hand` : name, by);
  }

  async handle(request, response, url, body) {
    const answer = (status, value) => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(value));
    };
    const path = url.pathname.slice("/api/lab/".length);
    if (this.broken) return answer(503, { error: { message: this.broken } });
    if (path === "events") return this.#listen(request, response);
    if (path.startsWith("artifacts/")) return response.writeHead(200, { "content-type": "text/plain" }).end("stderr here\n");
    if (request.method === "POST") {
      const name = path.slice("actions/".length);
      this.actions.push({ name, ...body });
      if (!this.find(body.id)) return answer(404, { error: { message: `there is no experiment ${body.id}` } });
      this.act(name, body);
      return answer(200, this.find(body.id));
    }
    const found = this.#read(path, url.searchParams);
    return found ? answer(200, found) : answer(404, { error: { message: `there is no ${path.replace("/", " ")}` } });
  }
}
