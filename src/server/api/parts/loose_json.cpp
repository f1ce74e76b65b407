#include "server/api/parts/loose_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parse.hpp>

namespace headrace {
namespace {

constexpr size_t kMaxLevels = 64;
constexpr size_t kMaxWordBytes = 256;

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

}  // namespace

void append_escaped(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\r':
      out += "\\r";
      return;
    default:
      break;
  }
  if (static_cast<unsigned char>(c) < 0x20) {
    out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
  } else {
    out += c;
  }
}

std::string json_of_word(std::string_view word) {
  if (word == "True" || word == "true") return "true";
  if (word == "False" || word == "false") return "false";
  if (word == "None" || word == "null") return "null";
  boost::system::error_code failed;
  const auto value = boost::json::parse(word, failed);
  return !failed && value.is_number() ? std::string(word) : std::string();
}

LooseObject::Step LooseObject::feed(char c, std::string& json) {
  if (!started_) json += '{';
  started_ = true;
  if (quote_ != 0) {
    inside_text(c, json);
    return Step::kInside;
  }
  if (is_word_byte(c) || static_cast<unsigned char>(c) >= 0x80) {
    word_ += c;
    return word_.size() > kMaxWordBytes ? Step::kBroken : Step::kInside;
  }
  if (!word_.empty() && end_word(json) == Step::kBroken) return Step::kBroken;
  return is_blank(c) ? Step::kInside : mark(c, json);
}

LooseObject::Step LooseObject::mark(char c, std::string& json) {
  switch (c) {
    case '\'':
    case '"':
    case kMarkQuote:
      return open_text(c, json);
    case '{':
    case '[':
    case '(':
      return open_level(c, json);
    case '}':
    case ']':
    case ')':
      return close_level(c, json);
    case ',':
      if (phase_ != Phase::kNext) return Step::kBroken;
      phase_ = Phase::kItem;
      return Step::kInside;
    case ':':
    case '=':
      if (phase_ != Phase::kColon) return Step::kBroken;
      json += ':';
      phase_ = Phase::kValue;
      return Step::kInside;
    default:
      return Step::kBroken;
  }
}

LooseObject::Step LooseObject::open_level(char c, std::string& json) {
  if (!begin_item(json) || is_key_ || levels_.size() == kMaxLevels) return Step::kBroken;
  json += c == '{' ? '{' : '[';
  levels_.push_back({c == '{' ? '}' : c == '[' ? ']' : ')', c == '{'});
  phase_ = Phase::kItem;
  return Step::kInside;
}

LooseObject::Step LooseObject::close_level(char c, std::string& json) {
  const bool may_end = phase_ == Phase::kItem || phase_ == Phase::kNext;
  if (c != levels_.back().closing || !may_end) return Step::kBroken;
  json += levels_.back().is_object ? '}' : ']';
  levels_.pop_back();
  phase_ = Phase::kNext;
  return levels_.empty() ? Step::kEnds : Step::kInside;
}

LooseObject::Step LooseObject::open_text(char quote, std::string& json) {
  if (!begin_item(json)) return Step::kBroken;
  json += '"';
  quote_ = quote;
  return Step::kInside;
}

LooseObject::Step LooseObject::end_word(std::string& json) {
  if (!begin_item(json)) return Step::kBroken;
  const std::string value = is_key_ ? std::string() : json_of_word(word_);
  if (value.empty()) {
    json += '"';
    for (const char c : word_) append_escaped(json, c);
    json += '"';
  } else {
    json += value;
  }
  word_.clear();
  end_item();
  return Step::kInside;
}

bool LooseObject::begin_item(std::string& json) {
  if (phase_ != Phase::kItem && phase_ != Phase::kValue) return false;
  Level& level = levels_.back();
  is_key_ = level.is_object && phase_ == Phase::kItem;
  if (phase_ == Phase::kItem && level.any) json += ',';
  level.any = true;
  return true;
}

void LooseObject::end_item() { phase_ = is_key_ ? Phase::kColon : Phase::kNext; }

void LooseObject::inside_text(char c, std::string& json) {
  if (num_hex_ > 0 && is_hex(c)) return hex_digit(c, json);
  num_hex_ = 0;
  if (escaped_) {
    escaped_ = false;
    return escape(c, json);
  }
  if (c == quote_) {
    json += '"';
    quote_ = 0;
    end_item();
  } else if (c == '\\' && quote_ != kMarkQuote) {
    escaped_ = true;
  } else {
    append_escaped(json, c);
  }
}

// Escapes of Python; what is none keeps its backslash.
void LooseObject::escape(char c, std::string& json) {
  constexpr std::string_view kNamed = "ntrbf";
  hex_.clear();
  if (kNamed.find(c) != std::string_view::npos || c == '\\' || c == '"') {
    json += '\\';
    json += c;
  } else if (c == 'u' || c == 'x') {
    num_hex_ = c == 'u' ? 4 : 2;
  } else if (c != '\'' && c != '\n' && c != '/') {
    json += "\\\\";
    append_escaped(json, c);
  } else if (c != '\n') {
    json += c;
  }
}

void LooseObject::hex_digit(char c, std::string& json) {
  hex_ += c;
  if (--num_hex_ > 0) return;
  json += "\\u";
  json.append(4 - hex_.size(), '0');
  json += hex_;
}

}  // namespace headrace
