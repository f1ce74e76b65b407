// Code in colours, as data. Loaded only when there is code to colour.

import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cmake from "highlight.js/lib/languages/cmake";
import cpp from "highlight.js/lib/languages/cpp";
import csharp from "highlight.js/lib/languages/csharp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import dockerfile from "highlight.js/lib/languages/dockerfile";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import kotlin from "highlight.js/lib/languages/kotlin";
import lua from "highlight.js/lib/languages/lua";
import makefile from "highlight.js/lib/languages/makefile";
import markdown from "highlight.js/lib/languages/markdown";
import php from "highlight.js/lib/languages/php";
import python from "highlight.js/lib/languages/python";
import ruby from "highlight.js/lib/languages/ruby";
import rust from "highlight.js/lib/languages/rust";
import shell from "highlight.js/lib/languages/shell";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { createLowlight } from "lowlight";

export interface Piece {
  text: string;
  style: string; // a class of styles/code.css, or ""
}

const kMostChars = 40_000; // of a block: beyond it colours cost more than they help

const lowlight = createLowlight({
  bash,
  c,
  cmake,
  cpp,
  csharp,
  css,
  diff,
  dockerfile,
  go,
  ini,
  java,
  javascript,
  json,
  kotlin,
  lua,
  makefile,
  markdown,
  php,
  python,
  ruby,
  rust,
  shell,
  sql,
  typescript,
  xml,
  yaml,
});

type Nodes = ReturnType<typeof lowlight.highlight>["children"];

function flatten(nodes: Nodes, style: string, out: Piece[]): void {
  for (const node of nodes) {
    if (node.type === "text") out.push({ text: node.value, style });
    if (node.type !== "element") continue;
    const names = node.properties.className;
    flatten(node.children, Array.isArray(names) ? names.join(" ") : style, out);
  }
}

// The pieces of `text`, whose texts add up to it; null when the language is unknown or the text too long.
export function colour(text: string, language: string): Piece[] | null {
  const name = language.toLowerCase();
  if (text.length > kMostChars || !lowlight.registered(name)) return null;
  const pieces: Piece[] = [];
  flatten(lowlight.highlight(name, text).children, "", pieces);
  return pieces;
}
