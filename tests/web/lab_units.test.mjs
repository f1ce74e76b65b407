// The laboratory's logic without a browser: addresses, effects in words, moves, scales, and the graph of 300 experiments.

import assert from "node:assert/strict";
import { test } from "node:test";
import { MockLab } from "./mock_lab.mjs";
import { load } from "./sources.mjs";

const text = await load("lab_text");
const { at, scale_over } = await load("lab_scale");
const graphs = await load("lab_graph");
const { read_named_events } = await load("sse");

test("an address names a view or a record; any other is the overview", () => {
  assert.deepEqual(text.route_of("#/queue"), { view: "queue", record: "", id: 0 });
  assert.deepEqual(text.route_of("#/experiment/12"), { view: "overview", record: "experiment", id: 12 });
  assert.deepEqual(text.route_of("#/hypothesis/3"), { view: "hypotheses", record: "hypothesis", id: 3 });
  for (const hash of ["", "#", "#/nothing", "#/experiment", "#/experiment/x", "#/queue/3", "#/constructor/1", "#/experiment/1/2"]) {
    assert.deepEqual(text.route_of(hash), { view: "overview", record: "", id: 0 }, hash);
  }
  assert.equal(text.address_of("experiment:3"), "#/experiment/3");
  for (const subject of ["option:--threads", "file:a/b", "experiment:", "experiment:3x", "javascript:1", "queue"]) assert.equal(text.address_of(subject), "", subject);
});

test("effects are said with sign, interval and rounds", () => {
  assert.deepEqual([0.123, -0.05, 0, 1.5, 0.0012, -0.00001, NaN].map(text.signed_percent), ["+12.3 %", "−5.0 %", "±0.00 %", "+150 %", "+0.12 %", "±0.00 %", "–"]);
  const effect = { rounds: 7, improvement: 0.121, low: 0.098, high: 0.144 };
  assert.equal(text.effect_text(effect), "+12.1 % (+9.8 % to +14.4 %) in 7 rounds");
  assert.equal(text.effect_text({ ...effect, rounds: 1 }), "+12.1 % in 1 round");
  assert.equal(text.effect_text({ ...effect, rounds: 0 }), "no whole round yet");
});

test("metrics are found by their names in whatever a run printed", () => {
  const metrics = { a: 1, b: { c: 2, d: { e: 3 } }, f: "4", g: [5], h: null };
  assert.deepEqual(text.numbers_of(metrics), [["a", 1], ["b.c", 2], ["b.d.e", 3]]);
  assert.equal(text.metric_of(metrics, "b.d.e"), 3);
  for (const odd of ["", null, 7, [], "text"]) assert.equal(text.metric_of(odd, "a"), null);
});

test("a command is shown as one would type it", () => {
  assert.equal(text.command_text(["headrace", "--kv-type=q8", "a b", "it's", ""]), "headrace --kv-type=q8 'a b' 'it'\\''s' ''");
});

test("moves are told only of those that stay, and not of what comes and goes", () => {
  const queue = (...ids) => ({ running: [], paused: [], queue: ids.map((experiment) => ({ experiment })) });
  assert.deepEqual(text.moves_between(queue(1, 2, 3), queue(2, 3)), []);
  assert.deepEqual(text.moves_between(queue(1, 2), queue(9, 1, 2)), []);
  assert.deepEqual(text.moves_between(queue(1, 2, 3), queue(3, 1, 2)).map(({ experiment, from, to }) => [experiment, from, to]), [[3, 3, 1], [1, 1, 2], [2, 2, 3]]);
});

// What the server does with places: moved ones by their numbers, then the rest as they stood.
function served(order, actions) {
  const places = new Map(order.map(({ id, place }) => [id, place]));
  for (const { id, place } of actions) places.set(id, place);
  const rank = order.map(({ id }, idx) => ({ id, idx, place: places.get(id) }));
  return rank.sort((a, b) => (a.place === null) - (b.place === null) || a.place - b.place || a.idx - b.idx).map(({ id }) => id);
}

test("a move by hand puts one experiment at any place and keeps the order of the others", () => {
  const wanted = (ids, id, to) => ids.filter((each) => each !== id).toSpliced(to, 0, id);
  for (const places of [[null, null, null, null, null], [2, 5, null, null, null], [1, 2, 3, 4, null], [7, 8, 9, 10, 11]]) {
    const order = places.map((place, idx) => ({ id: idx + 1, place }));
    const ids = order.map(({ id }) => id);
    for (const id of ids) {
      for (let to = 0; to < ids.length; to++) {
        const actions = text.actions_to_move(order, id, to);
        assert.deepEqual(served(order, actions), wanted(ids, id, to), JSON.stringify({ places, id, to, actions }));
        assert.ok(actions.every(({ place }) => Number.isInteger(place) && place > 0));
      }
    }
  }
  assert.deepEqual(text.actions_to_move([{ id: 1, place: null }], 9, 0), []);
});

test("the log keeps order, drops what it has, and does not grow without end", () => {
  const entries = (...ids) => ids.map((id) => ({ id }));
  assert.deepEqual(text.with_entries(entries(1, 2), entries(2, 3), 10), entries(1, 2, 3));
  assert.deepEqual(text.with_entries(entries(1, 2), entries(3, 4), 3), entries(2, 3, 4));
  const log = entries(1, 2);
  assert.equal(text.with_entries(log, entries(1), 10), log);
});

test("an axis has round ends around all values", () => {
  for (const values of [[0, 0.13], [-0.04, 0.2], [1234, 1301], [5], [0], [], [1e-9, 3e-9], [-7, -7], [NaN, Infinity, 2], [0.5, 0.5 + 2 ** -53, 0.5 - 2 ** -53], [-3, -3 - 1e-15]]) {
    const { low, high, ticks } = scale_over(values);
    assert.ok(low < high && ticks.length >= 2 && ticks.length <= 9, JSON.stringify({ values, ticks }));
    for (const value of values.filter(Number.isFinite)) assert.ok(low <= value + 1e-12 && value - 1e-12 <= high, JSON.stringify({ values, ticks }));
  }
  assert.deepEqual(scale_over([0, 0.13]).ticks, [0, 0.05, 0.1, 0.15]);
  assert.equal(at({ low: 0, high: 10, ticks: [] }, 5, 100, 200), 150);
  assert.equal(at({ low: 0, high: 10, ticks: [] }, 99, 100, 200), 200);
});

test("events carry their name and number, however the stream is cut", async () => {
  const bytes = new TextEncoder().encode(": heartbeat\n\nid: 7\r\nevent: log\r\ndata: {}\r\n\r\ndata: a\ndata: b\n\nevent: queue\ndata:x\n\nevent: none\n\n");
  for (const size of [1, 3, 1000]) {
    const body = new ReadableStream({
      start(controller) {
        for (let begin = 0; begin < bytes.length; begin += size) controller.enqueue(bytes.slice(begin, begin + size));
        controller.close();
      },
    });
    const events = [];
    for await (const { event, id, data } of read_named_events(body)) events.push([event, id, data]);
    assert.deepEqual(events, [["log", "7", "{}"], ["message", "7", "a\nb"], ["queue", "7", "x"]]);
  }
});

// The whole graph of a laboratory through the mock's own address.
async function mock_graph(options) {
  const lab = new MockLab(options);
  let answer;
  const response = { writeHead: () => response, end: (body) => (answer = JSON.parse(body)) };
  await lab.handle({ method: "GET", headers: {} }, response, new URL("http://x/api/lab/graph"), null);
  return answer;
}

function laid_out(graph, before = new Map()) {
  const layout = new graphs.Layout(graph, before);
  while (!layout.step(1000));
  return layout.nodes;
}

test("300 experiments are laid out the same each time, without overlap, and new ones disturb little", async () => {
  const graph = await mock_graph({ seed: 3 });
  assert.ok(graph.nodes.length > 400);
  const nodes = laid_out(graph);
  assert.deepEqual(laid_out(graph).map(({ x, y }) => [x, y]), nodes.map(({ x, y }) => [x, y]));
  const distance = (a, b) => Math.hypot(a.x - b.x, a.y - b.y);
  const close = nodes.flatMap((a, idx) => nodes.slice(idx + 1).filter((b) => distance(a, b) < 12));
  assert.ok(close.length <= 4, `${close.length} pairs overlap`);

  const more = { nodes: [...graph.nodes, { id: "experiment:999", kind: "experiment", label: "new", state: "queued" }], edges: graph.edges };
  const again = laid_out(more, new Map(nodes.map((node) => [node.id, node])));
  const shifts = nodes.map((node, idx) => distance(node, again[idx])).sort((a, b) => a - b);
  assert.ok(shifts[Math.floor(shifts.length / 2)] < 30, String(shifts[Math.floor(shifts.length / 2)]));
  assert.ok(Number.isFinite(again.at(-1).x));
});

test("the labels that are shown do not lie on each other", async () => {
  const nodes = laid_out(await mock_graph({ seed: 4 }));
  for (const scale of [0.3, 1, 3]) {
    const shown = graphs.readable_labels(nodes, scale);
    assert.ok(shown.length > 10 && shown[0] === nodes[0]);
    for (const [idx, a] of shown.entries()) {
      for (const b of shown.slice(idx + 1)) {
        const width = (6 * ([...graphs.short_label(a.label)].length + [...graphs.short_label(b.label)].length)) / 2;
        const overlaps = Math.abs(a.y - b.y) * scale < 10 && Math.abs(a.x - b.x) * scale < width;
        assert.ok(!overlaps, `${a.label} and ${b.label} at ${scale}`);
      }
    }
  }
  assert.equal(graphs.short_label("x".repeat(40)).length, 26);
  assert.equal(graphs.short_label("🏇".repeat(40)), `${"🏇".repeat(25)}…`);
});

test("filters, search and arrow keys of the graph", async () => {
  const graph = await mock_graph({ experiments: 30, hypotheses: 4, learnings: 5 });
  const shown = graphs.shown_graph(graph, new Set(["hypothesis"]), "validated");
  assert.deepEqual(shown.nodes.map((node) => node.id), ["hypothesis:4"]);
  assert.deepEqual(shown.edges, []);
  const both = graphs.shown_graph(graph, new Set(["hypothesis", "experiment"]), "");
  assert.equal(both.nodes.length, 34);
  assert.equal(both.edges.length, 30);
  assert.deepEqual(graphs.matching(graph.nodes, " VARIANT 7 ").map((node) => node.id).slice(0, 1), ["experiment:7"]);
  assert.deepEqual(graphs.matching(graph.nodes, "  "), []);
  assert.deepEqual([...graphs.neighbours_of(both.edges, "experiment:1")], ["hypothesis:1"]);
  const cross = [["middle", 0, 0], ["left", -10, 1], ["right", 10, 1], ["far", 20, 0], ["up", 1, -10]].map(([id, x, y]) => ({ id, x, y }));
  const towards = (key) => graphs.node_towards(cross, cross[0], key)?.id;
  assert.deepEqual(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "a"].map(towards), ["left", "right", "up", undefined, undefined]);
  const camera = graphs.camera_over(cross.map((node) => ({ ...node, x: 100 * node.x })), 800, 500);
  assert.equal(camera.x, 500);
  assert.ok(camera.scale > 0.1 && camera.scale < 0.5);
  assert.deepEqual(graphs.camera_over([], 800, 500), { x: 0, y: 0, scale: 1 });
});
