#include "cli/conversation.h"

#include <boost/json/object.hpp>

#include <algorithm>
#include <utility>

namespace headrace {

namespace json = boost::json;

void Conversation::add(std::string_view role, std::string_view content) {
  messages_.push_back(json::object{{"role", role}, {"content", content}});
}

void Conversation::clear() {
  messages_.clear();
  first_kept_ = 0;
}

bool Conversation::take_back(std::string_view role) {
  if (messages_.empty() || messages_.back().at("role").as_string() != role) return false;
  messages_.pop_back();
  first_kept_ = std::min(first_kept_, messages_.size());
  return true;
}

json::array Conversation::kept_messages() const {
  json::array kept;
  if (!system_.empty()) kept.push_back(json::object{{"role", "system"}, {"content", system_}});
  kept.insert(kept.end(), messages_.begin() + static_cast<ptrdiff_t>(first_kept_), messages_.end());
  return kept;
}

bool Conversation::forget_oldest_turn() {
  for (size_t next = first_kept_ + 1; next < messages_.size(); ++next) {
    if (messages_[next].at("role").as_string() != "user") continue;
    first_kept_ = next;
    return true;
  }
  return false;
}

Result<Conversation::Prompt> Conversation::make_prompt(const EncodeFn& encode,
                                                       const ContextLimit& context, int64_t room) {
  const size_t first_before = first_kept_;
  while (true) {
    Prompt prompt;
    prompt.messages = kept_messages();
    prompt.ids = TRY(encode(prompt.messages));
    const auto num_tokens = static_cast<int64_t>(prompt.ids.size());
    const bool fits = num_tokens + room <= context.num_tokens;
    if (!fits && forget_oldest_turn()) continue;
    if (num_tokens >= context.num_tokens) {
      Error error = make_error(
          ErrorCode::kInvalidArgument, "the message has {} tokens{}, and the context holds {}",
          num_tokens, system_.empty() ? "" : " with the system message", context.num_tokens);
      error.hint = "shorten it";
      if (!context.option.empty()) {
        error.hint += fmt::format(", or start with a larger {}", context.option);
      }
      return error;
    }
    prompt.num_forgotten = static_cast<int>(first_kept_ - first_before);
    return prompt;
  }
}

}  // namespace headrace
