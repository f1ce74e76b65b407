// verify kernels: every row of the kernel table that this processor can run, against float64.

#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/verify/verify.h"
#include "cli/verify.h"

namespace headrace {
namespace {

VerifyRow kernel_row(const cpu::RowReport& report) {
  VerifyRow row;
  row.item = fmt::format("{}_{}", report.at.row->name, report.at.unit->name);
  row.passed = report.passed();
  row.details = fmt::format("{} cases, largest error {:.3f} of its tolerance", report.num_cases,
                            report.worst);
  if (report.num_failures > 0) {
    row.details = fmt::format("{} of {} cases failed; {}", report.num_failures, report.num_cases,
                              report.first_failure);
  }
  return row;
}

}  // namespace

Result<std::vector<VerifyRow>> verify_kernels(const Options& options,
                                              const std::vector<std::string>&) {
  const uint32_t available = cpu::detect_isa();
  const std::string& isa = options.text("--isa");
  const cpu::KernelUnit* unit = TRY(cpu::select_unit(isa, available));
  const std::span<const cpu::KernelUnit* const> units =
      isa == "auto" ? cpu::all_units() : std::span<const cpu::KernelUnit* const>(&unit, 1);
  const auto depth = options.flag("--quick") ? cpu::Depth::kQuick : cpu::Depth::kFull;
  std::vector<VerifyRow> rows;
  for (const auto& report : cpu::verify_rows(cpu::runnable_rows(units, available), depth)) {
    rows.push_back(kernel_row(report));
  }
  return rows;
}

}  // namespace headrace
