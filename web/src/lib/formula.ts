// TeX as MathML, which browsers draw themselves. Loaded only when there is a formula to show.

import temml from "temml";

const kMathMl = "http://www.w3.org/1998/Math/MathML";

// What the library makes is data for the reader, never a link or a script, whatever the TeX says.
function is_harmless(node: Element): boolean {
  if (node.namespaceURI !== kMathMl && node.localName !== "span") return false;
  return [...node.attributes].every(({ localName }) => !/^(on.*|href|src|id|action|actiontype)$/i.test(localName));
}

// Draws `tex` into `host`; false when it is no TeX that can be drawn, and host is then as it was.
export function draw_formula(tex: string, display: boolean, host: HTMLElement): boolean {
  const scratch = document.createElement("span");
  try {
    temml.render(tex, scratch, {
      displayMode: display,
      throwOnError: true,
      trust: false,
      strict: false,
      maxSize: [20, 500],
      maxExpand: 500,
    });
  } catch {
    return false;
  }
  if (![...scratch.querySelectorAll("*")].every(is_harmless)) return false;
  host.replaceChildren(...scratch.childNodes);
  return true;
}
