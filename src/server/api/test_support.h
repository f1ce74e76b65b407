// What tests of sessions and dialects share: an engine that follows a script, a tokenizer of bytes
// and a plain chat template. No model, no numbers.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "engine/engine.h"
#include "engine/step_profiler.h"
#include "server/api/bundle.h"
#include "server/api/generation.h"
#include "server/api/serving_model.h"

namespace headrace::test {

inline constexpr int32_t kBos = 256;
inline constexpr int32_t kEos = 257;
inline constexpr int32_t kVocabSize = 258;

// Ids 0..255 are bytes; "<s>" and "</s>" are special tokens, also when written in a text.
class ByteTokenizer : public Tokenizer {
 public:
  using Tokenizer::encode;
  Result<std::vector<int32_t>> encode(std::string_view utf8, bool add_special,
                                      const EncodeLimits& limits) const override {
    std::vector<int32_t> ids;
    if (add_special) ids.push_back(kBos);
    while (!utf8.empty()) {
      if (utf8.starts_with("<s>")) {
        ids.push_back(kBos);
        utf8.remove_prefix(3);
      } else if (utf8.starts_with("</s>")) {
        ids.push_back(kEos);
        utf8.remove_prefix(4);
      } else {
        ids.push_back(static_cast<unsigned char>(utf8[0]));
        utf8.remove_prefix(1);
      }
      const auto num_tokens = static_cast<int64_t>(ids.size());
      if (num_tokens > limits.max_tokens) return too_many_tokens(num_tokens, limits.max_tokens);
      if (limits.stopped && limits.stopped()) return make_error(ErrorCode::kUnavailable, "stopped");
    }
    return ids;
  }
  Result<std::string> decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string text;
    for (const int32_t id : ids) text += token_bytes(id, skip_special);
    return text;
  }
  int32_t vocab_size() const override { return kVocabSize; }
  std::optional<std::string> id_to_token(int32_t id) const override {
    if (id < 0 || id >= kVocabSize) return std::nullopt;
    return token_bytes(id, false);
  }
  std::optional<int32_t> token_to_id(std::string_view token) const override {
    if (token == "<s>") return kBos;
    if (token == "</s>") return kEos;
    if (token.size() != 1) return std::nullopt;
    return static_cast<unsigned char>(token[0]);
  }
  std::string token_bytes(int32_t id, bool skip_special) const override {
    if (id == kBos) return skip_special ? "" : "<s>";
    if (id == kEos) return skip_special ? "" : "</s>";
    return std::string(1, static_cast<char>(id));
  }
  bool is_special(int32_t id) const override { return id >= kBos; }
  std::optional<int32_t> bos_id() const override { return kBos; }
  std::optional<int32_t> eos_id() const override { return kEos; }
  bool adds_bos() const override { return true; }
};

// "<s>[user]Hi\n[assistant]"; raises where a message says RAISE. Shows what it was given.
class PlainTemplate : public ChatTemplate {
 public:
  Result<std::string> render(std::string_view options_json,
                             std::optional<std::string_view> /*now*/) const override {
    const boost::json::value options = TRY(parse_json(options_json, "template options"));
    std::string text = "<s>";
    if (const auto* tools = json_member(&options, "tools")) {
      text += fmt::format("[{} tools]", tools->as_array().size());
    }
    if (const auto* effort = json_member(&options, "reasoning_effort")) {
      text += fmt::format("[effort {}]", effort->as_string().c_str());
    }
    for (const boost::json::value& message : options.at("messages").as_array()) {
      const std::string content(message.at("content").as_string().c_str());
      if (content == "RAISE") {
        return make_error(ErrorCode::kInvalidArgument, "roles must alternate");
      }
      text += fmt::format("[{}]{}", message.at("role").as_string().c_str(), content);
      if (json_member(&message, "tool_calls") != nullptr) text += "[calls]";
      text += "\n";
    }
    if (options.at("add_generation_prompt").as_bool()) text += "[assistant]";
    return text;
  }
  const std::string& source() const override { return source_; }

 private:
  const std::string source_ = "plain, knows tool_calls and reasoning_effort";
};

inline TextBundle make_bundle(bool with_template = true) {
  TextBundle bundle;
  bundle.tokenizer = std::make_unique<ByteTokenizer>();
  if (with_template) bundle.chat_template = std::make_unique<PlainTemplate>();
  bundle.bos_token = "<s>";
  bundle.eos_token = "</s>";
  bundle.end_ids = {kEos};
  bundle.grammars = std::make_unique<GrammarCompiler>(*bundle.tokenizer, bundle.end_ids);
  bundle.display_name = "scripted";
  return bundle;
}

inline ModelInfo make_model_info() {
  ModelInfo info;
  info.name = "scripted";
  info.family = "none";
  info.architecture = "Scripted";
  info.quantisation = "none";
  info.file = "scripted.gguf";
  info.vocab_size = kVocabSize;
  info.hidden_size = 4;
  info.isa = "none";
  info.num_threads = 1;
  info.numerics_id = "fp-scripted";
  info.system_fingerprint = "fp-scripted";
  return info;
}

// Takes <t>reasoning</t> and <c>name:arguments</c> out of a text; all else is text. Whole marks and
// what is between them come at once.
class TagParser : public PartParser {
 public:
  std::vector<OutputPart> push(std::string_view text) override {
    held_ += text;
    std::vector<OutputPart> parts;
    while (!held_.empty() && take(parts)) continue;
    return parts;
  }
  std::vector<OutputPart> finish(bool /*is_cut*/) override {
    std::vector<OutputPart> parts;
    if (!held_.empty())
      parts.push_back({OutputPart::Kind::kText, std::exchange(held_, {}), 0, {}, {}});
    return parts;
  }

 private:
  bool take(std::vector<OutputPart>& parts) {
    const size_t mark = held_.find('<');
    if (mark != 0) {
      parts.push_back({OutputPart::Kind::kText, held_.substr(0, mark), 0, {}, {}});
      held_.erase(0, mark);
      return true;
    }
    const size_t end = held_.find("</");
    if (end == std::string::npos || held_.size() < end + 4) return false;
    const std::string inner = held_.substr(3, end - 3);
    if (held_[1] == 't') {
      parts.push_back({OutputPart::Kind::kReasoning, inner, 0, {}, {}});
    } else {
      const size_t colon = inner.find(':');
      parts.push_back({OutputPart::Kind::kToolCall, inner.substr(colon + 1), num_calls_,
                       fmt::format("call-{}", num_calls_), inner.substr(0, colon)});
      ++num_calls_;
    }
    held_.erase(0, end + 4);
    return true;
  }

  std::string held_;
  int num_calls_ = 0;
};

struct Script {
  std::string reply = "Hello, world!";  // one token per byte, then the end token
  std::chrono::microseconds token_delay{0};
  int max_waiting = 1000;  // more requests at once are refused
  int64_t max_context = 4096;
  bool fail = false;  // every request ends with an error after two tokens
};

// Answers every request with the script's reply, on a thread of its own, one token of each live
// request per round. With ignore_eos the reply repeats until max_tokens.
class ScriptedEngine : public Engine {
 public:
  explicit ScriptedEngine(Script script = {}) : script_(std::move(script)) {
    thread_ = std::thread([this] { run(); });
  }
  ~ScriptedEngine() override {
    drain(std::chrono::milliseconds(0));
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  Result<RequestId> submit(Request request, EventSink sink) override {
    std::lock_guard lock(mutex_);
    if (draining_) return make_error(ErrorCode::kUnavailable, "the engine is draining");
    if (static_cast<int>(live_.size()) >= script_.max_waiting) {
      return make_error(ErrorCode::kExhausted, "the queue is full, it holds {} requests",
                        script_.max_waiting);
    }
    const RequestId id = next_id_++;
    last_request_ = request;
    ++num_submitted_;
    live_.emplace(id, Live{std::move(request), std::move(sink), {}, now_us()});
    changed_.notify_all();
    return id;
  }
  void cancel(RequestId id) override {
    std::lock_guard lock(mutex_);
    const auto found = live_.find(id);
    if (found == live_.end()) return;
    found->second.cancelled = true;
    ++num_cancelled_;
    changed_.notify_all();
  }
  bool drain(std::chrono::milliseconds deadline) override {
    std::unique_lock lock(mutex_);
    draining_ = true;
    const auto is_empty = [this] { return live_.empty(); };
    const bool finished = changed_.wait_for(lock, deadline, is_empty);
    for (auto& [id, live] : live_) live.cancelled = true;
    changed_.notify_all();
    changed_.wait(lock, is_empty);
    return finished;
  }
  EngineSnapshot snapshot() const override {
    std::lock_guard lock(mutex_);
    EngineSnapshot snapshot;
    snapshot.num_running = static_cast<int>(live_.size());
    snapshot.kv_blocks_total = 100;
    snapshot.num_requests = num_submitted_;
    snapshot.last_step_us = last_step_us_;
    return snapshot;
  }
  int64_t max_context() const override { return script_.max_context; }
  StepProfiler* profiler() override { return &profiler_; }  // its steps are the test's to record

  // While held, no request makes progress; cancels still take effect.
  void hold(bool held) {
    std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  Request last_request() const {
    std::lock_guard lock(mutex_);
    return last_request_;
  }
  uint64_t num_submitted() const {
    std::lock_guard lock(mutex_);
    return num_submitted_;
  }
  uint64_t num_cancelled() const {
    std::lock_guard lock(mutex_);
    return num_cancelled_;
  }
  int num_live() const {
    std::lock_guard lock(mutex_);
    return static_cast<int>(live_.size());
  }

 private:
  struct Live {
    Request request;
    EventSink sink;
    Usage usage;
    TimeUs submitted = 0;
    bool cancelled = false;
    bool scored = false;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || can_work(); });
      if (stop_) return;
      std::vector<RequestId> ids;
      for (const auto& [id, live] : live_) ids.push_back(id);
      for (const RequestId id : ids) step(lock, id);
      last_step_us_ = now_us();
      if (script_.token_delay.count() > 0) {
        lock.unlock();
        std::this_thread::sleep_for(script_.token_delay);
        lock.lock();
      }
    }
  }

  bool can_work() const {
    if (!held_) return !live_.empty();
    for (const auto& [id, live] : live_) {
      if (live.cancelled) return true;
    }
    return false;
  }

  // One token of one request. The sink is called without the lock, as an engine's would be.
  void step(std::unique_lock<std::mutex>& lock, RequestId id) {
    Live& live = live_.find(id)->second;
    if (held_ && !live.cancelled) return;
    std::vector<Event> events = next_events(live, id);
    const EventSink sink = live.sink;
    bool ended = false;
    lock.unlock();
    for (Event& event : events) {
      const bool is_end = event.kind == Event::Kind::kFinished;
      const bool taken = sink(std::move(event));
      ended = ended || is_end;
      if (!taken && !is_end) {
        lock.lock();
        live.cancelled = true;
        ++num_cancelled_;
        lock.unlock();
      }
    }
    lock.lock();
    if (ended) live_.erase(id);
    changed_.notify_all();
  }

  std::vector<Event> next_events(Live& live, RequestId id) const {
    std::vector<Event> events;
    const Request& request = live.request;
    live.usage.prompt_tokens = static_cast<int32_t>(request.prompt_ids.size());
    if (request.num_prompt_logprobs && !live.scored && !live.cancelled) {
      events.push_back(prompt_scores(request, id));
    }
    live.scored = true;
    if (request.pooling != Pooling::kNone && !live.cancelled && !script_.fail) {
      events.push_back(end_event(live, id, FinishReason::kStop));
      events.back().embedding = vector_of(request.prompt_ids);
      return events;
    }
    const auto made = static_cast<size_t>(live.usage.output_tokens);
    const bool at_end = made >= script_.reply.size() && !request.ignore_eos;
    FinishReason reason = FinishReason::kNone;
    if (live.cancelled) {
      reason = FinishReason::kCancelled;
    } else if (script_.fail && (made >= 2 || request.max_tokens < 2)) {
      reason = FinishReason::kError;
    } else if (live.usage.output_tokens >= request.max_tokens) {
      reason = FinishReason::kLength;
    } else if (at_end) {
      reason = FinishReason::kStop;
    }
    if (reason == FinishReason::kNone) {
      events.push_back(token_event(request, id, made));
      ++live.usage.output_tokens;
    } else {
      events.push_back(end_event(live, id, reason));
    }
    return events;
  }

  // Its direction tells which bytes are in the prompt.
  static std::vector<float> vector_of(const std::vector<int32_t>& ids) {
    std::vector<float> vector(4);
    for (const int32_t id : ids) vector[static_cast<size_t>(id % 4)] += 1;
    return vector;
  }

  static TokenLogprobs scores_of(int32_t token_id, int count) {
    TokenLogprobs scores{-0.5f, 1, {}};
    for (int i = 0; i < count; ++i) {
      scores.top.emplace_back((token_id + i) % 128, -0.5f - static_cast<float>(i));
    }
    return scores;
  }

  Event token_event(const Request& request, RequestId id, size_t position) const {
    Event event;
    event.request_id = id;
    event.token_id = static_cast<unsigned char>(script_.reply[position % script_.reply.size()]);
    if (request.num_logprobs) event.logprobs = scores_of(event.token_id, *request.num_logprobs);
    // The longer the prompt, the likelier the first label.
    const auto length = static_cast<float>(request.prompt_ids.size());
    for (size_t i = 0; i < request.label_ids.size(); ++i) {
      event.label_logprobs.push_back(i == 0 ? -1.0f / length : -1.0f);
    }
    return event;
  }

  static Event prompt_scores(const Request& request, RequestId id) {
    Event event;
    event.kind = Event::Kind::kPromptLogprobs;
    event.request_id = id;
    for (size_t i = 0; i < request.prompt_ids.size(); ++i) {
      if (i == 0) {
        event.prompt_logprobs.emplace_back(std::nullopt);
      } else {
        event.prompt_logprobs.emplace_back(
            scores_of(request.prompt_ids[i], *request.num_prompt_logprobs));
      }
    }
    return event;
  }

  static Event end_event(const Live& live, RequestId id, FinishReason reason) {
    Event event;
    event.kind = Event::Kind::kFinished;
    event.request_id = id;
    event.reason = reason;
    event.stop_id = reason == FinishReason::kStop ? kEos : -1;
    if (reason == FinishReason::kError) {
      event.error = make_error(ErrorCode::kInternal, "the logits of this request are not finite");
    }
    event.usage = live.usage;
    event.times = {live.submitted, live.submitted, live.submitted, now_us()};
    return event;
  }

  const Script script_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::map<RequestId, Live> live_;
  RequestId next_id_ = 1;
  Request last_request_;
  uint64_t num_submitted_ = 0, num_cancelled_ = 0;
  TimeUs last_step_us_ = 0;
  StepProfiler profiler_{[](std::vector<OpRecord>*) {}};  // guards itself
  bool held_ = false, draining_ = false, stop_ = false;
  std::thread thread_;
};

// The data of each event of a stream, comments left out.
inline std::vector<std::string> events_of(std::string_view body) {
  std::vector<std::string> events;
  size_t begin = 0;
  while (begin < body.size()) {
    const size_t end = std::min(body.find("\n\n", begin), body.size());
    const std::string_view event = body.substr(begin, end - begin);
    if (event.starts_with("data: ")) events.emplace_back(event.substr(6));
    begin = end + 2;
  }
  return events;
}

}  // namespace headrace::test
