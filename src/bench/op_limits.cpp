#include "bench/op_limits.h"

#include <algorithm>
#include <map>
#include <string>

#include "backend/cpu/kernels/layouts.h"
#include "bench/step_points.h"
#include "bench/step_work.h"

namespace headrace {
namespace {

// Seconds of one operation; 0 where the machine has no peak for it.
double seconds_per_operation(const MachineFile& machine, uint32_t isa, cpu::PeakKind kind,
                             double passes) {
  const double rate = cpu::operation_rate(machine.limits.peaks, kind, passes, isa);
  return rate > 0 ? 1 / rate : 0;
}

}  // namespace

std::function<double(const OpRecord& op, double working_set)> op_limit(
    const cpu::KernelSet& kernels, KvType kv_type, const MachineFile& machine) {
  const uint32_t isa = matmul_isa(kernels) & machine.isa;
  std::map<std::string, double, std::less<>> by_layout;
  for (int i = 0; i < cpu::kNumLayouts; ++i) {
    const auto layout = static_cast<cpu::Layout>(i);
    const ArithmeticWork work = arithmetic_of(kernels, layout);
    by_layout[std::string(cpu::layout_info(layout).name)] =
        seconds_per_operation(machine, isa, work.kind, work.passes);
  }
  const double others = seconds_per_operation(machine, isa, cpu::PeakKind::kF32, 1);
  const MixerArithmetic mixer = attention_arithmetic(kernels, kv_type);
  const double attention = seconds_per_operation(machine, isa, mixer.kind, mixer.passes);
  return [machine, by_layout = std::move(by_layout), attention, others](const OpRecord& op,
                                                                        double working_set) {
    const auto found = by_layout.find(op.layout);
    double each = found == by_layout.end() ? others : found->second;
    if (op.kind == OpKind::kAttention) each = attention;
    return std::max(op.bytes / machine.bandwidth(working_set), op.operations * each);
  };
}

}  // namespace headrace
