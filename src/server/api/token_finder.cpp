#include "server/api/token_finder.h"

#include <algorithm>

#include "base/check.h"

namespace headrace {

void TokenFinder::join(const Tokenizer& tokenizer) {
  ends_.reserve(static_cast<size_t>(tokenizer.vocab_size()));
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    bytes_ += tokenizer.token_bytes(id, /*skip_special=*/false);
    ends_.push_back(bytes_.size());
  }
}

std::vector<int32_t> TokenFinder::find(const Tokenizer& tokenizer, std::string_view text) {
  CHECK(!text.empty());
  std::call_once(joined_, [&] { join(tokenizer); });
  std::vector<int32_t> ids;
  for (size_t at = bytes_.find(text); at != bytes_.npos;) {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), at);
    const bool is_whole = at + text.size() <= *end;
    if (is_whole) ids.push_back(static_cast<int32_t>(end - ends_.begin()));
    at = bytes_.find(text, is_whole ? *end : at + 1);
  }
  return ids;
}

}  // namespace headrace
