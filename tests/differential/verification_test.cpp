// The verification of kernels itself: all rows of this processor pass, and a unit whose kernels are
// wrong, write outside their operands or fault is found and left out.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/verify/guarded_memory.h"
#include "backend/cpu/verify/row_reports.h"
#include "backend/cpu/verify/sound_unit.h"

namespace headrace::cpu {
namespace {

constexpr ActivationType kExact = ActivationType::kInt16;

TEST(Verification, EveryRowOfThisProcessorPasses) {
  const uint32_t available = detect_isa();
  const auto rows = runnable_rows(all_units(), available);
  int num_rows = 0;
  for (const RowReport& report : verify_rows(rows, Depth::kQuick)) {
    EXPECT_TRUE(report.passed()) << report.at.row->name << "_" << report.at.unit->name << ": "
                                 << report.first_failure;
    EXPECT_GE(report.num_cases, 10) << report.at.row->name;
    EXPECT_LE(report.worst, 1.0);
    ++num_rows;
  }
  EXPECT_EQ(num_rows, static_cast<int>(rows.size()));
  EXPECT_GE(num_rows, static_cast<int>(rows_of(*all_units().back()).size()));
}

const KernelRow& reference_row(KernelOp op) {
  static const std::vector<const KernelRow*> rows = rows_of(*all_units().back());
  return **std::find_if(rows.begin(), rows.end(),
                        [op](const KernelRow* row) { return row->op == op; });
}

// The reference's finish, but for one fault.
template <void (*kFault)(const FinishArgs&)>
KernelRow faulty_finish() {
  KernelRow row = reference_row(KernelOp::kFinish);
  row.name = "faulty_finish";
  row.function.finish = [](const FinishArgs& args) {
    reference_row(KernelOp::kFinish).function.finish(args);
    kFault(args);
  };
  return row;
}

// After the last element of the last row.
float* end_of(const FinishArgs& args) {
  return args.out + (args.num_rows - 1) * args.out_stride + args.num_outputs;
}

void compute_wrong(const FinishArgs& args) {
  if (args.num_rows > 2 && args.num_outputs > 16) args.out[16] += 1e-3f;
}
void write_past_end(const FinishArgs& args) {
  if (args.num_rows > 0) *end_of(args) = 0.0f;
}
void write_before_begin(const FinishArgs& args) {
  if (args.num_rows > 0) args.out[-1] = 0.0f;
}
void write_between_rows(const FinishArgs& args) {
  if (args.num_rows > 1) args.out[args.num_outputs] = 0.0f;
}
void write_input(const FinishArgs& args) {
  if (args.num_rows > 0) *const_cast<volatile float*>(args.sums) = args.sums[0];
}
void read_past_end(const FinishArgs& args) {
  if (args.num_rows == 0) return;
  const float* sums = args.sums + (args.num_rows - 1) * args.sums_stride + args.num_outputs;
  volatile float value = *sums;
  static_cast<void>(value);
}
void use_missing_instruction(const FinishArgs&) { __builtin_trap(); }

struct Faulty {
  KernelRow row;
  const char* reason;  // part of it
};

TEST(Verification, FindsAndNamesFaults) {
  const Faulty all[] = {
      {faulty_finish<compute_wrong>(), "needed"},
      {faulty_finish<write_past_end>(), "touched 'out' 0 bytes past its end"},
      {faulty_finish<write_before_begin>(), "wrote outside 'out'"},
      {faulty_finish<write_between_rows>(), "which is not its own"},
      {faulty_finish<write_input>(), "touched 'sums' byte 0, which is read-only"},
      {faulty_finish<read_past_end>(), "touched 'sums' 0 bytes past its end"},
      {faulty_finish<use_missing_instruction>(), "signal"},
  };
  const KernelUnit unit{"faulty", 0, nullptr, 0};
  for (const Faulty& faulty : all) {
    const UnitRow rows[] = {{&unit, &faulty.row}};
    for (const Depth depth : {Depth::kStart, Depth::kQuick}) {
      const auto reports = verify_rows(rows, depth);
      ASSERT_EQ(reports.size(), 1u);
      EXPECT_FALSE(reports[0].passed()) << faulty.reason;
      EXPECT_NE(reports[0].first_failure.find(faulty.reason), std::string::npos)
          << reports[0].first_failure << "; expected: " << faulty.reason;
    }
  }
}

// Rows that claim one numerics class must give one result.
TEST(Verification, ComparesRowsOfOneClass) {
  const KernelRow good = reference_row(KernelOp::kNorm);
  KernelRow other = good;
  other.function.norm = [](const NormRowsArgs& args) {
    reference_row(KernelOp::kNorm).function.norm(args);
    const int64_t count = args.num_rows * args.width;
    for (int64_t i = 0; i < count; ++i) args.out[i] = std::nextafter(args.out[i], 0.0f);
  };
  const KernelUnit unit{"other", 0, nullptr, 0};
  const UnitRow rows[] = {{&unit, &good}, {&unit, &other}};
  const auto reports = verify_rows(rows, Depth::kStart);
  EXPECT_TRUE(reports[0].passed()) << reports[0].first_failure;
  EXPECT_FALSE(reports[1].passed());
  EXPECT_NE(reports[1].first_failure.find("other bits than its class"), std::string::npos)
      << reports[1].first_failure;
}

TEST(Verification, ARowWithoutCasesDoesNotPass) { EXPECT_FALSE(RowReport{}.passed()); }

// At the start: a unit with a wrong kernel gives way to the next one, the reference is last.
TEST(SoundUnit, PassesOverUnitsThatComputeWrong) {
  static const KernelRow wrong_row = faulty_finish<compute_wrong>();
  static const KernelRow faulting_row = faulty_finish<write_past_end>();
  static const KernelRow good_row = reference_row(KernelOp::kFinish);
  static const KernelPart parts[] = {{&wrong_row, 1}, {&faulting_row, 1}, {&good_row, 1}};
  static const KernelPart* const pointers[] = {&parts[0], &parts[1], &parts[2]};
  static const KernelUnit wrong{"wrong", 0, &pointers[0], 1};
  static const KernelUnit faulting{"faulting", 0, &pointers[1], 1};
  static const KernelUnit good{"good", 0, &pointers[2], 1};
  static const KernelUnit elsewhere{"elsewhere", kIsaAmxTile, &pointers[2], 1};
  const KernelUnit* const reference = all_units().back();

  EXPECT_NE(unit_fault(wrong, 0, kExact).find("kernel faulty_finish_wrong: "), std::string::npos)
      << unit_fault(wrong, 0, kExact);
  EXPECT_EQ(unit_fault(good, 0, kExact), "");

  ::testing::internal::CaptureStderr();
  const KernelUnit* const units[] = {&elsewhere, &wrong, &faulting, &good, reference};
  EXPECT_EQ(first_sound_unit(units, 0, kExact), &good);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("isa wrong is left out"), std::string::npos) << log;
  EXPECT_NE(log.find("isa faulting is left out"), std::string::npos) << log;
  EXPECT_EQ(log.find("elsewhere"), std::string::npos) << log;

  // Asked for by name, it is refused.
  const Status refused = check_unit(wrong, 0, kExact);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message.find("isa 'wrong' computes wrong results"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(refused.error().hint, "use --isa auto");
  EXPECT_TRUE(check_unit(good, 0, kExact).ok());

  const KernelUnit* const only_bad[] = {&wrong, reference};
  EXPECT_EQ(first_sound_unit(only_bad, 0, kExact), reference);
}

TEST(SoundUnit, TheUnitsOfThisProcessorAreSound) {
  const uint32_t available = detect_isa();
  const auto automatic = select_sound_unit("auto", available, kExact);
  ASSERT_TRUE(automatic.ok());
  EXPECT_EQ(*automatic, *select_unit("auto", available));
  for (const KernelUnit* unit : all_units()) {
    if ((unit->isa & ~available) != 0) continue;
    EXPECT_EQ(unit_fault(*unit, available, kExact), "") << unit->name;
    EXPECT_TRUE(select_sound_unit(unit->name, available, kExact).ok());
  }
}

TEST(GuardedMemory, FaultsOnBothSidesAndInReadOnlyOperands) {
  const FaultTrap trap;
  GuardedRegion region;
  struct Access {
    uint8_t* at;
    bool write;
  };
  const auto access = [](Access wanted) {
    return trap_faults(
        [](void* context) {
          const auto& [at, write] = *static_cast<Access*>(context);
          auto* place = const_cast<volatile uint8_t*>(at);
          if (write) *place = 1;
          if (!write) static_cast<void>(*place);
        },
        &wanted);
  };
  for (const size_t num_bytes : {size_t{0}, size_t{1}, size_t{4096}, size_t{100000}}) {
    uint8_t* begin = region.place(num_bytes, 1, Side::kBegin);
    const auto below = access({begin - 1, false});
    ASSERT_TRUE(below.has_value());
    EXPECT_EQ(region.locate(below->address), "1 bytes before it");
    uint8_t* end = region.place(num_bytes, 1, Side::kEnd) + num_bytes;
    const auto above = access({end, false});
    ASSERT_TRUE(above.has_value());
    EXPECT_EQ(region.locate(above->address), "0 bytes past its end");
    if (num_bytes == 0) continue;
    EXPECT_FALSE(access({end - 1, true}).has_value());
    region.set_writable(false);
    EXPECT_FALSE(access({end - 1, false}).has_value());
    EXPECT_TRUE(access({end - 1, true}).has_value());
  }
  uint8_t* middle = region.place(64, 64, Side::kBegin);
  EXPECT_TRUE(region.band_intact());
  middle[64 + 100] = 0;
  EXPECT_FALSE(region.band_intact());
}

}  // namespace
}  // namespace headrace::cpu
