#!/usr/bin/env python3
"""Writes what the smallest checkpoint of each family holds: its configuration, and names, types and shapes of its tensors.

    pip install torch transformers==5.23.0 gguf==0.19.0 && python tools/make_model_seeds.py TINY OUT

Each TINY/NAME/config.json (recorded checkpoints) becomes OUT/NAME.json: the same network with sizes of a few numbers, as
the reference implementation saves it, and its GGUF form where make_tiny_ggufs.py has one. Tests fill the tensors themselves and change configuration and bytes at random, so
that these files need no weights; they lie in tests/data/golden/seeds.tar.zst (pack_golden.py --only seeds).
"""
import argparse
import json
import pathlib
import struct
import sys
import tempfile

import make_tiny_ggufs

# The size that takes the place of any larger one.
SMALL = {
    "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8,
    "vocab_size": 32, "vocab_size_per_layer_input": 32, "max_position_embeddings": 64, "sliding_window": 4,
    "moe_intermediate_size": 8, "shared_expert_intermediate_size": 12, "shared_intermediate_size": 12,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "num_experts_per_token": 2,
    "n_group": 2, "topk_group": 1, "num_expert_group": 2, "top_k_experts": 2, "rotary_dim": 4,
    "q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 4,
    "index_n_heads": 2, "index_head_dim": 8, "index_topk": 4,
    "linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_num_heads": 2, "linear_key_head_dim": 4,
    "linear_value_head_dim": 4, "linear_head_dim": 4, "linear_conv_kernel_dim": 3,
    "hidden_size_per_layer_input": 4, "global_head_dim": 16, "block_ff_dim": 24,
    "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 4, "mamba_chunk_size": 4, "chunk_size": 4, "state_size": 4,
    "num_heads": 4, "n_embd": 16, "n_inner": 24, "n_head": 2, "n_positions": 64, "ffn_dim": 24, "ffn_hidden_size": 24,
    "word_embed_proj_dim": 16, "d_model": 16, "n_heads": 2, "max_seq_len": 64, "num_kv_heads": 2,
    "moe_num_experts": 4, "moe_k": 2, "moe_topk": 2, "laurel_rank": 3, "window_size": 4,
}
SHORT_FACTORS = ("short_factor", "long_factor")


def shrink(value, config):
    """The same settings with small sizes; lists of rope factors get the length that the heads then need."""
    if isinstance(value, list):
        return [shrink(element, config) for element in value]
    if not isinstance(value, dict):
        return value
    if "__float__" in value:
        return float(value["__float__"])
    small = {}
    for key, old in value.items():
        if key in SMALL and isinstance(old, int) and not isinstance(old, bool):
            small[key] = min(old, SMALL[key])
        elif key in SMALL and isinstance(old, list):
            small[key] = [min(size, SMALL[key]) for size in old]
        elif key in SHORT_FACTORS:
            small[key] = old[:int(SMALL["head_dim"] * config.get("partial_rotary_factor", 1.0)) // 2]
        else:
            small[key] = shrink(old, config)
    return small


def tensors_of(folder):
    """[name, type, shape] of every tensor of the one safetensors file."""
    data = (folder / "model.safetensors").read_bytes()
    header = json.loads(data[8:8 + struct.unpack_from("<Q", data)[0]])
    return [[name, info["dtype"], info["shape"]] for name, info in sorted(header.items()) if name != "__metadata__"]


def without_infinity(contents):
    """Minus infinity, which JSON does not have, as null."""
    if not isinstance(contents, list):
        return contents
    return [None if element == float("-inf") else element for element in contents]


def gguf_form(saved):
    """Keys and tensors of the GGUF file that a converter writes: {"keys": [[name, type, value]], "tensors": [[name, type, sizes]]}."""
    import gguf
    path = saved / "model.gguf"
    try:
        make_tiny_ggufs.convert(saved, path, "bf16")
    except SystemExit:  # a setting without a GGUF form
        return None
    reader = gguf.GGUFReader(path)
    keys = [[field.name, [t.name for t in field.types], without_infinity(field.contents())]
            for field in reader.fields.values() if not field.name.startswith("GGUF.")]
    tensors = [[tensor.name, tensor.tensor_type.name, [int(size) for size in tensor.shape]] for tensor in reader.tensors]
    return {"keys": keys, "tensors": tensors}


def make(folder, out):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    newer = folder / "config.v5.json"
    config = json.loads((newer if newer.exists() else folder / "config.json").read_text())
    small = shrink(config, config)
    if config["model_type"] == "mamba2":
        small["head_dim"] = small["hidden_size"] * small["expand"] // small["num_heads"]
    kind = small.pop("model_type")
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **small), dtype=torch.bfloat16)
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)
        saved = pathlib.Path(saved)
        seed = {"config": json.loads((saved / "config.json").read_text()), "tensors": tensors_of(saved)}
        if make_tiny_ggufs.has_gguf(seed["config"]):
            seed["gguf"] = gguf_form(saved)
    (out / f"{folder.name}.json").write_text(json.dumps(seed, separators=(",", ":")) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tiny", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    failed = []
    for folder in sorted(options.tiny.iterdir()):
        if not (folder / "config.json").exists():
            continue
        try:
            make(folder, options.out)
        except Exception as error:  # a size that this family cannot have: say which and go on
            failed.append(f"{folder.name}: {type(error).__name__}: {str(error)[:200]}")
    sys.exit("\n".join(failed) if failed else 0)


if __name__ == "__main__":
    main()
