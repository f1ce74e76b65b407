// SessionMemory: the last tokens of sessions that clients name, to tell them why a prompt was not
// found in the cache.
//
// A session is what a client calls so in its cache domain (Request::session): nobody is told
// anything of a session that they do not name, nor of another domain's (one API key's, one salt's).
// A session may have branches: the newest few are remembered, and one that goes on replaces what
// it went on from. Bounded in entries and tokens; what was used longest ago goes first. Engine
// thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/keyed_digest.h"

namespace headrace {

class SessionMemory {
 public:
  static constexpr int kMaxBranches = 4;

  struct Branch {
    Digest session;
    Digest root;  // of its prefixes
    int64_t rope_epoch = 0;
    std::vector<int32_t> tokens;
    uint64_t used = 0;
  };

  SessionMemory(size_t max_branches, size_t max_tokens)
      : max_branches_(max_branches), max_tokens_(max_tokens) {}

  // Nothing is kept of what is larger than all of it.
  void keep(Branch branch);
  // The branch that begins most like these tokens; null: nothing is known of the session. Good
  // until the next keep().
  const Branch* find(const Digest& session, std::span<const int32_t> tokens);
  // The branch that was kept last.
  const Branch* newest(const Digest& session) const;
  void clear();

  size_t num_branches() const { return branches_.size(); }
  size_t num_tokens() const { return num_tokens_; }

 private:
  using Branches = std::vector<Branch>;

  void erase(Branches::iterator branch);
  void make_room_in(const Digest& session, std::span<const int32_t> tokens);

  const size_t max_branches_;
  const size_t max_tokens_;
  Branches branches_;
  size_t num_tokens_ = 0;  // that memory is held for
  uint64_t clock_ = 0;
};

// Tokens that both begin with.
int64_t num_common_tokens(std::span<const int32_t> a, std::span<const int32_t> b);

}  // namespace headrace
