#include <fmt/format.h>

#include "backend/cpu/verify/row_reports.h"
#include "verify/verify.h"

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

VerifyRows kernel_rows(std::span<const cpu::KernelUnit* const> units, uint32_t available,
                       cpu::Depth depth) {
  VerifyRows rows;
  for (const auto& report : cpu::verify_rows(cpu::runnable_rows(units, available), depth)) {
    rows.push_back(kernel_row(report));
  }
  return rows;
}

}  // namespace headrace
