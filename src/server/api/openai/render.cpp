#include <algorithm>

#include "base/strings.h"

#include "server/api/cache_miss.h"
#include "server/api/openai/openai.h"
#include "server/api/token_scores.h"
#include "server/api/wall_clock.h"

namespace headrace {
namespace {

std::string_view finish_name(Finish::Kind kind) {
  switch (kind) {
    case Finish::Kind::kLength:
      return "length";
    case Finish::Kind::kToolCalls:
      return "tool_calls";
    default:
      return "stop";
  }
}

std::string as_event(std::string_view json) { return kOpenAi.framing.frame(json); }

// What both kinds of response share.
class OpenAiRenderer : public AnswerRenderer {
 public:
  OpenAiRenderer(const ServingModel& model, OpenAiAnswer answer, std::string_view id_prefix)
      : model_(model),
        answer_(std::move(answer)),
        id_(fresh_answer_id(id_prefix)),
        created_(unix_seconds()),
        scores_(*model_.text.tokenizer, answer_.num_top.value_or(0)) {}

  const Dialect& dialect() const override { return kOpenAi; }
  const std::string& id() const override { return id_; }

  std::string chunk(const ChoiceDelta& delta, const Usage& so_far) override {
    return chunk_with(so_far, [&](JsonWriter& json) { write_choice(json, delta, true); });
  }

  std::string end_stream(const AnswerEnd& end) override {
    const std::string usage = answer_.include_usage ? usage_chunk(end.usage) : std::string();
    return usage + as_event("[DONE]");
  }

  std::string stream_error(const Error& error) override {
    return as_event(kOpenAi.error_body(problem_of(error)));
  }

  void begin_whole(JsonWriter& json) override {
    open(json, whole_object());
    json.key("choices").open_array();
  }

  void add_choice(const ChoiceDelta& choice, JsonWriter& json) override {
    write_choice(json, choice, false);
  }

  void end_whole(const AnswerEnd& end, JsonWriter& json) override {
    json.close_array();
    write_usage(json, end.usage);
    json.close_object();
  }

 protected:
  virtual std::string_view chunk_object() const = 0;
  virtual std::string_view whole_object() const = 0;
  virtual void write_choice(JsonWriter& json, const ChoiceDelta& delta, bool is_chunk) = 0;

  // A chunk of what `write` writes of one choice.
  template <class Write>
  std::string chunk_with(const Usage& so_far, const Write& write) const {
    JsonWriter json;
    open(json, chunk_object());
    json.key("choices").open_array();
    write(json);
    json.close_array();
    if (answer_.continuous_usage) {
      write_usage(json, so_far);
    } else if (answer_.include_usage) {
      json.key("usage").null();
    }
    json.close_object();
    return as_event(json.str());
  }

  static void write_finish(JsonWriter& json, const Finish& finish) {
    json.key("finish_reason");
    finish.kind == Finish::Kind::kNone ? json.null() : json.text(finish_name(finish.kind));
    if (finish.kind == Finish::Kind::kRepetition) json.text("stop_reason", "repetition");
  }

  std::string token_bytes(int32_t id) const {
    return model_.text.tokenizer->token_bytes(id, false);
  }
  bool shows(const ScoreText& scores) const { return answer_.num_top && scores.num_tokens > 0; }
  const ScoreWriter& score_writer() const { return scores_; }
  size_t num_choices() const { return answer_.num_choices; }

 private:
  std::string usage_chunk(const Usage& usage) const {
    JsonWriter json;
    open(json, chunk_object());
    json.key("choices").open_array().close_array();
    write_usage(json, usage);
    json.close_object();
    return as_event(json.str());
  }

  void open(JsonWriter& json, std::string_view object) const {
    json.open_object().text("id", id_).text("object", object).integer("created", created_);
    json.text("model", answer_.model_name)
        .text("system_fingerprint", model_.info.system_fingerprint);
  }

  static void write_usage(JsonWriter& json, const Usage& usage) {
    json.key("usage").open_object().integer("prompt_tokens", usage.prompt_tokens);
    json.integer("completion_tokens", usage.output_tokens);
    json.integer("total_tokens", int64_t{usage.prompt_tokens} + usage.output_tokens);
    json.key("prompt_tokens_details").open_object();
    json.integer("cached_tokens", usage.cached_tokens);
    write_cache_miss(json, usage.miss);
    json.close_object();
    json.key("completion_tokens_details").open_object();
    json.integer("reasoning_tokens", usage.reasoning_tokens);
    if (usage.predicted_tokens > 0) {
      const int32_t accepted = usage.accepted_predicted_tokens;
      json.integer("accepted_prediction_tokens", accepted);
      json.integer("rejected_prediction_tokens", std::max(0, usage.predicted_tokens - accepted));
    }
    json.close_object().close_object();
  }

  const ServingModel& model_;
  const OpenAiAnswer answer_;
  const std::string id_;
  const int64_t created_;
  const ScoreWriter scores_;
};

class ChatRenderer : public OpenAiRenderer {
 public:
  ChatRenderer(const ServingModel& model, OpenAiAnswer answer)
      : OpenAiRenderer(model, std::move(answer), "chatcmpl-") {}

  // First of all a chunk for each choice, in order, that has its role alone. OpenAI's clients put
  // answers together by that: they add log-probs of a choice's first chunk twice, and take the
  // choice that comes second for number 1.
  std::string chunk(const ChoiceDelta& delta, const Usage& so_far) override {
    std::string bytes;
    for (; num_begun_ < num_choices(); ++num_begun_) bytes += role_chunk(num_begun_, so_far);
    return bytes + OpenAiRenderer::chunk(delta, so_far);
  }

 private:
  std::string_view chunk_object() const override { return "chat.completion.chunk"; }
  std::string_view whole_object() const override { return "chat.completion"; }

  void write_choice(JsonWriter& json, const ChoiceDelta& delta, bool is_chunk) override {
    json.open_object().integer("index", static_cast<int64_t>(delta.choice_idx));
    json.key(is_chunk ? "delta" : "message").open_object();
    is_chunk ? write_delta(json, delta) : write_message(json, delta);
    json.close_object();
    write_logprobs(json, delta.scores);
    write_finish(json, delta.finish);
    json.close_object();
  }

  std::string role_chunk(size_t choice_idx, Usage so_far) const {
    so_far.output_tokens = so_far.reasoning_tokens = 0;
    return chunk_with(so_far, [choice_idx](JsonWriter& json) {
      json.open_object().integer("index", static_cast<int64_t>(choice_idx));
      json.key("delta").open_object().text("role", "assistant").text("content", "").close_object();
      json.key("logprobs").null().key("finish_reason").null().close_object();
    });
  }

  // Of each kind of part what came.
  static void write_delta(JsonWriter& json, const ChoiceDelta& delta) {
    write_if_any(json, "content", delta.text_of(OutputPart::Kind::kText));
    write_reasoning(json, delta.text_of(OutputPart::Kind::kReasoning));
    write_if_any(json, "refusal", delta.text_of(OutputPart::Kind::kRefusal));
    write_calls(json, delta, true);
  }

  static void write_message(JsonWriter& json, const ChoiceDelta& choice) {
    const std::string text = choice.text_of(OutputPart::Kind::kText);
    json.text("role", "assistant").key("content");
    text.empty() && !choice.parts.empty() ? json.null() : json.text(text);
    write_reasoning(json, choice.text_of(OutputPart::Kind::kReasoning));
    const std::string refusal = choice.text_of(OutputPart::Kind::kRefusal);
    json.key("refusal");
    refusal.empty() ? json.null() : json.text(refusal);
    write_calls(json, choice, false);
  }

  // Clients read the one or the other.
  static void write_reasoning(JsonWriter& json, const std::string& text) {
    write_if_any(json, "reasoning_content", text);
    write_if_any(json, "reasoning", text);
  }

  static void write_if_any(JsonWriter& json, std::string_view name, const std::string& text) {
    if (!text.empty()) json.text(name, text);
  }

  // In a chunk each piece has its call's index; id and name come with the first.
  static void write_calls(JsonWriter& json, const ChoiceDelta& delta, bool is_chunk) {
    bool any = false;
    for (const OutputPart& part : delta.parts) {
      if (part.kind != OutputPart::Kind::kToolCall) continue;
      if (!std::exchange(any, true)) json.key("tool_calls").open_array();
      json.open_object();
      if (is_chunk) json.integer("index", part.call_idx);
      const bool begins = !part.call_name.empty();
      if (begins) json.text("id", part.call_id).text("type", "function");
      json.key("function").open_object();
      if (begins) json.text("name", part.call_name);
      json.text("arguments", part.text).close_object().close_object();
    }
    if (any) json.close_array();
  }

  void add_score(const ScoredToken& token, ScoreText& scores) override {
    score_writer().add(token, scores);
  }

  void write_logprobs(JsonWriter& json, const ScoreText& scores) const {
    json.key("logprobs");
    if (!shows(scores)) {
      json.null();
      return;
    }
    json.open_object();
    write_score_list(json, "content", scores.lists[0]);
    json.key("refusal").null().close_object();
  }

  size_t num_begun_ = 0;  // choices of a stream whose role was sent
};

class CompletionRenderer : public OpenAiRenderer {
 public:
  CompletionRenderer(const ServingModel& model, OpenAiAnswer answer)
      : OpenAiRenderer(model, std::move(answer), "cmpl-") {}

 private:
  std::string_view chunk_object() const override { return "text_completion"; }
  std::string_view whole_object() const override { return "text_completion"; }

  void write_choice(JsonWriter& json, const ChoiceDelta& delta, bool /*is_chunk*/) override {
    json.open_object().integer("index", static_cast<int64_t>(delta.choice_idx));
    json.text("text", delta.text_of(OutputPart::Kind::kText));
    write_logprobs(json, delta.scores);
    write_finish(json, delta.finish);
    json.close_object();
  }

  // Keys of top_logprobs must be distinct, so tokens that are no whole characters show their bytes.
  std::string token_text(int32_t id) const {
    std::string bytes = token_bytes(id);
    if (is_valid_utf8(bytes)) return bytes;
    std::string shown = "bytes:";
    for (const char c : bytes) {
      append_format(shown, "\\x{:02x}", static_cast<unsigned char>(c));
    }
    return shown;
  }

  void add_score(const ScoredToken& token, ScoreText& scores) override {
    ++scores.num_tokens;
    auto& [offsets, logprobs, tokens, top] = scores.lists;
    offsets.integer(token.text_offset);
    token.logprobs ? logprobs.number(finite_logprob(token.logprobs->logprob)) : logprobs.null();
    tokens.text(token_text(token.id));
    write_top(top, token);
  }

  void write_logprobs(JsonWriter& json, const ScoreText& scores) const {
    json.key("logprobs");
    if (!shows(scores)) {
      json.null();
      return;
    }
    constexpr std::string_view kNames[] = {"text_offset", "token_logprobs", "tokens",
                                           "top_logprobs"};
    json.open_object();
    for (size_t i = 0; i < std::size(kNames); ++i)
      write_score_list(json, kNames[i], scores.lists[i]);
    json.close_object();
  }

  // The most likely tokens, and beside them always the actual one.
  void write_top(JsonWriter& json, const ScoredToken& token) const {
    if (!token.logprobs) {
      json.null();
      return;
    }
    std::vector<std::string> seen;
    const auto add = [&](int32_t id, float logprob) {
      std::string text = token_text(id);
      if (std::find(seen.begin(), seen.end(), text) != seen.end()) return;
      json.key(text).number(finite_logprob(logprob));
      seen.push_back(std::move(text));
    };
    json.open_object();
    const auto& top = token.logprobs->top;
    for (size_t i = 0; i < score_writer().num_shown(*token.logprobs); ++i)
      add(top[i].first, top[i].second);
    add(token.id, token.logprobs->logprob);
    json.close_object();
  }
};

}  // namespace

std::unique_ptr<AnswerRenderer> make_chat_renderer(const ServingModel& model, OpenAiAnswer answer) {
  return std::make_unique<ChatRenderer>(model, std::move(answer));
}

std::unique_ptr<AnswerRenderer> make_completion_renderer(const ServingModel& model,
                                                         OpenAiAnswer answer) {
  return std::make_unique<CompletionRenderer>(model, std::move(answer));
}

}  // namespace headrace
