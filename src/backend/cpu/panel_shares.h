// PanelShares: the panels of an op of one row, shared out between the members of the team.
//
// Each member has a share of its own, which it takes from front to back in pieces that get smaller,
// so that a member streams one range of the weights; who is done takes pieces from the back of
// others' shares, but leaves the last units to an owner that is at work on them. Counted in units
// of panels. Owner: CpuWorkspace. start() and divide() are called
// while nobody takes; take() by any number of
// threads, each until nothing is left for it. Who takes what never decides a result bit.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace headrace::cpu {

struct Piece {
  int64_t first;
  int64_t count;  // 0: nothing is left
};

class PanelShares {
 public:
  explicit PanelShares(int num_members);

  struct Plan {
    int64_t num_panels;
    int64_t unit;  // panels that are not parted
    int64_t most;  // panels of a piece; at least a unit
  };
  // Starts anew: all panels are to be taken once.
  void start(const Plan& plan);
  // The same. Returns what member 0 does first, taken before anybody else can: so the caller's
  // first piece waits for no line of another core. Only where member 0 is sure to take part, as in
  // the first phase of an op: nobody else takes the end of a share that is its owner's.
  Piece divide(const Plan& plan);
  // What `member` does next.
  Piece take(int member);
  // Members that can have something to do.
  int64_t num_takers() const;

 private:
  // Number of the division << 32 | whether the owner is at work << 31 | end << 16 | begin, in units
  // of the share. A word with another number is a share that nobody has touched.
  struct alignas(64) Share {
    std::atomic<uint64_t> word{0};
  };
  struct Range {  // of units of a share
    int64_t begin, end;
    bool owned;
  };
  int64_t share_begin(int64_t member) const;
  Piece take_from(int64_t owner, bool is_owner);
  Range range_of(int64_t owner, uint64_t word) const;
  uint64_t word_of(const Range& range) const;
  int64_t piece_units(const Range& range, bool is_owner) const;
  Piece piece_at(int64_t first_unit, int64_t num_units) const;

  const int64_t num_members_;
  std::unique_ptr<Share[]> shares_;
  uint32_t division_ = 0;
  int64_t num_panels_ = 0;
  int64_t num_units_ = 0;
  int64_t unit_ = 1;  // panels
  int64_t most_ = 1;  // units
};

}  // namespace headrace::cpu
