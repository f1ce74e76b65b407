#include "backend/cpu/verify/sound_unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "backend/cpu/verify/row_reports.h"
#include "base/log.h"

namespace headrace::cpu {
namespace {

// Of the rows that a back end on this unit would use, its own and those it has from others; empty
// if all passed.
std::string find_unit_fault(const KernelUnit& unit, uint32_t available,
                            ActivationType activations) {
  const KernelSet set = select_kernels(unit, available, activations);
  std::vector<const KernelUnit*> units(all_units().begin(), all_units().end());
  if (std::find(units.begin(), units.end(), &unit) == units.end()) units.push_back(&unit);
  std::vector<UnitRow> rows = runnable_rows(units, available);
  std::erase_if(rows, [&](const UnitRow& row) { return !set.uses(*row.row); });
  for (const RowReport& report : verify_rows(rows, Depth::kStart, Stop::kAtFailure)) {
    if (report.passed()) continue;
    return fmt::format("kernel {}_{}: {}", report.at.row->name, report.at.unit->name,
                       report.num_cases == 0 ? "no case ran" : report.first_failure);
  }
  return {};
}

}  // namespace

std::string unit_fault(const KernelUnit& unit, uint32_t available, ActivationType activations) {
  static std::mutex mutex;
  static std::map<std::tuple<const KernelUnit*, uint32_t, ActivationType>, std::string> known;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = known.try_emplace({&unit, available, activations});
  if (is_new) found->second = find_unit_fault(unit, available, activations);
  return found->second;
}

const KernelUnit* first_sound_unit(std::span<const KernelUnit* const> units, uint32_t available,
                                   ActivationType activations) {
  for (const KernelUnit* unit : units.first(units.size() - 1)) {
    if ((unit->isa & ~available) != 0) continue;
    const std::string fault = unit_fault(*unit, available, activations);
    if (fault.empty()) return unit;
    LOG(kWarning, "isa {} is left out, it computes wrong results on this processor: {}", unit->name,
        fault);
  }
  return units.back();
}

Status check_unit(const KernelUnit& unit, uint32_t available, ActivationType activations) {
  const std::string fault = unit_fault(unit, available, activations);
  if (fault.empty()) return {};
  Error error =
      make_error(ErrorCode::kUnsupported, "isa '{}' computes wrong results on this processor: {}",
                 unit.name, fault);
  error.hint = "use --isa auto";
  return error;
}

Result<const KernelUnit*> select_sound_unit(std::string_view name, uint32_t available,
                                            ActivationType activations) {
  if (name == "auto") return first_sound_unit(all_units(), available, activations);
  const KernelUnit* unit = TRY(select_unit(name, available));
  if (unit != all_units().back()) TRY(check_unit(*unit, available, activations));
  return unit;
}

}  // namespace headrace::cpu
