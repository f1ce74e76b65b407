// PartOutput: collects the pieces of an answer as they become sure, neighbours of one kind joined.
// Blanks between kinds are left out: what templates put around reasoning and calls is no text. One
// thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api/parts/loose_json.h"
#include "server/api/parts/output_part.h"

namespace headrace {

class PartOutput {
 public:
  using Kind = OutputPart::Kind;

  // holds_blanks: those at the end of text wait for what follows.
  void text(std::string_view bytes, bool holds_blanks) { put(Kind::kText, bytes, holds_blanks); }
  void reasoning(std::string_view bytes) { put(Kind::kReasoning, bytes, true); }
  // Another kind follows: blanks that wait are none of it, nor those that come next.
  void cut() {
    blanks_.clear();
    skips_ = true;
  }
  void call(int call_idx, std::string id, std::string name) {
    parts_.push_back({Kind::kToolCall, {}, call_idx, std::move(id), std::move(name)});
  }
  void arguments(int call_idx, std::string_view json) {
    if (json.empty()) return;
    if (!parts_.empty() && goes_on(Kind::kToolCall, call_idx)) {
      parts_.back().text += json;
    } else {
      parts_.push_back({Kind::kToolCall, std::string(json), call_idx, {}, {}});
    }
  }
  void finish() {
    if (!skips_ && !blanks_.empty()) add({last_, std::exchange(blanks_, {}), 0, {}, {}});
  }
  std::vector<OutputPart> take() { return std::exchange(parts_, {}); }

 private:
  void put(Kind kind, std::string_view bytes, bool holds_blanks) {
    last_ = kind;
    size_t end = bytes.size();
    if (holds_blanks || skips_) {
      while (end > 0 && is_blank(bytes[end - 1])) --end;
    }
    std::string piece;
    if (end > 0) {
      size_t begin = 0;
      if (skips_) {
        while (begin < end && is_blank(bytes[begin])) ++begin;
        blanks_.clear();
      }
      skips_ = false;
      piece = std::exchange(blanks_, {});
      piece += bytes.substr(begin, end - begin);
      add({kind, std::move(piece), 0, {}, {}});
    }
    if (!skips_) blanks_ += bytes.substr(end);
  }

  bool goes_on(Kind kind, int call_idx) const {
    return parts_.back().kind == kind && parts_.back().call_idx == call_idx;
  }

  void add(OutputPart part) {
    if (!parts_.empty() && goes_on(part.kind, part.call_idx)) {
      parts_.back().text += part.text;
    } else {
      parts_.push_back(std::move(part));
    }
  }

  std::vector<OutputPart> parts_;
  std::string blanks_;
  Kind last_ = Kind::kText;
  bool skips_ = false;
};

}  // namespace headrace
