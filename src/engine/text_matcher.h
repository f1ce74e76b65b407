// TextMatcher: finds where the end of a growing text stood before, and what came after it there.
//
// An index of hashed n-grams: each position is linked to the one before with the same last
// kMinMatch tokens, so that a token costs O(1) and a search looks at a bounded number of places.
// The longest match counts, of equal ones the newest. A text that is not itself what was said, such
// as an answer that a client expects, may stand before all; nothing matches across its end. Twelve
// to twenty bytes a token. One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace headrace {

class TextMatcher {
 public:
  static constexpr int32_t kMinMatch = 3;
  // Longer matches tell no more.
  static constexpr int32_t kMaxMatch = 64;

  struct Match {
    int32_t length = 0;  // tokens that are the same; 0: there is none
    int64_t next = 0;    // position that follows the match
  };

  // reference: a text before the text.
  explicit TextMatcher(std::span<const int32_t> reference = {});

  void append(std::span<const int32_t> token_ids);
  // Tokens appended, without the reference.
  int64_t size() const { return std::ssize(text_) - first_; }
  bool is_in_reference(const Match& match) const { return match.next < first_; }
  // Where the last tokens stood before. A match that goes on from the one found last is known by
  // what was appended since.
  Match find();
  // Appends at most max_tokens of what follows the match; of a match that reaches into its own end
  // as often as it would go on.
  void copy(const Match& match, int32_t max_tokens, std::vector<int32_t>* token_ids) const;

  // Where the index is read when these tokens, or the first of them, come next.
  struct Ahead {
    std::array<uint32_t, 8> slots;
    uint32_t num_slots = 0;
  };
  Ahead look_ahead(std::span<const int32_t> token_ids) const;
  // Asks for the memory that the next append() and find() read if the text goes on as it did after
  // the match found last.
  void touch_ends(const Ahead& ahead) const;

 private:
  size_t slot_of(const int32_t* first) const;
  void link(int64_t position);
  void grow();
  int32_t match_length(int64_t last) const;
  int32_t length_going_on(int64_t last) const;

  std::vector<int32_t> text_;      // reference, a mark that equals no token, text
  int64_t first_ = 0;              // position where the text begins
  std::vector<int32_t> previous_;  // [position] with the same slot before it, or -1
  std::vector<int32_t> newest_;    // [slot] position of the last token of the newest n-gram, or -1
  Match found_;                    // last
  int64_t found_end_ = 0;          // where the text ended then
};

}  // namespace headrace
