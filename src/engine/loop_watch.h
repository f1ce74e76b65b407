// LoopWatch: sees that an output goes round in a loop, token by token.
//
// A pure function of the output's tokens: for each size of a block it counts how many tokens in a
// row equal the one a block before. O(max_block) a token. A plain value, owned by its sequence;
// engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"

namespace headrace {

inline constexpr int32_t kMaxLoopBlock = 1024;

class LoopWatch {
 public:
  LoopWatch() = default;
  explicit LoopWatch(const RepetitionStop& stop)
      : stop_(stop), runs_(static_cast<size_t>(stop.max_block)) {}

  // Called with the whole output after each of its tokens. True: it ends with a block that came
  // min_count times in a row.
  bool sees_loop(std::span<const int32_t> output) {
    bool found = false;
    for (size_t block = 1; block <= runs_.size() && block < output.size(); ++block) {
      int64_t& run = runs_[block - 1];
      run = output.back() == output[output.size() - 1 - block] ? run + 1 : 0;
      found = found || (static_cast<int64_t>(block) >= stop_.min_block &&
                        run >= static_cast<int64_t>(block) * (stop_.min_count - 1));
    }
    return found;
  }

 private:
  RepetitionStop stop_;
  std::vector<int64_t> runs_;  // [max_block] tokens at the end that equal those a block before
};

}  // namespace headrace
