// MarkScanner: finds the marks that a model writes between its text, byte by byte.
//
// What could be the beginning of a mark is held back; the leftmost mark is found, and of those that
// begin together the longest. The time of a byte is bounded by the marks, whatever came before. One
// thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace headrace {

class MarkScanner {
 public:
  static constexpr int kNone = -1;

  // The next byte. Returns which mark was found: the bytes behind it are `rest`, to be fed again,
  // whatever they are looked at for then. Bytes that are surely of no mark go to `passed`.
  int feed(char c, std::span<const std::string_view> marks, std::string& passed) {
    if (held_.empty() && !begins_any(c, marks)) {
      passed += c;
      return kNone;
    }
    held_ += c;
    return settle(marks, passed, false);
  }

  // The text is over: as feed, but nothing is waited for. Call it until it finds none.
  int finish(std::span<const std::string_view> marks, std::string& passed) {
    return settle(marks, passed, true);
  }

  // Behind the mark that was found.
  std::string take_rest() { return std::move(rest_); }
  bool is_holding() const { return !held_.empty(); }
  // What is held back, without looking for anything in it.
  std::string take_held() { return std::exchange(held_, {}); }

 private:
  static bool begins_any(char c, std::span<const std::string_view> marks) {
    for (const std::string_view mark : marks) {
      if (!mark.empty() && mark.front() == c) return true;
    }
    return false;
  }

  int settle(std::span<const std::string_view> marks, std::string& passed, bool is_last) {
    size_t num_passed = 0;
    int found = kNone;
    while (num_passed < held_.size()) {
      const std::string_view held = std::string_view(held_).substr(num_passed);
      bool may_come = false;
      found = longest(held, marks, may_come);
      if (may_come && !is_last) {
        found = kNone;
        break;
      }
      if (found != kNone) {
        rest_ = held.substr(marks[static_cast<size_t>(found)].size());
        num_passed = held_.size();
        break;
      }
      passed += held_[num_passed++];
    }
    held_.erase(0, num_passed);
    return found;
  }

  // The longest mark that `held` begins with; may_come: a longer one begins with `held`.
  static int longest(std::string_view held, std::span<const std::string_view> marks,
                     bool& may_come) {
    int found = kNone;
    for (size_t i = 0; i < marks.size(); ++i) {
      const std::string_view mark = marks[i];
      if (mark.empty() || mark.front() != held.front()) continue;
      if (mark.size() > held.size()) {
        may_come = may_come || mark.starts_with(held);
      } else if (held.starts_with(mark) &&
                 (found == kNone || mark.size() > marks[static_cast<size_t>(found)].size())) {
        found = static_cast<int>(i);
      }
    }
    return found;
  }

  std::string held_;
  std::string rest_;
};

}  // namespace headrace
