// For tests: a tokenizer without a vocabulary file.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace headrace::testing {

// One id per byte; adds_special puts 256 in front.
class ByteTokenizer : public Tokenizer {
 public:
  Result<std::vector<int32_t>> encode(std::string_view utf8, bool add_special,
                                      const EncodeLimits&) const override {
    if (utf8.find('!') != std::string_view::npos) {
      return make_error(ErrorCode::kInvalidArgument, "no '!' here");
    }
    std::vector<int32_t> ids;
    if (add_special) ids.push_back(256);
    for (const char c : utf8) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  Result<std::string> decode(std::span<const int32_t> ids, bool) const override {
    std::string text;
    for (const int32_t id : ids) text += static_cast<char>(id);
    return text;
  }
  int32_t vocab_size() const override { return 257; }
  std::optional<std::string> id_to_token(int32_t) const override { return std::nullopt; }
  std::optional<int32_t> token_to_id(std::string_view) const override { return std::nullopt; }
  std::string token_bytes(int32_t id, bool) const override { return {static_cast<char>(id)}; }
  bool is_special(int32_t id) const override { return id == 256; }
  std::optional<int32_t> bos_id() const override { return 256; }
  std::optional<int32_t> eos_id() const override { return std::nullopt; }
  bool adds_bos() const override { return true; }
};

}  // namespace headrace::testing
