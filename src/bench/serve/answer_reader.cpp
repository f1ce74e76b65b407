#include "bench/serve/answer_reader.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "base/json.h"

namespace headrace::loads {
namespace {

namespace json = boost::json;

constexpr size_t kShownBytes = 200;
constexpr size_t kLongestLine = size_t{16} << 20;

std::string_view text_member(const json::value* value, std::string_view key) {
  const json::value* member = json_member(value, key);
  return member != nullptr && member->is_string() ? std::string_view(member->get_string())
                                                  : std::string_view();
}

double number_member(const json::value* value, std::string_view key) {
  const json::value* member = json_member(value, key);
  return member != nullptr && member->is_number() ? member->to_number<double>() : 0;
}

int64_t count_member(const json::value* value, std::string_view key) {
  const double number = number_member(value, key);
  return number > 0 && number < 1e12 ? static_cast<int64_t>(number) : 0;
}

// The text of a choice: of a completion, or of what chat calls a delta.
std::string_view text_of(const json::value& event, bool* any) {
  const json::value* choices = json_member(&event, "choices");
  if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return {};
  const json::value& choice = choices->get_array().front();
  const json::value* delta = json_member(&choice, "delta");
  for (const auto& [place, key] :
       {std::pair{&choice, "text"}, std::pair{delta, "content"},
        std::pair{delta, "reasoning_content"}, std::pair{delta, "reasoning"}}) {
    const std::string_view text = text_member(place, key);
    if (text.empty()) continue;
    *any = true;
    return text;
  }
  const json::value* calls = json_member(delta, "tool_calls");
  *any = calls != nullptr && calls->is_array() && !calls->get_array().empty();
  return {};
}

void read_counts(const json::value& event, AnswerNotes* notes) {
  const json::value* usage = json_member(&event, "usage");
  if (const int64_t count = count_member(usage, "prompt_tokens")) notes->prompt_tokens = count;
  if (const int64_t count = count_member(usage, "completion_tokens")) notes->output_tokens = count;
  const json::value* details = json_member(usage, "prompt_tokens_details");
  if (const int64_t count = count_member(details, "cached_tokens")) notes->cached_tokens = count;
  const json::value* timings = json_member(&event, "timings");
  if (json_member(timings, "prompt_ms") == nullptr) return;
  notes->server_prompt_ms = number_member(timings, "prompt_ms");
  notes->server_answer_ms = number_member(timings, "predicted_ms");
}

std::string error_text(const json::value& value) {
  const json::value* error = json_member(&value, "error");
  if (error == nullptr) return {};
  const std::string_view message = text_member(error, "message");
  return message.empty() ? json::serialize(*error) : std::string(message);
}

}  // namespace

void AnswerReader::feed(std::string_view bytes, TimeUs now) {
  if (head_.size() < kLongestLine && !any_event_) head_ += bytes;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    line_ += bytes.substr(0, end);
    if (end == bytes.npos) break;
    bytes.remove_prefix(end + 1);
    if (line_.ends_with('\r')) line_.pop_back();
    if (line_.starts_with("data:")) event(std::string_view(line_).substr(5), now);
    line_.clear();
  }
  if (line_.size() > kLongestLine) line_.resize(kLongestLine);
}

void AnswerReader::event(std::string_view data, TimeUs now) {
  any_event_ = true;
  while (data.starts_with(' ')) data.remove_prefix(1);
  if (data == "[DONE]") {
    notes_.done = true;
    return;
  }
  const auto value = parse_json(data, "an event of the answer");
  if (!value.ok()) {
    if (notes_.error.empty()) notes_.error = value.error().message;
    return;
  }
  if (const std::string error = error_text(*value); !error.empty()) notes_.error = error;
  bool any = false;
  notes_.text += text_of(*value, &any);
  if (any) notes_.pieces.push_back(now);
  read_counts(*value, &notes_);
}

AnswerNotes AnswerReader::finish(long status) {
  const std::string shown = head_.substr(0, kShownBytes);
  if (status != 200) {
    const auto value = parse_json(head_, "the answer");
    const std::string told = value.ok() ? error_text(*value) : std::string();
    notes_.error = fmt::format("status {}: {}", status, told.empty() ? shown : told);
  } else if (!any_event_) {
    notes_.error = fmt::format(
        "the answer is no stream of events (text/event-stream); it begins with '{}'", shown);
  } else if (notes_.error.empty() && !notes_.done) {
    notes_.error = "the stream ended before its end was told (data: [DONE])";
  } else if (notes_.error.empty() && notes_.pieces.empty()) {
    notes_.error = "the answer has no text";
  }
  return std::move(notes_);
}

}  // namespace headrace::loads
