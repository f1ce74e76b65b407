#!/usr/bin/env python3
"""Writes a GGUF file of every family from tiny safetensors checkpoints, as published converters would.

    pip install gguf==0.19.0 numpy && python tools/make_tiny_ggufs.py TINY OUT [--type f32|bf16|q8_0|q8_0_widened] [--only NAME ...]

TINY/NAME/{config.json, model.safetensors} becomes OUT/NAME.gguf; so does a folder of gpt-oss with MXFP4 blocks, which it
keeps (--only gpt_oss_mxfp4). Tensor names come from the `gguf` package; what a converter does to the values (permuted q
and k rows, 1 added to Gemma norms, rope divisors, experts merged into one tensor each for gate, up and down) is done here
once more, so that a reader can be held to results computed from the originals. Two keys are written that published files
of these architectures lack, because the tiny models cannot be told otherwise: a window for `llama` and `qwen2`, and
attention.scale for Gemma. q8_0_widened holds the float32 values of the q8_0 file.
"""
import argparse
import json
import math
import pathlib
import re
import struct
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quants

import further_ggufs

# model_type: (architecture, q and k rows permuted, norms stored as 1 + w)
ARCHITECTURES = {
    "llama": ("LLAMA", True, False), "mistral": ("LLAMA", True, False), "ministral3": ("MISTRAL3", True, False),
    "qwen2": ("QWEN2", False, False), "qwen3": ("QWEN3", False, False), "gemma2": ("GEMMA2", False, True),
    "gemma3_text": ("GEMMA3", False, True), "phi3": ("PHI3", False, False), "olmo2": ("OLMO2", False, False),
    "olmo3": ("OLMO2", False, False), "granite": ("GRANITE", True, False), "smollm3": ("SMOLLM3", True, False),
    "exaone4": ("EXAONE4", False, False), "glm4": ("GLM4", False, False), "seed_oss": ("SEED_OSS", False, False),
    "cohere2": ("COHERE2", False, False), "qwen3_5_text": ("QWEN35", False, True),
    "qwen3_5_moe_text": ("QWEN35MOE", False, True), "qwen3_next": ("QWEN3NEXT", False, True),
    "mixtral": ("LLAMA", True, False), "olmoe": ("OLMOE", False, False),
    "qwen2_moe": ("QWEN2MOE", False, False), "qwen3_moe": ("QWEN3MOE", False, False),
    "granitemoe": ("GRANITE_MOE", True, False), "gpt_oss": ("GPT_OSS", False, False),
    "deepseek_v2": ("DEEPSEEK2", False, False), "deepseek_v3": ("DEEPSEEK2", False, False),
    "deepseek_v32": ("DEEPSEEK2", False, False), "kimi_linear": ("KIMI_LINEAR", False, False),
    "glm4_moe": ("GLM4_MOE", False, False), "minimax_m2": ("MINIMAXM2", False, False),
    "lfm2": ("LFM2", False, False), "mamba2": ("MAMBA2", False, False),
    "granitemoehybrid": ("GRANITE_HYBRID", True, False),
    "gemma4_text": ("GEMMA4", False, False), "dots1": ("DOTS1", False, False),
    "ernie4_5_moe": ("ERNIE4_5_MOE", False, False), "hunyuan_v1_moe": ("HUNYUAN_MOE", False, False),
    "solar_open": ("GLM4_MOE", False, False), "lfm2_moe": ("LFM2MOE", False, False),
    "phimoe": ("PHIMOE", False, False), "apertus": ("APERTUS", False, False),
    "gemma3n_text": ("GEMMA3N", False, False),
}

# Of architecture deepseek32, which the package does not have yet: deepseek2 and the tensors of its index.
INDEX_NAMES = {"wq_b": "attn_q_b", "wk": "attn_k", "k_norm": "k_norm", "weights_proj": "proj"}


def read_safetensors(path):
    """Name -> float32 array, for F32 and BF16 tensors; bytes stay bytes."""
    data = path.read_bytes()
    size = struct.unpack_from("<Q", data)[0]
    tensors = {}
    for name, info in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + offset for offset in info["data_offsets"])
        if info["dtype"] == "BF16":
            values = (np.frombuffer(data[begin:end], np.uint16).astype(np.uint32) << 16).view(np.float32)
        elif info["dtype"] == "F32":
            values = np.frombuffer(data[begin:end], np.float32)
        elif info["dtype"] == "U8":
            values = np.frombuffer(data[begin:end], np.uint8)
        else:
            sys.exit(f"{path}: {name} is {info['dtype']}, but F32 or BF16 is needed")
        tensors[name] = values.reshape(info["shape"])
    return tensors


def rope_of(config):
    """The rope of full layers, both generations of keys in one dictionary, and the base of sliding layers or None."""
    rope = dict(config.get("rope_scaling") or config.get("rope_parameters") or {})
    sliding = config.get("rope_local_base_freq")
    if "full_attention" in rope:
        sliding = rope["sliding_attention"]["rope_theta"]
        rope = dict(rope["full_attention"])
    rope.setdefault("rope_theta", config.get("rope_theta", 10000.0))
    rope.setdefault("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    rope["rope_type"] = rope.get("rope_type") or rope.get("type") or "default"
    rope["original"] = config.get("original_max_position_embeddings") or rope.get(
        "original_max_position_embeddings") or config.get("max_position_embeddings", config.get("model_max_length"))
    return rope, sliding


def add_rope(writer, config, rope, sliding, head_dim):
    kind, length = rope["rope_type"], config["max_position_embeddings"]
    dims = int(head_dim * rope["partial_rotary_factor"])
    writer.add_rope_dimension_count(dims)
    writer.add_rope_freq_base(rope["rope_theta"])
    if kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    elif kind == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original"])
        if "kv_lora_rank" in config and rope.get("mscale_all_dim"):
            # A tenth; that mscale is the same number goes without saying, else the factor is written.
            factor, log = rope["mscale_all_dim"], 0.1 * math.log(rope["factor"])
            writer.add_rope_scaling_yarn_log_mul(0.1 * factor)
            if rope["mscale"] != factor:
                writer.add_rope_scaling_yarn_attn_factor((rope["mscale"] * log + 1) / (factor * log + 1))
        elif rope.get("mscale_all_dim"):
            writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
    elif kind == "longrope":
        scale = length / rope["original"]
        writer.add_rope_scaling_orig_ctx_len(rope["original"])
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(rope["original"])))
        for which in ("long", "short"):
            writer.add_tensor(f"rope_factors_{which}.weight", np.array(rope[f"{which}_factor"], np.float32))
    elif kind == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(rope, dims))
    elif kind != "default":
        sys.exit(f"rope type {kind} has no GGUF form")
    if sliding is not None and sliding != (10000.0 if config["model_type"] in ("gemma3_text", "gemma3n_text") else rope["rope_theta"]):
        writer.add_rope_freq_base_swa(sliding)


def llama3_divisors(rope, dims):
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    divisors = []
    for i in range(dims // 2):
        turns = rope["original"] / (2 * math.pi * rope["rope_theta"] ** (2 * i / dims))  # over the original length
        smooth = min(max((turns - low) / (high - low), 0.0), 1.0)
        divisors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(divisors, np.float32)


def add_window(writer, config):
    window, layers = config.get("sliding_window"), config["num_hidden_layers"]
    kind = config["model_type"]
    if kind in ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe") and not config.get("use_sliding_window") or kind == "dots1":
        window = None
    if not window:
        return
    writer.add_sliding_window(window)
    if kind == "qwen2":
        writer.add_sliding_window_pattern([i >= config["max_window_layers"] for i in range(layers)])
    elif kind == "olmo3":
        writer.add_sliding_window_pattern([t == "sliding_attention" for t in config["layer_types"]])


def add_latent(writer, config):
    rank, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
    if config.get("q_lora_rank"):
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(rank)
    writer.add_key_length_mla(config["qk_nope_head_dim"] + rope)
    writer.add_value_length_mla(config["v_head_dim"])
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    if "index_topk" in config:
        writer.add_indexer_head_count(config["index_n_heads"])
        writer.add_indexer_key_length(config["index_head_dim"])
        writer.add_indexer_top_k(config["index_topk"])
    if config["model_type"] != "deepseek_v2":
        writer.add_expert_weights_norm(config["norm_topk_prob"])
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if (config.get("n_group") or 1) > 1:
        writer.add_expert_group_count(config["n_group"])
        writer.add_expert_group_used_count(config["topk_group"])


def add_experts(writer, config):
    count = next((config[key] for key in ("num_experts", "num_local_experts", "n_routed_experts") if key in config), 0)
    if not count:
        return
    writer.add_expert_count(count)
    writer.add_expert_used_count(config["num_experts_per_tok"])
    if "moe_intermediate_size" in config:
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    elif config["model_type"] in ("gpt_oss", "minimax_m2"):
        writer.add_expert_feed_forward_length(config["intermediate_size"])
    if "shared_expert_intermediate_size" in config:
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    if config["model_type"] == "minimax_m2":
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if config["model_type"] == "glm4_moe":
        writer.add_nextn_predict_layers(config["num_nextn_predict_layers"])
    further_ggufs.add_routing(writer, config)


def add_recurrent_keys(writer, config):
    if config["model_type"].startswith("lfm2"):
        writer.add_shortconv_l_cache(config["conv_L_cache"])
    elif config["model_type"] == "mamba2":
        writer.add_ssm_conv_kernel(config["conv_kernel"])
        writer.add_ssm_inner_size(config["expand"] * config["hidden_size"])
        writer.add_ssm_state_size(config["state_size"])
        writer.add_ssm_time_step_rank(config["num_heads"])
        writer.add_ssm_group_count(config["n_groups"])
    elif config["model_type"] == "granitemoehybrid":
        writer.add_ssm_conv_kernel(config["mamba_d_conv"])
        writer.add_ssm_state_size(config["mamba_d_state"])
        writer.add_ssm_group_count(config["mamba_n_groups"])
        writer.add_ssm_inner_size(config["mamba_expand"] * config["hidden_size"])
        writer.add_ssm_time_step_rank(config["mamba_n_heads"])
        writer.add_rope_scaling_finetuned(config.get("position_embedding_type") == "rope")


def recurrent_values(name, values, config):
    """What a converter makes of a tensor of a short convolution or of a scan."""
    if name.endswith((".conv.conv.weight", ".conv1d.weight")):
        values = values.reshape(values.shape[0], values.shape[2])
    elif name.endswith(".A_log"):
        values = -np.exp(values.reshape(-1, 1))
    elif name.endswith((".mixer.D", ".mamba.D")):
        values = values.reshape(-1, 1)
    elif name.endswith(".dt_bias"):
        name = name.removesuffix(".dt_bias") + ".dt_proj.bias"
    elif name.endswith((".mixer.norm.weight", ".mamba.norm.weight")):
        values = values.reshape(config.get("n_groups") or config["mamba_n_groups"], -1)
    return name, values


def add_gemma4_keys(writer, config):
    """Keys of layers of several shapes, and the divisors that let the other pairs of full layers stand still."""
    layers = config["num_hidden_layers"]
    slides = [kind == "sliding_attention" for kind in config["layer_types"]]
    own = {int(layer): entry for layer, entry in (config.get("per_layer_config") or {}).items()}
    full = own.get(slides.index(False), {})
    shared = config["num_kv_shared_layers"]
    head_dim, heads = config["head_dim"], config["num_key_value_heads"]
    full_dim = full.get("head_dim") or config.get("global_head_dim") or head_dim
    full_heads = full.get("num_key_value_heads")
    if config["attention_k_eq_v"]:
        full_heads = full_heads or config.get("num_global_key_value_heads")
    writer.add_shared_kv_layers(shared)
    writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    writer.add_sliding_window(config["sliding_window"])
    writer.add_sliding_window_pattern(slides)
    writer.add_key_length(full_dim)
    writer.add_value_length(full_dim)
    writer.add_key_length_swa(head_dim)
    writer.add_value_length_swa(head_dim)
    writer.add_rope_dimension_count(full_dim)
    writer.add_rope_dimension_count_swa(head_dim)
    writer.add_head_count_kv([heads if slide else full_heads for slide in slides] if full_heads else heads)
    width = config["intermediate_size"]
    if config["use_double_wide_mlp"]:
        writer.add_feed_forward_length([width if i < layers - shared else 2 * width for i in range(layers)])
    else:
        writer.add_feed_forward_length(width)
    if config["enable_moe_block"]:
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["top_k_experts"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if config.get("final_logit_softcapping"):
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    rope, sliding = rope_of(config)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_freq_base_swa(sliding)
    turning = int(full_dim * rope["partial_rotary_factor"] / 2)
    divisors = [1.0] * turning + [1e30] * (full_dim // 2 - turning)
    writer.add_tensor("rope_freqs.weight", np.array(divisors, np.float32))
    return head_dim


def gemma4_name(name):
    """Tensors that converters name without the help of the table of names."""
    layer = name.split(".")[2] if ".layers." in name else ""
    if name.endswith(".router.scale"):
        return f"blk.{layer}.ffn_gate_inp.scale"
    if name.endswith(".per_expert_scale"):
        return f"blk.{layer}.ffn_down_exps.scale"
    return None


def add_keys(writer, config, tensors):
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    is_latent = "kv_lora_rank" in config
    head_dim = config.get("head_dim") or hidden // heads
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(hidden)
    appended = config["num_nextn_predict_layers"] if config["model_type"] == "glm4_moe" else 0  # counted as layers
    writer.add_block_count(config["num_hidden_layers"] + appended)
    only_mixers = config["model_type"] == "mamba2"
    writer.add_head_count(0 if only_mixers else heads)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    if config["model_type"] == "gemma4_text":
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        return add_gemma4_keys(writer, config)
    writer.add_feed_forward_length(0 if only_mixers else config["intermediate_size"])
    if is_latent:  # what the cache keeps of all heads
        rank, head_dim = config["kv_lora_rank"], config["qk_rope_head_dim"]
        kinds = config.get("layer_types") if config["model_type"] == "kimi_linear" else None
        writer.add_head_count_kv([int(kind == "full_attention") for kind in kinds] if kinds else 1)
        writer.add_key_length(rank + head_dim)
        writer.add_value_length(rank)
        add_latent(writer, config)
    elif not only_mixers:
        attends = ["attention" in kind and kind != "linear_attention" for kind in config.get("layer_types", ())]
        kv_heads = config["num_key_value_heads"]
        hybrid = config["model_type"] in ("lfm2", "lfm2_moe", "granitemoehybrid")
        writer.add_head_count_kv([kv_heads if attention else 0 for attention in attends] if hybrid else kv_heads)
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if config["model_type"] == "cohere2":
        writer.add_layer_norm_eps(config["layer_norm_eps"])
        writer.add_logit_scale(config["logit_scale"])
    else:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if config["model_type"] in ("granite", "granitemoe", "granitemoehybrid"):
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    if config["model_type"] == "gemma3n_text":
        further_ggufs.add_streams(writer, config)
    if "query_pre_attn_scalar" in config:
        writer.add_attention_scale(config["query_pre_attn_scalar"] ** -0.5)
    if config["model_type"] == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    add_window(writer, config)
    add_experts(writer, config)
    rope, sliding = rope_of(config)
    if "llama_4_scaling_beta" in rope:
        writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
    add_recurrent_keys(writer, config)
    if not only_mixers:
        add_rope(writer, config, rope, sliding, head_dim)
    return head_dim


def permuted(values, head_dim):
    """Rows of each head so that interleaved rotation equals rotation of halves."""
    rows = values.reshape(-1, 2, head_dim // 2, *values.shape[1:])
    return np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(values.shape)


def tiled(values, groups, head_rows):
    """Rows of value heads, grouped by their key head on input, so that each key head comes in turn."""
    by_group = values.reshape(groups, -1, head_rows, *values.shape[1:])
    return np.ascontiguousarray(by_group.swapaxes(0, 1)).reshape(values.shape)


def by_key_head(values, groups, sizes):
    """Parts of `sizes` rows of each key head, all heads of a part one after the other."""
    packed = values.reshape(groups, sum(sizes), *values.shape[1:])
    return [part.reshape(-1, *values.shape[1:]) for part in np.split(packed, np.cumsum(sizes)[:-1], axis=1)]


def delta_values(name, values, config):
    """(name, values) of what a converter makes of a tensor of a gated delta layer."""
    groups, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    key_dim, value_dim = config["linear_key_head_dim"], config["linear_value_head_dim"]
    keys, of_group = 2 * groups * key_dim, heads // groups * value_dim
    if name.endswith("in_proj_qkvz.weight"):
        q, k, v, z = by_key_head(values, groups, [key_dim, key_dim, of_group, of_group])
        base = name.removesuffix("qkvz.weight")
        return [(f"{base}qkv.weight", np.concatenate([q, k, v])), (f"{base}z.weight", z)]
    if name.endswith(".A_log"):
        values = -np.exp(values)
    elif name.endswith(".dt_bias"):
        name = name.removesuffix(".dt_bias") + ".dt_proj.bias"
    elif name.endswith(".conv1d.weight"):
        values = values.reshape(values.shape[0], values.shape[2])
    if config["model_type"].startswith("qwen3_5"):
        if name.endswith((".in_proj_qkv.weight", ".conv1d.weight")):
            values = np.concatenate([values[:keys], tiled(values[keys:], groups, value_dim)])
        elif name.endswith(".in_proj_z.weight"):
            values = tiled(values, groups, value_dim)
        elif name.endswith((".in_proj_a.weight", ".in_proj_b.weight", ".A_log", ".dt_proj.bias")):
            values = tiled(values, groups, 1)
        elif name.endswith(".out_proj.weight"):
            values = np.ascontiguousarray(tiled(np.ascontiguousarray(values.T), groups, value_dim).T)
    return [(name, values)]


def with_usual_keys(config):
    """Keys under the names that others have."""
    if config["model_type"] != "kimi_linear":
        return further_ggufs.with_usual_keys(config)
    return config | {"max_position_embeddings": config["model_max_length"], "norm_topk_prob": config["moe_renormalize"],
                     "n_shared_experts": config["num_shared_experts"], "n_group": config["num_expert_group"],
                     "num_experts_per_tok": config["num_experts_per_token"],
                     "first_k_dense_replace": config["mlp_layer_types"].count("dense")}


def channel_values(name, values):
    """What a converter makes of a tensor of kimi_linear."""
    if name.endswith(".A_log"):
        values = -np.exp(values.reshape(-1, 1))
    elif name.endswith(".dt_bias"):
        name = name.removesuffix(".dt_bias") + ".dt_proj.bias"
    elif name.endswith("_conv1d.weight"):
        values = values.reshape(1, values.shape[0], 1, values.shape[2])
    elif re.search(r"block_sparse_moe\.\w+_proj\.weight", name):
        name = name.replace("block_sparse_moe", "mlp")
    return name, values


def interval_of(config):
    """Every so many layers is one of attention; None where the list of layers says otherwise."""
    types = config.get("layer_types")
    if not types:
        return config.get("full_attention_interval", 4)
    for interval in range(1, len(types) + 2):
        if [kind == "full_attention" for kind in types] == [(i + 1) % interval == 0 for i in range(len(types))]:
            return interval
    return None


def add_delta_keys(writer, config):
    heads = config["linear_num_value_heads"]
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(heads)
    writer.add_ssm_inner_size(config["linear_value_head_dim"] * heads)
    writer.add_full_attention_interval(interval_of(config))
    if config["model_type"].startswith("qwen3_5"):
        writer.add_rope_dimension_sections([11, 11, 10, 0])


def packed_mxfp4(blocks, scales):
    """Blocks [.., K/32, 16] with neighbours in a byte, scales [.., K/32] as GGUF has them: scale, then halves in a byte."""
    codes = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*blocks.shape[:-1], 32)
    data = np.concatenate([scales[..., None], codes[..., :16] | codes[..., 16:] << 4], axis=-1)
    return np.ascontiguousarray(data.reshape(*data.shape[:-2], -1), np.uint8)


def split_gate_up(name, values, interleaved):
    """Rows of gate and of up, whichever way a stack [experts, rows, ..] holds them."""
    half = values.shape[1] // 2
    gate = values[:, ::2] if interleaved else values[:, :half]
    up = values[:, 1::2] if interleaved else values[:, half:]
    yield name.replace("gate_up_proj", "gate_proj"), gate
    yield name.replace("gate_up_proj", "up_proj"), up


def of_gpt_oss(tensors):
    """Stacks of gpt-oss with outputs before inputs, gate and up apart; MXFP4 blocks keep their codes."""
    for name, values in tensors.items():
        if name.endswith("_scales"):
            continue
        if name.endswith("_blocks"):
            values = packed_mxfp4(values, tensors[name.replace("_blocks", "_scales")])
        elif re.search(r"(gate_up|down)_proj$", name):
            values = values.swapaxes(1, 2)
        name = re.sub(r"proj(_blocks)?$", "proj.weight", name).replace("_proj_bias", "_proj.bias")
        if name.endswith("sinks"):
            name += ".weight"
        if "gate_up_proj" in name:
            yield from split_gate_up(name, values, interleaved=True)
        else:
            yield name, values


def merged_experts(tensors):
    """One tensor for the same weight of all experts of a layer."""
    names = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
    stacks = {}
    for name, values in tensors:
        match = re.fullmatch(r"(.*)\.(?:mlp|block_sparse_moe|feed_forward)\.experts\.(\d+)\.(\w+)\.weight", name)
        if match is None:
            yield name, values
            continue
        layer, expert, part = match.groups()
        stacks.setdefault(f"{layer}.mlp.experts.{names.get(part, part)}.weight", {})[int(expert)] = values
    for name, experts in stacks.items():
        yield name, np.stack([experts[i] for i in range(len(experts))])


def split_kv_b(config, name, values):
    """Keys of each head transposed, and values."""
    nope = config["qk_nope_head_dim"]
    heads = values.reshape(config["num_attention_heads"], nope + config["v_head_dim"], -1)
    yield name.replace("kv_b_proj", "k_b_proj"), heads[:, :nope].swapaxes(1, 2)
    yield name.replace("kv_b_proj", "v_b_proj"), heads[:, nope:]


def converted(config, tensors):
    """Names and values as they are before names are mapped."""
    if config["model_type"] == "gpt_oss":
        yield from of_gpt_oss(tensors)
        return
    recurrent = config["model_type"] in ("lfm2", "lfm2_moe", "mamba2", "granitemoehybrid")
    for name, values in further_ggufs.stacked_streams(merged_experts(tensors.items())):
        if config["model_type"] == "kimi_linear":
            name, values = channel_values(name, values)
        if recurrent:
            name, values = recurrent_values(name, values, config)
        if name.endswith(("block_sparse_moe.input_linear.weight", "shared_mlp.input_linear.weight")):
            shared = "shared_mlp" in name
            name = re.sub(r"\w+\.input_linear", "mlp.shared_expert.gate_up_proj" if shared else
                          "mlp.experts.gate_up_proj", name)
            for part, half in split_gate_up(name, values[None] if shared else values, interleaved=False):
                yield part, half[0] if shared else half
            continue
        if name.endswith("kv_b_proj.weight"):
            yield from split_kv_b(config, name, values)
            continue
        if name.endswith("shared_expert_gate.weight"):
            values = values.reshape(-1)
        name = name.replace("e_score_correction_bias", "e_score_correction.bias")
        yield name.replace(".expert_bias", ".expert_bias.bias"), values


def name_of(names, name):
    """What a tensor is called in the file."""
    match = re.fullmatch(r"model\.layers\.(\d+)\.self_attn\.indexer\.(\w+)\.(weight|bias)", name)
    if match:
        layer, part, suffix = match.groups()
        return f"blk.{layer}.indexer.{INDEX_NAMES[part]}.{suffix}"
    return names.get_name(name, try_suffixes=(".weight", ".bias"))


def stored(name, values, kind):
    """The array to write and its type: vectors, biases and routers stay F32."""
    if values.dtype == np.uint8:
        return values, Type.MXFP4
    if values.ndim < 2 or kind == "f32" or name.endswith(".bias") or re.search(
            r"ffn_gate_inp|conv|ssm_[adn]", name):
        return np.ascontiguousarray(values, np.float32), Type.F32
    if kind == "bf16":
        return quants.quantize(np.ascontiguousarray(values), Type.BF16), Type.BF16
    if values.shape[-1] % 32 != 0:
        return np.ascontiguousarray(values, np.float32), Type.F32
    packed = quants.quantize(np.ascontiguousarray(values), Type.Q8_0)
    return (packed, Type.Q8_0) if kind == "q8_0" else (quants.dequantize(packed, Type.Q8_0), Type.F32)


def convert(folder, out, kind):
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] in further_ggufs.ARCHITECTURES:
        return convert_further(folder, out, kind, config)
    config = with_usual_keys(config)
    arch_name, is_permuted, plus_one = ARCHITECTURES[config["model_type"]]
    arch = getattr(gguf.MODEL_ARCH, arch_name)
    tensors = read_safetensors(folder / "model.safetensors")
    writer = gguf.GGUFWriter(out, "deepseek32" if "index_topk" in config else gguf.MODEL_ARCH_NAMES[arch])
    writer.add_type("model")
    writer.add_name(folder.name)
    head_dim = add_keys(writer, config, tensors)
    if config["model_type"] == "kimi_linear":
        writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
        writer.add_kda_head_dim(config["linear_head_dim"])
    if "linear_num_value_heads" in config:
        add_delta_keys(writer, config)
        tensors = dict(pair for name, values in tensors.items()
                       for pair in (delta_values(name, values, config) if ".linear_attn." in name
                                    else [(name, values)]))
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    tensors = further_ggufs.without_curves(writer, tensors)
    for name, values in converted(config, tensors):
        new_name = gemma4_name(name)
        if new_name is None and name.endswith(("layer_scalar", "_proj")):
            name += ".weight"  # a parameter without a module of its own
        new_name = new_name or name_of(names, name)
        if new_name is None:
            sys.exit(f"{folder.name}: {name} has no name in {arch_name}")
        if is_permuted and (".q_proj." in name or ".k_proj." in name):
            values = permuted(values, head_dim)
        if plus_one and name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
            values = values + np.float32(1)
        data, dtype = stored(new_name, values, kind)
        writer.add_tensor(new_name, data, raw_dtype=dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def convert_further(folder, out, kind, config):
    row = further_ggufs.ARCHITECTURES[config["model_type"]]
    arch = getattr(gguf.MODEL_ARCH, row.name)
    writer = gguf.GGUFWriter(out, gguf.MODEL_ARCH_NAMES[arch])
    writer.add_type("model")
    writer.add_name(folder.name)
    further_ggufs.add_keys(writer, config, row)
    names = gguf.get_tensor_name_map(arch, further_ggufs.setting(config, "num_hidden_layers"))
    for name, values in read_safetensors(folder / "model.safetensors").items():
        new_name = further_ggufs.gguf_name(names, name)
        data, dtype = stored(new_name, further_ggufs.converted(name, values, config, row, permuted), kind)
        writer.add_tensor(new_name, data, raw_dtype=dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def has_gguf(config):
    """Whether published converters write the family, and with these settings."""
    if config.get("model_type") in further_ggufs.ARCHITECTURES:
        return further_ggufs.can_be_written(config)
    # Other mixers have none; a base that depends on the length has no GGUF form, nor has a list of delta layers.
    if "linear_num_value_heads" in config and interval_of(config) is None:
        return False
    if not further_ggufs.has_keys_for(config):
        return False
    config = with_usual_keys(config)
    return config.get("model_type") in ARCHITECTURES and rope_of(config)[0]["rope_type"] != "dynamic"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tiny", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--type", choices=["f32", "bf16", "q8_0", "q8_0_widened"], default="f32")
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    count = 0
    for folder in sorted(options.tiny.iterdir()):
        if not (folder / "config.json").exists() or (options.only and folder.name not in options.only):
            continue
        config = json.loads((folder / "config.json").read_text())
        if not has_gguf(config):
            continue
        convert(folder, options.out / f"{folder.name}.gguf", options.type)
        count += 1
    print(f"{count} files written to {options.out}")


if __name__ == "__main__":
    main()
