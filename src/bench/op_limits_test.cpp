#include "bench/op_limits.h"

#include <gtest/gtest.h>

namespace headrace {
namespace op_limits_test {

// 1e9 bytes, 1e9 float32 and 7e9 byte operations a second.
MachineFile machine_of(uint32_t isa) {
  MachineFile machine;
  machine.isa = isa;
  machine.limits.peaks = {{"floats", cpu::PeakKind::kF32, 0, {1e9, 1e9}},
                          {"bytes", cpu::PeakKind::kInt8, cpu::kIsaAvx512Vnni, {7e9, 7e9}}};
  machine.limits.reads = {{1024, {1e9, 1e9}}};
  return machine;
}

double attention_limit(uint32_t isa, KvType kv_type, double bytes = 0) {
  const MachineFile machine = machine_of(isa);
  const cpu::KernelSet kernels =
      cpu::select_kernels(*cpu::select_unit("auto", machine.isa).value(), machine.isa);
  OpRecord op;
  op.kind = OpKind::kAttention;
  op.operations = 2e9;
  op.bytes = bytes;
  return op_limit(kernels, kv_type, machine)(op, 1024);
}

// Products of whole numbers take three and a half byte products each: twice as fast here.
TEST(OpLimit, AttentionIsBoundByTheArithmeticOfItsKeysAndValues) {
  EXPECT_DOUBLE_EQ(attention_limit(cpu::kAvx512VnniUnitIsa, KvType::kF16), 2.0);
  EXPECT_DOUBLE_EQ(attention_limit(cpu::kAvx512VnniUnitIsa, KvType::kInt16), 1.0);
  EXPECT_DOUBLE_EQ(attention_limit(cpu::kAvx512VnniUnitIsa, KvType::kInt16, 3e9), 3.0) << "reads";
  EXPECT_DOUBLE_EQ(attention_limit(cpu::kAvx2UnitIsa, KvType::kInt16), 2.0) << "read as floats";
}

}  // namespace op_limits_test
}  // namespace headrace
