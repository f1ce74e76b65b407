// A profile as JSON: for the page and for tools, and as a trace that Perfetto and chrome://tracing
// read. docs/adr/0091-profile.md says what stands where.
#pragma once

#include <string>

#include "engine/profile_summary.h"
#include "server/api/serving_model.h"

namespace headrace {

// {"format": "headrace-profile", "version": 1, ...}: what it comes to, then every step and op.
std::string profile_json(const Profile& profile, const ModelInfo& model,
                         const OpLimit& limit = nullptr);

// Complete events of one process in two rows: steps with their parts, ops in their layers.
std::string profile_trace(const Profile& profile, const ModelInfo& model);

}  // namespace headrace
