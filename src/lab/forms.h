// Forms: what a laboratory holds as JSON, in and out: for the command line, the export and agents.
//
// Reading is strict: an unknown field, a missing one or one of the wrong type is kInvalidArgument
// and names it.
#pragma once

#include <boost/json/object.hpp>
#include <string>

#include "base/result.h"
#include "lab/evidence.h"
#include "lab/queue.h"
#include "lab/records.h"
#include "lab/store.h"

namespace headrace::lab {

boost::json::object to_json(const Hypothesis& hypothesis);
boost::json::object to_json(const Experiment& experiment);
boost::json::object to_json(const Run& run);
boost::json::object to_json(const Learning& learning);
boost::json::object to_json(const LogEntry& entry);
boost::json::object to_json(const Effect& effect);
boost::json::object to_json(const Place& place);

Result<Hypothesis> hypothesis_from(const boost::json::value& form);
Result<Experiment> experiment_from(const boost::json::value& form);
Result<Learning> learning_from(const boost::json::value& form);

// What says which way a side is better, and by how much: its hypothesis; one without id if it has
// none.
Result<Hypothesis> about_side(Store& store, const Experiment& experiment, int64_t side_idx);

// An experiment with its runs and the effect of each side beside the first.
Result<boost::json::object> detail_of(Store& store, int64_t experiment_id);
// Everything but the log.
Result<boost::json::object> export_json(Store& store);
// The same to be read: hypotheses with their evidence, experiments, learnings.
Result<std::string> export_markdown(Store& store);

}  // namespace headrace::lab
