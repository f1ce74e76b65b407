#include "backend/cpu/workspace.h"

#include <algorithm>

#include "base/numeric.h"

namespace headrace::cpu {
namespace {

constexpr size_t kUsualSpans = 1024;
constexpr size_t kCutsPerMember = 4;
constexpr size_t kMinPartialBytes = size_t{4} << 20;  // pages untouched until long contexts
constexpr size_t kPartialBytesPerMember = size_t{512} << 10;

}  // namespace

Result<CpuWorkspace> CpuWorkspace::create(int num_members) {
  CpuWorkspace workspace;
  constexpr int64_t kFloats = 2 * kTileFloats + kMatmulScratchFloats + kAttentionScratchFloats;
  for (int i = 0; i < num_members; ++i) {
    Buffer buffer = TRY(Buffer::allocate(static_cast<size_t>(kFloats) * sizeof(float)));
    float* next = buffer.as<float>().data();
    MemberScratch scratch{};
    scratch.sums = next;
    scratch.up_sums = scratch.sums + kTileFloats;
    scratch.matmul = scratch.up_sums + kTileFloats;
    scratch.attention = scratch.matmul + kMatmulScratchFloats;
    workspace.members_.push_back(scratch);
    workspace.memory_.push_back(std::move(buffer));
  }
  const auto members = static_cast<size_t>(num_members);
  auto space = std::make_unique<AttentionSpace>();
  space->partials =
      TRY(Buffer::allocate(std::max(kMinPartialBytes, members * kPartialBytesPerMember)));
  space->first_tile.reserve(kUsualSpans);
  space->first_block.reserve(kUsualSpans);
  space->cuts.reserve(kCutsPerMember * members);
  space->remaining = std::make_unique<std::atomic<int32_t>[]>(space->cuts.capacity());
  workspace.attention_ = std::move(space);
  return workspace;
}

Status CpuWorkspace::reserve_activations(ActivationType type, int64_t max_rows,
                                         int64_t max_inputs) {
  const int64_t num_slices = divide_up(max_inputs, kSliceInputs);
  const auto num_bytes = static_cast<size_t>(num_slices * max_rows * activation_record_bytes(type));
  Buffer& memory = activation_memory_[is_integer(type)];
  if (num_bytes <= memory.size()) return {};
  memory = TRY(Buffer::allocate(num_bytes));
  activations_[is_integer(type)] = memory.as<uint8_t>().data();
  return {};
}

}  // namespace headrace::cpu
