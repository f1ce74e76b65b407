// TokenFinder: which tokens of a vocabulary hold a text.
//
// The bytes of all tokens are joined when the first text is looked for, some milliseconds and a few
// megabytes; a text takes about a millisecond then. Of one tokenizer; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace headrace {

class TokenFinder {
 public:
  // Ascending ids; the tokenizer is the same in every call, the text not empty.
  std::vector<int32_t> find(const Tokenizer& tokenizer, std::string_view text);

 private:
  void join(const Tokenizer& tokenizer);

  std::once_flag joined_;
  std::string bytes_;         // of all tokens, one after the other
  std::vector<size_t> ends_;  // in bytes_, of each token
};

}  // namespace headrace
