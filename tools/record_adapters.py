#!/usr/bin/env python3
"""Writes PEFT adapters with random weights for tiny checkpoints, and the logits that base and adapter give together.

    python tools/record_adapters.py TINY OUT [--seed N] [--only NAME,...] [--pack ARCHIVE]

TINY holds checkpoints of the golden data, OUT gets a folder lora/NAME for each adapter;
committed as tests/data/golden/adapters.tar.zst. Needs torch, transformers and
peft, in an environment of its own: nothing of it is part of the build. Forms that the larger collection lacks: biases,
embeddings, whole modules, magnitudes of everything, odd ranks, experts one by one and as stacks, projections whose rows
lie in an order of their own.
"""
import argparse
import json
import os
import pathlib

os.environ.setdefault("TQDM_DISABLE", "1")
import torch
from pack_golden import pack
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, logging

logging.set_verbosity_error()
QKVO = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]
STACKS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
ADAPTERS = {
    "llama_embed": ("llama", dict(r=5, lora_alpha=10, target_modules=["embed_tokens", "v_proj"])),
    "gemma3_embed": ("gemma3", dict(r=4, lora_alpha=12, target_modules=["embed_tokens", "lm_head", "o_proj"])),
    "llama_saved": ("llama", dict(r=4, lora_alpha=8, target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"])),
    "llama_odd_r17": ("llama_odd", dict(r=17, lora_alpha=9, target_modules=QKVO + MLP, bias="lora_only")),
    "qwen2_bias": ("qwen2", dict(r=8, lora_alpha=16, target_modules=QKVO, bias="all")),
    "qwen2_lora_bias": ("qwen2", dict(r=3, lora_alpha=16, target_modules=["q_proj", "v_proj"], lora_bias=True)),
    "qwen3_dora": ("qwen3", dict(r=8, lora_alpha=16, use_dora=True, use_rslora=True, target_modules=QKVO + MLP)),
    "phi3_dora": ("phi3", dict(r=6, lora_alpha=6, use_dora=True, target_modules=["qkv_proj", "gate_up_proj", "lm_head"])),
    "llama_regex": ("llama", dict(r=8, lora_alpha=16, target_modules=r".*\.(q|up)_proj", rank_pattern={r"layers\.1\..*q_proj": 70},
                                  alpha_pattern={r".*\.up_proj": 3.5})),
    "mixtral_attention": ("mixtral", dict(r=8, lora_alpha=16, target_modules=QKVO)),
    "qwen3_moe_stack": ("qwen3_moe", dict(r=4, lora_alpha=16, target_modules=QKVO, target_parameters=STACKS)),
    "gpt_oss_stack": ("gpt_oss", dict(r=4, lora_alpha=16, target_modules=["o_proj"], target_parameters=STACKS)),
    "qwen3_next_gated": ("qwen3_next", dict(r=8, lora_alpha=16, target_modules=QKVO + ["in_proj_qkvz", "out_proj"])),
    "deepseek_v2_latent": ("deepseek_v2", dict(r=8, lora_alpha=16, target_modules=["q_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj"])),
    "gpt_neox_groups": ("gpt_neox", dict(r=8, lora_alpha=16, target_modules=["query_key_value", "dense_h_to_4h", "dense"])),
    "gpt2_conv": ("gpt2", dict(r=8, lora_alpha=16, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)),
    "cohere2_all": ("cohere2", dict(r=8, lora_alpha=16, target_modules=QKVO + MLP)),
    "lfm2_all": ("lfm2", dict(r=8, lora_alpha=16, target_modules=["q_proj", "out_proj", "in_proj", "w1", "w2", "w3"])),
}


EXACT = ("llama_odd_r17", "qwen3_dora")  # with numbers that bf16 does not hold; the others pack better


def randomise(model, generator, rounded):
    for name, parameter in sorted(model.named_parameters()):
        trained = parameter.requires_grad
        if "lora_A" in name or "lora_B" in name or "lora_embedding" in name:
            if name.endswith("bias"):
                noise = torch.randn(parameter.shape, generator=generator) * 0.1
            else:
                noise = torch.randn(parameter.shape, generator=generator) * 0.6 / parameter.shape[-1] ** 0.5
            parameter.copy_(noise)
        elif "lora_magnitude" in name:
            parameter.copy_(parameter * (1 + 0.1 * torch.randn(parameter.shape, generator=generator)))
        elif trained:  # biases and whole modules
            parameter.copy_(parameter + 0.05 * torch.randn(parameter.shape, generator=generator))
        else:
            continue
        if rounded:
            parameter.copy_(parameter.to(torch.bfloat16).float())


def record(tiny, out, name, seed):
    import peft
    import transformers
    base, settings = ADAPTERS[name]
    model = AutoModelForCausalLM.from_pretrained(tiny / base, attn_implementation="eager", dtype=torch.float32).eval()
    ids = torch.randint(3, model.config.vocab_size, (24,), generator=torch.Generator().manual_seed(seed)).tolist()
    with torch.no_grad():
        plain = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
        adapted = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **settings)).eval()
        randomise(adapted, torch.Generator().manual_seed(seed), name not in EXACT)
        logits = adapted(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    folder = out / "lora" / name
    folder.mkdir(parents=True, exist_ok=True)
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = f"tiny/{base}"
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    save_file({"prompt0.logits": logits[[0, 11, 23]].contiguous()}, folder / "expect.safetensors")
    distance = float((logits - plain).abs().max())
    (folder / "expect.json").write_text(json.dumps(dict(
        base=base, source=f"peft {peft.__version__}, transformers {transformers.__version__}, float32",
        max_abs_logit=float(logits.abs().max()), distance_from_base=distance,
        prompts=[dict(ids=ids, positions=[0, 11, 23])]), indent=1) + "\n")
    print(f"{name:20} differs from its base by {distance:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tiny", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=41)
    parser.add_argument("--only", default="")
    parser.add_argument("--pack", type=pathlib.Path)
    options = parser.parse_args()
    for name in options.only.split(",") if options.only else ADAPTERS:
        record(options.tiny, options.out, name, options.seed)
    if options.pack:
        files = sorted(path for path in (options.out / "lora").rglob("*") if path.is_file())
        pack([(str(path.relative_to(options.out)), path.read_bytes()) for path in files], 16, options.pack)


if __name__ == "__main__":
    main()
