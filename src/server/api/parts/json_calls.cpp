#include "server/api/parts/json_calls.h"

#include <boost/json/parse.hpp>
#include <utility>

#include "server/api/parts/loose_json.h"

namespace headrace {
namespace {

constexpr size_t kMaxNameBytes = 256;
constexpr size_t kMaxHeadBytes = 2 * kMaxNameBytes;

// A JSON string without its quotes.
std::string unescaped(const std::string& text) {
  if (text.find('\\') == std::string::npos) return text;
  boost::system::error_code failed;
  const auto value = boost::json::parse("\"" + text + "\"", failed);
  if (failed || !value.is_string()) return text;
  return {value.get_string().data(), value.get_string().size()};
}

bool is_name_key(std::string_view key) { return key == "name" || key == "tool_name"; }
// What some models write beside the name.
bool is_usual_key(std::string_view key) { return key == "type" || key == "id"; }
bool is_arguments_key(std::string_view key) { return key == "arguments" || key == "parameters"; }

}  // namespace

JsonSpan::Step JsonSpan::feed(char c) {
  if (kind_ == Kind::kNone) return start(c);
  if (in_string_) return inside_string(c);
  if (kind_ == Kind::kWord) {
    const bool ends = c == ',' || c == '}' || c == ']' || is_blank(c);
    return ends ? Step::kBehind : Step::kInside;
  }
  if (c == '"') in_string_ = true;
  if (c == '{' || c == '[') ++depth_;
  if (c == '}' || c == ']') --depth_;
  return depth_ == 0 ? Step::kEnds : Step::kInside;
}

JsonSpan::Step JsonSpan::start(char c) {
  if (is_blank(c)) return Step::kInside;
  in_string_ = c == '"';
  const bool nests = c == '{' || c == '[';
  kind_ = nests ? Kind::kNested : in_string_ ? Kind::kText : Kind::kWord;
  depth_ = nests ? 1 : 0;
  return Step::kInside;
}

JsonSpan::Step JsonSpan::inside_string(char c) {
  if (std::exchange(escaped_, false)) return Step::kInside;
  escaped_ = c == '\\';
  if (c != '"') return Step::kInside;
  in_string_ = false;
  return kind_ == Kind::kText ? Step::kEnds : Step::kInside;
}

JsonCalls::Found JsonCalls::feed(char c) {
  Found found;
  if (!began_ && head_.size() < kMaxHeadBytes) head_ += c;
  switch (state_) {
    case State::kOutside:
      outside(c, found);
      break;
    case State::kKeyStart:
      key_start(c, found);
      break;
    case State::kKey:
      key(c, found);
      break;
    case State::kColon:
      if (c == ':') {
        state_ = State::kValue;
      } else {
        found.broken = !is_blank(c);
      }
      break;
    case State::kValue:
      value(c, found);
      break;
    case State::kBehindValue:
      behind_value(c, found);
      break;
  }
  return found;
}

void JsonCalls::outside(char c, Found& found) {
  if (is_blank(c)) return;
  if (c == '{') {
    state_ = State::kKeyStart;
    has_name_ = began_ = had_arguments_ = false;
    name_.clear();
    head_ = c;
    waiting_.clear();
  } else if (c == '[' && !in_list_) {
    in_list_ = true;
  } else if (c == ']' && in_list_) {
    in_list_ = false;
    found.closed = true;
  } else {
    found.broken = c != ',';
  }
}

void JsonCalls::key_start(char c, Found& found) {
  if (is_blank(c) || c == ',') return;
  if (c == '}') return end_call(found);
  state_ = State::kKey;
  text_.clear();
  found.broken = c != '"';
}

void JsonCalls::key(char c, Found& found) {
  if (c == '"' && !escaped_) return end_key(found);
  escaped_ = c == '\\' && !escaped_;
  text_ += c;
  found.broken = text_.size() > kMaxNameBytes;
}

void JsonCalls::end_key(Found& found) {
  state_ = State::kColon;
  span_ = {};
  const std::string key = unescaped(text_);
  text_.clear();
  member_ = is_arguments_key(key) ? Member::kArguments
            : is_name_key(key)    ? Member::kName
                                  : Member::kOther;
  const bool is_foreign = member_ == Member::kOther && !began_ && !is_usual_key(key);
  found.broken = bare_ && is_foreign;
  if (!keyed_) return;
  found.broken = has_name_ || key.empty();
  name_ = key;
  has_name_ = true;
  member_ = Member::kArguments;
}

void JsonCalls::value(char c, Found& found) {
  const JsonSpan::Step step = span_.feed(c);
  if (step == JsonSpan::Step::kBehind) {
    end_value(found);
    return behind_value(c, found);
  }
  if (member_ == Member::kName) {
    text_ += c;
    found.broken = text_.size() > kMaxNameBytes;
  }
  if (member_ == Member::kArguments) argument_byte(c, found);
  if (step == JsonSpan::Step::kEnds) end_value(found);
}

// Arguments may be written as a text that holds JSON: then what the text says.
void JsonCalls::argument_byte(char c, Found& found) {
  begin_call(found);
  std::string& out = began_ ? found.arguments : waiting_;
  had_arguments_ = had_arguments_ || !is_blank(c);
  if (!had_arguments_) return;
  if (!span_.is_text()) {
    out += c;
  } else if (std::exchange(escaped_, false)) {
    out += c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
  } else if (c == '\\') {
    escaped_ = true;
  } else if (c != '"') {
    out += c;
  }
}

void JsonCalls::end_value(Found& found) {
  state_ = State::kBehindValue;
  escaped_ = false;
  if (member_ != Member::kName) return;
  const size_t first = text_.find('"');
  const size_t last = text_.rfind('"');
  found.broken = first == last;
  if (found.broken) return;
  name_ = unescaped(text_.substr(first + 1, last - first - 1));
  found.broken = name_.empty();
  has_name_ = !name_.empty();
  if (!bare_ || had_arguments_) begin_call(found);
}

void JsonCalls::behind_value(char c, Found& found) {
  if (is_blank(c)) return;
  if (c == ',') {
    state_ = State::kKeyStart;
  } else if (c == '}') {
    end_call(found);
  } else {
    found.broken = true;
  }
}

void JsonCalls::begin_call(Found& found) {
  if (began_ || !has_name_) return;
  began_ = true;
  found.begins = true;
  found.arguments = std::move(waiting_);
  waiting_.clear();
}

void JsonCalls::end_call(Found& found) {
  state_ = State::kOutside;
  if (!has_name_ || name_.empty() || (bare_ && !began_)) {
    found.broken = true;
    return;
  }
  begin_call(found);
  if (!had_arguments_) found.arguments += "{}";
  found.ends = true;
  found.closed = !in_list_;
}

}  // namespace headrace
