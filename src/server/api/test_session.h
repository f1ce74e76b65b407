// What tests of sessions share: a writer that keeps what it is sent, an engine whose events the
// test sends, and a session between them on the test's own thread.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/api/json.h"
#include "server/api/openai/openai.h"
#include "server/api/session.h"
#include "server/api/test_support.h"

namespace headrace {

// Keeps what it is sent; tasks run when the test says so.
class RecordingWriter : public ResponseWriter {
 public:
  void send(HttpResponse given) override {
    EXPECT_FALSE(answered_);
    answered_ = true;
    response = std::move(given);
  }
  void start_stream(StreamHead given) override {
    started = true;
    head = std::move(given);
  }
  void note(RequestNote given) override { last_note = std::move(given); }
  void write(std::string_view data) override {
    EXPECT_FALSE(ended);
    body += data;
    queued += data.size();
  }
  void end_stream() override {
    EXPECT_FALSE(ended);
    ended = true;
  }
  size_t queued_bytes() const override { return queued; }
  bool disconnected() const override { return false; }
  void on_disconnect(std::function<void()> callback) override { disconnect = std::move(callback); }
  void on_written(std::function<void()> callback) override { written = std::move(callback); }
  void post(std::function<void()> task) override { tasks.push_back(std::move(task)); }

  void run() {
    while (!tasks.empty()) {
      auto task = std::move(tasks.front());
      tasks.pop_front();
      task();
    }
  }

  HttpResponse response{0, {}};
  StreamHead head;
  RequestNote last_note;
  std::string body;
  bool started = false;
  bool ended = false;
  size_t queued = 0;
  std::function<void()> disconnect, written;
  std::deque<std::function<void()>> tasks;

 private:
  bool answered_ = false;
};

// Keeps the sinks; the test sends the events.
class ManualEngine : public Engine {
 public:
  Result<RequestId> submit(Request request, EventSink sink) override {
    if (requests.size() == max_requests) {
      return make_error(ErrorCode::kExhausted, "the queue is full");
    }
    requests.push_back(std::move(request));
    sinks.push_back(std::move(sink));
    return requests.size();
  }
  void cancel(RequestId id) override { cancelled.push_back(id); }
  void stop(RequestId id) override { stopped.push_back(id); }
  bool drain(std::chrono::milliseconds) override { return true; }
  EngineSnapshot snapshot() const override { return {}; }
  int64_t max_context() const override { return 1000; }

  bool token(size_t index, char c, int num_top = -1, float logprob = -0.5f) {
    Event event;
    if (num_top >= 0) {
      event.logprobs = TokenLogprobs{logprob, 1, {}};
      for (int i = 0; i < num_top; ++i) event.logprobs->top.emplace_back('a' + i, -1.0f);
    }
    event.token_id = static_cast<unsigned char>(c);
    return sinks[index](std::move(event));
  }
  // The end of a search.
  void find(size_t index, std::vector<BeamHypothesis> hypotheses) {
    Event event;
    event.kind = Event::Kind::kFinished;
    event.reason = FinishReason::kLength;
    event.usage = {3, 0, 2};
    event.hypotheses = std::move(hypotheses);
    sinks[index](std::move(event));
  }
  void finish(size_t index, FinishReason reason, int32_t tokens, Error error = {}) {
    Event event;
    event.kind = Event::Kind::kFinished;
    event.reason = reason;
    event.usage = {3, tokens, 2};
    event.error = std::move(error);
    sinks[index](std::move(event));
  }

  size_t max_requests = 100;
  std::vector<Request> requests;
  std::vector<EventSink> sinks;
  std::vector<RequestId> cancelled, stopped;
};

class SessionTest : public testing::Test {
 protected:
  GenerationRequest request(bool stream, int num_choices = 1, std::vector<std::string> stop = {}) {
    GenerationRequest made;
    made.prompts.push_back({{1, 2, 3}, {}});
    made.prototype.max_tokens = 50;
    made.prototype.sampling.seed = 7;
    made.num_choices = num_choices;
    made.stream = stream;
    made.stop = std::move(stop);
    return made;
  }
  static OpenAiAnswer answer_to(const GenerationRequest& made) {
    return {"scripted", made.prototype.num_logprobs, false, false};
  }
  void start(GenerationRequest made) { start(engine_, std::move(made)); }
  void start(Engine& engine, GenerationRequest made) {
    OpenAiAnswer answer = answer_to(made);
    start(engine, std::move(made), make_completion_renderer(model_, std::move(answer)));
  }
  void start(Engine& engine, GenerationRequest made, std::unique_ptr<AnswerRenderer> renderer) {
    Session::start({engine, model_, counters_, limits_}, std::move(made), std::move(renderer),
                   writer_);
    writer_->run();
  }
  // With usage in every chunk.
  void start_counting(GenerationRequest made) {
    OpenAiAnswer answer{"scripted", {}, true, true};
    start(engine_, std::move(made), make_completion_renderer(model_, std::move(answer)));
  }
  // The texts of a stream, joined, and how it ended.
  std::string streamed_text(std::string* finish = nullptr) {
    std::string text;
    for (const std::string& event : test::events_of(writer_->body)) {
      if (event == "[DONE]") continue;
      const auto json = parse_json(event, "event").value();
      if (const auto* error = json_member(&json, "error")) {
        return "error: " + std::string(error->at("message").as_string().c_str());
      }
      for (const auto& choice : json.at("choices").as_array()) {
        text += choice.at("text").as_string().c_str();
        if (finish != nullptr && choice.at("finish_reason").is_string()) {
          *finish = choice.at("finish_reason").as_string().c_str();
        }
      }
    }
    return text;
  }

  const TextBundle bundle_ = test::make_bundle();
  const ModelInfo info_ = test::make_model_info();
  const std::vector<std::string> names_ = {"scripted"};
  const ServingModel model_{bundle_, info_, names_, 1000};
  SessionCounters counters_;
  SessionLimits limits_;
  ManualEngine engine_;
  std::shared_ptr<RecordingWriter> writer_ = std::make_shared<RecordingWriter>();
};

}  // namespace headrace
