#!/usr/bin/env python3
"""Tiny checkpoints of latent attention where the other golden folders have none: low rank with yarn and biases, and
an index that keeps few positions and has heads enough for no two scores to be equal (the reference breaks ties
arbitrarily); every MLP is dense.

    python tools/record_latent.py OUT [--only NAME ...] [--seed N] [--pack ARCHIVE]

Recorded like the families of record_families.py; committed as tests/data/golden/latent.tar.zst.
"""

import record_families

YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, beta_fast=32.0, beta_slow=1.0,
            original_max_position_embeddings=32)


def latent(**changes):
    layers = changes.get("num_hidden_layers", 2)
    sizes = dict(vocab_size=96, hidden_size=48, intermediate_size=56, num_hidden_layers=layers, num_attention_heads=4,
                 num_key_value_heads=4, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0,
                 kv_lora_rank=24, q_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
                 n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, n_group=1, topk_group=1,
                 first_k_dense_replace=layers, rms_norm_eps=1e-5)
    return {**sizes, **changes}


record_families.FAMILIES = {
    "deepseek_v2_yarn": ("deepseek_v2", latent(attention_bias=True,
                                             rope_parameters=dict(YARN, mscale=0.707, mscale_all_dim=0.707))),
    "deepseek_v32_few": ("deepseek_v32", latent(index_n_heads=12, index_head_dim=20, index_topk=7,
                                              mlp_layer_types=["dense", "dense"])),
}

if __name__ == "__main__":
    record_families.main()
