// headrace render [MODEL] MESSAGES.json: the prompt that messages become, as text and ids.

#include <fmt/ranges.h>
#include <boost/json.hpp>

#include <cstdio>

#include "cli/command.h"
#include "cli/input.h"
#include "cli/model_argument.h"
#include "cli/runtime.h"
#include "cli/terminal.h"
#include "server/api/conversation.h"

namespace headrace {
namespace {

namespace json = boost::json;

// A list of messages, or an object with "messages" and further template variables.
Result<json::object> template_variables(const std::string& text, const std::string& path) {
  boost::system::error_code error;
  json::value value = json::parse(text, error);
  if (error) {
    return make_error(ErrorCode::kInvalidArgument, "'{}' is not valid JSON: {}", path,
                      error.message());
  }
  if (value.is_array()) return json::object{{"messages", std::move(value)}};
  if (value.is_object() && value.as_object().contains("messages")) {
    return std::move(value).as_object();
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "'{}' must hold a list of messages, or an object with \"messages\"", path);
}

}  // namespace

Result<int> run_render(const Options& options) {
  const ModelArgument given = TRY(take_model(options, 1));
  const std::string path = given.words.empty() ? "-" : given.words.front();
  const std::string source = path == "-" ? TRY(read_input(false)) : TRY(read_text(path));
  json::object variables = TRY(template_variables(source, path));
  if (!variables.contains("add_generation_prompt")) {
    variables["add_generation_prompt"] = !options.flag("--no-generation-prompt");
  }
  const auto checkpoint = TRY(open_checkpoint(options, given.model));
  const TextBundle text = TRY(TextBundle::load(*checkpoint, content_tokens_from_options(options)));
  if (text.chat_template == nullptr) {
    return Error{ErrorCode::kUnsupported,
                 "this model has no chat template",
                 "it is a base model: give it plain text with `headrace run`",
                 {}};
  }
  const std::string rendered =
      TRY(text.template_for(has_tools(variables))->render(json::serialize(variables)));
  const auto ids = TRY(text.encode_chat(rendered));
  const std::string prompt = TextBundle::visible(rendered);
  if (options.flag("--json")) {
    std::printf(
        "%s\n",
        json::serialize(json::object{{"prompt", prompt}, {"ids", json::value_from(ids)}}).c_str());
  } else {
    std::printf("%s\n", prompt.c_str());
    std::printf("\n%s tokens: %s\n", format_count(static_cast<int64_t>(ids.size())).c_str(),
                fmt::format("{}", fmt::join(ids, " ")).c_str());
  }
  return 0;
}

}  // namespace headrace
