// The kernel units, put together from their parts (parts/*.cpp, reference/*.cpp;
// cmake/kernels.cmake says which part is compiled for which unit).

#include "backend/cpu/kernels/units.h"

#include <iterator>

namespace headrace::cpu {

// A part's symbol is in the namespace of its unit.
namespace avx2 {
extern const KernelPart kInt16Direct, kInt16Blocked, kInt8Direct, kInt8Blocked, kFloats,
    kElementwise, kAttention, kRecurrent, kDelta, kLatent;
}  // namespace avx2
namespace avx_vnni {
extern const KernelPart kInt16Direct, kInt16Blocked, kInt8Direct, kInt8Blocked;
}  // namespace avx_vnni
namespace avx512 {
extern const KernelPart kInt16Direct, kInt16Blocked, kInt8Direct, kInt8Blocked, kFloats,
    kElementwise, kAttention, kRecurrent, kDelta, kLatent;
}  // namespace avx512
namespace avx512_vnni {
extern const KernelPart kInt16Direct, kInt16Blocked, kInt8Direct, kInt8Blocked, kAttentionWhole;
}  // namespace avx512_vnni
namespace avx512_bf16 {
extern const KernelPart kBf16;
}  // namespace avx512_bf16
namespace amx {
extern const KernelPart kTilesInt16, kDirectFixed, kTilesFixed, kQuantiseFixed, kTilesBf16,
    kQuantiseBf16Codes, kTilesAttention;
}  // namespace amx
namespace amx_fp16 {
extern const KernelPart kTilesBf16Codes;
}  // namespace amx_fp16
namespace reference {
extern const KernelPart kFloats, kIntegers, kFixed, kQuantise, kElementwise, kQkv, kAttention,
    kRecurrent, kDelta, kLatent;
}  // namespace reference

namespace {

constexpr const KernelPart* kAvx2Parts[] = {
    &avx2::kInt16Direct, &avx2::kInt16Blocked, &avx2::kInt8Direct, &avx2::kInt8Blocked,
    &avx2::kFloats,      &avx2::kElementwise,  &avx2::kAttention,  &avx2::kRecurrent,
    &avx2::kDelta,       &avx2::kLatent};
constexpr const KernelPart* kAvxVnniParts[] = {&avx_vnni::kInt16Direct, &avx_vnni::kInt16Blocked,
                                               &avx_vnni::kInt8Direct, &avx_vnni::kInt8Blocked};
constexpr const KernelPart* kAvx512Parts[] = {
    &avx512::kInt16Direct, &avx512::kInt16Blocked, &avx512::kInt8Direct, &avx512::kInt8Blocked,
    &avx512::kFloats,      &avx512::kElementwise,  &avx512::kAttention,  &avx512::kRecurrent,
    &avx512::kDelta,       &avx512::kLatent};
constexpr const KernelPart* kAvx512VnniParts[] = {
    &avx512_vnni::kInt16Direct, &avx512_vnni::kInt16Blocked, &avx512_vnni::kInt8Direct,
    &avx512_vnni::kInt8Blocked, &avx512_vnni::kAttentionWhole};
constexpr const KernelPart* kAvx512Bf16Parts[] = {&avx512_bf16::kBf16};
// The fast ones first: where both are chosen, they are taken.
constexpr const KernelPart* kAmxParts[] = {
    &amx_fp16::kTilesBf16Codes, &amx::kQuantiseBf16Codes, &amx::kDirectFixed,   &amx::kTilesFixed,
    &amx::kQuantiseFixed,       &amx::kTilesBf16,         &amx::kTilesAttention};
constexpr const KernelPart* kAmxIntegerParts[] = {&amx::kTilesInt16};
constexpr const KernelPart* kReferenceParts[] = {
    &reference::kFloats,      &reference::kIntegers, &reference::kFixed,     &reference::kQuantise,
    &reference::kElementwise, &reference::kQkv,      &reference::kAttention, &reference::kRecurrent,
    &reference::kDelta,       &reference::kLatent};

template <int kNumParts>
constexpr KernelUnit unit_of(const char* name, uint32_t isa,
                             const KernelPart* const (&parts)[kNumParts]) {
  return {name, isa, parts, kNumParts};
}

}  // namespace

const KernelUnit kAvx2Unit = unit_of("avx2", kAvx2UnitIsa, kAvx2Parts);
const KernelUnit kAvxVnniUnit = unit_of("avx_vnni", kAvxVnniUnitIsa, kAvxVnniParts);
const KernelUnit kAvx512Unit = unit_of("avx512", kAvx512UnitIsa, kAvx512Parts);
const KernelUnit kAvx512VnniUnit = unit_of("avx512_vnni", kAvx512VnniUnitIsa, kAvx512VnniParts);
const KernelUnit kAvx512Bf16Unit = unit_of("avx512_bf16", kAvx512Bf16UnitIsa, kAvx512Bf16Parts);
const KernelUnit kAmxUnit = unit_of("amx", kAmxUnitIsa, kAmxParts);
const KernelUnit kAmxIntegerUnit = unit_of("amx_integer", kAmxUnitIsa, kAmxIntegerParts);
const KernelUnit kReferenceUnit = unit_of("reference", 0, kReferenceParts);

std::vector<const KernelRow*> rows_of(const KernelUnit& unit) {
  std::vector<const KernelRow*> rows;
  for (int part = 0; part < unit.num_parts; ++part) {
    for (int i = 0; i < unit.parts[part]->num_rows; ++i) {
      rows.push_back(unit.parts[part]->rows + i);
    }
  }
  return rows;
}

}  // namespace headrace::cpu
