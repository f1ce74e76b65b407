// Views: what the page and the HTTP API show of a laboratory, as JSON. docs/lab-api.md is the
// contract, field by field.
//
// effects: what is known already (known_effects.h), kept by whoever looks often.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "lab/known_effects.h"
#include "lab/store.h"

namespace headrace::lab {

inline constexpr int64_t kMaxLogEntries = 1000;  // of one answer

Result<boost::json::object> overview_view(Store& store, KnownEffects& effects);
Result<boost::json::object> queue_view(Store& store, KnownEffects& effects);
Result<boost::json::object> experiment_view(Store& store, int64_t id);  // kNotFound
Result<boost::json::object> hypothesis_view(Store& store, KnownEffects& effects, int64_t id);
// Experiments, hypotheses, learnings and what learnings link to; edges between them.
Result<boost::json::object> graph_view(Store& store);
boost::json::object log_view(const std::vector<LogEntry>& entries);

// The words that only one of two commands has, in order; words that both have in the same order are
// left out, as many as can be.
struct WordDifference {
  std::vector<std::string> removed, added;
};
WordDifference word_difference(const std::vector<std::string>& from,
                               const std::vector<std::string>& to);

}  // namespace headrace::lab
