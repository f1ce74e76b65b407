// MarkedTokenizer: a tokenizer whose special tokens stay in the text where a format looks for them.
// Everything else is the tokenizer's own. Thread-safe as it is.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace headrace {

class MarkedTokenizer final : public Tokenizer {
 public:
  // `base` outlives this. marks: texts in which the spelling of a token that is shown stands.
  MarkedTokenizer(const Tokenizer& base, std::string_view marks) : base_(base) {
    for (int32_t id = 0; id < base.vocab_size(); ++id) {
      if (!base.is_special(id)) continue;
      const std::string spelling = base.id_to_token(id).value_or("");
      if (!spelling.empty() && marks.find(spelling) != std::string_view::npos) shown_.push_back(id);
    }
  }
  bool shows_more() const { return !shown_.empty(); }

  Result<std::vector<int32_t>> encode(std::string_view utf8, bool add_special,
                                      const EncodeLimits& limits) const override {
    return base_.encode(utf8, add_special, limits);
  }
  Result<std::string> decode(std::span<const int32_t> ids, bool skip_special) const override {
    return base_.decode(ids, skip_special);
  }
  int32_t vocab_size() const override { return base_.vocab_size(); }
  std::optional<std::string> id_to_token(int32_t id) const override {
    return base_.id_to_token(id);
  }
  std::optional<int32_t> token_to_id(std::string_view token) const override {
    return base_.token_to_id(token);
  }
  std::string token_bytes(int32_t id, bool skip_special) const override {
    return base_.token_bytes(id, skip_special && !is_shown(id));
  }
  bool is_special(int32_t id) const override { return base_.is_special(id) && !is_shown(id); }
  std::optional<int32_t> bos_id() const override { return base_.bos_id(); }
  std::optional<int32_t> eos_id() const override { return base_.eos_id(); }
  bool adds_bos() const override { return base_.adds_bos(); }
  DecodeScheme decode_scheme() const override { return base_.decode_scheme(); }
  std::string first_token_bytes(int32_t id, bool skip_special) const override {
    return base_.first_token_bytes(id, skip_special && !is_shown(id));
  }
  bool decodes(int32_t id, bool skip_special) const override {
    return base_.decodes(id, skip_special && !is_shown(id));
  }

 private:
  bool is_shown(int32_t id) const { return std::binary_search(shown_.begin(), shown_.end(), id); }

  const Tokenizer& base_;
  std::vector<int32_t> shown_;  // ascending
};

}  // namespace headrace
