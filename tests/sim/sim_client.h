// Clients of the simulated server: sessions of src/server whose I/O thread is a queue that the
// simulation works off, and callers of the engine itself.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/api/dialect.h"
#include "server/api/session.h"
#include "sim/sim_engine.h"

namespace headrace::sim {

// What came of one response.
struct ResponseLog {
  std::vector<std::string> texts;      // of each choice
  std::vector<Finish::Kind> finishes;  // of each choice
  int num_ends = 0;                    // whole answers, end events and error events
  int status = 0;                      // of a whole answer
  bool failed = false;
};

// Plain text in place of JSON.
inline constexpr Dialect kSimDialect{"sim", [](const Problem& problem) { return problem.message; },
                                     kJsonLines};

class SimRenderer final : public AnswerRenderer {
 public:
  explicit SimRenderer(std::shared_ptr<ResponseLog> log) : log_(std::move(log)) {}

  const Dialect& dialect() const override { return kSimDialect; }
  const std::string& id() const override { return id_; }
  void add_score(const ScoredToken&, ScoreText& scores) override { ++scores.num_tokens; }
  std::string chunk(const ChoiceDelta& delta, const Usage&) override {
    return std::to_string(delta.choice_idx) + note(delta);
  }
  std::string end_stream(const AnswerEnd& end) override {
    ++log_->num_ends;
    return std::to_string(end.usage.output_tokens);
  }
  std::string stream_error(const Error& error) override {
    log_->failed = true;
    ++log_->num_ends;
    return error.message;
  }
  void begin_whole(JsonWriter& json) override { json.open_array(); }
  void add_choice(const ChoiceDelta& choice, JsonWriter& json) override { json.text(note(choice)); }
  void end_whole(const AnswerEnd& end, JsonWriter& json) override {
    json.integer(end.usage.output_tokens).close_array();
  }

 private:
  std::string note(const ChoiceDelta& delta) {
    EXPECT_EQ(log_->finishes[delta.choice_idx], Finish::Kind::kNone) << "text after the end";
    const std::string text = delta.text_of(OutputPart::Kind::kText);
    log_->texts[delta.choice_idx] += text;
    log_->finishes[delta.choice_idx] = delta.finish.kind;
    return text;
  }

  const std::shared_ptr<ResponseLog> log_;
  const std::string id_ = "sim";
};

// The connection: tasks in order, bytes that the client takes when it likes.
class SimWriter final : public ResponseWriter {
 public:
  SimWriter(std::shared_ptr<ResponseLog> log, Digest* digest)
      : log_(std::move(log)), digest_(*digest) {}

  void send(HttpResponse response) override {
    ++log_->num_ends;
    log_->status = response.status;
    log_->failed = response.status != 200;
    digest_.add(response.body);
  }
  void start_stream(StreamHead) override {}
  void write(std::string_view data) override {
    EXPECT_FALSE(ended_);
    queued_ += data.size();
    digest_.add(data);
  }
  void end_stream() override { EXPECT_FALSE(std::exchange(ended_, true)); }
  size_t queued_bytes() const override { return queued_; }
  bool disconnected() const override { return gone_; }
  void on_disconnect(std::function<void()> callback) override { disconnect_ = std::move(callback); }
  void on_written(std::function<void()> callback) override { written_ = std::move(callback); }
  void post(std::function<void()> task) override { tasks_.push_back(std::move(task)); }

  bool has_tasks() const { return !tasks_.empty(); }
  void run_task() {
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    task();
  }
  // The client takes all that was sent.
  void read() {
    if (std::exchange(queued_, 0) > 0 && written_ && !gone_) written_();
  }
  void leave() {
    if (!std::exchange(gone_, true) && disconnect_) disconnect_();
  }
  // The connection is over: callbacks, and what they hold, are let go.
  void close() { disconnect_ = written_ = nullptr; }
  size_t num_waiting_bytes() const { return queued_; }

 private:
  const std::shared_ptr<ResponseLog> log_;
  Digest& digest_;
  std::deque<std::function<void()>> tasks_;
  std::function<void()> disconnect_, written_;
  size_t queued_ = 0;
  bool ended_ = false;
  bool gone_ = false;
};

// One response of the server and who waits for it.
struct SessionClient {
  std::shared_ptr<SimWriter> writer;
  std::shared_ptr<ResponseLog> log;
  std::vector<Request> requests;      // of each choice
  int num_choices = 1, num_best = 0;  // as GenerationRequest has them
  std::string stop;                   // a stop string; empty: none
  bool reads = true;
  bool streams = false;
  bool fragile = false;  // left, read slowly, or found no memory or no place: may have ended early

  std::string state() const {
    return fmt::format("{} ends, {} tasks, {} bytes wait, {}{}{} choices", log->num_ends,
                       writer->has_tasks() ? "has" : "no", writer->num_waiting_bytes(),
                       reads ? "reads, " : "", fragile ? "fragile, " : "", requests.size()) +
           (streams ? ", streams" : "");
  }
  bool over() const { return log->num_ends > 0 || writer->disconnected(); }
};

}  // namespace headrace::sim
