#include "cli/chat.h"

#include <unistd.h>
#include <boost/json.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/answer_printer.h"
#include "cli/answer_structure.h"
#include "cli/answers.h"
#include "cli/command.h"
#include "cli/conversation.h"
#include "cli/generate.h"
#include "cli/help.h"
#include "cli/message_reader.h"
#include "cli/model_argument.h"
#include "cli/output.h"
#include "cli/readable.h"
#include "cli/suggest.h"
#include "cli/terminal.h"
#include "cli/word_wrap.h"

namespace headrace {
namespace {

namespace json = boost::json;

class Chat {
 public:
  Chat(AnswerSource& source, const Options& options, Structure structure, InterruptGuard& interrupt,
       bool interactive)
      : source_(source),
        structure_(std::move(structure)),
        interrupt_(interrupt),
        request_(request_from_options(options, source.sampling())),
        stops_(stop_strings_from_options(options)),
        stats_(options.flag("--stats")),
        interactive_(interactive) {
    conversation_.set_system(options.text("--system"));
  }

  void greet(const std::string& model) const {
    say(fmt::format("{}{}, context of {} tokens", without_controls(source_.name()),
                    model.empty() ? "" : " (" + model + ")", format_count(context().num_tokens)));
    if (is_base()) say(base_model_note());
    say("/help lists the commands, \"\"\" begins and ends a block of lines, Ctrl-D leaves.");
  }

  // Returns false when the conversation is over.
  bool handle(const std::string& message) {
    const size_t first = message.find_first_not_of(" \t\r\n");
    if (first == std::string::npos) return true;
    if (message == "exit" || message == "quit") return false;
    if (message.front() == '/' && message.find('\n') == std::string::npos) return command(message);
    if (const Status text = check_text(message, "the message"); !text.ok()) {
      note(text.error().message);
      return true;
    }
    conversation_.add("user", message);
    return answer();
  }

 private:
  struct SlashCommand {
    std::string_view name, aliases, argument, help;
    bool (Chat::*run)(const std::string& argument);
  };

  static std::span<const SlashCommand> slash_commands();

  bool is_base() const { return source_.is_base(); }
  ContextLimit context() const { return source_.context(); }

  // Words of the program between the messages: on a terminal among them, else apart from them.
  void say(const std::string& text) const {
    const int width = terminal_columns(STDOUT_FILENO);
    const std::string shown = interactive_ ? wrap_words(text, width, 0, 0) : text;
    std::fprintf(interactive_ ? stdout : stderr, "%s\n", shown.c_str());
  }
  void note(const std::string& text) const { say("(" + text + ")"); }

  bool command(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    std::string argument = space == std::string::npos ? "" : line.substr(space + 1);
    argument.erase(0, argument.find_first_not_of(' '));
    std::vector<std::string> names;
    for (const SlashCommand& row : slash_commands()) {
      const std::string spellings = fmt::format(" {} {} ", row.name, row.aliases);
      if (spellings.find(" " + name + " ") != std::string::npos) return (this->*row.run)(argument);
      names.emplace_back(row.name);
    }
    const std::string near = nearest_name(name, names);
    note(
        fmt::format("there is no command {}{}; /help lists them, and a space before the / makes it "
                    "a message",
                    name, near.empty() ? "" : ", did you mean " + near + "?"));
    return true;
  }

  bool help(const std::string&) {
    constexpr int kColumn = 20;
    const int width = terminal_columns(STDOUT_FILENO);
    std::string text;
    for (const SlashCommand& row : slash_commands()) {
      const std::string also = row.aliases.empty() ? "" : fmt::format(" Also {}.", row.aliases);
      text += help_entry(fmt::format("{} {}", row.name, row.argument), std::string(row.help) + also,
                         kColumn, width);
    }
    text +=
        help_entry("\"\"\"", "Begins a message of several lines; \"\"\" ends it.", kColumn, width);
    text += help_entry("Ctrl-C", "Stops the answer.", kColumn, width);
    std::fputs(text.c_str(), stdout);
    return true;
  }

  bool leave(const std::string&) { return false; }

  bool clear(const std::string&) {
    conversation_.clear();
    note("new conversation");
    return true;
  }

  bool system(const std::string& text) {
    conversation_.set_system(text);
    if (is_base()) {
      note("a base model takes no system message");
    } else {
      note(text.empty() ? "system message removed" : "system message set");
    }
    return true;
  }

  bool undo(const std::string&) {
    conversation_.take_back("assistant");
    const bool undone = conversation_.take_back("user");
    note(undone ? fmt::format("taken back; {} messages left", conversation_.messages().size())
                : "there is nothing to take back");
    return true;
  }

  bool again(const std::string&) {
    conversation_.take_back("assistant");
    if (conversation_.messages().empty()) {
      note("there is no question to answer again");
      return true;
    }
    ++request_.sampling.seed;
    return answer();
  }

  bool temperature(const std::string& text) {
    const auto rows = option_rows();
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [](const OptionRow& r) { return r.name == "--temperature"; });
    const Status status = check_option(*row, text);
    if (status.ok()) request_.sampling.temperature = std::stof(text);
    note(status.ok() ? fmt::format("temperature {}", request_.sampling.temperature)
                     : status.error().message);
    return true;
  }

  bool show_stats(const std::string&) {
    stats_ = !stats_;
    note(fmt::format("statistics {}", stats_ ? "on" : "off"));
    return true;
  }

  bool save(const std::string& path) {
    if (path.empty()) {
      note("/save needs the name of a file");
      return true;
    }
    json::array all;
    if (!conversation_.system().empty()) {
      all.push_back({{"role", "system"}, {"content", conversation_.system()}});
    }
    all.insert(all.end(), conversation_.messages().begin(), conversation_.messages().end());
    std::ofstream file(path);
    file << json::serialize(all) << "\n";
    file.close();
    note(file ? fmt::format("{} messages saved to {}", all.size(), path)
              : fmt::format("cannot write {}: {}", path, std::strerror(errno)));
    return true;
  }

  // The texts of all messages, a line each: what a base model continues.
  static std::string text_so_far(const json::array& messages) {
    std::string text;
    for (const json::value& message : messages) {
      if (message.at("role").as_string() == "system") continue;
      if (!text.empty()) text += '\n';
      text += std::string_view(message.at("content").as_string());
    }
    return text;
  }

  Result<std::vector<int32_t>> encode(const json::array& messages) const {
    return is_base() ? source_.encode_text(text_so_far(messages))
                     : source_.encode_messages(messages, structure_.kind != Structure::Kind::kNone);
  }

  Result<Answer> stream_answer() {
    const int64_t room = std::min<int64_t>(request_.max_tokens, context().num_tokens / 4);
    Conversation::Prompt prompt = TRY(conversation_.make_prompt(
        [this](const json::array& messages) { return encode(messages); }, context(), room));
    if (prompt.num_forgotten > 0) {
      note(fmt::format("the context of {} tokens is full: the oldest {} messages are forgotten",
                       format_count(context().num_tokens), prompt.num_forgotten));
    }
    interrupt_.reset();
    const EchoOff quiet_keys;
    AnswerPrinter printer;
    Question question;
    if (!is_base()) question.messages = &prompt.messages;
    question.text = is_base() ? text_so_far(prompt.messages) : "";
    question.ids = std::move(prompt.ids);
    question.settings = request_;
    question.stops = stops_;
    question.structure = structure_;
    question.write = [&](std::string_view piece) { return printer.print(piece); };
    question.interrupted = &interrupt_.flag();
    auto answer = source_.answer(std::move(question));
    printer.finish("");
    return answer;
  }

  // False if there is nobody left to answer.
  bool answer() {
    const Result<Answer> result = stream_answer();
    if (!result.ok()) {
      conversation_.take_back("user");  // the question that could not be answered
      note(result.error().to_string());
      return true;
    }
    const bool stopped = result->reason == FinishReason::kCancelled;
    if (stopped && interactive_) interrupt_.reset();  // before the next prompt shows
    conversation_.add("assistant", result->text);
    const bool arrived = write_output(interactive_ ? "\n\n" : "\n");
    if (stopped && arrived) note("stopped");
    if (result->reason == FinishReason::kLength) note(describe_cut(*result, context()));
    if (stats_) {
      std::fprintf(stderr, "%s\n", describe_speed(*result, request_.sampling.seed).c_str());
    }
    return arrived && (interactive_ ? interrupt_.signal() != SIGTERM : interrupt_.signal() == 0);
  }

  AnswerSource& source_;
  const Structure structure_;
  InterruptGuard& interrupt_;
  Request request_;
  std::vector<std::string> stops_;
  bool stats_;
  bool interactive_;
  Conversation conversation_;
};

std::span<const Chat::SlashCommand> Chat::slash_commands() {
  static constexpr SlashCommand kCommands[] = {
      {"/help", "/?", "", "List these commands.", &Chat::help},
      {"/clear", "/reset /new", "", "Forget the conversation.", &Chat::clear},
      {"/system", "", "TEXT", "Set the system message; without TEXT remove it.", &Chat::system},
      {"/undo", "", "", "Take back the last question and its answer.", &Chat::undo},
      {"/again", "/retry", "", "Answer once more, with the next seed.", &Chat::again},
      {"/temperature", "", "N", "Randomness of the answers from here on.", &Chat::temperature},
      {"/stats", "", "", "Switch the line of statistics on or off.", &Chat::show_stats},
      {"/save", "", "FILE", "Write the messages as JSON, for headrace render.", &Chat::save},
      {"/bye", "/exit /quit", "", "Leave, as do exit and Ctrl-D.", &Chat::leave},
  };
  return kCommands;
}

}  // namespace

Result<int> chat_with(const Options& options, const std::string& model, bool named) {
  Structure structure = TRY(structure_from_options(options));
  const std::unique_ptr<AnswerSource> source = TRY(open_answers(options, model, named));
  InterruptGuard interrupt;
  LineReader lines(interrupt.descriptor());
  Chat chat(*source, options, std::move(structure), interrupt, lines.is_interactive());
  if (lines.is_interactive() && !options.flag("--quiet")) {
    chat.greet(options.text("--server").empty() ? model : "");
  }
  MessageReader messages([&](const std::string& prompt) { return lines.read(prompt); });
  while (true) {
    const ReadLine message = messages.read();
    if (message.end == ReadEnd::kEndOfInput) break;
    if (message.end == ReadEnd::kLine) {
      if (!chat.handle(message.text)) break;
      continue;
    }
    if (lines.is_interactive()) interrupt.reset();
    if (interrupt.signal() != 0) break;
    std::printf("(Ctrl-D or /bye leaves)\n");
  }
  if (lines.is_interactive()) interrupt.reset();  // a late Ctrl-C does not matter any more
  return interrupt.signal() == 0 ? 0 : 128 + interrupt.signal();
}

Result<int> run_chat(const Options& options) {
  const ModelArgument given = TRY(take_model(options, 0));
  return chat_with(options, given.model, given.named);
}

}  // namespace headrace
