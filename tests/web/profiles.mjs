// A small profile, as the server gives one: a step of a prompt and one of an answer, two layers each.

function step(index, start_us, prompt_tokens) {
  const ops = [];
  let at = start_us + 2;
  for (const layer of [0, 0, 1, 1, -1]) {
    ops.push([layer < 0 ? 1 : 0, layer, Math.max(prompt_tokens, 1), at, 2, 64, 128]);
    at += 3;
  }
  const parts = [["plan", start_us, 1], ["blocks", start_us + 1, 0], ["forward", start_us + 1, 16], ["deliver", start_us + 17, 1],
    ["sample", start_us + 18, 1], ["commit", start_us + 19, 1]];
  return { index, start_us, us: 20, tokens: Math.max(prompt_tokens, 1), prompt_tokens, sequences: 1, parts, ops };
}

function phase(name, tokens) {
  const row = (op, count, us) => ({ op, shape: "8 x 4 q4_0", count, us, share_of_time: us / 20, bytes: 64 * count, operations: 128 * count });
  return {
    name, steps: 1, tokens, us: 20, waiting_us: 1, between_ops_us: 6,
    parts: { plan: 1, blocks: 0, forward: 16, deliver: 1, sample: 1, commit: 1 },
    ops: [row("linear", 4, 8), { ...row("head", 1, 2), share_of_limit: 0.5 }],
  };
}

export function small_profile() {
  return {
    format: "headrace-profile", version: 1, model: "mock", isa: "avx2", threads: 2, complete: true,
    phases: [phase("prompt", 4), phase("answer", 1)],
    steps: [step(7, 0, 4), step(8, 21, 0)],
    kinds: [["linear", "8 x 4 q4_0"], ["head", "8 x 4 q4_0"]],
  };
}
