// headrace chat [MODEL]: a conversation in the terminal.

#include <boost/json.hpp>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <optional>

#include "cli/command.h"
#include "cli/generate.h"
#include "cli/line_reader.h"
#include "cli/runtime.h"

namespace headrace {
namespace {

namespace json = boost::json;

class Conversation {
 public:
  Conversation(Runtime& runtime, const Options& options)
      : runtime_(runtime),
        request_(request_from_options(options)),
        stops_(stop_strings_from_options(options)),
        system_(options.text("--system")),
        stats_(options.flag("--stats")) {}

  // Returns false when the conversation is over.
  bool handle(const std::string& line) {
    if (line.empty()) return true;
    if (line.front() == '/') return command(line);
    messages_.push_back({{"role", "user"}, {"content", line}});
    answer();
    return true;
  }

 private:
  struct SlashCommand {
    std::string_view name, help;
    bool (Conversation::*run)(const std::string& argument);
  };

  bool command(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    const std::string argument = space == std::string::npos ? "" : line.substr(space + 1);
    for (const SlashCommand& row : slash_commands()) {
      if (row.name == name) return (this->*row.run)(argument);
    }
    std::printf("unknown command %s; /help lists them\n", name.c_str());
    return true;
  }

  static std::span<const SlashCommand> slash_commands();

  bool help(const std::string&) {
    for (const SlashCommand& row : slash_commands()) {
      std::printf("%-14s %s\n", std::string(row.name).c_str(), std::string(row.help).c_str());
    }
    return true;
  }

  bool leave(const std::string&) { return false; }

  bool reset(const std::string&) {
    messages_.clear();
    std::printf("(new conversation)\n");
    return true;
  }

  bool system(const std::string& text) {
    system_ = text;
    std::printf("(system message %s)\n", text.empty() ? "removed" : "set");
    return true;
  }

  bool undo(const std::string&) {
    if (!messages_.empty()) messages_.pop_back();  // the answer
    if (!messages_.empty()) messages_.pop_back();  // the question
    std::printf("(%zu messages left)\n", messages_.size());
    return true;
  }

  bool again(const std::string&) {
    if (!messages_.empty() && messages_.back().at("role") == "assistant") messages_.pop_back();
    if (messages_.empty()) return true;
    ++request_.sampling.seed;
    answer();
    return true;
  }

  bool temperature(const std::string& text) {
    const OptionRow* row = nullptr;
    for (const OptionRow& candidate : option_rows()) {
      if (candidate.name == "--temperature") row = &candidate;
    }
    const Status status = check_option(*row, text);
    if (!status.ok()) {
      std::printf("%s\n", status.error().message.c_str());
      return true;
    }
    request_.sampling.temperature = std::stof(text);
    return true;
  }

  bool show_stats(const std::string&) {
    stats_ = !stats_;
    std::printf("(statistics %s)\n", stats_ ? "on" : "off");
    return true;
  }

  bool save(const std::string& path) {
    std::ofstream file(path);
    file << json::serialize(messages_) << "\n";
    std::printf(file ? "(saved %zu messages)\n" : "cannot write that file (%zu messages)\n",
                messages_.size());
    return true;
  }

  json::array prompt_messages() const {
    json::array all;
    if (!system_.empty()) all.push_back({{"role", "system"}, {"content", system_}});
    all.insert(all.end(), messages_.begin(), messages_.end());
    return all;
  }

  Result<std::vector<int32_t>> prompt_ids() const {
    if (runtime_.text.chat_template == nullptr) {  // a base model: the text so far
      std::string text;
      for (const json::value& message : messages_)
        text += message.at("content").as_string().c_str();
      return runtime_.text.tokenizer->encode(text, true);
    }
    const json::object variables{{"messages", prompt_messages()}, {"add_generation_prompt", true}};
    const std::string rendered =
        TRY(runtime_.text.chat_template->render(json::serialize(variables)));
    return runtime_.text.encode_chat(rendered);
  }

  Result<Answer> stream_answer() {
    Request request = request_;
    request.prompt_ids = TRY(prompt_ids());
    interrupt_.reset();
    return generate({*runtime_.engine, *runtime_.text.tokenizer, std::move(request), stops_,
                     [](std::string_view piece) {
                       std::fwrite(piece.data(), 1, piece.size(), stdout);
                       std::fflush(stdout);
                     },
                     &interrupt_.flag()});
  }

  void answer() {
    const Result<Answer> result = stream_answer();
    if (!result.ok()) {
      messages_.pop_back();  // the question that could not be answered
      std::printf("%s\n", result.error().to_string().c_str());
      return;
    }
    messages_.push_back({{"role", "assistant"}, {"content", result->text}});
    std::printf("%s\n", result->reason == FinishReason::kCancelled ? " (stopped)" : "");
    if (stats_) std::fprintf(stderr, "%s\n", describe_speed(*result).c_str());
  }

  Runtime& runtime_;
  Request request_;
  std::vector<std::string> stops_;
  std::string system_;
  bool stats_;
  json::array messages_;
  InterruptGuard interrupt_;
};

std::span<const Conversation::SlashCommand> Conversation::slash_commands() {
  static constexpr SlashCommand kCommands[] = {
      {"/help", "List these commands.", &Conversation::help},
      {"/reset", "Forget the conversation.", &Conversation::reset},
      {"/system", "TEXT: set the system message; without TEXT remove it.", &Conversation::system},
      {"/undo", "Take back the last question and its answer.", &Conversation::undo},
      {"/again", "Answer the last question once more, with the next seed.", &Conversation::again},
      {"/temperature", "VALUE: randomness of the answers from here on.",
       &Conversation::temperature},
      {"/stats", "Switch the line of statistics on or off.", &Conversation::show_stats},
      {"/save", "FILE: write the messages as JSON, as `headrace render` reads them.",
       &Conversation::save},
      {"/exit", "Leave (also Ctrl-D).", &Conversation::leave},
  };
  return kCommands;
}

}  // namespace

Result<int> run_chat(const Options& options) {
  const auto& given = options.positionals();
  Runtime runtime =
      TRY(open_engine(options, given.empty() ? options.text("--model") : given.front()));
  Conversation conversation(runtime, options);
  LineReader reader;
  while (const auto line = reader.read("> ")) {
    if (!conversation.handle(*line)) break;
  }
  return 0;
}

}  // namespace headrace
