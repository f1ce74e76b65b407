#include <fmt/format.h>

#include "verify/golden.h"
#include "verify/verify.h"

namespace headrace {

VerifyRow golden_row(const std::string& folder, Backend& backend, const ModelOptions& options,
                     double tolerance) {
  VerifyRow row;
  row.item = folder;
  const Result<GoldenReport> report = verify_golden_folder(folder, backend, options);
  if (!report.ok()) {
    row.details = report.error().to_string();
    return row;
  }
  const double allowed =
      tolerance > 0 ? report->tolerance / report->tolerance_share * tolerance : report->tolerance;
  row.passed = report->error.empty() ? report->max_difference <= allowed && report->greedy_equal
                                     : report->passed;
  row.details =
      fmt::format("max difference {:.3g} of {:.3g} allowed, greedy {}, {} prompts, {} rows",
                  report->max_difference, allowed, report->greedy_equal ? "equal" : "DIFFERS",
                  report->prompts, report->positions);
  if (!report->error.empty()) row.details += "; " + report->error;
  return row;
}

}  // namespace headrace
