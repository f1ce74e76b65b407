// A second dialect, to show that the seam holds: lines of JSON, as Ollama's clients read them. Only
// tests have it.
//   POST /toy/generate   {"prompt" | "messages", "stream" (default true), "n", "logprobs",
//                         "marks", "options": {"num_predict", "stop", "temperature"}}
// A line: {"index", "response" | "thinking" | "call"}; a choice ends with {"index", "done_reason"},
// the answer with {"done":true, counts, times}. An error is {"error":"text"}, as a line too.
#pragma once

#include <boost/json/array.hpp>

#include "server/api/fields.h"
#include "server/api/json.h"
#include "server/api/test_support.h"
#include "server/routes.h"

namespace headrace::test {

inline std::string toy_error(const Problem& problem) {
  JsonWriter json;
  json.open_object().text("error", problem.message);
  if (!problem.param.empty()) json.text("field", problem.param);
  json.close_object();
  return json.take();
}

inline constexpr Framing kLinesWithBeats{"application/x-ndjson", "", "\n", "\n"};
inline const Dialect kToy{"toy", toy_error, kJsonLines};
inline const Dialect kBeatingToy{"beating toy", toy_error, kLinesWithBeats};

class ToyRenderer : public AnswerRenderer {
 public:
  ToyRenderer(const ServingModel& model, const Dialect& dialect)
      : model_(model), dialect_(dialect) {}

  const Dialect& dialect() const override { return dialect_; }
  const std::string& id() const override { return id_; }

  void add_score(const ScoredToken& token, ScoreText& scores) override {
    ++scores.num_tokens;
    scores.lists[0].number(token.logprobs ? token.logprobs->logprob : 0.0f);
  }

  std::string begin_stream(const Usage& usage) override {
    JsonWriter json;
    json.open_object().integer("prompt_eval_count", usage.prompt_tokens).close_object();
    return line(json);
  }
  std::string chunk(const ChoiceDelta& delta, const Usage& /*so_far*/) override {
    JsonWriter json;
    add_choice(delta, json);
    return line(json);
  }
  std::string end_stream(const AnswerEnd& end) override {
    JsonWriter json;
    json.open_object();
    write_end(json, end);
    return line(json);
  }
  std::string stream_error(const Error& error) override {
    return dialect_.framing.frame(toy_error(problem_of(error)));
  }

  void begin_whole(JsonWriter& json) override {
    json.open_object().text("model", model_.info.name).key("answers").open_array();
  }
  void add_choice(const ChoiceDelta& choice, JsonWriter& json) override {
    json.open_object().integer("index", static_cast<int64_t>(choice.choice_idx));
    write_text(json, "response", choice.text_of(OutputPart::Kind::kText));
    write_text(json, "thinking", choice.text_of(OutputPart::Kind::kReasoning));
    for (const OutputPart& part : choice.parts) {
      if (part.kind == OutputPart::Kind::kToolCall) json.text("call", part.call_name + part.text);
    }
    if (choice.scores.num_tokens > 0) {
      json.key("logprobs").open_array().raw(choice.scores.lists[0].str()).close_array();
    }
    write_finish(json, choice.finish);
    json.close_object();
  }
  void end_whole(const AnswerEnd& end, JsonWriter& json) override {
    json.close_array();
    write_end(json, end);
  }

 private:
  std::string line(const JsonWriter& json) const { return dialect_.framing.frame(json.str()); }

  static void write_text(JsonWriter& json, std::string_view name, const std::string& text) {
    if (!text.empty()) json.text(name, text);
  }
  static void write_finish(JsonWriter& json, const Finish& finish) {
    constexpr std::string_view kNames[] = {"", "end", "stop string", "length", "call"};
    if (finish.kind == Finish::Kind::kNone) return;
    json.text("done_reason", kNames[static_cast<size_t>(finish.kind)]);
    if (!finish.stop.empty()) json.text("stop", finish.stop);
  }
  static void write_end(JsonWriter& json, const AnswerEnd& end) {
    json.boolean("done", true).integer("eval_count", end.usage.output_tokens);
    json.integer("prompt_eval_count", end.usage.prompt_tokens);
    json.boolean("has_times", end.times.finished > 0).close_object();
  }

  const ServingModel& model_;
  const Dialect& dialect_;
  const std::string id_ = "toy-1";
};

inline Status parse_toy_options(const boost::json::object& body, GenerationRequest& request) {
  const boost::json::object* given = TRY(Fields(body).object("options"));
  if (given == nullptr) return {};
  const Fields options(*given, "options.");
  request.prototype.max_tokens =
      static_cast<int32_t>(TRY(options.integer("num_predict", 1, 10'000)).value_or(100));
  const auto stop = TRY(options.text("stop"));
  if (stop) request.stop = {std::string(*stop)};
  return {};
}

inline Status parse_toy_prompt(const Fields& fields, PromptSource& source) {
  const boost::json::array* messages = TRY(fields.array("messages"));
  if (messages != nullptr) {
    ChatPrompt conversation;
    conversation.variables = {{"messages", *messages}, {"add_generation_prompt", true}};
    source.param = "messages";
    source.items.emplace_back(std::move(conversation));
    return {};
  }
  const auto prompt = TRY(fields.text("prompt"));
  if (!prompt) return bad_field("prompt", "missing", "a string");
  source.param = "prompt";
  source.items.emplace_back(PromptText(*prompt));
  return {};
}

template <const Dialect& dialect>
Result<ParsedRequest> parse_toy(const boost::json::object& body, const ServingModel& model) {
  ParsedRequest parsed;
  GenerationRequest& request = parsed.request;
  const Fields fields(body);
  request.prototype.max_tokens = 100;
  TRY(parse_toy_options(body, request));
  request.stream = TRY(fields.boolean("stream")).value_or(true);
  request.num_choices = static_cast<int>(TRY(fields.integer("n", 1, 4)).value_or(1));
  request.echo = TRY(fields.boolean("echo")).value_or(false);
  request.prototype.ignore_eos = TRY(fields.boolean("endless")).value_or(false);
  if (TRY(fields.boolean("logprobs")).value_or(false)) request.prototype.num_logprobs = 0;
  if (TRY(fields.boolean("marks")).value_or(false)) {
    request.make_parser = [](const Prompt&) { return std::make_unique<TagParser>(); };
  }
  request.headers = {{"x-toy", "yes"}};
  TRY(parse_toy_prompt(fields, parsed.prompts));
  parsed.renderer = std::make_unique<ToyRenderer>(model, dialect);
  return parsed;
}

inline const RouteRow kToyRows[] = {
    {"POST", "/toy/generate", Scope::kInference, &kToy, generate_with<parse_toy<kToy>>, ""},
    {"POST", "/toy/beating", Scope::kInference, &kBeatingToy, generate_with<parse_toy<kBeatingToy>>,
     ""},
};

}  // namespace headrace::test
