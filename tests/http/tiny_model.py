"""A tiny checkpoint of our own making: a llama with random weights and a tokenizer of single bytes."""

import json
import math
import random
import struct
from pathlib import Path

kVocab = 256  # ids 0 and 1 are <s> and </s>; the others are the bytes 2..255
kHidden, kLayers, kHeads, kKvHeads, kHeadDim, kInner = 64, 2, 4, 2, 16, 96

kTemplate = (
    "{{ bos_token }}{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}\n"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)

# As templates with tools are written: the tools, the form of a call, calls and results of earlier turns.
kToolTemplate = (
    "{{ bos_token }}{% if tools %}<system>Tools:\n<tools>{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}\n"
    "</tools>\nCall one as\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n"
    "</tool_call>\n{% endif %}{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}"
    "{% for call in message.tool_calls or [] %}\n<tool_call>\n{\"name\": \"{{ call.function.name }}\", "
    "\"arguments\": {{ call.function.arguments | tojson }}}\n</tool_call>{% endfor %}\n"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def byte_alphabet():
    """The characters by which byte-level vocabularies write the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {byte: chr(byte) for byte in plain}
    for byte in range(256):
        if byte not in names:
            names[byte] = chr(256 + len(names) - len(plain))
    return names


def write_tokenizer(folder, template):
    names = byte_alphabet()
    special = [
        {"id": i, "content": text, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False}
        for i, text in enumerate(["<s>", "</s>"])
    ]
    vocab = {"<s>": 0, "</s>": 1} | {names[byte]: byte for byte in range(2, 256)}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 0, "eos_token_id": 1}))


def tensors():
    yield "model.embed_tokens.weight", (kVocab, kHidden)
    for layer in range(kLayers):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (kHidden,)
        yield prefix + "self_attn.q_proj.weight", (kHeads * kHeadDim, kHidden)
        yield prefix + "self_attn.k_proj.weight", (kKvHeads * kHeadDim, kHidden)
        yield prefix + "self_attn.v_proj.weight", (kKvHeads * kHeadDim, kHidden)
        yield prefix + "self_attn.o_proj.weight", (kHidden, kHeads * kHeadDim)
        yield prefix + "post_attention_layernorm.weight", (kHidden,)
        yield prefix + "mlp.gate_proj.weight", (kInner, kHidden)
        yield prefix + "mlp.up_proj.weight", (kInner, kHidden)
        yield prefix + "mlp.down_proj.weight", (kHidden, kInner)
    yield "model.norm.weight", (kHidden,)
    yield "lm_head.weight", (kVocab, kHidden)


def bf16(value):
    return struct.pack("<f", value)[2:]


def write_weights(folder, seed):
    rng = random.Random(seed)
    header, data = {}, bytearray()
    for name, shape in tensors():
        begin = len(data)
        for _ in range(math.prod(shape)):
            data += bf16(1.0 if len(shape) == 1 else rng.gauss(0, 0.2))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def write(folder, seed=11, context=512, template=kTemplate):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": kVocab, "hidden_size": kHidden,
        "num_hidden_layers": kLayers, "num_attention_heads": kHeads, "num_key_value_heads": kKvHeads,
        "head_dim": kHeadDim, "intermediate_size": kInner, "hidden_act": "silu", "max_position_embeddings": context,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": None, "attention_bias": False,
        "mlp_bias": False, "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 1,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder, template)
    write_weights(folder, seed)
    return folder
