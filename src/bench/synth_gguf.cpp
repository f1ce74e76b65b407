// Writes a random model as a GGUF file, tensor by tensor.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/whole_file.h"
#include "bench/synth_parts.h"

namespace headrace {
namespace {

enum GgufType : uint32_t { kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9 };

constexpr size_t kAlignment = 32;

// The header: counts, keys and tensor infos.
class HeaderWriter {
 public:
  template <typename T>
  void put(T value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
  }
  void text(std::string_view text) {
    put(uint64_t{text.size()});
    bytes_.append(text);
  }
  template <typename T>
  void key(std::string_view name, GgufType type, T value) {
    begin_key(name, type);
    put(value);
  }
  void key_text(std::string_view name, std::string_view value) {
    begin_key(name, kString);
    text(value);
  }
  void key_texts(std::string_view name, const std::vector<std::string>& values) {
    begin_array(name, kString, values.size());
    for (const std::string& value : values) text(value);
  }
  void key_integers(std::string_view name, const std::vector<int32_t>& values) {
    begin_array(name, kI32, values.size());
    for (const int32_t value : values) put(value);
  }
  void key_flags(std::string_view name, const std::vector<int32_t>& values) {
    begin_array(name, kBool, values.size());
    for (const int32_t value : values) put(static_cast<uint8_t>(value != 0));
  }
  void tensor(const SynthTensor& tensor) {
    text(tensor.name);
    put(static_cast<uint32_t>(tensor.sizes.size()));
    for (const int64_t size : tensor.sizes) put(static_cast<uint64_t>(size));
    put(static_cast<uint32_t>(dtype_row(tensor.dtype).gguf_id));
    put(tensor.offset);
  }
  // Magic, version and counts in front, padding behind.
  std::string finish(size_t num_tensors) const {
    HeaderWriter whole;
    whole.bytes_ = "GGUF";
    whole.put(uint32_t{3});
    whole.put(uint64_t{num_tensors});
    whole.put(num_keys_);
    whole.bytes_ += bytes_;
    whole.bytes_.resize((whole.bytes_.size() + kAlignment - 1) / kAlignment * kAlignment);
    return std::move(whole.bytes_);
  }

 private:
  void begin_key(std::string_view name, GgufType type) {
    ++num_keys_;
    text(name);
    put(uint32_t{type});
  }
  void begin_array(std::string_view name, GgufType type, size_t size) {
    begin_key(name, kArray);
    put(uint32_t{type});
    put(uint64_t{size});
  }

  std::string bytes_;
  uint64_t num_keys_ = 0;
};

void append_utf8(uint32_t code_point, std::string* text) {
  if (code_point < 0x80) {
    text->push_back(static_cast<char>(code_point));
  } else {
    text->push_back(static_cast<char>(0xC0 | (code_point >> 6)));
    text->push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
  }
}

// Byte-level vocabularies write each byte as one visible character: itself where that is visible,
// else the next free one from 256 on.
std::vector<std::string> byte_tokens() {
  std::vector<std::string> tokens(256);
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool visible = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    append_utf8(visible ? byte : next++, &tokens[byte]);
  }
  return tokens;
}

void put_vocabulary(const SynthShape& shape, HeaderWriter* header) {
  constexpr int32_t kNormal = 1, kControl = 3;
  std::vector<std::string> tokens = byte_tokens();
  std::vector<std::string> merges;
  for (const char* letter : {"t", "a", "s", "o", "i"}) {
    merges.push_back(fmt::format("{} {}", tokens[' '], letter));
    tokens.push_back(tokens[' '] + letter);
  }
  const auto vocab_size = static_cast<size_t>(shape.vocab_size);
  while (tokens.size() + 2 < vocab_size) tokens.push_back(fmt::format("filler{}", tokens.size()));
  std::vector<int32_t> types(tokens.size(), kNormal);
  for (const char* name : {"<|begin|>", "<|end|>"}) {
    tokens.emplace_back(name);
    types.push_back(kControl);
  }
  header->key_text("tokenizer.ggml.model", "gpt2");
  header->key_text("tokenizer.ggml.pre",
                   find_synth_architecture(shape.architecture)->tokenizer_pre);
  header->key_texts("tokenizer.ggml.tokens", tokens);
  header->key_integers("tokenizer.ggml.token_type", types);
  header->key_texts("tokenizer.ggml.merges", merges);
  header->key("tokenizer.ggml.bos_token_id", kU32, static_cast<uint32_t>(vocab_size - 2));
  header->key("tokenizer.ggml.eos_token_id", kU32, static_cast<uint32_t>(vocab_size - 1));
  header->key("tokenizer.ggml.add_bos_token", kBool, uint8_t{0});
  header->key_text("tokenizer.chat_template",
                   "{% for message in messages %}{{ message['content'] }}{% endfor %}");
}

void put_list(const std::string& name, const SynthShape& shape, const SynthKeyRow& row,
              HeaderWriter* header) {
  const int64_t size = row.num_entries > 0 ? row.num_entries : shape.num_layers;
  std::vector<int32_t> values;
  for (int64_t i = 0; i < size; ++i) values.push_back(static_cast<int32_t>(row.value(shape, i)));
  if (row.kind == SynthKeyKind::kFlags) return header->key_flags(name, values);
  header->key_integers(name, values);
}

void put_key(const SynthShape& shape, const SynthKeyRow& row, HeaderWriter* header) {
  const std::string name = fmt::format("{}.{}", shape.architecture, row.name);
  switch (row.kind) {
    case SynthKeyKind::kCount:
      return header->key(name, kU32, static_cast<uint32_t>(row.value(shape, 0)));
    case SynthKeyKind::kNumber:
      return header->key(name, kF32, static_cast<float>(row.value(shape, 0)));
    case SynthKeyKind::kFlag:
      return header->key(name, kBool, static_cast<uint8_t>(row.value(shape, 0)));
    case SynthKeyKind::kText:
      return header->key_text(name, row.text);
    default:
      return put_list(name, shape, row, header);
  }
}

void put_keys(const SynthShape& shape, const SynthFormat& format, HeaderWriter* header) {
  const SynthArchitecture& architecture = *find_synth_architecture(shape.architecture);
  header->key_text("general.architecture", shape.architecture);
  header->key_text("general.name", fmt::format("random {} {}", shape.name, format.name));
  header->key("general.file_type", kU32, format.file_type);
  header->key("general.quantization_version", kU32, uint32_t{2});
  header->key("general.alignment", kU32, uint32_t{kAlignment});
  for (const SynthKeyRow& row : common_synth_keys()) {
    const auto replaces = [&](const SynthKeyRow& own) { return own.name == row.name; };
    if (std::ranges::none_of(architecture.keys, replaces)) put_key(shape, row, header);
  }
  for (const SynthKeyRow& row : architecture.keys) put_key(shape, row, header);
  put_vocabulary(shape, header);
}

float fill_value(const SynthTensor& tensor, size_t i) {
  switch (tensor.fill) {
    case SynthFill::kSmall:
      return 0.01f;
    case SynthFill::kNegative:
      return -0.5f;
    case SynthFill::kRopeFreqs:
      return i < static_cast<size_t>(tensor.sizes.front()) / 4 ? 1.0f : 1e30f;
    default:
      return 1.0f;
  }
}

Status write_vector(const SynthTensor& tensor, WholeFile* file) {
  std::vector<float> values(tensor.num_bytes() / sizeof(float));
  for (size_t i = 0; i < values.size(); ++i) values[i] = fill_value(tensor, i);
  return file->write(std::as_bytes(std::span(values)));
}

Status write_matrix(const SynthTensor& tensor, uint64_t* state, WholeFile* file) {
  const size_t block_bytes = dtype_row(tensor.dtype).block_bytes;
  std::vector<std::byte> slab((size_t{1} << 20) / block_bytes * block_bytes);
  size_t left = tensor.num_bytes();
  while (left > 0) {
    const auto part = std::span(slab).first(std::min(left, slab.size()));
    fill_random_blocks(tensor.dtype, tensor.sizes.front(), state, part);
    TRY(file->write(part));
    left -= part.size();
  }
  return {};
}

Status write_data(const std::vector<SynthTensor>& tensors, uint64_t seed, WholeFile* file) {
  uint64_t written = 0;
  uint64_t state = seed * 0x9E3779B97F4A7C15u | 1;  // never 0, where the generator would stay
  for (const SynthTensor& tensor : tensors) {
    const std::vector<std::byte> padding(tensor.offset - written);
    TRY(file->write(padding));
    TRY(tensor.fill == SynthFill::kRandom ? write_matrix(tensor, &state, file)
                                          : write_vector(tensor, file));
    written = tensor.offset + tensor.num_bytes();
  }
  return file->write(std::vector<std::byte>((kAlignment - written % kAlignment) % kAlignment));
}

// Says what is missing before gigabytes are written in vain.
Status check_room(const std::string& path, uint64_t num_bytes) {
  if (is_stream(path)) return {};
  std::error_code code;
  const auto folder = std::filesystem::weakly_canonical(path, code).parent_path();
  const auto space = std::filesystem::space(folder, code);
  if (code || space.available >= num_bytes) return {};
  return make_error(ErrorCode::kExhausted, "'{}' needs {} bytes, but its disk has {} left", path,
                    num_bytes, space.available);
}

}  // namespace

Status write_synth(const SynthShape& shape, const SynthFormat& format, uint64_t seed,
                   const std::string& path) {
  TRY(check_shape(shape));
  const std::vector<SynthTensor> tensors = synth_tensors(shape, format);
  HeaderWriter header;
  put_keys(shape, format, &header);
  for (const SynthTensor& tensor : tensors) header.tensor(tensor);
  const std::string head = header.finish(tensors.size());
  TRY(check_room(path, head.size() + tensors.back().offset + tensors.back().num_bytes()));
  const auto file = TRY(WholeFile::create(path));
  TRY(file->write(std::as_bytes(std::span(head))));
  TRY(write_data(tensors, seed, file.get()));
  return file->publish();
}

}  // namespace headrace
