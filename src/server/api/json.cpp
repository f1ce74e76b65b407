// parse_body is a parser that builds the value and, on the way, sees what a finished value no
// longer shows: keys that are given twice, and numbers that no double holds.

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_stack.hpp>
#include <cmath>
#include <optional>

#include "server/api/json.h"
#include "server/api/json_writer.h"

namespace headrace {
namespace {

namespace json = boost::json;

constexpr size_t kMaxObjectKeys = 10'000;

// Told of each part of the text in order; false ends the parse. Keys are compared by sorting, so
// that no choice of keys makes it slow.
class BodyHandler {
 public:
  static constexpr size_t max_object_size = json::object::max_size();
  static constexpr size_t max_array_size = json::array::max_size();
  static constexpr size_t max_key_size = json::string::max_size();
  static constexpr size_t max_string_size = json::string::max_size();
  using Code = json::error_code;

  bool on_document_begin(Code&) { return stack_.reset(), true; }
  bool on_document_end(Code&) { return true; }
  bool on_object_begin(Code&) { return first_keys_.push_back(keys_.size()), true; }
  bool on_object_end(size_t count, Code& code) {
    stack_.push_object(count);
    return check_keys(code);
  }
  bool on_array_begin(Code&) { return true; }
  bool on_array_end(size_t count, Code&) { return stack_.push_array(count), true; }
  bool on_key_part(json::string_view text, size_t, Code&) {
    part_ += text;
    return stack_.push_chars(text), true;
  }
  bool on_key(json::string_view text, size_t, Code& code) {
    part_ += text;
    keys_.push_back(std::exchange(part_, {}));
    if (keys_.size() - first_keys_.back() > kMaxObjectKeys) {
      return fail(make_error(ErrorCode::kInvalidArgument,
                             "an object of the body has more than {} keys", kMaxObjectKeys),
                  code);
    }
    return stack_.push_key(text), true;
  }
  bool on_string_part(json::string_view text, size_t, Code&) {
    return stack_.push_chars(text), true;
  }
  bool on_string(json::string_view text, size_t, Code&) { return stack_.push_string(text), true; }
  bool on_number_part(json::string_view, Code&) { return true; }
  bool on_int64(int64_t value, json::string_view, Code&) { return stack_.push_int64(value), true; }
  bool on_uint64(uint64_t value, json::string_view, Code&) {
    return stack_.push_uint64(value), true;
  }
  bool on_double(double value, json::string_view, Code& code) {
    if (!std::isfinite(value)) {
      return fail(Error{ErrorCode::kInvalidArgument,
                        "the body holds a number beyond the range of a double (about 1.8e308)",
                        {},
                        {}},
                  code);
    }
    return stack_.push_double(value), true;
  }
  bool on_bool(bool value, Code&) { return stack_.push_bool(value), true; }
  bool on_null(Code&) { return stack_.push_null(), true; }
  bool on_comment_part(json::string_view, Code&) { return true; }
  bool on_comment(json::string_view, Code&) { return true; }

  json::value release() { return stack_.release(); }
  const std::optional<Error>& refusal() const { return refusal_; }

 private:
  // The keys of the object that ends are the last ones.
  bool check_keys(Code& code) {
    const auto begin = keys_.begin() + static_cast<int64_t>(first_keys_.back());
    first_keys_.pop_back();
    std::sort(begin, keys_.end());
    const auto twice = std::adjacent_find(begin, keys_.end());
    if (twice != keys_.end()) {
      const std::string shown = show_value(json::string(*twice));
      return fail(Error{ErrorCode::kInvalidArgument,
                        fmt::format("the body gives the key {} more than once in one object, "
                                    "but each may be given once",
                                    shown),
                        {},
                        twice->substr(0, 64)},
                  code);
    }
    keys_.erase(begin, keys_.end());
    return true;
  }

  bool fail(Error error, Code& code) {
    refusal_ = std::move(error);
    code = json::error::exception;  // any: refusal_ says what it is
    return false;
  }

  json::value_stack stack_;
  std::string part_;                // of a key that comes in parts
  std::vector<std::string> keys_;   // of all open objects
  std::vector<size_t> first_keys_;  // where those of each open object begin
  std::optional<Error> refusal_;
};

// Does such an escape begin there? "\ud83d"; the first half of a pair or the second.
bool is_half(std::string_view text, size_t begin, std::string_view digits) {
  if (begin > 0 && text[begin - 1] == '\\') return false;  // no escape: a backslash before a "u"
  const std::string_view escape = text.substr(begin, 4);
  return escape.size() == 4 && (escape.starts_with("\\ud") || escape.starts_with("\\uD")) &&
         digits.find(escape[3]) != digits.npos;
}

// Where the half is that was read last. It is known at its "u", at its end, or where the other half
// should stand.
std::optional<size_t> half_before(std::string_view text, size_t offset) {
  constexpr std::string_view kFirst = "89abAB", kSecond = "cdefCDEF";
  for (const size_t read : {size_t{1}, size_t{6}, size_t{7}, size_t{8}}) {
    if (read > offset) break;
    const size_t begin = offset - read;
    if (is_half(text, begin, kFirst)) return begin;
    const bool is_paired = begin >= 6 && is_half(text, begin - 6, kFirst);
    if (is_half(text, begin, kSecond) && !is_paired) return begin;
  }
  return std::nullopt;
}

bool is_broken_utf8(std::string_view text, size_t begin) {
  const auto lead = static_cast<unsigned char>(text[begin]);
  if (lead < 0x80) return false;
  return !is_valid_utf8(text.substr(begin, lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4));
}

// What the library calls a syntax error, where it is one that clients make: text that was cut
// inside of a character, or that no JSON writer has seen.
Error bad_json(std::string_view reason, std::string_view text, size_t offset) {
  const auto error = [](std::string_view what, size_t place) {
    return make_error(ErrorCode::kInvalidArgument, "the body is not valid JSON: {} at byte {}",
                      what, place);
  };
  if (text.starts_with("\xEF\xBB\xBF")) return error("a byte order mark", 0);
  if (const auto half = half_before(text, offset)) return error("half of a surrogate pair", *half);
  if (offset < text.size()) {
    if (is_broken_utf8(text, offset)) return error("a character that is not whole UTF-8", offset);
    if (static_cast<unsigned char>(text[offset]) < 0x20) {
      return error("a control character that is not escaped", offset);
    }
  }
  return error(reason, offset);
}

}  // namespace

std::string to_text(const boost::json::value& value) { return boost::json::serialize(value); }

std::string object_text(std::string_view text) {
  const auto parsed = parse_json(text, "an object");
  return parsed.ok() && parsed->is_object() ? to_text(*parsed) : "{}";
}

std::string show_value(const boost::json::value& value) {
  constexpr size_t kMaxShown = 40;
  if (value.is_array()) return fmt::format("a list of {}", value.get_array().size());
  if (value.is_object()) return "an object";
  if (value.is_double()) return fmt::format("{}", value.get_double());
  if (value.is_string() && value.get_string().size() > kMaxShown) {
    return fmt::format("a string of {} bytes", value.get_string().size());
  }
  return to_text(value);
}

std::string_view type_name(const boost::json::value& value) {
  switch (value.kind()) {
    case boost::json::kind::null:
      return "null";
    case boost::json::kind::bool_:
      return "a boolean";
    case boost::json::kind::int64:
    case boost::json::kind::uint64:
      return "an integer";
    case boost::json::kind::double_:
      return "a number";
    case boost::json::kind::string:
      return "a string";
    case boost::json::kind::array:
      return "a list";
    case boost::json::kind::object:
      return "an object";
  }
  return "a value";
}

Result<json::value> parse_body(std::string_view text) {
  json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  json::basic_parser<BodyHandler> parser(options);
  json::error_code code;
  try {
    const size_t consumed = parser.write_some(false, text.data(), text.size(), code);
    if (parser.handler().refusal()) return Error(*parser.handler().refusal());
    if (!code && consumed < text.size()) code = json::error::extra_data;
    if (code) return bad_json(code.message(), text, consumed);
    return parser.handler().release();
  } catch (const std::exception& error) {
    return make_error(ErrorCode::kExhausted, "the body cannot be parsed as JSON: {}", error.what());
  }
}

}  // namespace headrace
