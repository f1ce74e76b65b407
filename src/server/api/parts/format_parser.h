// FormatParser: a model's answer byte by byte to its parts, in the states of one format
// (part_parser.h). Each byte leads from one state to the next, so parts do not depend on how the
// text was cut; what ends in the middle of a mark is held. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/parts/call_values.h"
#include "server/api/parts/format_marks.h"
#include "server/api/parts/json_calls.h"
#include "server/api/parts/loose_json.h"
#include "server/api/parts/mark_scanner.h"
#include "server/api/parts/part_output.h"
#include "server/api/parts/part_parser.h"

namespace headrace {

class FormatParser final : public PartParser {
 public:
  explicit FormatParser(PartOptions options);
  std::vector<OutputPart> push(std::string_view text) override;
  std::vector<OutputPart> finish(bool is_cut) override;
  bool is_reasoning() const override { return state_ == State::kReasoning; }
  bool is_text() const override {
    return state_ == State::kText || (state_ != State::kReasoning && !is_sure_);
  }

 private:
  enum class State : uint8_t {
    kText,
    kReasoning,
    kJson,     // calls as JSON objects
    kBetween,  // before a call of the styles with marks around names
    kName,
    kSeekObject,  // before the arguments
    kObject,      // in them
    kBehind,      // after them, before call_close
    kParams,
    kKey,
    kSeekValue,
    kValue,
    kPython,  // before a name, or in it
    kLoose,   // in arguments in braces or parentheses
    kSkip,    // behind what broke
  };

  void feed(std::string_view text);
  // Reads until something has to be looked at again; how many bytes were read.
  size_t feed_once(std::string_view text);
  // Text or reasoning up to and with the next mark, as far as it is sure; how many bytes.
  size_t feed_sure(std::string_view text);
  size_t take_back(std::string_view text, size_t num_read);
  size_t join_held(std::string_view text);
  // Null: the state has more to do than to look for marks.
  const MarkList* sure_marks() const;
  void step(char c);
  void again(std::string bytes);
  // The scanner's answer to a byte; what is no mark goes to `passed_`.
  int scan(char c, const MarkList& marks);
  // Goes on in another state with what the scanner held.
  void enter(State state, std::string_view unread = {});

  void text_step(char c);
  bool is_in_place(FormatMarks::Act act) const;
  void on_text_mark(size_t mark);
  void say(std::string_view bytes);
  void reasoning_step(char c);
  void reason(std::string_view bytes);
  void end_reasoning();

  bool opens_bare(char c) const;
  void open_calls(size_t open_idx);
  void open_bare(char c);
  void open_fence();
  void begin_calls(std::string_view mark, bool named);
  void leave_calls(std::string_view unread = {});
  void break_off(std::string_view unread = {});
  bool is_held() const;
  bool begin_call(std::string name);
  void add_arguments(std::string_view json);
  void end_call();
  void next_call();

  void json_step(char c);
  bool json_byte(char c);
  void between_step(char c);
  void name_step(char c);
  void end_name(std::string_view mark);
  void seek_object_step(char c);
  void object_step(char c);
  void behind_step(char c);
  void params_step(char c);
  void end_params(bool section);
  void key_step(char c);
  void begin_value();
  void value_step(char c);
  void value_bytes(std::string_view bytes);
  void value_byte(char c);
  void end_value();
  void python_step(char c);
  bool python_byte(char c);
  void loose_step(char c);
  bool loose_byte(char c);
  void skip_step(char c);
  void finish_text();

  const PartOptions options_;
  const ToolFormat* const format_;
  PartOutput out_;
  State state_ = State::kText;
  MarkScanner scanner_;
  std::string passed_;
  std::string again_;  // bytes to be looked at before any other

  const FormatMarks marks_;

  bool at_start_ = true;      // no text yet
  bool behind_call_ = false;  // and no text since
  // A section of calls: what was read of it until a call was sure.
  bool is_bare_ = false;
  bool is_sure_ = false;
  std::string raw_;
  size_t opened_bytes_ = 0;

  int num_calls_ = 0;
  bool in_call_ = false;
  bool has_arguments_ = false;  // some were told
  std::string name_;
  bool name_over_ = false;  // a blank came behind it
  JsonCalls json_{false, false};
  JsonSpan span_;
  LooseObject loose_{'}'};
  std::string key_, value_;
  ValueType value_type_ = ValueType::kText;
  bool at_value_start_ = false;
  bool newline_ = false;  // the last byte of the value, which may be padding
  bool in_data_ = false;
};

}  // namespace headrace
