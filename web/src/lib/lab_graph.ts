// The graph of a laboratory: which nodes are shown, where they lie, which labels have room, and where the arrow keys go.

import {
  forceCollide,
  forceLink,
  forceManyBody,
  forceSimulation,
  forceX,
  forceY,
  type SimulationNodeDatum,
} from "d3-force";
import { says } from "./lab_text";
import type { Graph, GraphEdge, GraphNode } from "./lab_records";

export interface LaidNode extends GraphNode {
  x: number;
  y: number;
}

export interface Point {
  x: number;
  y: number;
}

const kSpace: Record<string, number> = { hypothesis: 22, learning: 14 };
const kUsualSpace = 11;
const kInwards = 0.06;
const kSettled = 0.02; // of d3's alpha: what moves after that is not seen

// Nodes of these kinds and states, and the edges between them.
export function shown_graph(graph: Graph, kinds: Set<string>, state: string): Graph {
  const nodes = graph.nodes.filter((node) => kinds.has(node.kind) && (state === "" || node.state === state));
  const known = new Set(nodes.map((node) => node.id));
  return { nodes, edges: graph.edges.filter((edge) => known.has(edge.from) && known.has(edge.to)) };
}

export function matching(nodes: GraphNode[], search: string): GraphNode[] {
  return search.trim() === "" ? [] : nodes.filter((node) => says(search.trim(), node.id, node.label));
}

export function neighbours_of(edges: GraphEdge[], id: string): Set<string> {
  return new Set(edges.flatMap(({ from, to }) => (from === id ? [to] : to === id ? [from] : [])));
}

// Lays nodes out, in pieces so that the page can do other things meanwhile: each step() works for about `budget_ms` and
// says whether all is done. What had a place begins there. The same graph gives the same picture, as many times as wide as
// it is high as `aspect` says, about.
export class Layout {
  nodes: LaidNode[];
  #simulation;

  constructor({ nodes, edges }: Graph, before: Map<string, Point>, aspect = 1) {
    const placed = nodes.map((node) => ({ ...node, ...before.get(node.id) }) as LaidNode & SimulationNodeDatum);
    const links = edges.map(({ from, to }) => ({ source: from, target: to }));
    const is_known = nodes.length > 0 && nodes.filter((node) => before.has(node.id)).length * 2 > nodes.length;
    this.nodes = placed;
    this.#simulation = forceSimulation(placed)
      .stop()
      .alpha(is_known ? 0.25 : 1)
      .alphaDecay(0.03)
      .force("charge", forceManyBody().strength(-130).distanceMax(420))
      .force(
        "link",
        forceLink<LaidNode & SimulationNodeDatum, { source: string; target: string }>(links)
          .id((node) => node.id)
          .distance(48),
      )
      .force(
        "room",
        forceCollide<LaidNode>((node) => kSpace[node.kind] ?? kUsualSpace),
      )
      .force("x", forceX(0).strength(kInwards / aspect))
      .force("y", forceY(0).strength(kInwards * aspect));
  }

  step(budget_ms: number): boolean {
    const end = performance.now() + budget_ms;
    while (this.#simulation.alpha() > kSettled) {
      this.#simulation.tick();
      if (performance.now() > end) return false;
    }
    return true;
  }
}

export interface Camera extends Point {
  scale: number; // of the graph's units on the screen, whose middle is at x, y of the graph
}

// Shows all nodes with a margin.
export function camera_over(nodes: LaidNode[], width: number, height: number): Camera {
  if (!nodes.length) return { x: 0, y: 0, scale: 1 };
  const xs = nodes.map((node) => node.x);
  const ys = nodes.map((node) => node.y);
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const scale = Math.min(2, (width - 60) / (right - left + 60), (height - 60) / (bottom - top + 60));
  return { x: (left + right) / 2, y: (top + bottom) / 2, scale: Math.max(0.05, scale) };
}

export const kLabelLetters = 26;
const kLetter_px = 7.2;
const kLine_px = 15;

export function short_label(text: string): string {
  const letters = [...text];
  return letters.length > kLabelLetters ? `${letters.slice(0, kLabelLetters - 1).join("")}…` : text;
}

// The nodes whose labels can be read at this scale: in this order of importance, each where no earlier one lies.
export function readable_labels(nodes: LaidNode[], scale: number): LaidNode[] {
  const cells = new Map<string, { x: number; y: number; width: number }[]>();
  const shown: LaidNode[] = [];
  for (const node of nodes) {
    const box = { x: node.x * scale, y: node.y * scale, width: [...short_label(node.label)].length * kLetter_px };
    const row = Math.round(box.y / kLine_px);
    const near = [row - 1, row, row + 1].flatMap((each) => cells.get(String(each)) ?? []);
    const collides = (other: typeof box) =>
      Math.abs(other.y - box.y) < kLine_px && Math.abs(other.x - box.x) < (other.width + box.width) / 2 + 4;
    if (near.some(collides)) continue;
    cells.set(String(row), [...(cells.get(String(row)) ?? []), box]);
    shown.push(node);
  }
  return shown;
}

const kArrows: Record<string, Point> = {
  ArrowLeft: { x: -1, y: 0 },
  ArrowRight: { x: 1, y: 0 },
  ArrowUp: { x: 0, y: -1 },
  ArrowDown: { x: 0, y: 1 },
};

// The node that an arrow key goes to: the nearest one in that direction, where what lies aside counts double.
export function node_towards(nodes: LaidNode[], from: Point, key: string): LaidNode | undefined {
  const way = kArrows[key];
  if (!way) return undefined;
  let best: LaidNode | undefined;
  let least = Infinity;
  for (const node of nodes) {
    const [dx, dy] = [node.x - from.x, node.y - from.y];
    const ahead = dx * way.x + dy * way.y;
    const aside = Math.abs(dx * way.y) + Math.abs(dy * way.x);
    if (ahead <= 0.01 || aside > 2 * ahead) continue;
    if (ahead + 2 * aside < least) [best, least] = [node, ahead + 2 * aside];
  }
  return best;
}
