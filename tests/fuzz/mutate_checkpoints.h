// Seeds (small valid checkpoint files) and a deterministic, structure-aware mutator for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/testing/file_builders.h"

namespace headrace::fuzz {

using Bytes = std::vector<std::byte>;

// A valid file and where its structure is. For GGUF every count, length, type and offset field is a
// field; for safetensors the header length is, and every number in the header text.
struct Seed {
  struct Field {
    size_t offset;
    size_t num_bytes;
  };
  std::string name;
  Bytes bytes;
  size_t header_bytes = 0;  // of the part before the tensor data
  std::vector<Field> fields;
  bool fields_are_text = false;  // but the first
};

// A tensor of a safetensors seed.
struct SeedTensor {
  std::string name;
  std::string_view dtype;
  std::vector<uint64_t> shape;
  std::vector<int64_t> values = {};  // of I32 and I64 tensors whose values matter, else a pattern
};

Seed gguf_seed(std::string name, const testing::GgufBuilder& builder, uint32_t version = 3);
Seed safetensors_seed(std::string name, const std::vector<SeedTensor>& tensors);

std::vector<Seed> gguf_seeds();
std::vector<Seed> safetensors_seeds();

// One to three mutations of one seed. Seven in ten respect the structure: boundary integers in a
// field, a changed header text; the others are bit flips, truncation, ranges removed, repeated,
// overwritten or taken from another seed.
Bytes mutate(const std::vector<Seed>& seeds, std::mt19937_64& random);

}  // namespace headrace::fuzz
