#include "server/drain.h"

#include <algorithm>
#include <thread>

#include "base/log.h"

namespace headrace {
namespace {

int num_live_responses(const ServerState& state) {
  int count = 0;
  for (const ModelPtr& model : state.models.all()) count += model->sessions.live_responses;
  return count;
}

}  // namespace

bool drain_engines(ServerState& state, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  state.draining = true;
  state.pulls.stop();
  state.profiles.stop();
  state.models.close();
  bool all_finished = true;
  for (const ModelPtr& model : state.models.all()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    const auto patience = std::max(left, std::chrono::milliseconds(0));
    all_finished = model->engine.drain(patience) && all_finished;
  }
  return all_finished;
}

void wait_for_responses(const ServerState& state) {
  const TimeUs begin = now_us();
  while (num_live_responses(state) > 0) {
    if (now_us() - begin > 5'000'000) {
      LOG(kError, "{} responses are still held by the engines", num_live_responses(state));
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace headrace
