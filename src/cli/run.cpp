// headrace run [MODEL] PROMPT...: one answer on standard output.

#include <boost/json.hpp>

#include <csignal>
#include <cstdio>

#include "base/strings.h"
#include "cli/answer_printer.h"
#include "cli/answer_structure.h"
#include "cli/answers.h"
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

// The question: the prompt as a user message, or as plain text.
Result<Question> make_question(const Options& options, AnswerSource& source,
                               const std::string& prompt, Structure structure,
                               boost::json::array& messages) {
  Question question;
  question.structure = std::move(structure);
  if (options.flag("--raw") || source.is_base()) {
    question.text = prompt;
    question.ids = TRY(source.encode_text(prompt));
    return question;
  }
  if (!options.text("--system").empty()) {
    messages.push_back({{"role", "system"}, {"content", options.text("--system")}});
  }
  messages.push_back({{"role", "user"}, {"content", prompt}});
  question.messages = &messages;
  question.ids =
      TRY(source.encode_messages(messages, question.structure.kind != Structure::Kind::kNone));
  return question;
}

// The prompt, and after it the files of --attach under their names.
Result<std::string> with_files(std::string prompt, const Options& options) {
  for (const std::string_view path : split_list(options.text("--attach"))) {
    const std::string contents = TRY(read_text(std::string(path)));
    TRY(check_text(contents, path));
    append_format(prompt, "{}File {}:\n```\n{}{}```\n", prompt.empty() ? "" : "\n\n", path,
                  contents, contents.ends_with('\n') ? "" : "\n");
  }
  return prompt;
}

Error missing_prompt(const std::string& model) {
  Error error = make_error(ErrorCode::kInvalidArgument, "the prompt is missing");
  error.hint = fmt::format("headrace run {} \"PROMPT\", or headrace chat {} to talk", model, model);
  return error;
}

Status check_length(size_t num_tokens, const ContextLimit& context) {
  if (static_cast<int64_t>(num_tokens) < context.num_tokens) return {};
  Error error = make_error(ErrorCode::kInvalidArgument,
                           "the prompt has {} tokens, and the context holds {} with the answer",
                           num_tokens, context.num_tokens);
  error.hint = "shorten the prompt";
  if (!context.option.empty()) {
    error.hint += fmt::format(", or give a larger {}", context.option);
  }
  return error;
}

}  // namespace

Result<int> run_run(const Options& options) {
  const bool quiet = options.flag("--quiet");
  const ModelArgument given = TRY(take_model_and_text(options));
  const std::string prompt =
      TRY(with_files(TRY(text_of_words_and_input(given.words, quiet)), options));
  if (prompt.empty()) {
    const bool talks = given.named && given.words.empty() && is_terminal(STDIN_FILENO);
    if (talks) return chat_with(options, given.model, given.named);
    return missing_prompt(given.model);
  }
  TRY(check_text(prompt, "the prompt"));
  Structure structure = TRY(structure_from_options(options));
  const std::unique_ptr<AnswerSource> source = TRY(open_answers(options, given.model, given.named));
  if (source->is_base() && !options.flag("--raw") && !quiet) {
    std::fprintf(stderr, "(%s)\n", base_model_note().c_str());
  }
  boost::json::array messages;
  Question question = TRY(make_question(options, *source, prompt, std::move(structure), messages));
  TRY(check_length(question.ids.size(), source->context()));
  question.settings = request_from_options(options, source->sampling());
  question.settings.ignore_eos = options.flag("--ignore-eos");
  question.stops = stop_strings_from_options(options);
  const uint64_t seed = question.settings.sampling.seed;
  InterruptGuard interrupt;
  AnswerPrinter printer;
  question.write = [&](std::string_view piece) { return printer.print(piece); };
  question.interrupted = &interrupt.flag();
  const Answer answer = TRY(source->answer(std::move(question)));
  printer.finish("\n");
  if (answer.reason == FinishReason::kLength && !quiet) {
    std::fprintf(stderr, "(%s)\n", describe_cut(answer, source->context()).c_str());
  }
  if (options.flag("--stats")) std::fprintf(stderr, "%s\n", describe_speed(answer, seed).c_str());
  return interrupt.signal() == 0 ? 0 : 128 + interrupt.signal();
}

}  // namespace headrace
