"""A tiny checkpoint of our own making: a llama with random weights and a tokenizer of single bytes.

With a script its weights are made so that it says what the script says, whatever it was asked: what clients do with an
answer that calls tools can be tested without a model that knows how.
"""

import json
import math
import random
import struct
from pathlib import Path

kVocab, kEnd = 256, 1  # ids 0 and 1 are <s> and </s>; the others are the bytes 2..255
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

# For scripts: the prompt ends with ">" where tools may be called, with "}" behind a result, and with "]" without tools.
kScriptTemplate = kToolTemplate.replace(
    "<assistant>",
    "<assistant{% if messages[-1].role == 'tool' %}}{% elif tools %}>{% else %}]{% endif %}") + "{# <think> </think> #}"

kThinkMarks = ("<think>", "</think>")


class Script:
    """Answers by the last character of the prompt: lists of texts, each of them one token."""

    def __init__(self, answers):
        self.texts = list(dict.fromkeys(text for texts in answers.values() for text in texts))
        self.successors = []
        for last, texts in answers.items():
            ids = [ord(last), *(kVocab + self.texts.index(text) for text in texts), kEnd]
            self.successors += zip(ids[:-1], ids[1:], strict=True)
        assert len(dict(self.successors)) == len(self.successors), "a text has two successors"


def byte_alphabet():
    """The characters by which byte-level vocabularies write the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {byte: chr(byte) for byte in plain}
    for byte in range(256):
        if byte not in names:
            names[byte] = chr(256 + len(names) - len(plain))
    return names


kFillMarks = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]


def write_tokenizer(folder, template, texts, fills=False):
    names = byte_alphabet()
    fixed = ["<s>", "</s>"] + (kFillMarks if fills else [])  # these bytes are no tokens
    marks = {text: i for i, text in enumerate(fixed)}
    marks |= {text: kVocab + i for i, text in enumerate(texts) if text in kThinkMarks}
    added = [
        {"id": i, "content": text, "special": i < len(fixed), "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False}
        for text, i in marks.items()
    ]
    vocab = {text: i for i, text in enumerate(fixed)} | {names[byte]: byte for byte in range(len(fixed), 256)}
    for text in texts:
        vocab["".join(names[byte] for byte in text.encode())] = len(vocab)
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
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


def tensors(vocab):
    yield "model.embed_tokens.weight", (vocab, kHidden)
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
    yield "lm_head.weight", (vocab, kHidden)


def bf16(value):
    return struct.pack("<f", value)[2:]


def random_values(seed, vocab):
    rng = random.Random(seed)
    for name, shape in tensors(vocab):
        yield name, shape, [1.0 if len(shape) == 1 else rng.gauss(0, 0.2) for _ in range(math.prod(shape))]


def scripted_values(seed, script):
    """Layers add nothing, so that the last token alone decides: the head answers each token with its successor."""
    rng = random.Random(seed)
    vocab = kVocab + len(script.texts)
    rows = [[rng.choice((-1.0, 1.0)) for _ in range(kHidden)] for _ in range(vocab)]
    head = [[0.0] * kHidden for _ in range(vocab)]
    for token, successor in script.successors:
        head[successor] = [a + b for a, b in zip(head[successor], rows[token], strict=True)]
    whole = {"model.embed_tokens.weight": rows, "lm_head.weight": head}
    for name, shape in tensors(vocab):
        plain = [1.0 if len(shape) == 1 else 0.0] * math.prod(shape)
        yield name, shape, [value for row in whole[name] for value in row] if name in whole else plain


def write_weights(folder, values):
    header, data = {}, bytearray()
    for name, shape, numbers in values:
        begin = len(data)
        data += b"".join(map(bf16, numbers))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def write(folder, seed=11, context=512, template=kTemplate, script=None, fills=False):
    """fills: its tokenizer has the marks of fill-in-the-middle."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    texts = [] if script is None else script.texts
    vocab = kVocab + len(texts)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocab, "hidden_size": kHidden,
        "num_hidden_layers": kLayers, "num_attention_heads": kHeads, "num_key_value_heads": kKvHeads,
        "head_dim": kHeadDim, "intermediate_size": kInner, "hidden_act": "silu", "max_position_embeddings": context,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": None, "attention_bias": False,
        "mlp_bias": False, "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": kEnd,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder, template, texts, fills)
    write_weights(folder, random_values(seed, vocab) if script is None else scripted_values(seed, script))
    return folder
