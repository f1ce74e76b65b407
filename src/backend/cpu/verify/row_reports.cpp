#include "backend/cpu/verify/row_reports.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "backend/cpu/verify/guarded_memory.h"

namespace headrace::cpu {
namespace {

struct OpProblems {
  KernelOp op;
  void (*visit)(const KernelRow&, Depth, const Visit&);
};
constexpr OpProblems kOps[] = {
    {KernelOp::kQuantise, visit_quantise_problems},
    {KernelOp::kMatmul, visit_matmul_problems},
    {KernelOp::kUnpack, visit_unpack_problems},
    {KernelOp::kFinish, visit_finish_problems},
    {KernelOp::kGate, visit_gate_problems},
    {KernelOp::kNorm, visit_norm_problems},
    {KernelOp::kQkv, visit_qkv_problems},
    {KernelOp::kAttention, visit_attention_problems},
    {KernelOp::kConv, visit_conv_problems},
    {KernelOp::kScan, visit_scan_problems},
    {KernelOp::kDeltaInputs, visit_delta_inputs_problems},
    {KernelOp::kDelta, visit_delta_problems},
    {KernelOp::kStoreRow, visit_store_problems},
    {KernelOp::kLatent, visit_latent_problems},
    {KernelOp::kIndex, visit_index_problems},
    {KernelOp::kShrink, visit_shrink_problems},
    {KernelOp::kExpand, visit_expand_problems},
};

// How a problem is run.
struct Manner {
  Side side;
  bool in_parts;
};
constexpr Manner kTwoManners[] = {{Side::kEnd, false}, {Side::kBegin, true}};
constexpr Manner kAllManners[] = {
    {Side::kEnd, false}, {Side::kBegin, true}, {Side::kBegin, false}, {Side::kEnd, true}};

struct Outcome {
  std::string failure;
  double worst = 0;
  std::vector<uint8_t> outputs;  // all elements that have an expectation
};

class Runner {
 public:
  Outcome run(const Problem& problem, const KernelRow& row, const Manner& manner) {
    place(problem, manner.side);
    Call call{&problem, &row, places_, manner.in_parts};
    const auto fault = trap_faults(
        [](void* context) {
          const auto& c = *static_cast<const Call*>(context);
          c.problem->call(*c.row, c.places, c.in_parts);
        },
        &call);
    Outcome outcome;
    if (fault) {
      outcome.failure = describe(problem, *fault);
      return outcome;
    }
    for (size_t i = 0; i < problem.operands.size(); ++i) check(problem.operands[i], i, &outcome);
    return outcome;
  }

 private:
  struct Call {
    const Problem* problem;
    const KernelRow* row;
    Places places;
    bool in_parts;
  };

  void place(const Problem& problem, Side side) {
    if (regions_.size() < problem.operands.size()) regions_.resize(problem.operands.size());
    places_.clear();
    for (size_t i = 0; i < problem.operands.size(); ++i) {
      const Operand& operand = problem.operands[i];
      const size_t num_bytes = operand.bytes.size() + operand.scratch_bytes;
      uint8_t* at = regions_[i].place(num_bytes, operand.alignment, side);
      std::copy(operand.bytes.begin(), operand.bytes.end(), at);
      std::memset(at, kPoison, operand.scratch_bytes);
      if (!operand.is_output) regions_[i].set_writable(false);
      places_.push_back(at);
    }
  }

  std::string describe(const Problem& problem, const Fault& fault) const {
    for (size_t i = 0; i < problem.operands.size(); ++i) {
      const auto where = regions_[i].locate(fault.address);
      if (where) return fmt::format("touched '{}' {}", problem.operands[i].name, *where);
    }
    return fmt::format("stopped by signal {} ({})", fault.signal, strsignal(fault.signal));
  }

  void check(const Operand& operand, size_t index, Outcome* outcome) const {
    if (!regions_[index].band_intact()) {
      note(fmt::format("wrote outside '{}'", operand.name), outcome);
    }
    const size_t size = element_bytes(operand.element);
    for (size_t i = 0; i < operand.expected.size(); ++i) {
      const Expected& expected = operand.expected[i];
      if (std::isinf(expected.tolerance)) continue;
      const uint8_t* at = places_[index] + i * size;
      // Of NaNs only that they are: sign and payload are nobody's promise.
      if (!std::isnan(expected.value)) {
        outcome->outputs.insert(outcome->outputs.end(), at, at + size);
      }
      if (expected.tolerance >= 0) {
        check_value(operand, i, read_element(operand.element, at), outcome);
      } else if (std::memcmp(at, operand.bytes.data() + i * size, size) != 0) {
        note(fmt::format("wrote element {} of '{}', which is not its own", i, operand.name),
             outcome);
      }
    }
  }

  static void check_value(const Operand& operand, size_t i, double found, Outcome* outcome) {
    const Expected& expected = operand.expected[i];
    if (std::isnan(expected.value) && std::isnan(found)) return;
    const double error = std::fabs(found - expected.value);
    if (!(error <= expected.tolerance)) {
      note(fmt::format("element {} of '{}' is {}, needed {} +- {:.3g}", i, operand.name, found,
                       expected.value, expected.tolerance),
           outcome);
    }
    if (error > 0) outcome->worst = std::max(outcome->worst, error / expected.tolerance);
  }

  static void note(std::string failure, Outcome* outcome) {
    if (outcome->failure.empty()) outcome->failure = std::move(failure);
  }

  std::vector<GuardedRegion> regions_;
  std::vector<uint8_t*> places_;
};

void note_failure(const Problem& problem, const std::string& reason, RowReport* report) {
  if (report->num_failures++ == 0) report->first_failure = problem.name + ": " + reason;
}

// Runs one problem on all rows of a group.
void run_group(const Problem& problem, std::span<RowReport* const> group, Depth depth,
               Runner* runner) {
  std::map<NumericsClass, std::vector<uint8_t>> bits;
  const std::span<const Manner> manners =
      depth == Depth::kFull ? std::span<const Manner>(kAllManners) : kTwoManners;
  for (RowReport* report : group) {
    const KernelRow& row = *report->at.row;
    for (const Manner& manner : manners) {
      Outcome outcome = runner->run(problem, row, manner);
      ++report->num_cases;
      report->worst = std::max(report->worst, outcome.worst);
      if (!outcome.failure.empty()) {
        note_failure(problem, outcome.failure, report);
        continue;
      }
      const auto [same, is_first] = bits.try_emplace(row.numerics, std::move(outcome.outputs));
      if (is_first || same->second == outcome.outputs) continue;
      note_failure(
          problem,
          fmt::format("other bits than its class {} gave before ({})",
                      numerics_class_name(row.numerics), manner.in_parts ? "in parts" : "one call"),
          report);
    }
  }
}

bool same_problems(const KernelRow& a, const KernelRow& b) {
  return a.op == b.op && a.layout == b.layout && a.activation == b.activation;
}

}  // namespace

std::vector<UnitRow> runnable_rows(std::span<const KernelUnit* const> units, uint32_t available) {
  std::vector<UnitRow> rows;
  for (const KernelUnit* unit : units) {
    for (const KernelRow* row : rows_of(*unit)) {
      if (((row->isa | unit->isa) & ~available) == 0) rows.push_back({unit, row});
    }
  }
  return rows;
}

std::vector<RowReport> verify_rows(std::span<const UnitRow> rows, Depth depth, Stop stop) {
  std::vector<RowReport> reports;
  for (const UnitRow& row : rows) reports.push_back({row, 0, 0, 0, {}});
  const FaultTrap trap;
  Runner runner;
  std::vector<bool> done(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (done[i]) continue;
    std::vector<RowReport*> group;
    for (size_t j = i; j < rows.size(); ++j) {
      if (!same_problems(*rows[i].row, *rows[j].row)) continue;
      done[j] = true;
      group.push_back(&reports[j]);
    }
    for (const OpProblems& op : kOps) {
      if (op.op != rows[i].row->op) continue;
      op.visit(*rows[i].row, depth, [&](const MakeProblem& make) {
        const bool failed = std::any_of(group.begin(), group.end(), [](const RowReport* report) {
          return report->num_failures > 0;
        });
        if (failed && stop == Stop::kAtFailure) return;
        run_group(make(), group, depth, &runner);
      });
    }
  }
  return reports;
}

}  // namespace headrace::cpu
