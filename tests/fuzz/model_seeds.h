// Seeds that are whole tiny networks, and mutations of what describes them: GGUF keys and the text
// of config.json. Files are mutated byte by byte with mutate_checkpoints.h.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "checkpoint/testing/file_builders.h"
#include "mutate_checkpoints.h"

namespace headrace::fuzz {

struct Sizes {
  uint32_t hidden, heads, kv_heads, head_dim, ffn, vocab, layers;

  uint64_t q_rows() const { return uint64_t{heads} * head_dim; }
  uint64_t kv_rows() const { return uint64_t{kv_heads} * head_dim; }
};

// Sizes at and beyond the limits of kernels and formats, some of which no network can have. Few
// enough numbers that a case stays a matter of milliseconds.
Sizes odd_sizes(std::mt19937_64& random);

// A key of a GGUF file with its value.
struct GgufKey {
  using Value = std::variant<uint32_t, int32_t, uint64_t, int64_t, float, double, bool, std::string,
                             std::vector<std::string>, std::vector<float>, std::vector<int32_t>>;
  std::string name;
  Value value;
};

// A network as a GGUF file: `tensors` holds no keys yet.
struct GgufModel {
  std::string name;
  std::string architecture;
  std::vector<GgufKey> keys;
  testing::GgufBuilder tensors;
};

// A network as safetensors with its config.json.
struct SafetensorsModel {
  std::vector<Seed> seeds;  // one
  std::string config;
};

std::vector<GgufModel> gguf_models();
std::vector<SafetensorsModel> safetensors_models();
// One of each family that the table has, and its GGUF form where there is one.
std::vector<SafetensorsModel> recorded_models();
std::vector<GgufModel> recorded_gguf_models();
// One of them, with tensors and configuration of odd sizes that agree with each other.
GgufModel resized_gguf_model(std::mt19937_64& random);
SafetensorsModel resized_safetensors_model(std::mt19937_64& random);

// Nine pieces with merges.
void add_merged_vocabulary(std::vector<GgufKey>* keys);

// The file of these tensors with these keys.
Seed gguf_file(const GgufModel& model, const std::vector<GgufKey>& keys);

// One to three keys changed: other value or kind of value, removed, or another known key added; one
// file in eight says that it is of another architecture.
std::vector<GgufKey> mutate_keys(const GgufModel& model, std::mt19937_64& random);

// One to three members of the object (at any depth) changed: boundary numbers, other kinds of
// values, removed, exchanged, added, given twice; one text in eight is damaged as text.
std::string mutate_config(const std::string& config, std::mt19937_64& random);

}  // namespace headrace::fuzz
