#include "server/api/json.h"
#include "server/api/ollama/ollama.h"
#include "server/api/token_scores.h"
#include "server/api/wall_clock.h"

namespace headrace {
namespace {

using PartKind = OutputPart::Kind;

constexpr int64_t kNsPerUs = 1000;

std::string_view done_reason(const Finish& finish) {
  switch (finish.kind) {
    case Finish::Kind::kLength:
      return "length";
    case Finish::Kind::kRepetition:
      return "repetition";
    default:
      return "stop";
  }
}

// The parts of a line or of a whole answer. A call is shown when it is whole: its arguments are an
// object here.
struct Shown {
  std::string text, thinking;
  std::vector<OutputPart> calls;

  bool is_empty() const { return text.empty() && thinking.empty() && calls.empty(); }
};

class OllamaRenderer : public AnswerRenderer {
 public:
  OllamaRenderer(const ServingModel& model, OllamaAnswer answer)
      : answer_(std::move(answer)),
        scores_(*model.text.tokenizer, answer_.num_top, {.omits_no_others = true}),
        id_(fmt::format("ollama-{}", wall_clock_us())) {}

  const Dialect& dialect() const override { return kOllama; }
  const std::string& id() const override { return id_; }

  void see_prompt(std::span<const int32_t> ids) override {
    if (answer_.with_context) context_.assign(ids.begin(), ids.end());
  }
  void see_token(int32_t id) override {
    if (answer_.with_context) context_.push_back(id);
  }

  void add_score(const ScoredToken& token, ScoreText& scores) override {
    scores_.add(token, scores);
  }

  std::string chunk(const ChoiceDelta& delta, const Usage& /*so_far*/) override {
    const bool ends = delta.finish.kind != Finish::Kind::kNone;
    const Shown shown = take(delta);
    if (ends) finish_ = delta.finish;
    if (shown.is_empty() && delta.scores.num_tokens == 0) return {};
    JsonWriter json;
    open(json);
    write_shown(json, shown);
    write_scores(json, delta.scores);
    json.boolean("done", false).close_object();
    return kOllama.framing.frame(json.str());
  }

  std::string end_stream(const AnswerEnd& end) override {
    JsonWriter json;
    open(json);
    write_shown(json, {});
    write_end(json, end);
    return kOllama.framing.frame(json.str());
  }

  std::string stream_error(const Error& error) override {
    return kOllama.framing.frame(kOllama.error_body(problem_of(error)));
  }

  void begin_whole(JsonWriter& json) override { open(json); }
  void add_choice(const ChoiceDelta& choice, JsonWriter& json) override {
    finish_ = choice.finish;
    write_shown(json, take(choice));
    write_scores(json, choice.scores);
  }
  void end_whole(const AnswerEnd& end, JsonWriter& json) override { write_end(json, end); }

 private:
  // What can be shown of the parts; a call that may grow is kept.
  Shown take(const ChoiceDelta& delta) {
    Shown shown;
    for (const OutputPart& part : delta.parts) {
      const bool is_call = part.kind == PartKind::kToolCall;
      const bool goes_on = is_call && open_call_ && open_call_->call_idx == part.call_idx;
      if (goes_on) {
        open_call_->text += part.text;
        continue;
      }
      close_call(shown);
      if (is_call) {
        open_call_ = part;
      } else {
        (part.kind == PartKind::kReasoning ? shown.thinking : shown.text) += part.text;
      }
    }
    if (delta.finish.kind != Finish::Kind::kNone) close_call(shown);
    return shown;
  }

  void close_call(Shown& shown) {
    if (open_call_) shown.calls.push_back(std::move(*open_call_));
    open_call_.reset();
  }

  void open(JsonWriter& json) const {
    json.open_object().text("model", answer_.model_name);
    json.text("created_at", rfc3339(wall_clock_us()));
  }

  void write_shown(JsonWriter& json, const Shown& shown) const {
    if (answer_.is_chat) {
      json.key("message").open_object().text("role", "assistant").text("content", shown.text);
    } else {
      json.text("response", shown.text);
    }
    if (!shown.thinking.empty()) json.text("thinking", shown.thinking);
    write_calls(json, shown.calls);
    if (answer_.is_chat) json.close_object();
  }

  static void write_calls(JsonWriter& json, const std::vector<OutputPart>& calls) {
    if (calls.empty()) return;
    json.key("tool_calls").open_array();
    for (const OutputPart& call : calls) {
      json.open_object().text("id", call.call_id).key("function").open_object();
      json.integer("index", call.call_idx).text("name", call.call_name);
      json.key("arguments").raw(object_text(call.text)).close_object().close_object();
    }
    json.close_array();
  }

  static void write_scores(JsonWriter& json, const ScoreText& scores) {
    if (scores.num_tokens > 0) write_score_list(json, "logprobs", scores.lists[0]);
  }

  // Durations are whole numbers of nanoseconds.
  void write_end(JsonWriter& json, const AnswerEnd& end) const {
    const RequestTimes& times = end.times;
    const auto since = [](TimeUs from, TimeUs to) {
      return from > 0 && to > from ? (to - from) * kNsPerUs : 0;
    };
    json.text("done_reason", done_reason(finish_)).boolean("done", true);
    if (answer_.with_context) {
      json.key("context").open_array();
      for (const int32_t id : context_) json.integer(id);
      json.close_array();
    }
    json.integer("total_duration", since(times.submitted, times.finished));
    json.integer("load_duration", 0);
    json.integer("prompt_eval_count", end.usage.prompt_tokens);
    json.integer("prompt_eval_duration", since(times.started, times.first_token));
    json.integer("eval_count", end.usage.output_tokens);
    json.integer("eval_duration", since(times.first_token, times.finished)).close_object();
  }

  const OllamaAnswer answer_;
  const ScoreWriter scores_;
  const std::string id_;
  Finish finish_;
  std::optional<OutputPart> open_call_;
  std::vector<int32_t> context_;  // of prompt and answer
};

}  // namespace

std::unique_ptr<AnswerRenderer> make_ollama_renderer(const ServingModel& model,
                                                     OllamaAnswer answer) {
  return std::make_unique<OllamaRenderer>(model, std::move(answer));
}

std::string ollama_loaded(const std::string& model_name, bool is_chat, bool unloads) {
  JsonWriter json;
  json.open_object().text("model", model_name).text("created_at", rfc3339(wall_clock_us()));
  if (is_chat) {
    json.key("message").open_object().text("role", "assistant").text("content", "").close_object();
  } else {
    json.text("response", "");
  }
  json.text("done_reason", unloads ? "unload" : "load").boolean("done", true).close_object();
  return json.take();
}

}  // namespace headrace
