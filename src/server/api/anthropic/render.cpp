#include "server/api/answer_id.h"
#include "server/api/anthropic/anthropic.h"
#include "server/api/json.h"

namespace headrace {
namespace {

using PartKind = OutputPart::Kind;

std::string event(std::string_view name, const JsonWriter& json) {
  return fmt::format("event: {}\n{}", name, kAnthropic.framing.frame(json.str()));
}

bool is_text(PartKind kind) { return kind == PartKind::kText || kind == PartKind::kRefusal; }

// What clients send back with a thinking block. Nothing is verified by it; some drop a block that
// has none.
class Signature {
 public:
  void add(std::string_view text) {
    for (const char c : text) {
      hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 1099511628211u;  // FNV-1a
    }
  }
  std::string text() const { return fmt::format("{:016x}", hash_); }

 private:
  uint64_t hash_ = 14695981039346656037u;
};

// A part of the answer is a content block; in a stream a block is opened, grows and is closed.
class MessageRenderer : public AnswerRenderer {
 public:
  explicit MessageRenderer(AnthropicAnswer answer)
      : answer_(std::move(answer)), id_(fresh_answer_id("msg_")) {}

  const Dialect& dialect() const override { return kAnthropic; }
  const std::string& id() const override { return id_; }
  void add_score(const ScoredToken& /*token*/, ScoreText& /*scores*/) override {}

  // How much of the prompt was cached is known with the first token: message_delta says it.
  std::string begin_stream(const Usage& usage) override {
    JsonWriter json;
    json.open_object().text("type", "message_start").key("message");
    open_message(json);
    json.close_array();
    write_end(json, usage);
    json.close_object();
    return event("message_start", json);
  }

  std::string chunk(const ChoiceDelta& delta, const Usage& /*so_far*/) override {
    std::string events;
    for (const OutputPart& part : delta.parts) {
      if (!goes_on(part)) {
        close_block(events);
        open_block(part, events);
      }
      grow_block(part, events);
    }
    know_end(delta);
    if (delta.finish.kind != Finish::Kind::kNone) close_block(events);
    return events;
  }

  std::string end_stream(const AnswerEnd& end) override {
    JsonWriter json;
    json.open_object().text("type", "message_delta").key("delta").open_object();
    write_stop(json, end.usage);
    json.close_object();
    write_usage(json, end.usage);
    json.close_object();
    JsonWriter stop;
    stop.open_object().text("type", "message_stop").close_object();
    return event("message_delta", json) + event("message_stop", stop);
  }

  std::string stream_error(const Error& error) override {
    JsonWriter json;
    json.raw(kAnthropic.error_body(problem_of(error)));
    return event("error", json);
  }

  void begin_whole(JsonWriter& json) override { open_message(json); }

  void add_choice(const ChoiceDelta& choice, JsonWriter& json) override {
    for (const OutputPart& part : choice.parts) write_block(json, part);
    know_end(choice);
  }

  void end_whole(const AnswerEnd& end, JsonWriter& json) override {
    json.close_array();
    write_end(json, end.usage);
  }

 private:
  bool goes_on(const OutputPart& part) const {
    if (!is_open_) return false;
    if (is_text(part.kind)) return is_text(open_kind_);
    return part.kind == open_kind_ && part.call_idx == open_call_;
  }

  // "content_block_start", with what is said of the block before its content.
  void open_block(const OutputPart& part, std::string& events) {
    is_open_ = true;
    open_kind_ = part.kind;
    open_call_ = part.call_idx;
    signature_ = {};
    JsonWriter json;
    json.open_object().text("type", "content_block_start").integer("index", num_blocks_);
    json.key("content_block");
    if (part.kind == PartKind::kReasoning) {
      write_thinking(json, {}, {});
    } else if (part.kind == PartKind::kToolCall) {
      write_call(json, part, "{}");
    } else {
      json.open_object().text("type", "text").text("text", "").close_object();
    }
    json.close_object();
    events += event("content_block_start", json);
  }

  void grow_block(const OutputPart& part, std::string& events) {
    if (part.kind == PartKind::kReasoning) {
      signature_.add(part.text);
      if (answer_.shows_thinking) add_delta("thinking_delta", "thinking", part.text, events);
    } else if (part.kind == PartKind::kToolCall) {
      add_delta("input_json_delta", "partial_json", part.text, events);
    } else {
      add_delta("text_delta", "text", part.text, events);
    }
  }

  void close_block(std::string& events) {
    if (!is_open_) return;
    if (open_kind_ == PartKind::kReasoning) {
      add_delta("signature_delta", "signature", signature_.text(), events);
    }
    JsonWriter json;
    json.open_object().text("type", "content_block_stop").integer("index", num_blocks_);
    json.close_object();
    events += event("content_block_stop", json);
    ++num_blocks_;
    is_open_ = false;
  }

  void add_delta(std::string_view type, std::string_view member, std::string_view text,
                 std::string& events) const {
    if (text.empty()) return;
    JsonWriter json;
    json.open_object().text("type", "content_block_delta").integer("index", num_blocks_);
    json.key("delta").open_object().text("type", type).text(member, text).close_object();
    json.close_object();
    events += event("content_block_delta", json);
  }

  void write_block(JsonWriter& json, const OutputPart& part) const {
    if (part.kind == PartKind::kReasoning) {
      Signature signature;
      signature.add(part.text);
      write_thinking(json, answer_.shows_thinking ? std::string_view(part.text) : "",
                     signature.text());
    } else if (part.kind == PartKind::kToolCall) {
      write_call(json, part, object_text(part.text));
    } else {
      json.open_object().text("type", "text").text("text", part.text).close_object();
    }
  }

  static void write_thinking(JsonWriter& json, std::string_view text, std::string_view signature) {
    json.open_object().text("type", "thinking").text("thinking", text);
    json.text("signature", signature).close_object();
  }

  static void write_call(JsonWriter& json, const OutputPart& part, std::string_view input) {
    json.open_object().text("type", "tool_use").text("id", part.call_id);
    json.text("name", part.call_name).key("input").raw(input).close_object();
  }

  // Up to the content, which stays open.
  void open_message(JsonWriter& json) const {
    json.open_object().text("id", id_).text("type", "message").text("role", "assistant");
    json.text("model", answer_.model_name).key("content").open_array();
  }

  void write_end(JsonWriter& json, const Usage& usage) const {
    write_stop(json, usage);
    write_usage(json, usage);
    json.close_object();
  }

  void know_end(const ChoiceDelta& delta) {
    for (const OutputPart& part : delta.parts) refuses_ |= part.kind == PartKind::kRefusal;
    if (delta.finish.kind != Finish::Kind::kNone) finish_ = delta.finish;
  }

  // An answer that is shorter than what was asked for, and yet full, has filled the context.
  std::string_view stop_reason(const Usage& usage) const {
    switch (finish_.kind) {
      case Finish::Kind::kLength:
        return usage.output_tokens < answer_.max_tokens ? "model_context_window_exceeded"
                                                        : "max_tokens";
      case Finish::Kind::kStopString:
        return "stop_sequence";
      case Finish::Kind::kToolCalls:
        return "tool_use";
      default:
        return refuses_ ? "refusal" : "end_turn";
    }
  }

  void write_stop(JsonWriter& json, const Usage& usage) const {
    json.key("stop_reason");
    finish_.kind == Finish::Kind::kNone ? json.null() : json.text(stop_reason(usage));
    json.key("stop_sequence");
    finish_.stop.empty() ? json.null() : json.text(finish_.stop);
  }

  // What was read from the cache is no input.
  static void write_usage(JsonWriter& json, const Usage& usage) {
    json.key("usage").open_object();
    json.integer("input_tokens", usage.prompt_tokens - usage.cached_tokens);
    json.integer("cache_creation_input_tokens", 0);
    json.integer("cache_read_input_tokens", usage.cached_tokens);
    json.integer("output_tokens", usage.output_tokens);
    json.key("output_tokens_details").open_object();
    json.integer("thinking_tokens", usage.reasoning_tokens).close_object().close_object();
  }

  const AnthropicAnswer answer_;
  const std::string id_;
  Finish finish_;
  bool refuses_ = false;
  bool is_open_ = false;  // of a stream: a block, and which
  PartKind open_kind_ = PartKind::kText;
  int open_call_ = 0;
  int64_t num_blocks_ = 0;  // closed
  Signature signature_;
};

}  // namespace

std::unique_ptr<AnswerRenderer> make_message_renderer(AnthropicAnswer answer) {
  return std::make_unique<MessageRenderer>(std::move(answer));
}

}  // namespace headrace
