// verify golden: folders of tiny checkpoints against what a reference implementation recorded.

#include "cli/runtime.h"
#include "cli/verify.h"
#include "verify/golden.h"

namespace headrace {
namespace {

VerifyRow golden_row(const std::string& folder, Backend& backend, const Options& options) {
  VerifyRow row;
  row.item = folder;
  // What is recorded has float32 keys and values; the tolerance has no room for rounding them.
  ModelOptions model = model_options(options);
  if (!options.is_set("--kv-type")) model.kv_type = KvType::kF32;
  const Result<GoldenReport> report = verify_golden_folder(folder, backend, model);
  if (!report.ok()) {
    row.details = report.error().to_string();
    return row;
  }
  const double tolerance =
      options.number("--tolerance") > 0
          ? report->tolerance / kGoldenTolerance * options.number("--tolerance")
          : report->tolerance;
  row.passed = report->error.empty() ? report->max_difference <= tolerance && report->greedy_equal
                                     : report->passed;
  row.details =
      fmt::format("max difference {:.3g} of {:.3g} allowed, greedy {}, {} prompts, {} rows",
                  report->max_difference, tolerance, report->greedy_equal ? "equal" : "DIFFERS",
                  report->prompts, report->positions);
  if (!report->error.empty()) row.details += "; " + report->error;
  return row;
}

}  // namespace

Result<std::vector<VerifyRow>> verify_golden(const Options& options,
                                             const std::vector<std::string>& paths) {
  const auto backend = TRY(create_backend(options));
  std::vector<VerifyRow> rows;
  for (const std::string& folder : paths) rows.push_back(golden_row(folder, *backend, options));
  return rows;
}

}  // namespace headrace
