// A vocabulary for tests of grammars: every byte, pieces of several bytes, and special tokens.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar.h"
#include "text/tokenizer.h"

namespace headrace::test {

class PieceTokenizer final : public Tokenizer {
 public:
  using Tokenizer::encode;
  static constexpr int32_t kEnd = 0, kCall = 1;

  PieceTokenizer() {
    tokens_ = {"<|end|>", "<|call|>"};
    for (int byte = 0; byte < 256; ++byte) tokens_.emplace_back(1, static_cast<char>(byte));
    for (const char* piece : {"{\"", "\":", "\", \"", "name", "tr", "true", "null", "\"}", "  ",
                              "</", "</x>", "12", "a\"", "long", "er"}) {
      tokens_.emplace_back(piece);
    }
  }

  // The longest piece each time.
  Result<std::vector<int32_t>> encode(std::string_view text, bool,
                                      const EncodeLimits&) const override {
    std::vector<int32_t> ids;
    while (!text.empty()) {
      int32_t best = 2 + static_cast<unsigned char>(text[0]);
      for (int32_t id = 258; id < vocab_size(); ++id) {
        const std::string& piece = tokens_[static_cast<size_t>(id)];
        if (text.starts_with(piece) && piece.size() > bytes_of(best).size()) best = id;
      }
      ids.push_back(best);
      text.remove_prefix(bytes_of(best).size());
    }
    return ids;
  }
  static std::vector<int32_t> bytes(std::string_view text) {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(2 + static_cast<unsigned char>(c));
    return ids;
  }
  Result<std::string> decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string text;
    for (const int32_t id : ids) text += token_bytes(id, skip_special);
    return text;
  }
  int32_t vocab_size() const override { return static_cast<int32_t>(tokens_.size()); }
  std::optional<std::string> id_to_token(int32_t id) const override { return bytes_of(id); }
  std::optional<int32_t> token_to_id(std::string_view) const override { return std::nullopt; }
  std::string token_bytes(int32_t id, bool skip_special) const override {
    return skip_special && is_special(id) ? std::string() : bytes_of(id);
  }
  bool is_special(int32_t id) const override { return id < 2; }
  std::optional<int32_t> bos_id() const override { return std::nullopt; }
  std::optional<int32_t> eos_id() const override { return kEnd; }
  bool adds_bos() const override { return false; }

 private:
  const std::string& bytes_of(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  std::vector<std::string> tokens_;
};

}  // namespace headrace::test
