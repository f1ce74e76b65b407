#include "backend/cpu/kernels/registry.h"

#include <algorithm>

#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/units.h"

namespace headrace::cpu {
namespace {

constexpr const KernelUnit* kUnits[] = {&kAmxUnit,        &kAmxIntegerUnit, &kAvx512Bf16Unit,
                                        &kAvx512VnniUnit, &kAvx512Unit,     &kAvxVnniUnit,
                                        &kAvx2Unit,       &kReferenceUnit};

std::string unit_names(uint32_t available) {
  std::string names;
  for (const KernelUnit* unit : kUnits) {
    if ((unit->isa & ~available) != 0) continue;
    if (!names.empty()) names += ", ";
    names += unit->name;
  }
  return names;
}

// Single-row ops in KernelSet, by op.
const KernelRow** slot(KernelSet* set, const KernelRow& row) {
  switch (row.op) {
    case KernelOp::kMatmul:
      return nullptr;
    case KernelOp::kUnpack:
      return &set->unpack[static_cast<size_t>(row.layout)];
    case KernelOp::kFinish:
      return &set->finish;
    case KernelOp::kGate:
      return &set->gate;
    case KernelOp::kNorm:
      return &set->norm;
    case KernelOp::kQkv:
      return &set->qkv;
    case KernelOp::kAttention:
      return row.activation == ActivationType::kFixed ? &set->attention_whole : &set->attention;
    case KernelOp::kDeltaInputs:
      return &set->delta_inputs;
    case KernelOp::kDelta:
      return &set->delta;
    case KernelOp::kQuantise:
      return is_of_codes(row.activation) ? &set->quantise : &set->quantise_dense;
    case KernelOp::kConv:
      return &set->conv;
    case KernelOp::kScan:
      return &set->scan;
    case KernelOp::kStoreRow:
      return &set->store_row;
    case KernelOp::kLatent:
      return &set->latent;
    case KernelOp::kIndex:
      return &set->index;
    case KernelOp::kShrink:
      return &set->shrink;
    case KernelOp::kExpand:
      return &set->expand;
  }
  return nullptr;
}

// Whether a back end with these activations for coded layouts may multiply with `type`. Units whose
// first rows have fixed-point products take them in place of either, or in place of int8 ones
// products of bf16.
bool is_chosen(ActivationType type, ActivationType activations) {
  const bool is_fast = activations == ActivationType::kInt8;
  return type == ActivationType::kF32 || type == activations ||
         type == dense_activations(activations) || type == ActivationType::kFixed ||
         (is_fast && type == ActivationType::kBF16Codes);
}

// Adds the unit's rows for every op and layout that has none yet, and for fewer rows of x than the
// rows found before are for. The first row of a layout decides what its others read as x.
void add_missing(const KernelUnit& unit, uint32_t available, ActivationType activations,
                 KernelSet* set) {
  const std::array<MatmulRows, kNumLayouts> before = set->matmul;
  for (const KernelRow* place_of_row : rows_of(unit)) {
    const KernelRow& row = *place_of_row;
    if ((row.isa & ~available) != 0 || !is_chosen(row.activation, activations)) continue;
    const auto layout = static_cast<size_t>(row.layout);
    if (row.op == KernelOp::kMatmul) {
      MatmulRows& rows = set->matmul[layout];
      if (!before[layout].lacks(row)) continue;
      if (rows.count > 0 && rows.activation() != row.activation) continue;
      CHECK(rows.count < MatmulRows::kMaxRows, "too many rows for {}", row.name);
      rows.rows[static_cast<size_t>(rows.count++)] = &row;
    } else if (const KernelRow** place = slot(set, row); *place == nullptr) {
      *place = &row;
    }
  }
}

struct NumericsClassRow {
  std::string_view name;
  int version;
};
constexpr NumericsClassRow kNumericsClasses[] = {
    {"f32-reference", 1}, {"f32-fma", 1},     {"integer", 1},   {"bf16-tile", 1},
    {"bf16-dot", 1},      {"fixed-point", 3}, {"bf16-codes", 2}};

}  // namespace

std::span<const KernelUnit* const> all_units() { return kUnits; }

ActivationType coded_activations(ActivationArithmetic arithmetic) {
  return arithmetic == ActivationArithmetic::kExact ? ActivationType::kInt16
                                                    : ActivationType::kInt8;
}

ActivationType dense_activations(ActivationType activations) {
  // Two bf16 terms (kBF16x2) are faster in tiles than float32, but networks that amplify rounding
  // (Gemma 4's) end up to ten times farther from float32 than exact may.
  return activations == ActivationType::kInt8 ? ActivationType::kBF16 : ActivationType::kF32;
}

bool MatmulRows::lacks(const KernelRow& row) const {
  for (int i = 0; i < count; ++i) {
    const KernelRow& other = *rows[static_cast<size_t>(i)];
    if (other.min_rows <= row.min_rows || other.numerics != row.numerics) return false;
  }
  return true;
}

Result<const KernelUnit*> select_unit(std::string_view name, uint32_t available) {
  for (const KernelUnit* unit : kUnits) {
    const uint32_t missing = unit->isa & ~available;
    if (name == "auto" && missing == 0) return unit;
    if (name != unit->name) continue;
    if (missing == 0) return unit;
    Error error =
        make_error(ErrorCode::kUnsupported, "this processor cannot run isa '{}': it lacks {}", name,
                   isa_names(missing));
    error.hint = fmt::format("use --isa auto, or one of: {}", unit_names(available));
    return error;
  }
  Error error = make_error(ErrorCode::kInvalidArgument, "unknown isa '{}'", name);
  error.hint = fmt::format("use --isa auto, or one of: {}", unit_names(available));
  return error;
}

std::string_view kernel_op_name(KernelOp op) {
  constexpr std::string_view kNames[] = {"matmul",       "unpack",    "finish",   "gate",   "norm",
                                         "qkv",          "attention", "quantise", "conv",   "scan",
                                         "delta_inputs", "delta",     "store",    "latent", "index",
                                         "shrink",       "expand"};
  return kNames[static_cast<size_t>(op)];
}

std::string_view numerics_class_name(NumericsClass numerics) {
  return kNumericsClasses[static_cast<size_t>(numerics)].name;
}

int numerics_class_version(NumericsClass numerics) {
  return kNumericsClasses[static_cast<size_t>(numerics)].version;
}

bool KernelSet::uses(const KernelRow& row) const {
  if (row.op == KernelOp::kMatmul) {
    const MatmulRows& rows = matmul[static_cast<size_t>(row.layout)];
    return std::find(rows.rows.begin(), rows.rows.begin() + rows.count, &row) !=
           rows.rows.begin() + rows.count;
  }
  return *slot(const_cast<KernelSet*>(this), row) == &row;
}

KernelSet select_kernels(const KernelUnit& unit, uint32_t available, ActivationType activations) {
  KernelSet set;
  set.unit = &unit;
  const auto* place = std::find(std::begin(kUnits), std::end(kUnits), &unit);
  if (place == std::end(kUnits)) add_missing(unit, available, activations, &set);
  for (; place < std::end(kUnits); ++place) add_missing(**place, available, activations, &set);
  add_missing(kReferenceUnit, available, activations, &set);
  bool takes_dense = false;
  for (size_t i = 0; i < static_cast<size_t>(kNumLayouts); ++i) {
    MatmulRows& rows = set.matmul[i];
    std::sort(rows.rows.begin(), rows.rows.begin() + rows.count,
              [](const KernelRow* a, const KernelRow* b) { return a->min_rows < b->min_rows; });
    CHECK(rows.count > 0 && set.unpack[i] != nullptr, "layout {} has no kernel", i);
    takes_dense = takes_dense || rows.activation() == dense_activations(activations);
  }
  if (!takes_dense) set.quantise_dense = nullptr;
  CHECK(set.finish != nullptr && set.gate != nullptr && set.norm != nullptr && set.qkv != nullptr &&
        set.attention != nullptr && set.quantise != nullptr && set.conv != nullptr &&
        set.scan != nullptr && set.delta_inputs != nullptr && set.delta != nullptr &&
        set.shrink != nullptr && set.expand != nullptr);
  return set;
}

}  // namespace headrace::cpu
