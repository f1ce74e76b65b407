#include "server/api/parts/format_parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/api/parts/call_values.h"

namespace headrace {
namespace {

constexpr size_t kMaxCallNameBytes = 256;
// Of what looked like a call, as much is looked at again for marks.
constexpr size_t kRescanBytes = 64;

bool is_name_byte(char c) {
  constexpr std::string_view kNever = "<>{}()[]\"'`,;";
  return static_cast<unsigned char>(c) > 0x20 && kNever.find(c) == std::string_view::npos;
}

}  // namespace

FormatParser::FormatParser(PartOptions options)
    : options_(std::move(options)), format_(options_.format), marks_(options_.reasoning, format_) {
  if (options_.reasoning != nullptr && options_.starts_reasoning) {
    state_ = State::kReasoning;
    out_.cut();
  }
}

std::vector<OutputPart> FormatParser::push(std::string_view text) {
  feed(text);
  return out_.take();
}

void FormatParser::feed(std::string_view text) {
  while (!text.empty() || !again_.empty()) {
    if (again_.empty()) text.remove_prefix(feed_once(text));
    while (!again_.empty()) {
      const std::string bytes = std::exchange(again_, {});
      const size_t num_read = feed_once(bytes);
      again_.append(bytes, num_read);
    }
    text.remove_prefix(join_held(text));
  }
}

// What is held of earlier text is looked at together with what follows it.
size_t FormatParser::join_held(std::string_view text) {
  constexpr size_t kMarks = 4;
  const MarkList* marks = sure_marks();
  if (marks == nullptr || !scanner_.is_holding() || text.size() < marks->longest()) return 0;
  const std::string_view next = text.substr(0, kMarks * marks->longest());
  again_ = scanner_.take_held();
  again_ += next;
  return next.size();
}

size_t FormatParser::feed_once(std::string_view text) {
  size_t num_read = 0;
  while (num_read < text.size() && again_.empty()) {
    const size_t num_sure = feed_sure(text.substr(num_read));
    if (num_sure == 0) step(text[num_read]);
    num_read += std::max<size_t>(num_sure, 1);
    num_read -= take_back(text, num_read);
  }
  return num_read;
}

// What is held of this text, where more of it can be looked at together.
size_t FormatParser::take_back(std::string_view text, size_t num_read) {
  const MarkList* marks = sure_marks();
  const size_t num_held = scanner_.num_held();
  if (marks == nullptr || num_held == 0 || num_held > num_read) return 0;
  if (text.size() - num_read + num_held < marks->longest()) return 0;
  return scanner_.take_held().size();
}

const MarkList* FormatParser::sure_marks() const {
  if (state_ == State::kReasoning) return &marks_.reasoning;
  return state_ == State::kText && !at_start_ && !behind_call_ ? &marks_.text : nullptr;
}

size_t FormatParser::feed_sure(std::string_view text) {
  const MarkList* marks = sure_marks();
  if (marks == nullptr || scanner_.is_holding()) return 0;
  const auto [num_plain, mark] = MarkScanner::look(text, *marks);
  const bool in_text = state_ == State::kText;
  in_text ? say(text.substr(0, num_plain)) : reason(text.substr(0, num_plain));
  if (mark == MarkScanner::kNone) return num_plain;
  const auto found = static_cast<size_t>(mark);
  const size_t num_bytes = num_plain + (*marks)[found].size();
  in_text ? on_text_mark(found) : end_reasoning();
  return num_bytes;
}

// Bytes that come once more are no part of what was read.
void FormatParser::again(std::string bytes) {
  if (state_ != State::kText && state_ != State::kReasoning && !is_sure_) {
    raw_.resize(raw_.size() - std::min(raw_.size(), bytes.size()));
  }
  again_ = std::move(bytes) + again_;
}

void FormatParser::step(char c) {
  if (state_ == State::kText) return text_step(c);
  if (state_ == State::kReasoning) return reasoning_step(c);
  if (!is_sure_) raw_ += c;
  switch (state_) {
    case State::kText:
    case State::kReasoning:
      return;
    case State::kJson:
      return json_step(c);
    case State::kBetween:
      return between_step(c);
    case State::kName:
      return name_step(c);
    case State::kSeekObject:
      return seek_object_step(c);
    case State::kObject:
      return object_step(c);
    case State::kBehind:
      return behind_step(c);
    case State::kParams:
      return params_step(c);
    case State::kKey:
      return key_step(c);
    case State::kSeekValue:
      if (scan(c, marks_.seek_value) != MarkScanner::kNone) begin_value();
      return;
    case State::kValue:
      return value_step(c);
    case State::kPython:
      return python_step(c);
    case State::kLoose:
      return loose_step(c);
    case State::kSkip:
      return skip_step(c);
  }
}

int FormatParser::scan(char c, const MarkList& marks) {
  passed_.clear();
  const int found = scanner_.feed(c, marks, passed_);
  if (found != MarkScanner::kNone) {
    std::string rest = scanner_.take_rest();
    if (!rest.empty()) again(std::move(rest));
  }
  return found;
}

void FormatParser::enter(State state, std::string_view unread) {
  std::string bytes = std::string(unread) + scanner_.take_held();
  if (!bytes.empty()) again(std::move(bytes));
  state_ = state;
}

// Text and reasoning.

void FormatParser::text_step(char c) {
  if (opens_bare(c)) return open_bare(c);
  if (is_bare_ && behind_call_ && c == ';') return;
  const int found = scan(c, marks_.text);
  say(passed_);
  if (found != MarkScanner::kNone) on_text_mark(static_cast<size_t>(found));
}

void FormatParser::say(std::string_view bytes) {
  if (bytes.empty()) return;
  const bool blank = trimmed(bytes).empty();
  out_.text(bytes, at_start_ || format_ != nullptr);
  if (!blank) at_start_ = behind_call_ = false;
}

// Does this mark mean something where the text is, or is it spoken of?
bool FormatParser::is_in_place(FormatMarks::Act act) const {
  switch (act) {
    case FormatMarks::Act::kReason:
    case FormatMarks::Act::kEndReason:
      return at_start_ || options_.reasoning->anywhere;
    case FormatMarks::Act::kOpenFence:
      return at_start_ || behind_call_;
    case FormatMarks::Act::kOpen:
    case FormatMarks::Act::kSilent:
      return true;
  }
  return true;
}

void FormatParser::on_text_mark(size_t mark) {
  const auto [act, open_idx] = marks_.text_acts[mark];
  if (!is_in_place(act)) return say(marks_.text[mark]);
  switch (act) {
    case FormatMarks::Act::kOpen:
      return open_calls(open_idx);
    case FormatMarks::Act::kOpenFence:
      return open_fence();
    case FormatMarks::Act::kReason:
      state_ = State::kReasoning;
      if (!options_.reasoning_apart) return out_.text(marks_.text[mark], false);
      return out_.cut();
    case FormatMarks::Act::kEndReason:
    case FormatMarks::Act::kSilent:
      return out_.cut();
  }
}

void FormatParser::reasoning_step(char c) {
  const int found = scan(c, marks_.reasoning);
  reason(passed_);
  if (found != MarkScanner::kNone) end_reasoning();
}

void FormatParser::reason(std::string_view bytes) {
  if (bytes.empty()) return;
  options_.reasoning_apart ? out_.reasoning(bytes) : out_.text(bytes, false);
}

void FormatParser::end_reasoning() {
  state_ = State::kText;
  at_start_ = true;
  if (options_.reasoning_apart) return out_.cut();
  out_.text(options_.reasoning->close, false);
}

// Sections of calls.

// Calls without marks: the answer is one from its first byte on.
bool FormatParser::opens_bare(char c) const {
  if (format_ == nullptr || scanner_.is_holding() || !(at_start_ || behind_call_)) return false;
  return format_->bare != 0 && c == format_->bare;
}

void FormatParser::open_bare(char c) {
  is_bare_ = true;
  begin_calls(std::string_view(&c, 1), false);
  opened_bytes_ = 1;
  c == '{' ? json_step(c) : python_step(c);
}

// A block of code that holds one.
void FormatParser::open_fence() {
  is_bare_ = true;
  begin_calls(format_->fence_open, false);
}

void FormatParser::open_calls(size_t open_idx) {
  const std::string_view mark = format_->opens[open_idx];
  is_bare_ = false;
  const bool is_call = format_->call_open.empty() || format_->call_open == mark;
  begin_calls(mark, is_call);
}

// named: the name follows at once.
void FormatParser::begin_calls(std::string_view mark, bool named) {
  is_sure_ = false;
  raw_ = mark;
  opened_bytes_ = mark.size();
  name_.clear();
  name_over_ = false;
  switch (format_->style) {
    case CallStyle::kJson:
    case CallStyle::kKeyed:
      json_ = JsonCalls(format_->style == CallStyle::kKeyed, is_bare_);
      state_ = State::kJson;
      return;
    case CallStyle::kPython:
      state_ = State::kPython;
      return;
    case CallStyle::kTagged:
    case CallStyle::kParams:
    case CallStyle::kBraces:
      state_ = named ? State::kName : State::kBetween;
      return;
  }
}

void FormatParser::leave_calls(std::string_view unread) {
  if (in_call_) end_call();
  enter(State::kText, unread);
  raw_.clear();
  behind_call_ = true;
}

// This is no call. What was read is text again, or, if some call was sure, left out.
void FormatParser::break_off(std::string_view unread) {
  if (is_sure_) {
    if (in_call_) end_call();
    enter(State::kSkip, unread);
    if (marks_.behind.empty()) leave_calls();
    return;
  }
  scanner_.take_held();
  const std::string raw = std::exchange(raw_, {});
  state_ = State::kText;
  at_start_ = behind_call_ = false;
  const size_t plain = std::max(opened_bytes_, raw.size() - std::min(raw.size(), kRescanBytes));
  say(std::string_view(raw).substr(0, plain));
  if (plain < raw.size()) again_ = raw.substr(plain) + again_;
}

// Was the JSON call that begins held to its tool's schema?
bool FormatParser::is_held() const {
  const auto writings = bare_writings(*format_);
  return !is_bare_ || writings.empty() ||
         std::ranges::any_of(writings, [&](const CallWriting& writing) {
           return json_.head() == begin_of_call(writing, json_.name());
         });
}

// False: there is no such tool, and nothing else says that this is a call.
bool FormatParser::begin_call(std::string name) {
  if (is_bare_ && !options_.tools->has(name)) return false;
  if (!is_sure_) out_.cut();
  is_sure_ = in_call_ = true;
  has_arguments_ = false;
  at_start_ = false;
  raw_.clear();
  name_ = std::move(name);
  if (options_.parallel || num_calls_ == 0) out_.call(num_calls_, options_.make_call_id(), name_);
  return true;
}

void FormatParser::add_arguments(std::string_view json) {
  has_arguments_ = has_arguments_ || !json.empty();
  if (options_.parallel || num_calls_ == 0) out_.arguments(num_calls_, json);
}

void FormatParser::end_call() {
  if (!has_arguments_) add_arguments("{}");
  in_call_ = false;
  ++num_calls_;
}

void FormatParser::next_call() {
  if (in_call_) end_call();
  if (format_->call_open.empty() && format_->style != CallStyle::kPython) return leave_calls();
  enter(format_->style == CallStyle::kPython ? State::kPython : State::kBetween);
}

// JSON.

void FormatParser::json_step(char c) {
  if (!json_.is_between()) {
    json_byte(c);
    return;
  }
  const int found = scan(c, marks_.json);
  const std::string bytes = std::exchange(passed_, {});
  for (size_t i = 0; i < bytes.size(); ++i) {
    const bool goes_on = is_blank(bytes[i]) || bytes[i] == ',' || bytes[i] == '{' ||
                         bytes[i] == '[' || !json_.is_between();
    if (!goes_on && is_sure_) return leave_calls(std::string_view(bytes).substr(i));
    if (!goes_on) return break_off();
    if (!json_byte(bytes[i])) return;
  }
  const auto num_closes = given(format_->closes).size();
  if (found != MarkScanner::kNone && static_cast<size_t>(found) < num_closes) {
    is_sure_ ? leave_calls() : break_off();
  }
}

// False: the section is over.
bool FormatParser::json_byte(char c) {
  JsonCalls::Found found = json_.feed(c);
  if (found.begins && !(is_held() && begin_call(json_.name()))) found.broken = true;
  if (found.broken) {
    break_off();
    return false;
  }
  add_arguments(in_call_ ? std::string_view(found.arguments) : std::string_view());
  if (found.ends) end_call();
  const bool over = found.closed && is_sure_ && given(format_->closes).empty();
  if (over) leave_calls();
  return !over;
}

// Names.

void FormatParser::between_step(char c) {
  const int found = scan(c, marks_.between);
  const std::string bytes = passed_;
  for (size_t i = 0; i < bytes.size() && !format_->skips_to_call; ++i) {
    if (is_blank(bytes[i])) continue;
    return is_sure_ ? leave_calls(std::string_view(bytes).substr(i)) : break_off();
  }
  if (found == MarkScanner::kNone) return;
  if (found > 0) return is_sure_ ? leave_calls() : break_off();
  name_.clear();
  name_over_ = false;
  state_ = State::kName;
}

void FormatParser::name_step(char c) {
  const int found = scan(c, marks_.name);
  for (const char byte : passed_) {
    if (is_blank(byte)) {
      name_over_ = !name_.empty();
    } else if (name_over_ || !is_name_byte(byte) || name_.size() == kMaxCallNameBytes) {
      return break_off();
    } else {
      name_ += byte;
    }
  }
  if (found != MarkScanner::kNone) end_name(marks_.name[static_cast<size_t>(found)]);
}

void FormatParser::end_name(std::string_view mark) {
  if (name_.empty() && !is_blank(mark.front())) return break_off();
  if (name_.empty()) return;
  begin_call(format_->counts_calls ? without_count(name_) : name_);
  switch (format_->style) {
    case CallStyle::kParams:
      state_ = State::kParams;
      key_.clear();
      if (mark == format_->param_open) state_ = State::kKey;
      if (mark == format_->call_close) end_params(false);
      return;
    case CallStyle::kBraces:
      loose_ = LooseObject('}');
      state_ = State::kLoose;
      return;
    default:
      state_ = State::kSeekObject;
      return;
  }
}

// Arguments as JSON.

void FormatParser::seek_object_step(char c) {
  const int found = scan(c, marks_.behind);
  const size_t at = passed_.find('{');
  if (at != std::string::npos) {
    span_ = {};
    return enter(State::kObject, passed_.substr(at));
  }
  if (found != MarkScanner::kNone) next_call();
}

void FormatParser::object_step(char c) {
  add_arguments(std::string_view(&c, 1));
  if (span_.feed(c) != JsonSpan::Step::kEnds) return;
  if (format_->call_close.empty()) return next_call();
  state_ = State::kBehind;
}

void FormatParser::behind_step(char c) {
  const int found = scan(c, marks_.behind);
  if (found == MarkScanner::kNone) return;
  found == 0 ? next_call() : leave_calls();
}

// Arguments between marks.

void FormatParser::params_step(char c) {
  const int found = scan(c, marks_.params);
  if (found == MarkScanner::kNone) return;
  if (found > 0) return end_params(found > 1);
  key_.clear();
  state_ = State::kKey;
}

// section: no other call follows.
void FormatParser::end_params(bool section) {
  add_arguments(has_arguments_ ? "}" : "{}");
  section ? leave_calls() : next_call();
}

void FormatParser::key_step(char c) {
  const int found = scan(c, marks_.key);
  key_ += passed_;
  if (key_.size() > kMaxCallNameBytes) return break_off();
  if (found == MarkScanner::kNone) return;
  value_type_ = options_.tools->type_of(name_, key_);
  if (format_->says_type && found < 2) {
    value_type_ = found == 0 ? ValueType::kText : ValueType::kJson;
  }
  if (!format_->value_open.empty()) {
    state_ = State::kSeekValue;
  } else {
    begin_value();
  }
}

void FormatParser::begin_value() {
  std::string json = has_arguments_ ? ", " : "{";
  json += quoted(trimmed(key_)) + ": ";
  if (value_type_ == ValueType::kText) json += '"';
  add_arguments(json);
  value_.clear();
  at_value_start_ = true;
  newline_ = in_data_ = false;
  state_ = State::kValue;
}

void FormatParser::value_step(char c) {
  const int found = scan(c, in_data_ ? marks_.data : marks_.value);
  value_bytes(passed_);
  if (found == MarkScanner::kNone) return;
  if (in_data_) {
    in_data_ = false;
  } else if (found == 0) {
    end_value();
  } else if (at_value_start_) {
    in_data_ = true;
  } else {
    value_bytes(kDataOpen);
  }
}

// A newline on either side may be padding.
void FormatParser::value_bytes(std::string_view bytes) {
  for (const char c : bytes) {
    const bool is_padding = at_value_start_ && c == '\n' && format_->pads_values;
    at_value_start_ = false;
    if (is_padding) continue;
    if (newline_) value_byte('\n');
    newline_ = c == '\n' && format_->pads_values;
    if (!newline_) value_byte(c);
  }
}

void FormatParser::value_byte(char c) {
  if (value_type_ != ValueType::kText) {
    value_ += c;
    return;
  }
  std::string escaped;
  append_escaped(escaped, c);
  add_arguments(escaped);
}

void FormatParser::end_value() {
  add_arguments(value_type_ == ValueType::kText ? "\"" : value_json(value_, value_type_));
  state_ = State::kParams;
}

// Names with arguments in parentheses, and arguments in braces.

void FormatParser::python_step(char c) {
  const int found = scan(c, marks_.json);
  const std::string bytes = passed_;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (!python_byte(bytes[i])) {
      return is_sure_ ? leave_calls(std::string_view(bytes).substr(i)) : break_off();
    }
    if (state_ != State::kPython) return enter(state_, std::string_view(bytes).substr(i + 1));
  }
  const auto num_closes = given(format_->closes).size();
  if (found != MarkScanner::kNone && static_cast<size_t>(found) < num_closes) {
    is_sure_ ? leave_calls() : break_off();
  }
}

bool FormatParser::python_byte(char c) {
  if (is_word_byte(c) && !name_over_ && name_.size() < kMaxCallNameBytes) {
    name_ += c;
    return true;
  }
  if (c == '(' && !name_.empty()) {
    if (!begin_call(name_)) return false;
    loose_ = LooseObject(')');
    state_ = State::kLoose;
    return true;
  }
  if (is_blank(c)) {
    name_over_ = !name_.empty();
    return true;
  }
  return name_.empty() && (c == '[' || c == ']' || c == ',' || c == ';');
}

void FormatParser::loose_step(char c) {
  const int found = scan(c, marks_.loose);
  const std::string bytes = passed_;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (!loose_byte(bytes[i])) {
      if (i + 1 < bytes.size()) again(bytes.substr(i + 1));
      return;
    }
  }
  if (found != MarkScanner::kNone) loose_byte(LooseObject::kMarkQuote);
}

// False: the arguments are over.
bool FormatParser::loose_byte(char c) {
  std::string json;
  const LooseObject::Step step = loose_.feed(c, json);
  add_arguments(json);
  if (step == LooseObject::Step::kInside) return true;
  if (step == LooseObject::Step::kBroken) {
    break_off();
    return false;
  }
  name_.clear();
  name_over_ = false;
  next_call();
  return false;
}

void FormatParser::skip_step(char c) {
  if (scan(c, marks_.behind) != MarkScanner::kNone) leave_calls();
}

void FormatParser::finish_text() {
  for (int found = 0; found != MarkScanner::kNone;) {
    passed_.clear();
    const bool reasons = state_ == State::kReasoning;
    found = scanner_.finish(reasons ? marks_.reasoning : marks_.text, passed_);
    reasons ? reason(passed_) : say(passed_);
    const std::string rest = scanner_.take_rest();
    if (found == MarkScanner::kNone) break;
    reasons ? end_reasoning() : on_text_mark(static_cast<size_t>(found));
    feed(rest);
    if (state_ != State::kText && state_ != State::kReasoning) break;
  }
}

// What was not completed: a call that is sure stays as far as it came, all else is text. Where the
// model ended its answer behind a name, the call has no arguments.
std::vector<OutputPart> FormatParser::finish(bool is_cut) {
  if (state_ == State::kText || state_ == State::kReasoning) finish_text();
  const bool in_calls = state_ != State::kText && state_ != State::kReasoning;
  if (in_calls && !is_sure_) say(std::exchange(raw_, {}));
  if (state_ == State::kValue) value_bytes(scanner_.take_held());
  if (in_call_ && !has_arguments_ && !is_cut) end_call();
  out_.finish();
  return out_.take();
}

std::unique_ptr<PartParser> make_part_parser(PartOptions options) {
  return std::make_unique<FormatParser>(std::move(options));
}

}  // namespace headrace
