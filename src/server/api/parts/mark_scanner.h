// MarkScanner: finds the marks that a model writes between its text, byte by byte.
//
// What could be the beginning of a mark is held back; the leftmost mark is found, and of those that
// begin together the longest. The time of a byte is bounded by the marks, whatever came before. One
// thread.
#pragma once

#include <algorithm>
#include <bitset>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headrace {

// The marks that one state looks for, in the order in which they are numbered; an empty one is
// never found.
class MarkList {
 public:
  MarkList() = default;
  MarkList(std::initializer_list<std::string_view> marks) { append({marks.begin(), marks.size()}); }
  void append(std::span<const std::string_view> marks) {
    for (const std::string_view mark : marks) push_back(mark);
  }
  void push_back(std::string_view mark) {
    if (!mark.empty()) begins_.set(static_cast<unsigned char>(mark.front()));
    longest_ = std::max(longest_, mark.size());
    marks_.push_back(mark);
  }
  // Whether some mark begins with this byte.
  bool begins_with(char c) const { return begins_.test(static_cast<unsigned char>(c)); }
  bool empty() const { return marks_.empty(); }
  size_t size() const { return marks_.size(); }
  size_t longest() const { return longest_; }  // bytes
  std::string_view operator[](size_t mark) const { return marks_[mark]; }

 private:
  std::vector<std::string_view> marks_;
  std::bitset<256> begins_;
  size_t longest_ = 0;
};

class MarkScanner {
 public:
  static constexpr int kNone = -1;

  // The next byte. Returns which mark was found: the bytes behind it are `rest`, to be fed again,
  // whatever they are looked at for then. Bytes that are surely of no mark go to `passed`.
  int feed(char c, const MarkList& marks, std::string& passed) {
    if (held_.empty() && !marks.begins_with(c)) {
      passed += c;
      return kNone;
    }
    held_ += c;
    return settle(marks, passed, false);
  }

  // What `text` surely begins with, whatever follows it, where nothing is held: bytes of no mark,
  // and then a mark, if it is all there.
  struct Sure {
    size_t num_plain = 0;
    int mark = kNone;
  };
  static Sure look(std::string_view text, const MarkList& marks) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (!marks.begins_with(text[i])) continue;
      bool may_come = false;
      const int found = longest(text.substr(i), marks, may_come);
      if (may_come) return {i, kNone};
      if (found != kNone) return {i, found};
    }
    return {text.size(), kNone};
  }

  // The text is over: as feed, but nothing is waited for. Call it until it finds none.
  int finish(const MarkList& marks, std::string& passed) { return settle(marks, passed, true); }

  // Behind the mark that was found.
  std::string take_rest() { return std::move(rest_); }
  bool is_holding() const { return !held_.empty(); }
  size_t num_held() const { return held_.size(); }
  // What is held back, without looking for anything in it.
  std::string take_held() { return std::exchange(held_, {}); }

 private:
  int settle(const MarkList& marks, std::string& passed, bool is_last) {
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
    if (num_passed > 0) held_.erase(0, num_passed);
    return found;
  }

  // The longest mark that `held` begins with; may_come: a longer one begins with `held`.
  static int longest(std::string_view held, const MarkList& marks, bool& may_come) {
    int found = kNone;
    if (!marks.begins_with(held.front())) return found;
    for (size_t i = 0; i < marks.size(); ++i) {
      const std::string_view mark = marks[i];
      if (mark.empty() || mark.front() != held.front()) continue;
      // Most marks of a model begin alike and end otherwise.
      if (mark.size() <= held.size() && held[mark.size() - 1] != mark.back()) continue;
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
