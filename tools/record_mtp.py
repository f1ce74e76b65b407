#!/usr/bin/env python3
"""Tiny checkpoints with a head that predicts further tokens, with what the head says.

    python tools/record_mtp.py OUT [--only NAME ...] [--seed N] [--pack ARCHIVE]

Needs torch and transformers (5.24.0 was used) in an environment of its own; the tests need neither: what this wrote is
committed as tests/data/golden/heads.tar.zst. transformers leaves these heads out, so the head is written here, as their
makers describe it, around transformers' own layer: a norm of the embedded next token and one of the network's state after
its final norm, side by side through a projection, a layer, a norm, and the network's output matrix. In a chain the head
gets its own state after its norm. Of each family there is a folder: config.json, model.safetensors (network and head,
random weights that bf16 holds exactly), expect.json and expect.safetensors: logits and greedy continuations of the network,
logits of the head for all positions of three prompts, and after each token of a continuation the head's three next guesses.
"""

import argparse
import json
import pathlib

import torch
import transformers
from pack_golden import pack
from record_families import continue_greedily, draw, logits_of
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

PROMPT_LENGTHS = (2, 19, 40)
NEW_TOKENS = 12
CHAIN = 3
SMALLEST_GAP = 2e-3  # between the best two logits of what is compared as a token
LIKELY = slice(3, 7)  # tokens that mostly win, so that some guesses come true
LIKELIER = 4.0
LEAST_RIGHT = 6  # of the first guesses

STANDARD = dict(vocab_size=96, hidden_size=48, intermediate_size=56, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0, moe_intermediate_size=24,
                num_experts_per_tok=2, rms_norm_eps=1e-5)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, mscale=1.0, mscale_all_dim=0.8, original_max_position_embeddings=32,
            beta_fast=32.0, beta_slow=1.0)
DEEPSEEK = dict(STANDARD, num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=8,
                v_head_dim=12, n_routed_experts=8, n_shared_experts=1, n_group=4, topk_group=2, first_k_dense_replace=1,
                rope_parameters=YARN)
GLM = dict(STANDARD, head_dim=16, n_routed_experts=6, n_shared_experts=1, first_k_dense_replace=1, use_qk_norm=True,
           rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5))
QWEN = dict(STANDARD, num_hidden_layers=4, head_dim=16, num_experts=4, shared_expert_intermediate_size=24,
            linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25),
            layer_types=["linear_attention", "full_attention"] * 2)

# Folder: model_type, settings, what a file says of its heads, names before those of the head and of its layer.
FAMILIES = {
    "glm4_moe": ("glm4_moe", GLM, "model.layers.3.", "model.layers.3."),
    "deepseek_v3": ("deepseek_v3", DEEPSEEK, "model.layers.3.", "model.layers.3."),
    "qwen3_next": ("qwen3_next", QWEN, "mtp.", "mtp.layers.0."),
}
BEHIND = dict(enorm="enorm", hnorm="hnorm", eh_proj="eh_proj", norm="shared_head.norm")
APART = dict(enorm="pre_fc_norm_embedding", hnorm="pre_fc_norm_hidden", eh_proj="fc", norm="norm")


class Head(torch.nn.Module):
    def __init__(self, model, config):
        super().__init__()
        last = max(i for i, layer in enumerate(model.model.layers) if hasattr(layer, "self_attn"))
        width = config.hidden_size
        norm = type(model.model.norm)
        self.enorm, self.hnorm, self.norm = (norm(width, eps=config.rms_norm_eps) for _ in range(3))
        self.eh_proj = torch.nn.Linear(2 * width, width, bias=False)
        self.layer = type(model.model.layers[last])(config, last)

    def forward(self, model, ids, states):
        """ids[i]: the token after the position of states[i]. The head's states and logits."""
        count = len(ids)
        embedded = model.model.embed_tokens(torch.tensor([ids]))
        x = self.eh_proj(torch.cat([self.enorm(embedded), self.hnorm(states[None])], dim=-1))
        positions = torch.arange(count)[None]
        mask = torch.full((1, 1, count, count), float("-inf"), dtype=x.dtype).triu(1)
        x = self.layer(x, attention_mask=mask, position_ids=positions, position_embeddings=model.model.rotary_emb(x, positions))
        x = self.norm(x[0] if isinstance(x, tuple) else x)
        return x[0], model.lm_head(x)[0]


def states_of(model, ids):
    return model.model(input_ids=torch.tensor([ids]), use_cache=False).last_hidden_state[0]


def chain_of(model, head, ids):
    """The head's next guesses after ids, and the smallest lead of a best logit."""
    states, inputs, guesses, smallest = states_of(model, ids)[:-1], ids[1:], [], float("inf")
    for _ in range(CHAIN):
        own, logits = head(model, inputs, states)
        best = torch.topk(logits[-1], 2)
        smallest = min(smallest, float(best.values[0] - best.values[1]))
        guesses.append(int(best.indices[0]))
        states, inputs = torch.cat([states, own[-1:]]), inputs + guesses[-1:]
    return guesses, smallest


def make(config, model_type, seed):
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    head = Head(model, config).eval()
    draw(model, model_type, seed)
    draw(head, model_type, seed + 1)
    with torch.no_grad():
        model.lm_head.weight[LIKELY] *= LIKELIER
    return model, head


def prompts_of(vocab_size, seed):
    generator = torch.Generator().manual_seed(seed + 1)
    return [torch.randint(3, vocab_size, (n,), generator=generator).tolist() for n in PROMPT_LENGTHS]


def follow(model, head, prompt):
    """Greedy ids, the chains after each of them, and the smallest lead of all."""
    new, smallest = continue_greedily(model, prompt)
    new = new[:NEW_TOKENS]
    chains = []
    with torch.no_grad():
        for count in range(1, NEW_TOKENS + 1):
            guesses, gap = chain_of(model, head, prompt + new[:count])
            chains.append(guesses)
            smallest = min(smallest, gap)
    return new, chains, smallest


def named(head, names, before, before_layer):
    """The head's tensors as files have them: those of experts each apart."""
    tensors = {}
    for name, tensor in head.state_dict().items():
        tensor = tensor.to(torch.bfloat16)
        if not name.startswith("layer."):
            tensors[before + names[name.removesuffix(".weight")] + ".weight"] = tensor
            continue
        name = before_layer + name.removeprefix("layer.")
        if "experts." not in name or tensor.ndim < 3:
            tensors[name] = tensor
            continue
        parts = dict(gate_proj=0, up_proj=1) if name.endswith("gate_up_proj") else dict(down_proj=0)
        for expert, own in enumerate(tensor):
            rows = own.shape[0] // len(parts)
            for part, at in parts.items():
                stem = name.rpartition(".")[0]
                tensors[f"{stem}.{expert}.{part}.weight"] = own[at * rows : (at + 1) * rows].contiguous()
    return tensors


def record(name, out, seed):
    model_type, settings, before, before_layer = FAMILIES[name]
    config = AutoConfig.for_model(model_type, **settings)
    prompts = prompts_of(config.vocab_size, seed)
    for attempt in range(60):
        model, head = make(config, model_type, seed + 1000 * attempt)
        followed = [follow(model, head, prompt) for prompt in prompts]
        kept = sum(chain[0] == new[count + 1] for new, chains, _ in followed for count, chain in enumerate(chains[:-1]))
        if min(gap for *_, gap in followed) > SMALLEST_GAP and kept >= LEAST_RIGHT:
            break
    tensors, notes, largest = {}, [], 0.0
    for i, (prompt, (new, chains, gap)) in enumerate(zip(prompts, followed)):
        with torch.no_grad():
            of_head = head(model, prompt[1:], states_of(model, prompt)[:-1])[1]
        rows = logits_of(model, prompt)
        tensors[f"prompt{i}.logits"] = rows.contiguous()
        tensors[f"prompt{i}.head_logits"] = of_head.contiguous()
        largest = max(largest, float(rows.abs().max()), float(of_head.abs().max()))
        notes.append(dict(ids=prompt, positions=list(range(len(prompt))), greedy=new, guesses=chains, smallest_top2_gap=round(gap, 5)))
    expected = dict(family=model_type, seed=seed, max_abs_logit=round(largest, 4), prompts=notes,
                    source=f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}, float32, eager attention, no cache")
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    weights = load_file(folder / "model.safetensors")
    weights.update(named(head, APART if before == "mtp." else BEHIND, before, before_layer))
    if before != "mtp.":  # as published files repeat them
        weights[before + "embed_tokens.weight"] = weights["model.embed_tokens.weight"].clone()
        weights[before + "shared_head.head.weight"] = weights["lm_head.weight"].clone()
        stated = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(dict(stated, num_nextn_predict_layers=1), indent=1) + "\n")
    save_file(weights, folder / "model.safetensors", metadata=dict(format="pt"))
    save_file(tensors, folder / "expect.safetensors")
    (folder / "expect.json").write_text(json.dumps(expected, indent=1) + "\n")
    print(f"{name:14} attempt {attempt}, max {largest:.2f}, gap {min(gap for *_, gap in followed):.4f}, first guesses right {kept}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", default=list(FAMILIES))
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--pack", type=pathlib.Path)
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    for name in options.only:
        record(name, options.out, options.seed)
    if options.pack:
        files = sorted(path for path in options.out.rglob("*") if path.is_file())
        pack([(f"heads/{path.relative_to(options.out)}", path.read_bytes()) for path in files], 4, options.pack)


if __name__ == "__main__":
    main()
