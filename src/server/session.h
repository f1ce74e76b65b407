// Session: one live response: the engine's events of its choices in, bytes of the answer out.
//
// Events arrive on the engine thread and wait in a bounded queue; they are turned into text on the
// connection's I/O thread. A client that reads too slowly first pauses that, then fills the queue,
// and is cancelled. A client that leaves, or a completed stop string, cancels the engine's work.
// Every stream ends with exactly one end: the end event, or one error event.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/openai.h"
#include "text/stream_decoder.h"

namespace headrace {

struct SessionLimits {
  size_t max_queued_bytes = 256 * 1024;  // rendered, not yet sent: above it rendering pauses
  size_t max_queued_events = 1024;       // per choice, while paused: then the client is too slow
};

// What every session needs of its server. Outlives the sessions.
struct SessionHost {
  Engine& engine;
  const ServingModel& model;
  ServerCounters& counters;
  SessionLimits limits;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  // Submits every choice; an engine that refuses one makes the answer that error. The session lives
  // until its last event.
  static void start(const SessionHost& host, GenerationRequest request,
                    std::unique_ptr<ResponseRenderer> renderer,
                    std::shared_ptr<ResponseWriter> writer);
  ~Session();

 private:
  struct Choice;
  struct Pending {
    size_t choice_idx = 0;
    Event event;
  };

  Session(const SessionHost& host, GenerationRequest request);

  // Any thread.
  bool on_event(size_t choice_idx, Event&& event);

  // The thread that starts the session.
  bool submit_all();
  void begin();

  // The connection's I/O thread.
  void drain();
  void on_disconnect();
  void on_written();
  void handle(size_t choice_idx, Event&& event);
  void add_prompt_scores(Choice& choice, Event&& event);
  void add_token(Choice& choice, const Event& event);
  void end_choice(Choice& choice, const Event& event);
  void emit(Choice& choice, std::string text, FinishReason finish);
  void finish();
  void fail(const Error& error);
  Usage usage() const;

  void cancel_all();
  std::shared_ptr<ResponseWriter> close();  // nothing is taken or sent after it

  Engine& engine_;
  const ServingModel& model_;
  ServerCounters& counters_;
  const SessionLimits limits_;
  const GenerationRequest request_;
  std::unique_ptr<ResponseRenderer> renderer_;  // I/O thread only, as choices_ once begun
  std::vector<Choice> choices_;
  size_t num_open_choices_ = 0;

  std::mutex mutex_;                        // guards all below
  std::shared_ptr<ResponseWriter> writer_;  // null once closed
  std::deque<Pending> events_;
  bool begun_ = false;      // all choices are submitted
  bool scheduled_ = false;  // drain() is posted
  bool paused_ = false;     // too much is waiting to be sent
  bool too_slow_ = false;   // and the events did not fit either
};

}  // namespace headrace
