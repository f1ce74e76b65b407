// PoolSession: one live answer that is made of vectors or labels of its prompts. The counterpart of
// Session (session.h) for answers without text: a window of the prompts is in the engine at once,
// outputs are written in the order of the prompts, a few in each turn of the I/O thread, and the
// answer goes out whole. The first prompt that fails makes the answer that error; a client that
// leaves ends the others.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "server/api/pooled.h"
#include "server/api/session.h"

namespace headrace {

class PoolSession : public std::enable_shared_from_this<PoolSession> {
 public:
  // The request's prompts are read, its memory holds what the answer needs. The session lives until
  // its last event.
  static void start(const SessionHost& host, GenerationRequest request,
                    std::unique_ptr<PooledRenderer> renderer,
                    std::shared_ptr<ResponseWriter> writer);
  ~PoolSession();

 private:
  PoolSession(const SessionHost& host, GenerationRequest request);

  // Any thread.
  void abort();
  bool on_event(size_t prompt_idx, Event&& event);
  void schedule();

  // The connection's I/O thread.
  void drain();
  void on_disconnect();
  void submit_more();
  void write_more();
  void send();
  void fail(const Error& error);
  void note(std::string_view finish);
  std::shared_ptr<ResponseWriter> close();

  const std::shared_ptr<const void> keeps_;  // first: it goes last
  Engine& engine_;
  const ServingModel& model_;
  SessionCounters& counters_;
  const size_t max_open_;
  GenerationRequest request_;
  std::unique_ptr<PooledRenderer> renderer_;  // I/O thread, as all up to mutex_
  std::vector<RequestId> ids_;                // of the submitted
  size_t num_written_ = 0;
  JsonWriter json_;

  std::mutex mutex_;                        // guards all below
  std::shared_ptr<ResponseWriter> writer_;  // null once closed
  std::vector<PooledOutput> outputs_;       // of each prompt
  std::vector<bool> done_;
  size_t num_done_ = 0;
  AnswerEnd end_;
  std::optional<Error> broken_;
  bool scheduled_ = false;
};

}  // namespace headrace
