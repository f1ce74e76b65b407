// Reports of a load: JSON for programs, a table for a terminal, and one HTML file that needs
// nothing else: its plots are SVG, and no script is in it.
#pragma once

#include <boost/json/object.hpp>

#include <span>
#include <string>

#include "bench/serve/summary.h"

namespace headrace::loads {

struct ReportHead {
  std::string url, model;
  std::string prompts, answers, profile, slo;  // as they were asked for
};

// One object: what was asked, "stages", and "saturation" where it was looked for.
boost::json::object report_json(const ReportHead& head, std::span<const StageSummary> stages);
std::string report_text(std::span<const StageSummary> stages);
std::string report_html(const ReportHead& head, std::span<const StageSummary> stages);

}  // namespace headrace::loads
