#include "mutate_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "checkpoint/gguf_values.h"
#include "checkpoint/testing/file_builders.h"

namespace headrace::fuzz {
namespace {

using headrace::testing::GgufBuilder;

// ---- seeds ----

// Walks a valid GGUF file and records where its integer fields are.
class GgufFields {
 public:
  explicit GgufFields(Seed* seed) : seed_(seed) { walk(); }

 private:
  template <typename T>
  T field() {
    T value;
    CHECK(offset_ + sizeof(T) <= seed_->bytes.size());
    std::memcpy(&value, seed_->bytes.data() + offset_, sizeof(T));
    seed_->fields.push_back({offset_, sizeof(T)});
    offset_ += sizeof(T);
    return value;
  }
  void text() { offset_ += field<uint64_t>(); }

  void value(uint32_t type) {
    if (type == testing::kString) return text();
    if (type != testing::kArray) {
      seed_->fields.push_back({offset_, find_gguf_value_type(type)->num_bytes});
      offset_ += find_gguf_value_type(type)->num_bytes;
      return;
    }
    const auto element_type = field<uint32_t>();
    const auto count = field<uint64_t>();
    if (element_type != testing::kString) {
      offset_ += count * find_gguf_value_type(element_type)->num_bytes;
      return;
    }
    for (uint64_t i = 0; i < count; ++i) text();
  }

  void walk() {
    offset_ = 4;
    field<uint32_t>();
    const auto num_tensors = field<uint64_t>();
    const auto num_keys = field<uint64_t>();
    for (uint64_t i = 0; i < num_keys; ++i) {
      text();
      value(field<uint32_t>());
    }
    for (uint64_t i = 0; i < num_tensors; ++i) {
      text();
      const auto rank = field<uint32_t>();
      for (uint32_t d = 0; d < rank; ++d) field<uint64_t>();
      field<uint32_t>();
      field<uint64_t>();
    }
    seed_->header_bytes = offset_;
  }

  Seed* seed_;
  size_t offset_ = 0;
};

Seed seed_of_header(std::string name, const std::string& header, size_t num_data_bytes) {
  Seed seed;
  seed.name = std::move(name);
  seed.bytes = testing::safetensors_file(header, num_data_bytes);
  seed.header_bytes = sizeof(uint64_t) + header.size();
  seed.fields.push_back({0, sizeof(uint64_t)});
  seed.fields_are_text = true;
  for (size_t i = 0; i < header.size();) {
    size_t end = i;
    while (end < header.size() && std::isdigit(static_cast<unsigned char>(header[end]))) ++end;
    if (end > i) seed.fields.push_back({sizeof(uint64_t) + i, end - i});
    i = std::max(end, i + 1);
  }
  return seed;
}

void set_values(const SeedTensor& tensor, size_t offset, Bytes* bytes) {
  const size_t width = find_dtype_by_safetensors_name(tensor.dtype)->block_bytes;
  for (const int64_t value : tensor.values) {
    std::memcpy(bytes->data() + offset, &value, width);
    offset += width;
  }
}

// ---- mutations ----

uint64_t below(std::mt19937_64& random, uint64_t limit) {
  return limit == 0 ? 0 : random() % limit;
}

// Integers at which arithmetic on sizes goes wrong, and neighbours of what stands there.
uint64_t boundary_value(uint64_t found, size_t num_file_bytes, std::mt19937_64& random) {
  const std::array<uint64_t, 30> values = {0,
                                           1,
                                           2,
                                           3,
                                           4,
                                           5,
                                           7,
                                           8,
                                           31,
                                           32,
                                           33,
                                           255,
                                           256,
                                           0xFFFF,
                                           0x10000,
                                           uint64_t{INT32_MAX},
                                           uint64_t{1} << 31,
                                           UINT32_MAX,
                                           uint64_t{1} << 32,
                                           (uint64_t{1} << 42) + 1,
                                           uint64_t{1} << 60,
                                           uint64_t{1} << 62,
                                           uint64_t{INT64_MAX},
                                           uint64_t{1} << 63,
                                           UINT64_MAX,
                                           UINT64_MAX - 31,
                                           num_file_bytes,
                                           num_file_bytes - 1,
                                           num_file_bytes + 1,
                                           num_file_bytes / 8};
  switch (below(random, 4)) {
    case 0:
      return found + below(random, 5) - 2;
    case 1:
      return found * 2 + below(random, 2);
    default:
      return values[below(random, values.size())];
  }
}

void set_binary_field(Bytes* bytes, const Seed::Field& field, std::mt19937_64& random) {
  if (field.offset + field.num_bytes > bytes->size()) return;
  uint64_t value = 0;
  std::memcpy(&value, bytes->data() + field.offset, field.num_bytes);
  value = boundary_value(value, bytes->size(), random);
  std::memcpy(bytes->data() + field.offset, &value, field.num_bytes);
}

void replace_range(Bytes* bytes, size_t begin, size_t num_bytes, std::string_view text) {
  begin = std::min(begin, bytes->size());
  const size_t end = std::min(begin + num_bytes, bytes->size());
  bytes->erase(bytes->begin() + static_cast<ptrdiff_t>(begin),
               bytes->begin() + static_cast<ptrdiff_t>(end));
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  bytes->insert(bytes->begin() + static_cast<ptrdiff_t>(begin), data, data + text.size());
}

// Keeps the header length in step with an edit of the header text, in most cases.
void fix_header_length(Bytes* bytes, ptrdiff_t grown, std::mt19937_64& random) {
  if (bytes->size() < sizeof(uint64_t) || below(random, 8) == 0) return;
  uint64_t length = 0;
  std::memcpy(&length, bytes->data(), sizeof(length));
  length += static_cast<uint64_t>(grown);
  std::memcpy(bytes->data(), &length, sizeof(length));
}

void edit_text(Bytes* bytes, size_t offset, size_t num_bytes, const std::string& text,
               std::mt19937_64& random) {
  const auto before = static_cast<ptrdiff_t>(bytes->size());
  replace_range(bytes, offset, num_bytes, text);
  fix_header_length(bytes, static_cast<ptrdiff_t>(bytes->size()) - before, random);
}

// A number of the header becomes a boundary value.
void mutate_number(Bytes* bytes, const Seed::Field& field, std::mt19937_64& random) {
  uint64_t found = 0;
  for (size_t i = field.offset; i < std::min(field.offset + field.num_bytes, bytes->size()); ++i) {
    found = found * 10 + static_cast<uint64_t>((*bytes)[i]) - '0';
  }
  const uint64_t value = boundary_value(found, bytes->size(), random);
  edit_text(bytes, field.offset, field.num_bytes, fmt::format("{}", value), random);
}

void insert_json(Bytes* bytes, const Seed& seed, std::mt19937_64& random) {
  constexpr std::array<std::string_view, 22> kTexts = {"{",
                                                       "}",
                                                       "[",
                                                       "]",
                                                       ",",
                                                       ":",
                                                       "\"",
                                                       "-1",
                                                       "1.5",
                                                       "1e99",
                                                       "null",
                                                       "true",
                                                       "0,0",
                                                       "\\u0000",
                                                       "\"shape\":[],",
                                                       "\"dtype\":\"F32\",",
                                                       "\"data_offsets\":[0,0],",
                                                       "F8_E4M3",
                                                       "I32",
                                                       "U8",
                                                       "99999999999999999999999",
                                                       "__metadata__"};
  const size_t offset = sizeof(uint64_t) + below(random, seed.header_bytes - sizeof(uint64_t));
  const size_t num_replaced = below(random, 8);
  const std::string text(kTexts[below(random, kTexts.size())]);
  edit_text(bytes, offset, num_replaced, text, random);
}

// Another dtype of the same size: the file stays valid, its meaning changes.
void change_dtype(Bytes* bytes, std::mt19937_64& random) {
  constexpr std::array<std::array<std::string_view, 2>, 10> kPairs = {{{"\"I32\"", "\"F32\""},
                                                                       {"\"F32\"", "\"U32\""},
                                                                       {"\"F16\"", "\"I16\""},
                                                                       {"\"BF16\"", "\"F16\""},
                                                                       {"\"U8\"", "\"I8\""},
                                                                       {"\"I8\"", "\"F8_E4M3\""},
                                                                       {"\"F8_E4M3\"", "\"U8\""},
                                                                       {"\"U8\"", "\"F8_E8M0\""},
                                                                       {"\"I64\"", "\"F64\""},
                                                                       {"\"F64\"", "\"I64\""}}};
  const auto& [from, to] = kPairs[below(random, kPairs.size())];
  const std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  const size_t found = text.find(from, below(random, text.size() + 1));
  if (found != std::string_view::npos) {
    edit_text(bytes, found, from.size(), std::string(to), random);
  }
}

// Two neighbouring numbers of equal width change places: [4, 8] becomes [8, 4].
void swap_numbers(Bytes* bytes, const Seed& seed, size_t index) {
  if (index + 1 >= seed.fields.size()) return;
  const Seed::Field a = seed.fields[index];
  const Seed::Field b = seed.fields[index + 1];
  if (a.num_bytes != b.num_bytes || b.offset + b.num_bytes > bytes->size()) return;
  std::swap_ranges(bytes->begin() + static_cast<ptrdiff_t>(a.offset),
                   bytes->begin() + static_cast<ptrdiff_t>(a.offset + a.num_bytes),
                   bytes->begin() + static_cast<ptrdiff_t>(b.offset));
}

void mutate_structure(Bytes* bytes, const Seed& seed, std::mt19937_64& random) {
  const size_t index = below(random, seed.fields.size());
  if (!seed.fields_are_text || index == 0) {
    return set_binary_field(bytes, seed.fields[index], random);
  }
  switch (below(random, 6)) {
    case 0:
      return insert_json(bytes, seed, random);
    case 1:
    case 2:
      return change_dtype(bytes, random);
    case 3:
    case 4:
      return swap_numbers(bytes, seed, index);
    default:
      return mutate_number(bytes, seed.fields[index], random);
  }
}

// Half of the edits that keep the size hit only the tensor data.
void mutate_bytes(Bytes* bytes, const Seed& seed, const Bytes& other, std::mt19937_64& random) {
  if (bytes->empty()) return;
  const uint64_t kind = below(random, 6);
  const bool keeps_size = kind == 0 || kind >= 4;
  const bool only_data = keeps_size && bytes->size() > seed.header_bytes && below(random, 2) == 0;
  const size_t lowest = only_data ? seed.header_bytes : 0;
  const size_t begin = lowest + below(random, bytes->size() - lowest);
  const size_t length = 1 + below(random, std::min<size_t>(64, bytes->size() - begin));
  const auto first = bytes->begin() + static_cast<ptrdiff_t>(begin);
  const auto last = first + static_cast<ptrdiff_t>(length);
  switch (kind) {
    case 0:  // bit flips
      for (uint64_t i = 0; i <= below(random, 8); ++i) {
        const size_t at = lowest + below(random, bytes->size() - lowest);
        (*bytes)[at] ^= static_cast<std::byte>(1u << below(random, 8));
      }
      return;
    case 1:
      bytes->resize(begin);
      return;
    case 2:
      bytes->erase(first, last);
      return;
    case 3: {
      const Bytes copy(first, last);
      bytes->insert(first, copy.begin(), copy.end());
      return;
    }
    case 4:
      for (auto it = first; it != last; ++it) *it = static_cast<std::byte>(random());
      return;
    default: {  // a range of another seed
      const size_t from = below(random, other.size());
      const size_t count = std::min({length, other.size() - from, bytes->size() - begin});
      std::copy_n(other.begin() + static_cast<ptrdiff_t>(from), count, first);
      return;
    }
  }
}

}  // namespace

Seed gguf_seed(std::string name, const GgufBuilder& builder, uint32_t version) {
  Seed seed;
  seed.name = std::move(name);
  seed.bytes = builder.build(version);
  GgufFields fields(&seed);
  return seed;
}

Seed safetensors_seed(std::string name, const std::vector<SeedTensor>& tensors) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  size_t offset = 0;
  for (const SeedTensor& tensor : tensors) {
    size_t num_bytes = find_dtype_by_safetensors_name(tensor.dtype)->block_bytes;
    for (const uint64_t size : tensor.shape) num_bytes *= size;
    const std::string shape = fmt::format("[{}]", fmt::join(tensor.shape, ","));
    header += ',';
    header +=
        testing::safetensors_entry(tensor.name, tensor.dtype, shape, offset, offset + num_bytes);
    offset += num_bytes;
  }
  header += '}';
  Seed seed = seed_of_header(std::move(name), header, offset);
  offset = seed.header_bytes;
  for (const SeedTensor& tensor : tensors) {
    set_values(tensor, offset, &seed.bytes);
    size_t num_bytes = find_dtype_by_safetensors_name(tensor.dtype)->block_bytes;
    for (const uint64_t size : tensor.shape) num_bytes *= size;
    offset += num_bytes;
  }
  return seed;
}

std::vector<Seed> gguf_seeds() {
  std::vector<Seed> seeds;
  GgufBuilder formats;
  for (const DTypeRow& row : dtype_rows()) {
    if (row.gguf_id < 0) continue;
    formats.tensor(fmt::format("blk.0.{}.weight", row.name), {256, 2}, row.dtype);
  }
  seeds.push_back(gguf_seed("every format", formats));
  GgufBuilder model;
  model.text_key("general.architecture", "llama").key("llama.block_count", testing::kU32, 1u);
  model.key("llama.attention.layer_norm_rms_epsilon", testing::kF32, 1e-5f);
  model.key("general.quantized", testing::kBool, uint8_t{1});
  model.texts_key("tokenizer.ggml.tokens", {"<unk>", "a", "b", "ab", "\xff"});
  model.array_key<float>("tokenizer.ggml.scores", testing::kF32, {0, 1, 2, 3, 4});
  model.array_key<int32_t>("tokenizer.ggml.token_type", testing::kI32, {2, 1, 1, 1, 6});
  model.array_key<uint64_t>("wide", testing::kU64, {1, UINT64_MAX});
  model.tensor("token_embd.weight", {32, 5}, DType::kQ8_0).tensor("norm", {32}, DType::kF32);
  model.tensor("blk.0.ffn_up_exps.weight", {32, 4, 3}, DType::kQ4_0);
  model.tensor("blk.0.ffn_up_exps.scale", {3}, DType::kF32);
  seeds.push_back(gguf_seed("model", model));
  seeds.push_back(gguf_seed("model, version 2", model, 2));
  GgufBuilder aligned;
  aligned.alignment(64).tensor("a.weight", {4, 3}, DType::kF16).tensor("a.scale", {1}, DType::kF32);
  aligned.tensor("scalar", {}, DType::kF32).tensor("b", {2, 2, 2, 2}, DType::kBF16);
  seeds.push_back(gguf_seed("aligned", aligned));
  GgufBuilder keys;
  keys.key("split.count", testing::kU16, uint16_t{1}).key("split.no", testing::kU16, uint16_t{0});
  keys.key("i64", testing::kI64, int64_t{-1}).key("f64", testing::kF64, 0.5);
  keys.array_key<uint8_t>("bytes", testing::kU8, std::vector<uint8_t>(300, 7));
  seeds.push_back(gguf_seed("keys only", keys));
  return seeds;
}

std::vector<Seed> safetensors_seeds() {
  return {
      safetensors_seed("plain", {{"a.weight", "BF16", {4, 8}},
                                 {"b.weight", "F32", {2, 3}},
                                 {"c.bias", "F16", {5}},
                                 {"scalar", "F64", {}},
                                 {"none.weight", "F32", {0, 4}}}),
      safetensors_seed("gptq", {{"p.qweight", "I32", {1, 8}},
                                {"p.qzeros", "I32", {2, 1}},
                                {"p.scales", "F16", {2, 8}},
                                {"p.g_idx", "I32", {8}, {0, 1, 1, 0, 0, 1, 0, 1}}}),
      safetensors_seed("awq", {{"p.qweight", "I32", {32, 2}},
                               {"p.qzeros", "I32", {2, 2}},
                               {"p.scales", "BF16", {2, 16}}}),
      safetensors_seed("packed", {{"p.weight_packed", "I32", {8, 4}},
                                  {"p.weight_scale", "BF16", {8, 2}},
                                  {"p.weight_zero_point", "I32", {1, 2}},
                                  {"p.weight_shape", "I64", {2}, {8, 32}}}),
      safetensors_seed("eight bits", {{"i.weight", "I8", {4, 8}},
                                      {"i.weight_scale", "F32", {4, 1}},
                                      {"f.weight", "F8_E4M3", {4, 8}},
                                      {"f.weight_scale", "BF16", {1}},
                                      {"g.weight", "F8_E5M2", {130, 4}},
                                      {"g.weight_scale_inv", "F32", {2, 1}}}),
      safetensors_seed("four bits", {{"e_blocks", "U8", {2, 3, 2, 16}},
                                     {"e_scales", "U8", {2, 3, 2}},
                                     {"m.weight_packed", "U8", {2, 16}},
                                     {"m.weight_scale", "U8", {2, 1}},
                                     {"n.weight_packed", "U8", {2, 16}},
                                     {"n.weight_scale", "F8_E4M3", {2, 2}},
                                     {"n.weight_global_scale", "F32", {1}}}),
  };
}

Bytes mutate(const std::vector<Seed>& seeds, std::mt19937_64& random) {
  const Seed& seed = seeds[below(random, seeds.size())];
  Bytes bytes = seed.bytes;
  const uint64_t num_mutations = 1 + below(random, 3);
  for (uint64_t i = 0; i < num_mutations; ++i) {
    if (below(random, 10) < 7) {
      mutate_structure(&bytes, seed, random);
    } else {
      mutate_bytes(&bytes, seed, seeds[below(random, seeds.size())].bytes, random);
    }
  }
  return bytes;
}

}  // namespace headrace::fuzz
