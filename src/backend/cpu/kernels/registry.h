// Registry: the rows of all units in one table, and the choice among them.
//
// Selection happens once, when the back end is made or a weight is packed; a step only calls the
// function pointers found here. Thread-safe: everything is constant.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/kernels/activation_arithmetic.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/units.h"
#include "base/result.h"

namespace headrace::cpu {

std::span<const KernelUnit* const> all_units();  // best first; reference last

// "auto" or a unit's name; `available` are the processor's IsaBits.
Result<const KernelUnit*> select_unit(std::string_view name, uint32_t available);

std::string_view kernel_op_name(KernelOp op);
std::string_view numerics_class_name(NumericsClass numerics);
// Raised by whoever changes a bit that a class computes; part of the numerics id.
int numerics_class_version(NumericsClass numerics);

// Matmul rows of one layout by rows of x: rows[i] serves M >= rows[i]->min_rows; ascending.
struct MatmulRows {
  static constexpr int kMaxRows = 4;
  std::array<const KernelRow*, kMaxRows> rows{};
  int count = 0;

  // Whether `row` serves an M that no row here is meant for, with the same bits.
  bool lacks(const KernelRow& row) const;
  ActivationType activation() const { return rows[0]->activation; }  // the same for all
  const KernelRow& for_rows(int64_t num_rows) const {
    int i = count - 1;
    while (i > 0 && num_rows < rows[static_cast<size_t>(i)]->min_rows) --i;
    return *rows[static_cast<size_t>(i)];
  }
};

// The rows that one back end uses. A unit that lacks an op has it from a unit after it, so a new
// unit can start with one kernel.
struct KernelSet {
  const KernelUnit* unit = nullptr;
  std::array<MatmulRows, kNumLayouts> matmul{};
  std::array<const KernelRow*, kNumLayouts> unpack{};
  const KernelRow* finish = nullptr;
  const KernelRow* gate = nullptr;
  const KernelRow* norm = nullptr;
  const KernelRow* qkv = nullptr;
  const KernelRow* attention = nullptr;
  const KernelRow* attention_whole = nullptr;  // of int16 keys and values; or null
  const KernelRow* conv = nullptr;
  const KernelRow* scan = nullptr;
  const KernelRow* delta_inputs = nullptr;
  const KernelRow* delta = nullptr;
  const KernelRow* store_row = nullptr;
  const KernelRow* latent = nullptr;
  const KernelRow* index = nullptr;
  const KernelRow* shrink = nullptr;
  const KernelRow* expand = nullptr;
  const KernelRow* quantise = nullptr;        // input of coded layouts
  const KernelRow* quantise_dense = nullptr;  // of dense ones, where a unit wants it; or null

  const KernelRow& attention_of(KvDtype type) const {
    return type == KvDtype::kInt16 && attention_whole != nullptr ? *attention_whole : *attention;
  }
  // Whether attention over int16 keys and values runs in tiles.
  bool attends_in_tiles() const {
    return attention_whole != nullptr && (attention_whole->isa & kIsaAmxInt8) != 0;
  }
  bool uses(const KernelRow& row) const;
};

// What coded layouts are multiplied with; units whose first rows have fixed-point products take
// those instead.
ActivationType coded_activations(ActivationArithmetic arithmetic);

// What dense layouts may be multiplied with where coded ones are with `activations`; units without
// such rows take float32.
ActivationType dense_activations(ActivationType activations);

// Rows of `unit`, then of the units after it that this processor can run, so that every op and
// layout has one (CHECK). Where a unit's matmul rows are for many rows of x, those of the same
// class of a later unit serve fewer. `activations` is the integer type that coded layouts are
// multiplied with.
KernelSet select_kernels(const KernelUnit& unit, uint32_t available,
                         ActivationType activations = ActivationType::kInt16);

}  // namespace headrace::cpu
