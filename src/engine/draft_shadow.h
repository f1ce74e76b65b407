// What drafters that run a network share: its options, and what decides the draws of a request.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/scheduler.h"
#include "model/model.h"

namespace headrace {

// For a network whose guesses are for the engine of these options: as many blocks, sequences and
// positions.
SchedulerOptions drafter_options(const Model& model, const Backend& backend,
                                 const SchedulerOptions& target);

// What decides the draws of a request.
Request drafted_request(const Request& request);

// A guess that ends the answer: the last, and not told.
bool ends_answer(const Request& request, const std::vector<int32_t>& end_ids, int32_t token_id);

}  // namespace headrace
