// drain: how the work of a server ends, whoever brought it.
#pragma once

#include <chrono>

#include "server/server_state.h"

namespace headrace {

// Refuses new work; what runs may finish until the limit, then it is cancelled. True if nothing had
// to be cancelled.
bool drain_engines(ServerState& state, std::chrono::milliseconds limit);
// Until no answer is held by an engine any more: each session ends with its last event, which the
// engine delivers without fail.
void wait_for_responses(const ServerState& state);

}  // namespace headrace
