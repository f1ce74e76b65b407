#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "server/api/errors.h"
#include "server/api/json.h"
#include "server/api/openai.h"

namespace headrace {
namespace {

constexpr float kImpossible = -9999.0f;  // JSON has no minus infinity

std::string fresh_id(std::string_view prefix) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{}-{:016x}{:08x}", prefix, random(), random() & 0xFFFFFFFFu);
}

int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

float finite(float logprob) { return std::isfinite(logprob) ? logprob : kImpossible; }

std::string_view finish_name(FinishReason reason) {
  return reason == FinishReason::kLength ? "length" : "stop";
}

std::string as_event(std::string_view json) { return fmt::format("data: {}\n\n", json); }

// What both kinds of response share.
class OpenAiRenderer : public ResponseRenderer {
 public:
  OpenAiRenderer(const ServingModel& model, const GenerationRequest& request,
                 std::string_view id_prefix)
      : model_(model),
        name_(request.model_name),
        id_(fresh_id(id_prefix)),
        created_(unix_time()),
        include_usage_(request.include_usage) {}

  const std::string& id() const override { return id_; }

  std::string chunk(const ChoiceDelta& delta, const Usage* usage) override {
    JsonWriter json;
    open(json, chunk_object());
    json.key("choices").open_array();
    write_choice(json, delta, true);
    json.close_array();
    if (usage != nullptr) {
      write_usage(json, *usage);
    } else if (include_usage_) {
      json.key("usage").null();
    }
    json.close_object();
    return as_event(json.str());
  }

  std::string usage_chunk(const Usage& usage) override {
    JsonWriter json;
    open(json, chunk_object());
    json.key("choices").open_array().close_array();
    write_usage(json, usage);
    json.close_object();
    return as_event(json.str());
  }

  void begin_whole(JsonWriter& json) override {
    open(json, whole_object());
    json.key("choices").open_array();
  }

  void add_choice(const ChoiceDelta& choice, JsonWriter& json) override {
    write_choice(json, choice, false);
  }

  void end_whole(const Usage& usage, JsonWriter& json) override {
    json.close_array();
    write_usage(json, usage);
    json.close_object();
  }

  std::string error_event(const Error& error) override {
    return as_event(error_response(error).body);
  }

  std::string end_event() override { return as_event("[DONE]"); }

 protected:
  virtual std::string_view chunk_object() const = 0;
  virtual std::string_view whole_object() const = 0;
  virtual void write_choice(JsonWriter& json, const ChoiceDelta& delta, bool is_chunk) = 0;

  void write_finish(JsonWriter& json, FinishReason reason) const {
    json.key("finish_reason");
    reason == FinishReason::kNone ? json.null() : json.text(finish_name(reason));
  }

  // One of the lists of the scores.
  static void write_list(JsonWriter& json, std::string_view name, const JsonWriter& list) {
    json.key(name).open_array();
    if (!list.str().empty()) json.raw(list.str());
    json.close_array();
  }

  std::string token_bytes(int32_t id) const {
    return model_.text.tokenizer->token_bytes(id, false);
  }

 private:
  void open(JsonWriter& json, std::string_view object) const {
    json.open_object().text("id", id_).text("object", object).integer("created", created_);
    json.text("model", name_).text("system_fingerprint", model_.info.system_fingerprint);
  }

  static void write_usage(JsonWriter& json, const Usage& usage) {
    json.key("usage").open_object().integer("prompt_tokens", usage.prompt_tokens);
    json.integer("completion_tokens", usage.output_tokens);
    json.integer("total_tokens", int64_t{usage.prompt_tokens} + usage.output_tokens);
    json.key("prompt_tokens_details").open_object();
    json.integer("cached_tokens", usage.cached_tokens).close_object();
    json.key("completion_tokens_details").open_object();
    json.integer("reasoning_tokens", 0).close_object().close_object();
  }

  const ServingModel& model_;
  const std::string name_;
  const std::string id_;
  const int64_t created_;
  const bool include_usage_;
};

class ChatRenderer : public OpenAiRenderer {
 public:
  ChatRenderer(const ServingModel& model, const GenerationRequest& request)
      : OpenAiRenderer(model, request, "chatcmpl"),
        has_logprobs_(request.prototype.num_logprobs.has_value()),
        num_top_(static_cast<size_t>(request.prototype.num_logprobs.value_or(0))) {}

 private:
  std::string_view chunk_object() const override { return "chat.completion.chunk"; }
  std::string_view whole_object() const override { return "chat.completion"; }

  void write_choice(JsonWriter& json, const ChoiceDelta& delta, bool is_chunk) override {
    json.open_object().integer("index", static_cast<int64_t>(delta.choice_idx));
    json.key(is_chunk ? "delta" : "message").open_object();
    if (!is_chunk || delta.first) json.text("role", "assistant");
    if (!is_chunk || delta.first || !delta.text.empty()) json.text("content", delta.text);
    if (!is_chunk) json.key("refusal").null();
    json.close_object();
    write_logprobs(json, delta.scores);
    write_finish(json, delta.finish);
    json.close_object();
  }

  void add_score(const ScoredToken& token, ScoreText& scores) override {
    ++scores.num_tokens;
    if (!token.logprobs) return;
    JsonWriter& json = scores.lists[0];
    json.open_object();
    write_token(json, token.id, token.logprobs->logprob);
    json.key("top_logprobs").open_array();
    const auto& top = token.logprobs->top;
    for (size_t i = 0; i < std::min(num_top_, top.size()); ++i) {
      json.open_object();
      write_token(json, top[i].first, top[i].second);
      json.close_object();
    }
    json.close_array().close_object();
  }

  void write_logprobs(JsonWriter& json, const ScoreText& scores) const {
    json.key("logprobs");
    if (!has_logprobs_ || scores.num_tokens == 0) {
      json.null();
      return;
    }
    json.open_object();
    write_list(json, "content", scores.lists[0]);
    json.key("refusal").null().close_object();
  }

  void write_token(JsonWriter& json, int32_t id, float logprob) const {
    const std::string bytes = token_bytes(id);
    json.text("token", bytes).key("logprob").number(finite(logprob));
    json.key("bytes").open_array();
    for (const char c : bytes) json.integer(static_cast<unsigned char>(c));
    json.close_array();
  }

  const bool has_logprobs_;
  const size_t num_top_;
};

class CompletionRenderer : public OpenAiRenderer {
 public:
  CompletionRenderer(const ServingModel& model, const GenerationRequest& request)
      : OpenAiRenderer(model, request, "cmpl"),
        has_logprobs_(request.prototype.num_logprobs.has_value()),
        num_top_(static_cast<size_t>(request.prototype.num_logprobs.value_or(0))) {}

 private:
  std::string_view chunk_object() const override { return "text_completion"; }
  std::string_view whole_object() const override { return "text_completion"; }

  void write_choice(JsonWriter& json, const ChoiceDelta& delta, bool /*is_chunk*/) override {
    json.open_object().integer("index", static_cast<int64_t>(delta.choice_idx));
    json.text("text", delta.text);
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
      fmt::format_to(std::back_inserter(shown), "\\x{:02x}", static_cast<unsigned char>(c));
    }
    return shown;
  }

  void add_score(const ScoredToken& token, ScoreText& scores) override {
    ++scores.num_tokens;
    auto& [offsets, logprobs, tokens, top] = scores.lists;
    offsets.integer(token.text_offset);
    token.logprobs ? logprobs.number(finite(token.logprobs->logprob)) : logprobs.null();
    tokens.text(token_text(token.id));
    write_top(top, token);
  }

  void write_logprobs(JsonWriter& json, const ScoreText& scores) const {
    json.key("logprobs");
    if (!has_logprobs_ || scores.num_tokens == 0) {
      json.null();
      return;
    }
    constexpr std::string_view kNames[] = {"text_offset", "token_logprobs", "tokens",
                                           "top_logprobs"};
    json.open_object();
    for (size_t i = 0; i < std::size(kNames); ++i) write_list(json, kNames[i], scores.lists[i]);
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
      json.key(text).number(finite(logprob));
      seen.push_back(std::move(text));
    };
    json.open_object();
    const auto& top = token.logprobs->top;
    for (size_t i = 0; i < std::min(num_top_, top.size()); ++i) add(top[i].first, top[i].second);
    add(token.id, token.logprobs->logprob);
    json.close_object();
  }

  const bool has_logprobs_;
  const size_t num_top_;
};

}  // namespace

size_t ScoreText::bytes() const {
  size_t bytes = 0;
  for (const JsonWriter& list : lists) bytes += list.str().size();
  return bytes;
}

std::unique_ptr<ResponseRenderer> make_chat_renderer(const ServingModel& model,
                                                     const GenerationRequest& request) {
  return std::make_unique<ChatRenderer>(model, request);
}

std::unique_ptr<ResponseRenderer> make_completion_renderer(const ServingModel& model,
                                                           const GenerationRequest& request) {
  return std::make_unique<CompletionRenderer>(model, request);
}

}  // namespace headrace
