// Session: one live response: the engine's events of its choices in, bytes of the answer out. It
// knows no dialect: the renderer that it is given makes the bytes.
//
// Events arrive on a thread of the engine and wait in a queue; they are turned into text on the
// connection's I/O thread, a bounded piece at a time, so that the other connections of the thread
// get their turn. Everything that waits or is kept is part of the request's lease of the server's
// memory. Work that is done in vain is cancelled: of a client that left, that reads nothing (so
// that data to send piles up, then events), or of an answer that finds no more memory. The engine
// has at most a window of the choices at once; the others follow as those end. Every stream ends
// exactly once: with the renderer's end, or with one error.
//
// It has no thread and no clock of its own: ResponseWriter::post is where its work runs, and
// SessionHost::now the time. Given both, the same events in the same order make the same bytes.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/metrics.h"
#include "engine/engine.h"
#include "server/api/generation.h"
#include "server/api/live_sessions.h"
#include "server/api/serving_model.h"
#include "server/http/http.h"
#include "text/stream_decoder.h"

namespace headrace {

struct SessionLimits {
  size_t max_queued_bytes = 256 * 1024;  // rendered, not yet sent: above it rendering pauses
  size_t max_queued_events = 1024;       // per choice, since a paused client last read something
  size_t max_open_choices = 32;          // in the engine at once
};

// Of all sessions of a model. Any thread.
struct SessionCounters {
  Counter disconnects;   // clients that left before their answer was complete
  Counter slow_clients;  // answers ended because the client read too slowly
  LiveSessions live;     // those whose choices are in the engine
  std::atomic<int> live_responses = 0;
  std::atomic<TimeUs> busy_since = 0;  // when live_responses last rose from 0
};

// What every session needs of its server. What it refers to outlives the sessions, or is kept.
struct SessionHost {
  Engine& engine;
  const ServingModel& model;
  SessionCounters& counters;
  SessionLimits limits;
  TimeUs (*now)() = now_us;
  std::shared_ptr<const void> keeps = {};  // what the others are parts of; sessions hold it
};

// Why an answer ends that neither its client nor the model ended.
Error ended_by_shutdown();
Error ended_by_administrator();

class Session : public std::enable_shared_from_this<Session> {
 public:
  // Submits the first choices; an engine that refuses one makes the answer that error. The session
  // lives until its last event.
  static void start(const SessionHost& host, GenerationRequest request,
                    std::unique_ptr<AnswerRenderer> renderer,
                    std::shared_ptr<ResponseWriter> writer);
  ~Session();
  // Any thread: the answer ends with an error, if it has not ended.
  void abort();

 private:
  struct Choice;
  struct Pending {
    size_t choice_idx = 0;
    Event event;
  };
  // A prompt's log-probs, on their way into the answer.
  struct Scoring {
    size_t choice_idx = 0;
    std::vector<std::optional<TokenLogprobs>> scores;
    size_t num_done = 0;
  };

  // What a beam search has found, on its way into the choices of its prompt.
  struct Unfolding {
    size_t choice_idx = 0;  // of the first
    Event end;
    size_t num_done = 0;    // hypotheses
    size_t num_tokens = 0;  // done, of the next
  };

  Session(const SessionHost& host, GenerationRequest request);

  // Any thread.
  bool on_event(size_t choice_idx, Event&& event);

  // The thread that starts the session, then the connection's I/O thread.
  Status submit_more();
  Status submit(Choice& choice);

  // The thread that starts the session.
  void begin();

  // The connection's I/O thread.
  void drain();
  bool take_turn(std::optional<Pending>& next);
  void on_disconnect();
  void on_written();
  void handle(Pending&& pending);
  void score_prompt();
  void unfold();
  void add_token(Choice& choice, const Event& event);
  void stop_with(Choice& choice, std::string text, Finish finish);
  void end_choice(Choice& choice, const Event& event);
  void know_cached(const Choice& choice, const Usage& usage);
  void count_output(Choice& choice, int32_t num_tokens);
  void know_times(const Choice& choice, const RequestTimes& times);
  void emit(Choice& choice, std::string text, Finish finish);
  bool pay(Choice& choice);
  void keep(Choice& choice);
  void finish_stream();
  void choose_best();
  bool render_whole();
  void write_whole();
  void fail(const Error& error);
  void note(std::string_view finish);  // for the log of requests, before close()
  AnswerEnd end() const;
  HttpResponse error_response_of(const Error& error) const;

  void cancel_all();
  std::shared_ptr<ResponseWriter> close();  // nothing is taken or sent after it

  // With mutex_ held.
  std::optional<Error> find_breach(const Event& event);
  bool can_wait(const Event& event) const;

  const std::shared_ptr<const void> keeps_;  // first: it goes last
  Engine& engine_;
  const ServingModel& model_;
  SessionCounters& counters_;
  TimeUs (*const now_)();
  const SessionLimits limits_;
  ByteBudget::Lease memory_;  // guarded by mutex_
  const GenerationRequest request_;
  std::unique_ptr<AnswerRenderer> renderer_;  // I/O thread only once begun, as all up to mutex_
  std::vector<Choice> choices_;
  Usage usage_;                     // of the whole answer, so far
  std::vector<bool> knows_cached_;  // of each prompt: its cached tokens are counted
  size_t num_submitted_ = 0;
  size_t num_finished_ = 0;
  std::optional<Scoring> scoring_;
  std::optional<Unfolding> unfolding_;
  JsonWriter whole_;        // without streaming: the answer's text
  size_t num_written_ = 0;  // choices in it
  Finish::Kind last_finish_ = Finish::Kind::kNone;
  RequestTimes times_;  // of the first choice
  TimeUs first_token_us_ = 0;
  int64_t queue_us_ = -1;

  std::mutex mutex_;                        // guards all below
  std::shared_ptr<ResponseWriter> writer_;  // null once closed
  std::deque<Pending> events_;
  size_t read_mark_ = 0;    // events_ when a paused client last took something
  bool begun_ = false;      // the first choices are submitted
  bool scheduled_ = false;  // drain() is posted
  bool paused_ = false;     // too much is waiting to be sent
  // This, while paused: the engine may have sent its last event, and no task is posted.
  std::shared_ptr<Session> kept_;
  std::optional<Error> broken_;  // why the answer cannot go on
};

}  // namespace headrace
