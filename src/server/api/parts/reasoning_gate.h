// ReasoningGate: what an answer is held to begins where the model's reasoning ends; and reasoning
// ends, at the latest, when its tokens are spent.
//
// While the model reasons any token may come. When the budget is spent, the closing mark comes
// next. Behind it, what the answer is held to decides. Source of the budget: the reasoning limits
// that several servers have under various names.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/constraint.h"
#include "text/tokenizer.h"

namespace headrace {

struct GateOptions {
  std::string open, close;              // marks around reasoning
  bool starts_inside = false;           // the prompt has opened it
  std::optional<int32_t> max_tokens{};  // of reasoning
  std::vector<int32_t> end_ids{};       // not allowed inside reasoning if something is to follow
};

class ReasoningGate final : public Constraint {
 public:
  // inner: null: behind the reasoning any token may come. The tokenizer outlives this.
  ReasoningGate(const Tokenizer& tokenizer, GateOptions options, std::shared_ptr<Constraint> inner);

  void fill_mask(std::span<uint64_t> mask) override;
  void accept(int32_t token_id) override;
  void rollback(int32_t num_tokens) override;
  bool is_finished() const override;
  void propose(int32_t max_tokens, std::vector<int32_t>* draft) override;

 private:
  enum class Phase : uint8_t { kBefore, kOpening, kInside, kClosing, kBehind };
  struct State {
    Phase phase = Phase::kBefore;
    int32_t num_inside = 0;  // tokens of reasoning
    size_t num_forced = 0;   // of the mark that is being written
    int32_t num_blank = 0;   // behind the reasoning, before what the answer is held to
    std::string tail;        // of the text: what could become a mark
  };

  bool is_blank_id(int32_t id) const;
  void look_for_open(State& state, int32_t id) const;
  void look_for_close(State& state, int32_t id) const;
  void check_budget(State& state) const;
  bool skips_blank(const State& state, int32_t id) const;
  // What the answer is held to decides.
  bool is_behind() const;

  const Tokenizer& tokenizer_;
  const GateOptions options_;
  const std::shared_ptr<Constraint> inner_;
  std::vector<int32_t> open_ids_, close_ids_;
  std::vector<int32_t> blank_ids_;  // newlines that models write between
  std::vector<State> states_;       // before each token that came, and now
  int64_t num_inner_ = 0;           // tokens behind all that
};

}  // namespace headrace
