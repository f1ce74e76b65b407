// The prompts of a completion body.

#include <boost/json/array.hpp>

#include "server/api/openai/openai.h"

namespace headrace {
namespace {

constexpr std::string_view kNeededPrompt =
    "a string, a list of strings, a list of token ids or a list of such lists";

// suffix: what follows the answer; empty: nothing does.
Result<PromptItem> parse_prompt(const boost::json::value& value, const ServingModel& model,
                                std::string_view suffix) {
  if (value.is_string()) {
    const PromptText text(value.get_string().data(), value.get_string().size());
    return suffix.empty() ? PromptItem(text) : PromptItem(InfillPrompt{text, suffix});
  }
  if (!suffix.empty()) {
    return bad_field("prompt", show_value(value), "a text, or several, where there is a suffix");
  }
  PromptIds ids =
      TRY(parse_ids(value.get_array(), "prompt", model.info.vocab_size, model.max_context));
  return PromptItem(std::move(ids));
}

// The end of the text; empty if there is none. kUnsupported if the model cannot fill in.
Result<std::string_view> parse_suffix(const Fields& fields, const ServingModel& model) {
  const std::string_view suffix = TRY(fields.text("suffix")).value_or("");
  if (suffix.empty()) return suffix;
  if (!model.text.infill) {
    return Error{ErrorCode::kUnsupported,
                 "suffix is given, but this model was not trained to fill in text before one",
                 "leave it out, or use a model for code that has fill-in-the-middle tokens",
                 "suffix"};
  }
  if (TRY(fields.boolean("echo")).value_or(false)) {
    return bad_field("echo", "true", "false where there is a suffix");
  }
  return suffix;
}

Status parse_list(const boost::json::array& array, const ServingModel& model, int n,
                  std::string_view suffix, PromptSource& source) {
  if (array.size() * static_cast<size_t>(n) > kMaxTotalChoices) {
    return bad_field("prompt", fmt::format("a list of {} with n {}", array.size(), n),
                     fmt::format("such that there are at most {} choices", kMaxTotalChoices));
  }
  for (const boost::json::value& item : array) {
    if (item.kind() != array[0].kind() || (!item.is_string() && !item.is_array())) {
      return bad_field("prompt", fmt::format("a list that holds {}", show_value(item)),
                       kNeededPrompt);
    }
    source.items.push_back(TRY(parse_prompt(item, model, suffix)));
  }
  return {};
}

}  // namespace

Result<PromptSource> parse_prompts(const Fields& fields, const ServingModel& model, int n) {
  PromptSource source;
  source.param = "prompt";
  source.add_special = TRY(fields.boolean("add_special_tokens")).value_or(true);
  const std::string_view suffix = TRY(parse_suffix(fields, model));
  const boost::json::value* value = fields.find("prompt");
  if (value == nullptr) return bad_field("prompt", "missing", kNeededPrompt);
  const bool is_list = value->is_array();
  if (!is_list && !value->is_string())
    return bad_field("prompt", show_value(*value), kNeededPrompt);
  if (is_list && value->get_array().empty())
    return bad_field("prompt", "an empty list", kNeededPrompt);
  if (is_list && !value->get_array()[0].is_number()) {
    TRY(parse_list(value->get_array(), model, n, suffix, source));
  } else {
    source.items.push_back(TRY(parse_prompt(*value, model, suffix)));
  }
  return source;
}

}  // namespace headrace
