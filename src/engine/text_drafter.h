// TextDrafter: guesses that the text goes on as it did where its end stood before.
//
// Of each sequence it keeps an index of the tokens known when it was last asked (text_matcher.h),
// behind those that its client expects of the answer;
// texts of other sequences are never looked at. Engine thread only.
#pragma once

#include <unordered_map>
#include <vector>

#include "engine/drafter.h"
#include "engine/text_matcher.h"

namespace headrace {

class TextDrafter final : public Drafter {
 public:
  int32_t propose(std::span<DraftTask> tasks) override;
  void touch() const override;
  void forget(RequestId id) override;

 private:
  std::unordered_map<RequestId, TextMatcher> matchers_;  // never iterated
  // Of the tasks of the newest call: all take their tokens first, so that what the texts need of
  // memory comes side by side.
  struct Asked {
    TextMatcher* matcher;
    TextMatcher::Ahead ahead;
  };
  std::vector<Asked> asked_;
};

}  // namespace headrace
