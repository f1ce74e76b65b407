"""GGUF files of the families that tools/record_families.py recorded, for make_tiny_ggufs.py.

What published converters do to keys and tensors of each architecture is a row of ARCHITECTURES: fused q, k, v rows of
each head or group are put in the order q, k, v, weights stored as [inputs, outputs] are transposed, q and k rows of
some are permuted for interleaved rope, 1 is added to norms that are stored less it.
"""
import dataclasses
import math
import re
import statistics

import gguf
import numpy as np

# What older configurations call their settings.
ALIASES = {
    "hidden_size": ("n_embd", "d_model", "n_embed"),
    "num_hidden_layers": ("n_layer", "n_layers"),
    "num_attention_heads": ("n_head", "n_heads"),
    "max_position_embeddings": ("n_positions", "max_seq_len"),
    "intermediate_size": ("n_inner", "ffn_hidden_size", "ffn_dim"),
    "norm_eps": ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "rms_norm_eps"),
}


@dataclasses.dataclass
class Architecture:
    name: str
    layer_norm: bool = True
    grouped: bool = False  # a fused q, k, v tensor holds one key-value head after the other
    transposed: bool = False
    permuted: bool = False
    plus_one: bool = False
    rope: bool = True
    default_rope: float = 10000.0
    keys: object = None  # (writer, config): what else is written


def parallel(default):
    return lambda writer, config: writer.add_parallel_residual(config.get("use_parallel_residual", default))


def clamp(writer, config):
    clip = config.get("clip_qkv") or config.get("attn_config", {}).get("clip_qkv")
    if clip:
        writer.add_clamp_kqv(clip)
    if "attn_config" in config:
        writer.add_max_alibi_bias(config["attn_config"]["alibi_bias_max"])


ARCHITECTURES = {
    "gemma": Architecture("GEMMA", layer_norm=False, plus_one=True),
    "cohere": Architecture("COMMAND_R", default_rope=500000.0, keys=lambda w, c: w.add_logit_scale(c["logit_scale"])),
    "olmo": Architecture("OLMO", permuted=True, keys=clamp),
    "glm": Architecture("CHATGLM", layer_norm=False),
    "ernie4_5": Architecture("ERNIE4_5", layer_norm=False, default_rope=500000.0),
    "hunyuan_v1_dense": Architecture("HUNYUAN_DENSE", layer_norm=False),
    "stablelm": Architecture("STABLELM", keys=parallel(False)),
    "arcee": Architecture("ARCEE", layer_norm=False, permuted=True),
    "nemotron": Architecture("NEMOTRON", plus_one=True),
    "jais2": Architecture("JAIS2", default_rope=500000.0),
    "starcoder2": Architecture("STARCODER2"),
    "phi": Architecture("PHI2"),
    "gpt_neox": Architecture("GPTNEOX", grouped=True, keys=parallel(True)),
    "gpt2": Architecture("GPT2", transposed=True, rope=False),
    "gpt_bigcode": Architecture("STARCODER", rope=False),
    "bloom": Architecture("BLOOM", grouped=True, rope=False),
    "mpt": Architecture("MPT", rope=False, keys=clamp),
    "falcon": Architecture("FALCON", grouped=True),
}


def stretched(rope, dims):
    """A rope with an alpha has a longer base."""
    if not rope.get("alpha"):
        return rope
    return rope | {"rope_type": "default", "rope_theta": rope["rope_theta"] * rope["alpha"] ** (dims / (dims - 2))}


def with_usual_keys(config):
    """Keys of networks with experts under the names that others have; what an alpha makes of the base of rope."""
    kind = config.get("model_type")
    if kind == "ernie4_5_moe":
        return config | {"num_experts": config["moe_num_experts"], "num_experts_per_tok": config["moe_k"]}
    if kind == "lfm2_moe":
        return config | {"rms_norm_eps": config["norm_eps"], "first_k_dense_replace": config["num_dense_layers"]}
    if kind == "hunyuan_v1_moe":
        chosen, rope = config["moe_topk"], stretched(config["rope_parameters"], config["head_dim"])
        return config | {"num_experts_per_tok": chosen if isinstance(chosen, int) else chosen[0], "rope_parameters": rope}
    return config


def add_routing(writer, config):
    """What converters say of experts besides their number and width."""
    kind = config["model_type"]
    if kind in ("glm4_moe", "solar_open", "lfm2_moe"):
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if kind in ("glm4_moe", "solar_open", "dots1"):
        writer.add_expert_shared_count(config["n_shared_experts"])
        writer.add_expert_weights_scale(config["routed_scaling_factor"])
        writer.add_expert_weights_norm(config["norm_topk_prob"])
    if "first_k_dense_replace" in config and "kv_lora_rank" not in config:
        writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    if kind == "ernie4_5_moe":
        writer.add_interleave_moe_layer_step(config["moe_layer_interval"])
        writer.add_leading_dense_block_count(config["moe_layer_start_index"])
        writer.add_expert_shared_count(config["moe_num_shared_experts"])
    if kind == "hunyuan_v1_moe":
        writer.add_expert_shared_feed_forward_length(config["intermediate_size"])
        writer.add_expert_feed_forward_length(config["intermediate_size"])
        writer.add_expert_shared_count(1)


def add_streams(writer, config):
    """Gemma 3n: what a gate leaves out is stated as standard deviations above its mean."""
    normal = statistics.NormalDist()
    writer.add_altup_active_idx(config["altup_active_idx"])
    writer.add_altup_num_inputs(config["altup_num_inputs"])
    writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    writer.add_shared_kv_layers(config["num_kv_shared_layers"])
    writer.add_activation_sparsity_scale([normal.inv_cdf(share) if share > 0 else -math.inf
                                          for share in config["activation_sparsity_pattern"]])
    writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config["layer_types"]])
    writer.add_final_logit_softcapping(config["final_logit_softcapping"])


def stacked_streams(tensors):
    """Projections of all streams as one tensor each."""
    stacks = {}
    for name, values in tensors:
        match = re.fullmatch(r"(model\.altup_\w*projections)\.(\d+)\.weight", name)
        if match is None:
            yield name + ".weight" if name.endswith("_scale") and ".altup." in name else name, values
        else:
            stacks.setdefault(match[1], {})[int(match[2])] = values
    for name, parts in stacks.items():
        yield f"{name}.weight", np.stack([parts[i] for i in range(len(parts))])


def without_curves(writer, tensors):
    """The tensors but for the numbers of xIELU, which are keys with a list of all layers."""
    for number in ("alpha_p", "alpha_n", "beta", "eps"):
        names = [name for name in tensors if name.endswith(f".act_fn.{number}")]
        names.sort(key=lambda name: int(name.split(".")[2]))
        if names:
            getattr(writer, f"add_xielu_{number}")([float(tensors[name].reshape(-1)[0]) for name in names])
    return {name: values for name, values in tensors.items() if ".act_fn." not in name}


def setting(config, key, default=None):
    for name in (key, *ALIASES.get(key, ())):
        if config.get(name) is not None:
            return config[name]
    return default


def kv_heads(config):
    heads = setting(config, "num_attention_heads")
    if config["model_type"] == "gpt_bigcode":
        return 1
    if config["model_type"] == "falcon" and not config["new_decoder_architecture"]:
        return 1 if config["multi_query"] else heads
    return config.get("num_key_value_heads") or config.get("num_kv_heads") or heads


def has_keys_for(config):
    """phimoe has no key for its jitter, lfm2moe none for a scale of the experts; gemma3n pads its smaller tables with
    rows that are not the first."""
    if config.get("model_type") == "gemma3n_text":
        return config["vocab_size_per_layer_input"] >= config["vocab_size"]
    if config.get("model_type") == "phimoe":
        return config["router_jitter_noise"] == 0.01
    return config.get("model_type") != "lfm2_moe" or config["routed_scaling_factor"] == 1


def can_be_written(config):
    """Falcon's files have no key for the forms that came before its second."""
    if config["model_type"] == "falcon":
        return config["parallel_attn"] and not config["alibi"]
    return not config.get("qk_layernorm")


def add_keys(writer, config, row):
    hidden, heads = setting(config, "hidden_size"), setting(config, "num_attention_heads")
    head_dim = config.get("head_dim") or hidden // heads
    width = setting(config, "intermediate_size", 4 * hidden)
    writer.add_context_length(setting(config, "max_position_embeddings", 2048))
    writer.add_embedding_length(hidden)
    writer.add_block_count(setting(config, "num_hidden_layers"))
    writer.add_feed_forward_length(width)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads(config))
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    eps = setting(config, "norm_eps", 1e-5)
    (writer.add_layer_norm_eps if row.layer_norm else writer.add_layer_norm_rms_eps)(eps)
    if config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    if row.rope:
        add_rope(writer, config, row, head_dim)
    if row.keys:
        row.keys(writer, config)


def add_rope(writer, config, row, head_dim):
    rope = config.get("rope_parameters") or {}
    writer.add_rope_freq_base(stretched(rope, head_dim).get("rope_theta", row.default_rope))
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1.0)))
    if rope.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def ungrouped(values, config):
    """Rows of queries, then keys, then values."""
    heads, groups = setting(config, "num_attention_heads"), kv_heads(config)
    head_dim = setting(config, "hidden_size") // heads
    rows = values.reshape(groups, heads // groups + 2, head_dim, *values.shape[1:])
    parts = [rows[:, :-2], rows[:, -2:-1], rows[:, -1:]]
    return np.concatenate([part.reshape(-1, *values.shape[1:]) for part in parts])


def converted(name, values, config, row, permuted):
    if row.transposed and values.ndim == 2 and ".c_" in name:
        values = values.T
    if row.grouped and "query_key_value" in name:
        values = ungrouped(values, config)
    if row.permuted and (".q_proj." in name or ".k_proj." in name):
        values = permuted(values, config.get("head_dim") or setting(config, "hidden_size") // setting(config, "num_attention_heads"))
    if row.plus_one and name.endswith("norm.weight"):
        values = values + np.float32(1)
    return values


def gguf_name(names, name):
    for known in (name, name.removeprefix("transformer.")):
        found = names.get_name(known, try_suffixes=(".weight", ".bias"))
        if found:
            return found
    raise SystemExit(f"{name} has no name in this architecture")
