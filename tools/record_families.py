#!/usr/bin/env python3
"""Tiny checkpoints of further families, with what the reference implementation computes on them.

    python tools/record_families.py OUT [--only NAME ...] [--seed N] [--pack ARCHIVE [--ggufs GGUFS]]

Needs torch, transformers (5.23.0 was used) and gguf in an environment of its own; the tests need neither:
what this wrote is committed as tests/data/golden/wild.tar.zst. Of each family there is a folder:
config.json, model.safetensors (random weights that bf16 holds exactly), expect.json and
expect.safetensors: logits of three prompts in float32 without a cache, greedy continuations that
recompute everything, hidden states of the second prompt.
"""

import argparse
import json
import pathlib

import torch
import transformers
from pack_golden import pack
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

PROMPT_LENGTHS = (1, 19, 96)
NEW_TOKENS = 16
LAST_POSITIONS = (2, 1)  # before the end, of a long prompt, besides its middle and its end
SMALLEST_GAP = 2e-3  # between the best two logits of a greedy step

STANDARD = dict(
    vocab_size=96,
    hidden_size=48,
    intermediate_size=56,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)
# Older configurations have names of their own.
GPT = dict(vocab_size=96, n_embd=48, n_layer=2, n_head=4, n_positions=128, bos_token_id=1, eos_token_id=2)
ROPE_HALF = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)
ROPE_THIRD = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.34)
ROPE = dict(rope_type="default", rope_theta=10000.0)
ALPHA = dict(rope_type="dynamic", rope_theta=10000.0, factor=1.0, alpha=50.0)
GEMMA3N = dict(num_hidden_layers=6, head_dim=16, vocab_size_per_layer_input=96, hidden_size_per_layer_input=12, laurel_rank=8,
               num_kv_shared_layers=2, sliding_window=16, layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
               activation_sparsity_pattern=[0.9, 0.0, 0.5, 0.75, 0.0, 0.6])
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=50000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)


def standard(**changes):
    return {**STANDARD, **changes}


def without(settings, *keys):
    return {key: value for key, value in settings.items() if key not in keys}


# Folder: model_type and settings.
FAMILIES = {
    # gated MLP
    "gemma": ("gemma", standard(head_dim=16)),
    "vaultgemma": ("vaultgemma", standard(head_dim=16, sliding_window=16, query_pre_attn_scalar=24, num_hidden_layers=3)),
    "cohere": ("cohere", standard(logit_scale=0.25)),
    "cohere_qk_norm": ("cohere", standard(logit_scale=0.25, use_qk_norm=True)),
    "olmo": ("olmo", standard()),
    "olmo_clip": ("olmo", standard(clip_qkv=0.7)),
    "glm": ("glm", standard(head_dim=16)),
    "helium": ("helium", standard(head_dim=12)),
    "ernie4_5": ("ernie4_5", standard(head_dim=16)),
    "ernie4_5_bias": ("ernie4_5", standard(head_dim=16, use_bias=True, tie_word_embeddings=False)),
    "hunyuan_v1_dense": ("hunyuan_v1_dense", standard(head_dim=16)),
    "stablelm": ("stablelm", standard(rope_parameters=ROPE_HALF)),
    "stablelm_2": ("stablelm", standard(rope_parameters=ROPE_HALF, use_qkv_bias=True)),
    "stablelm_12b": ("stablelm", standard(rope_parameters=ROPE_HALF, qk_layernorm=True, use_parallel_residual=True)),
    "stablelm_parallel": ("stablelm", standard(rope_parameters=ROPE_HALF, use_parallel_residual=True)),
    "cwm": ("cwm", standard(head_dim=12, sliding_window=16, num_hidden_layers=5, rope_parameters=LLAMA3)),
    "jais2": ("jais2", standard()),
    "nanochat": ("nanochat", standard()),
    "ministral": ("ministral", standard(head_dim=12, sliding_window=16, num_hidden_layers=3,
                                        layer_types=["full_attention", "sliding_attention", "full_attention"])),
    # plain MLP
    "arcee": ("arcee", standard(rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0,
                                                     original_max_position_embeddings=32))),
    "nemotron": ("nemotron", standard(rope_parameters=ROPE_HALF)),
    "starcoder2": ("starcoder2", standard(sliding_window=None)),
    "starcoder2_window": ("starcoder2", standard(sliding_window=16)),
    "phi": ("phi", standard(rope_parameters=ROPE_HALF, num_key_value_heads=4)),
    "gpt_neox": ("gpt_neox", without(standard(rope_parameters=dict(ROPE_HALF, partial_rotary_factor=0.34)), "num_key_value_heads")),
    "gpt_neox_serial": ("gpt_neox", without(standard(use_parallel_residual=False, hidden_act="gelu_fast",
                                                     rope_parameters=ROPE_HALF), "num_key_value_heads")),
    "gpt2": ("gpt2", GPT),
    "gpt_bigcode": ("gpt_bigcode", GPT),
    "gptj": ("gptj", dict(GPT, rotary_dim=4)),
    "codegen": ("codegen", dict(GPT, rotary_dim=4)),
    "opt": ("opt", dict(vocab_size=96, hidden_size=48, ffn_dim=80, num_hidden_layers=2, num_attention_heads=4,
                        max_position_embeddings=128, word_embed_proj_dim=48, bos_token_id=1, eos_token_id=2, pad_token_id=0)),
    "bloom": ("bloom", dict(vocab_size=96, hidden_size=48, n_layer=2, n_head=6, bos_token_id=1, eos_token_id=2, pad_token_id=0)),
    "mpt": ("mpt", dict(vocab_size=96, d_model=48, n_layers=2, n_heads=6, expansion_ratio=2, max_seq_len=128,
                        bos_token_id=1, eos_token_id=2)),
    "mpt_clip": ("mpt", dict(vocab_size=96, d_model=48, n_layers=2, n_heads=4, expansion_ratio=2, max_seq_len=128,
                             attn_config=dict(clip_qkv=0.6), bos_token_id=1, eos_token_id=2)),
    "falcon": ("falcon", dict(vocab_size=96, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, bos_token_id=1, eos_token_id=2)),
    "falcon_40b": ("falcon", dict(vocab_size=96, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, num_kv_heads=2,
                                  new_decoder_architecture=True, bos_token_id=1, eos_token_id=2)),
    "falcon_11b": ("falcon", dict(vocab_size=96, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, num_kv_heads=2,
                                  new_decoder_architecture=True, num_ln_in_parallel_attn=1, bos_token_id=1, eos_token_id=2)),
    "falcon_alibi": ("falcon", dict(vocab_size=96, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, alibi=True, bias=True,
                                    multi_query=False, parallel_attn=False, bos_token_id=1, eos_token_id=2)),
    "persimmon": ("persimmon", without(standard(rope_parameters=ROPE_HALF), "num_key_value_heads")),
    "xglm": ("xglm", dict(vocab_size=96, d_model=48, ffn_dim=80, num_layers=2, attention_heads=4, max_position_embeddings=128,
                          bos_token_id=1, eos_token_id=2, pad_token_id=0)),
    "biogpt": ("biogpt", without(standard(), "num_key_value_heads")),
    "gpt_neo_runs": ("gpt_neo", dict(vocab_size=96, hidden_size=48, num_layers=5, num_heads=3, window_size=8, max_position_embeddings=128,
                                     intermediate_size=80, attention_types=[[["global"], 2], [["local"], 3]], bos_token_id=1,
                                     eos_token_id=2)),
    "gpt_neo": ("gpt_neo", dict(vocab_size=96, hidden_size=48, num_layers=4, num_heads=4, window_size=16, max_position_embeddings=128,
                                attention_types=[[["global", "local"], 2]], bos_token_id=1, eos_token_id=2)),
    "apertus": ("apertus", standard(head_dim=12)),
    "apertus_plain": ("apertus", standard(num_attention_heads=6, num_key_value_heads=3, attention_bias=True, num_hidden_layers=3,
                                          rope_parameters=ROPE)),
    "bitnet": ("bitnet", standard()),
    # streams beside the residual one
    "gemma3n": ("gemma3n_text", standard(**GEMMA3N)),
    "gemma3n_dense": ("gemma3n_text", standard(**GEMMA3N | dict(
        altup_num_inputs=3, laurel_rank=5, activation_sparsity_pattern=[0.0] * 6, altup_correct_scale=False, vocab_size_per_layer_input=80,
        intermediate_size=[40, 48, 56, 64, 56, 48], num_key_value_heads=1, sliding_window=8))),
    # mixture of experts
    "dots1": ("dots1", standard(head_dim=16, moe_intermediate_size=32, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1,
                                first_k_dense_replace=1, n_group=1, topk_group=1, routed_scaling_factor=1.5, norm_topk_prob=True)),
    "ernie4_5_moe": ("ernie4_5_moe", standard(moe_intermediate_size=32, moe_num_experts=4, moe_k=2, moe_num_shared_experts=1,
                                              moe_layer_start_index=1, moe_layer_end_index=-1, moe_layer_interval=1)),
    "hunyuan_v1_dense_alpha": ("hunyuan_v1_dense", standard(head_dim=16, rope_parameters=ALPHA)),
    "hunyuan_v1_moe_alpha": ("hunyuan_v1_moe", standard(head_dim=16, num_experts=4, moe_topk=[2, 2], rope_parameters=ALPHA)),
    "hunyuan_v1_moe": ("hunyuan_v1_moe", standard(head_dim=16, num_experts=4, moe_topk=2)),
    "dbrx": ("dbrx", dict(vocab_size=96, d_model=48, n_heads=4, n_layers=2, max_seq_len=128,
                          attn_config=dict(kv_n_heads=2, clip_qkv=0.8, rope_theta=500000.0),
                          ffn_config=dict(ffn_hidden_size=56, hidden_size=48, moe_num_experts=4, moe_top_k=2), bos_token_id=1, eos_token_id=2)),
    "flex_olmo": ("flex_olmo", standard(num_experts=4, num_experts_per_tok=2)),
    "phimoe": ("phimoe", standard(num_local_experts=4, num_experts_per_tok=2)),
    "phimoe_bias": ("phimoe", standard(num_local_experts=6, num_experts_per_tok=2, router_jitter_noise=0.3, attention_bias=True,
                                       lm_head_bias=True, sliding_window=16)),
    "lfm2_moe": ("lfm2_moe", standard(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=24, num_hidden_layers=4,
                                              num_dense_layers=1, norm_eps=1e-5,
                                              layer_types=["conv", "full_attention", "conv", "full_attention"])),
    "lfm2_moe_bias": ("lfm2_moe", standard(num_experts=5, num_experts_per_tok=3, moe_intermediate_size=20, num_hidden_layers=3,
                                           num_dense_layers=0, conv_bias=True, conv_L_cache=4, routed_scaling_factor=1.75,
                                           layer_types=["conv", "conv", "full_attention"])),
    "solar_open": ("solar_open", standard(head_dim=16, moe_intermediate_size=32, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1)),
    "jamba": ("jamba", standard(num_experts=4, num_experts_per_tok=2, num_hidden_layers=4, attn_layer_period=4, attn_layer_offset=2,
                                expert_layer_period=2, expert_layer_offset=1, mamba_d_state=8, mamba_d_conv=4, mamba_expand=2,
                                mamba_dt_rank=4, use_mamba_kernels=False)),
}


# Eager attention of Falcon adds its slopes twice, to the scores and within the mask.
SDPA = ("falcon_alibi",)


def fan_in(name, tensor):
    """Inputs of a weight as it is stored: GPT-2 stores [inputs, outputs]."""
    if any(part in name for part in (".c_attn.", ".c_fc.", ".c_proj.")):
        return max(tensor.shape)
    return tensor.shape[-1]


def draw(model, model_type, seed):
    """Random weights, large enough that every part of the network matters, that bf16 holds exactly."""
    generator = torch.Generator().manual_seed(seed)
    drawn = ("correction_bias", "expert_bias")
    buffers = [(name, buffer) for name, buffer in model.named_buffers() if name.endswith(drawn)]
    with torch.no_grad():
        for name, tensor in sorted(list(model.named_parameters()) + buffers):
            noise = torch.randn(tensor.shape, generator=generator)
            is_table = tensor.ndim == 2 and ("emb" in name or ".wte" in name or ".wpe" in name)
            if is_table:
                tensor.copy_(noise * (0.08 if "gemma" in model_type else 0.6))
            elif tensor.ndim >= 2 and "norm" not in name and "A_log" not in name:
                tensor.copy_(noise * 1.4 / fan_in(name, tensor) ** 0.5)
            else:
                tensor.copy_(tensor + 0.2 * noise)
            tensor.copy_(tensor.to(torch.bfloat16).to(tensor.dtype))
        for name, tensor in model.named_buffers():
            if ".act_fn." in name:  # saved beside the weights
                tensor.copy_(tensor.to(torch.bfloat16).to(tensor.dtype))


def build(config, dtype, attention):
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention, dtype=dtype).eval()


def logits_of(model, ids):
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]


def continue_greedily(model, ids):
    """New ids, each from a run over all before it, and the smallest lead of a best logit."""
    sequence, smallest = list(ids), float("inf")
    for _ in range(NEW_TOKENS):
        best = torch.topk(logits_of(model, sequence)[-1], 2)
        smallest = min(smallest, float(best.values[0] - best.values[1]))
        sequence.append(int(best.indices[0]))
    return sequence[len(ids) :], smallest


def make_prompts(vocab_size, seed):
    generator = torch.Generator().manual_seed(seed + 1)
    return [torch.randint(3, vocab_size, (n,), generator=generator).tolist() for n in PROMPT_LENGTHS]


def make_model(config, model_type, seed, attention):
    """A model whose greedy continuations no rounding decides, its prompts and the continuations."""
    prompts = make_prompts(config.vocab_size, seed)
    for attempt in range(20):
        torch.manual_seed(seed)
        model = build(config, torch.float32, attention)
        draw(model, model_type, seed + 1000 * attempt)
        continuations = [continue_greedily(model, prompt) for prompt in prompts]
        if min(gap for _, gap in continuations) > SMALLEST_GAP:
            break
    return model, prompts, continuations


def noise_of(config, model, prompts, logits, attention):
    """How far float32 is from float64; none where the family computes in float32 whatever is asked."""
    try:
        precise = build(config, torch.float64, attention)
        precise.load_state_dict({name: t.double() for name, t in model.state_dict().items()})
        return max(float((logits_of(precise, p).float() - l).abs().max()) for p, l in zip(prompts, logits))
    except RuntimeError:
        return None


def kept_positions(length):
    if length <= 32:
        return list(range(length))
    return [length // 2, *(length - 1 - back for back in LAST_POSITIONS), length - 1]


def hidden_states_of(model, ids, states):
    """Of a network with streams the residual one, and what its last norm makes of all."""
    if states[-1].ndim == 3:
        return torch.stack([x[0] for x in states])
    with torch.no_grad():
        last = model.model(input_ids=torch.tensor([ids]), use_cache=False).last_hidden_state
    return torch.stack([x.reshape(-1, *x.shape[-2:])[0] for x in states[:-1]] + [last[0]])


def record(name, out, seed):
    model_type, settings = FAMILIES[name]
    attention = "sdpa" if name in SDPA else "eager"
    config = AutoConfig.for_model(model_type, **settings)
    model, prompts, continuations = make_model(config, model_type, seed, attention)
    logits = [logits_of(model, prompt) for prompt in prompts]
    with torch.no_grad():
        run = model(input_ids=torch.tensor([prompts[1]]), use_cache=False, output_hidden_states=True)
    tensors = {"prompt1.hidden_states": hidden_states_of(model, prompts[1], run.hidden_states).contiguous()}
    notes = []
    for i, (prompt, rows, (new, gap)) in enumerate(zip(prompts, logits, continuations)):
        positions = kept_positions(len(prompt))
        tensors[f"prompt{i}.logits"] = rows[positions].contiguous()
        notes.append(dict(ids=prompt, positions=positions, greedy=new, smallest_top2_gap=round(gap, 5)))
    expected = dict(
        family=model_type,
        source=f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}, float32, {attention} attention, no cache",
        seed=seed,
        max_abs_logit=round(max(float(rows.abs().max()) for rows in logits), 4),
        noise_float32_to_float64=noise_of(config, model, prompts, logits, attention),
        prompts=notes,
    )
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_file(tensors, folder / "expect.safetensors")
    (folder / "expect.json").write_text(json.dumps(expected, indent=1) + "\n")
    check_saved(folder, prompts, logits, attention)
    print(f"{name:20} max {expected['max_abs_logit']:8.3f}  noise {expected['noise_float32_to_float64']}", flush=True)


def check_saved(folder, prompts, logits, attention):
    back = AutoModelForCausalLM.from_pretrained(folder, attn_implementation=attention, dtype=torch.float32).eval()
    for prompt, rows in zip(prompts, logits):
        difference = float((logits_of(back, prompt) - rows).abs().max())
        assert difference == 0.0, f"the saved checkpoint computes something else, by {difference}"


def packed_files(out, ggufs):
    folders = sorted(folder for folder in out.iterdir() if (folder / "expect.json").exists())
    files = [(f"tiny/{folder.name}/{path.name}", path) for folder in folders for path in folder.iterdir()]
    files += [(f"gguf/{path.name}", path) for path in ggufs.glob("*.gguf")] if ggufs else []
    return [(name, path.read_bytes()) for name, path in files]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--pack", type=pathlib.Path)
    parser.add_argument("--ggufs", type=pathlib.Path, help="what make_tiny_ggufs.py made of OUT, to be packed as well")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    failed = []
    for name in options.only if options.only is not None else FAMILIES:
        try:
            record(name, options.out, options.seed)
        except Exception as error:  # any family may fail in its own way; the others are made
            failed.append(name)
            print(f"{name:20} FAILED {type(error).__name__}: {str(error)[:300]}", flush=True)
    if options.pack:
        pack(packed_files(options.out, options.ggufs), 4, options.pack)
    raise SystemExit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
