// headrace run PROMPT: one answer on standard output.

#include <boost/json.hpp>

#include <cstdio>

#include "cli/command.h"
#include "cli/generate.h"
#include "cli/runtime.h"

namespace headrace {
namespace {

// The prompt's ids: through the chat template as a user message, or as plain text.
Result<std::vector<int32_t>> prompt_ids(const Options& options, const TextBundle& text,
                                        const std::string& prompt) {
  if (options.flag("--raw") || text.chat_template == nullptr) {
    return text.tokenizer->encode(prompt, true);
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

}  // namespace

Result<int> run_run(const Options& options) {
  std::string prompt = options.positionals().front();
  if (prompt == "-") prompt = TRY(read_text(prompt));
  Runtime runtime = TRY(open_engine(options, options.text("--model")));
  Request request = request_from_options(options);
  request.prompt_ids = TRY(prompt_ids(options, runtime.text, prompt));
  request.ignore_eos = options.flag("--ignore-eos");
  InterruptGuard interrupt;
  const Answer answer = TRY(generate({*runtime.engine, *runtime.text.tokenizer, std::move(request),
                                      stop_strings_from_options(options),
                                      [](std::string_view piece) {
                                        std::fwrite(piece.data(), 1, piece.size(), stdout);
                                        std::fflush(stdout);
                                      },
                                      &interrupt.flag()}));
  std::fputc('\n', stdout);
  if (options.flag("--stats")) std::fprintf(stderr, "%s\n", describe_speed(answer).c_str());
  return answer.reason == FinishReason::kCancelled ? 130 : 0;
}

}  // namespace headrace
