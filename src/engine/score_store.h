// ScoreStore: log-probs of prompt tokens, kept beside the prefixes that they belong to.
//
// The score of a token depends on what stands before it and on itself: so the scores of the 16
// tokens of a block belong to the name of the prefix that ends with that block (prefix_index.h),
// and whoever has the same name gets the same floats as by computing. Bounded in bytes of its own,
// not of the KV memory; what was used longest ago goes first. Allocates only when something is put
// or read, which requests without log-probs never do. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "engine/keyed_digest.h"
#include "engine/request.h"

namespace headrace {

class ScoreStore {
 public:
  using Scores = std::span<std::optional<TokenLogprobs>>;

  explicit ScoreStore(size_t max_bytes) : max_bytes_(max_bytes) {}

  // scores: of kBlockTokens tokens, each with num_top alternatives or as many as the vocabulary
  // has; none for the first token of a prompt. What is kept with more alternatives stays.
  void put(const Digest& name, int num_top, std::span<const std::optional<TokenLogprobs>> scores);
  // Whether it has them with so many alternatives at least.
  bool contains(const Digest& name, int num_top) const;
  // The same, and puts them where they are wanted.
  bool read(const Digest& name, int num_top, Scores scores);
  void clear();

  size_t num_blocks() const { return entries_.size(); }
  size_t num_bytes() const { return num_bytes_; }

 private:
  struct Token {
    float logprob = 0;
    int32_t rank = 0;
    int32_t num_top = -1;  // no score
  };
  struct Entry {
    Digest name;
    int num_top = 0;
    std::vector<Token> tokens;
    std::vector<std::pair<int32_t, float>> top;  // of all tokens, one after the other
  };
  struct HashOfName {
    size_t operator()(const Digest& name) const { return static_cast<size_t>(name.first); }
  };
  using List = std::list<Entry>;

  static size_t bytes_of(const Entry& entry);
  void erase(List::iterator entry);

  const size_t max_bytes_;
  size_t num_bytes_ = 0;
  List entries_;                                                    // used longest ago first
  std::unordered_map<Digest, List::iterator, HashOfName> by_name_;  // never iterated
};

}  // namespace headrace
