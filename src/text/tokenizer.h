// Tokenizer: text <-> token ids, from a tokenizer.json or from the vocabulary of a GGUF file.
//
// Thread-safe after construction. Encoding a megabyte is linear; call it off the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headrace {

// What a GGUF file says of its tokenizer (keys tokenizer.ggml.*), copied out of the metadata.
struct GgufVocabulary {
  std::string model;  // "llama" (SentencePiece BPE by scores), "gpt2" (byte-level BPE), ...
  std::string pre;    // name of the pre-tokenizer, gpt2 only
  std::string architecture;  // general.architecture
  std::vector<std::string_view> tokens;
  std::vector<int32_t> token_types;  // 1 normal 2 unknown 3 control 4 user-defined 5 unused 6 byte
  std::vector<float> scores;
  std::vector<std::string_view> merges;
  std::optional<int32_t> bos_id, eos_id, eot_id, eom_id, unknown_id, padding_id;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
  std::optional<std::string_view> huggingface_json;  // the whole tokenizer.json, if present
};

class Tokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> from_json(std::string_view tokenizer_json);
  // kUnsupported with the name of a pre-tokenizer or model that is not known: never a guess.
  static Result<std::unique_ptr<Tokenizer>> from_gguf(const GgufVocabulary& vocabulary);
  virtual ~Tokenizer() = default;

  // Special tokens written in the text are recognised, as the reference tokenizers do.
  // add_special: add BOS / EOS as the tokenizer's own post-processor says.
  virtual Result<std::vector<int32_t>> encode(std::string_view utf8, bool add_special) const = 0;
  virtual Result<std::string> decode(std::span<const int32_t> ids, bool skip_special) const = 0;

  virtual int32_t vocab_size() const = 0;  // largest id + 1
  // Text of the entry as the vocabulary writes it ("Ġthe", "▁the"), nothing if id is out of range.
  virtual std::optional<std::string> id_to_token(int32_t id) const = 0;
  virtual std::optional<int32_t> token_to_id(std::string_view token) const = 0;
  // Bytes that this token contributes to decoded text when it stands inside a sequence; may be part
  // of a UTF-8 character. Special tokens: empty if skip_special, else their text.
  virtual std::string token_bytes(int32_t id, bool skip_special) const = 0;
  virtual bool is_special(int32_t id) const = 0;

  virtual std::optional<int32_t> bos_id() const = 0;
  virtual std::optional<int32_t> eos_id() const = 0;
  virtual bool adds_bos() const = 0;  // does encode(.., true) begin with BOS?
};

}  // namespace headrace
