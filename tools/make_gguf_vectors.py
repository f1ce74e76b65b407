#!/usr/bin/env python3
"""Writes tests/data/gguf_blocks.bin: random GGUF blocks with the floats that the `gguf` package gives.

    pip install gguf==0.19.0 numpy && python tools/make_gguf_vectors.py tests/data/gguf_blocks.bin [--seed N]

Format, little-endian, repeated per type until the end of the file: u32 GGUF type id, u32 number of
blocks, u32 block bytes, u32 block elements, the blocks, then the expected float32 values.
"""
import argparse
import struct

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type, quants

# Byte positions of the f16 fields in a block: random bytes there would often be inf or NaN.
HALF_FIELDS = {
    Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0],
    Type.Q2_K: [80, 82], Type.Q3_K: [108], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208],
    Type.IQ4_NL: [0], Type.IQ4_XS: [0], Type.MXFP4: [], Type.NVFP4: [],
}
# Subnormals of both signs, zeros, ones, the largest values.
EDGE_HALVES = [0x0001, 0x8001, 0x03FF, 0x83FF, 0x0000, 0x8000, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x0400, 0x1234]
RANDOM_BLOCKS = {32: 32, 64: 24, 256: 12}


def edge_blocks(kind, num_bytes):
    """Blocks of one repeated byte, among them all nibble values, each with an edge scale."""
    bytes_ = [0x00, 0xFF, 0x80, 0x7F, 0x0F, 0xF0, 0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE]
    if HALF_FIELDS[kind] and num_bytes > 80:
        bytes_ = bytes_[:6]
    blocks = np.array([[b] * num_bytes for b in bytes_], dtype=np.uint8)
    for i, block in enumerate(blocks):
        for field, at in enumerate(HALF_FIELDS[kind]):
            half = EDGE_HALVES[(i * 2 + field) % len(EDGE_HALVES)]
            block[at:at + 2] = [half & 255, half >> 8]
    return blocks


def random_blocks(kind, elements, num_bytes, rng):
    count = RANDOM_BLOCKS[elements]
    blocks = rng.integers(0, 256, (count, num_bytes), dtype=np.uint8)
    for i in range(count):
        for at in HALF_FIELDS[kind]:
            half = rng.standard_normal() * 10.0 ** rng.integers(-7, 4)
            blocks[i, at:at + 2] = np.frombuffer(np.float16(half).tobytes(), dtype=np.uint8)
        if kind == Type.MXFP4:  # all scale bytes occur over the whole set
            blocks[i, 0] = (i * 7) % 255
    return blocks


def scalar_blocks(kind, num_bytes, rng):
    if kind == Type.F32:
        raw = rng.standard_normal(64).astype(np.float32).view(np.uint8)
    else:  # a spread of finite 16-bit patterns, subnormals included
        bits = np.arange(0, 0x10000, 97, dtype=np.uint32).astype(np.uint16)
        exponent = 0x7C00 if kind == Type.F16 else 0x7F80
        raw = bits[(bits & exponent) != exponent].view(np.uint8)
    return raw.reshape(-1, num_bytes)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    with open(args.out, "wb") as out:
        for kind in [Type.F32, Type.F16, Type.BF16, *HALF_FIELDS]:
            elements, num_bytes = GGML_QUANT_SIZES[kind]
            if elements == 1:
                blocks = scalar_blocks(kind, num_bytes, rng)
            else:
                blocks = np.concatenate([edge_blocks(kind, num_bytes), random_blocks(kind, elements, num_bytes, rng)])
            values = np.stack([quants.dequantize(np.ascontiguousarray(block), kind).astype(np.float32).reshape(-1) for block in blocks])
            assert values.shape == (len(blocks), elements), (kind, values.shape)
            out.write(struct.pack("<4I", kind.value, len(blocks), num_bytes, elements))
            out.write(blocks.tobytes())
            out.write(values.astype("<f4").tobytes())
            print(f"{kind.name:8} {len(blocks):4} blocks")


if __name__ == "__main__":
    main()
