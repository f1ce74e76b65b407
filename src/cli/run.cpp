// headrace run [MODEL] PROMPT...: one answer on standard output.

#include <boost/json.hpp>

#include <csignal>
#include <cstdio>

#include "cli/answer_printer.h"
#include "cli/chat.h"
#include "cli/command.h"
#include "cli/generate.h"
#include "cli/input.h"
#include "cli/model_argument.h"
#include "cli/readable.h"
#include "cli/runtime.h"
#include "cli/terminal.h"

namespace headrace {
namespace {

// The prompt's ids: through the chat template as a user message, or as plain text.
Result<std::vector<int32_t>> prompt_ids(const Options& options, const TextBundle& text,
                                        const std::string& prompt) {
  if (options.flag("--raw") || text.chat_template == nullptr) {
    return text.encode_prompt(prompt, true);
  }
  boost::json::array messages;
  if (!options.text("--system").empty()) {
    messages.push_back({{"role", "system"}, {"content", options.text("--system")}});
  }
  messages.push_back({{"role", "user"}, {"content", prompt}});
  const boost::json::object variables{{"messages", std::move(messages)},
                                      {"add_generation_prompt", true}};
  const std::string rendered = TRY(text.chat_template->render(boost::json::serialize(variables)));
  return text.encode_chat(rendered);
}

Error missing_prompt(const std::string& model) {
  Error error = make_error(ErrorCode::kInvalidArgument, "the prompt is missing");
  error.hint = fmt::format("headrace run {} \"PROMPT\", or headrace chat {} to talk", model, model);
  return error;
}

Status check_length(size_t num_tokens, int64_t context) {
  if (static_cast<int64_t>(num_tokens) < context) return {};
  Error error = make_error(ErrorCode::kInvalidArgument,
                           "the prompt has {} tokens, and the context holds {} with the answer",
                           num_tokens, context);
  error.hint = "shorten the prompt, or give a larger --context";
  return error;
}

}  // namespace

Result<int> run_run(const Options& options) {
  const bool quiet = options.flag("--quiet");
  const ModelArgument given = TRY(take_model_and_text(options));
  const std::string prompt = TRY(text_of_words_and_input(given.words, quiet));
  if (prompt.empty()) {
    const bool talks = given.named && given.words.empty() && is_terminal(STDIN_FILENO);
    if (talks) return chat_with(options, given.model);
    return missing_prompt(given.model);
  }
  TRY(check_text(prompt, "the prompt"));
  Runtime runtime = TRY(open_engine(options, given.model));
  const bool is_base = runtime.text.chat_template == nullptr;
  if (is_base && !options.flag("--raw") && !quiet) {
    std::fprintf(stderr, "(%s)\n", base_model_note().c_str());
  }
  Request request = request_from_options(options, runtime.text.sampling);
  request.prompt_ids = TRY(prompt_ids(options, runtime.text, prompt));
  TRY(check_length(request.prompt_ids.size(), runtime.engine->max_context()));
  request.ignore_eos = options.flag("--ignore-eos");
  const uint64_t seed = request.sampling.seed;
  InterruptGuard interrupt;
  AnswerPrinter printer;
  const Answer answer = TRY(
      generate({*runtime.engine, *runtime.text.tokenizer, std::move(request),
                stop_strings_from_options(options),
                [&](std::string_view piece) { return printer.print(piece); }, &interrupt.flag()}));
  printer.finish("\n");
  if (answer.reason == FinishReason::kLength && !quiet) {
    std::fprintf(stderr, "(%s)\n", describe_cut(answer, runtime.engine->max_context()).c_str());
  }
  if (options.flag("--stats")) std::fprintf(stderr, "%s\n", describe_speed(answer, seed).c_str());
  return interrupt.signal() == 0 ? 0 : 128 + interrupt.signal();
}

}  // namespace headrace
