// JsonCalls: reads calls written as JSON objects, byte by byte: {"name": "f", "arguments": {...}},
// alone, in a row, in a list; or {"f": {...}}. Arguments are passed on as they are written, when
// the name is known. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace headrace {

// Tells where a JSON value ends, byte by byte. Objects and lists are matched by depth alone: what
// is inside is the business of who reads the value.
class JsonSpan {
 public:
  enum class Step : uint8_t { kInside, kEnds, kBehind };  // kBehind: the byte is behind the value
  Step feed(char c);
  bool is_text() const { return kind_ == Kind::kText; }

 private:
  enum class Kind : uint8_t { kNone, kNested, kText, kWord };
  Step start(char c);
  Step inside_string(char c);

  Kind kind_ = Kind::kNone;
  int64_t depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

class JsonCalls {
 public:
  // What a byte brought; in this order.
  struct Found {
    bool begins = false;    // a call: its name is `name`
    std::string arguments;  // of the call, further
    bool ends = false;      // the call is complete
    bool closed = false;    // the list, or the object that stands alone, is complete
    bool broken = false;    // this is no call: nothing more may be fed
  };

  // keyed: the name is the key of the arguments. bare: nothing but what is written says that these
  // are calls, so that they must have arguments, and before these no key that is none of a call's.
  JsonCalls(bool keyed, bool bare) : keyed_(keyed), bare_(bare) {}
  Found feed(char c);
  const std::string& name() const { return name_; }
  // What stands before the arguments of the call that has just begun, if that is not long.
  const std::string& head() const { return head_; }
  // Nothing was read but blanks, or all that was opened is closed.
  bool is_between() const { return state_ == State::kOutside && !in_list_; }

 private:
  enum class State : uint8_t {
    kOutside,  // before, between and behind calls
    kKeyStart,
    kKey,
    kColon,
    kValue,
    kBehindValue,
  };
  enum class Member : uint8_t { kOther, kName, kArguments };

  void outside(char c, Found& found);
  void key_start(char c, Found& found);
  void key(char c, Found& found);
  void end_key(Found& found);
  void value(char c, Found& found);
  void behind_value(char c, Found& found);
  void end_value(Found& found);
  void argument_byte(char c, Found& found);
  void begin_call(Found& found);
  void end_call(Found& found);

  bool keyed_, bare_;
  State state_ = State::kOutside;
  bool in_list_ = false;
  Member member_ = Member::kOther;
  std::string text_;      // of the key or the name, as it is written
  JsonSpan span_;         // of the value
  bool escaped_ = false;  // the last byte of a key, or of arguments that are text
  std::string name_;
  bool has_name_ = false;
  bool began_ = false;
  std::string head_;
  std::string waiting_;  // arguments before the name is known
  bool had_arguments_ = false;
};

}  // namespace headrace
