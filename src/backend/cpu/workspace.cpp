#include "backend/cpu/workspace.h"

#include <algorithm>

#include "base/numeric.h"

namespace headrace::cpu {
namespace {

constexpr size_t kMinPartialBytes = size_t{4} << 20;  // pages untouched until long contexts
constexpr size_t kPartialBytesPerMember = size_t{512} << 10;

}  // namespace

Result<CpuWorkspace> CpuWorkspace::create(int num_members) {
  CpuWorkspace workspace;
  constexpr int64_t kFloats = 2 * kAmxTileFloats + kMatmulScratchFloats + kAttentionScratchFloats;
  for (int i = 0; i < num_members; ++i) {
    Buffer buffer = TRY(Buffer::allocate(static_cast<size_t>(kFloats) * sizeof(float)));
    float* next = buffer.as<float>().data();
    MemberScratch scratch{};
    scratch.sums = next;
    scratch.up_sums = scratch.sums + kAmxTileFloats;
    scratch.matmul = scratch.up_sums + kAmxTileFloats;
    scratch.attention = scratch.matmul + kMatmulScratchFloats;
    workspace.members_.push_back(scratch);
    workspace.memory_.push_back(std::move(buffer));
  }
  const auto members = static_cast<size_t>(num_members);
  workspace.partial_memory_ =
      TRY(Buffer::allocate(std::max(kMinPartialBytes, members * kPartialBytesPerMember)));
  workspace.partials_ = workspace.partial_memory_.as<float>();
  for (auto& shares : workspace.shares_) shares = std::make_unique<PanelShares>(num_members);
  workspace.expert_memory_ =
      TRY(Buffer::allocate(2 * static_cast<size_t>(kMaxExperts + 1) * sizeof(int32_t)));
  workspace.expert_items_ = workspace.expert_memory_.as<int32_t>();
  return workspace;
}

Status CpuWorkspace::reserve_activations(ActivationType type, int64_t max_rows,
                                         int64_t max_inputs) {
  const int64_t num_slices = divide_up(max_inputs, kSliceInputs);
  const auto num_bytes = static_cast<size_t>(num_slices * max_rows * activation_record_bytes(type));
  Buffer& memory = activation_memory_[is_of_codes(type)];
  if (num_bytes <= memory.size()) return {};
  memory = TRY(Buffer::allocate(num_bytes));
  activations_[is_of_codes(type)] = memory.as<uint8_t>().data();
  return {};
}

Status CpuWorkspace::reserve_rows(int64_t max_inputs) {
  if (max_inputs <= row_inputs_) return {};
  const int64_t num_slices = divide_up(max_inputs, kSliceInputs);
  const int64_t num_bytes[] = {
      num_slices * kSliceInputs * int64_t{sizeof(float)},
      num_slices * activation_record_bytes(ActivationType::kBF16x2),
      num_slices * activation_record_bytes(ActivationType::kInt16),
  };
  std::vector<Buffer> memory;
  for (size_t i = 0; i < members_.size(); ++i) {
    memory.push_back(
        TRY(Buffer::allocate(static_cast<size_t>(num_bytes[0] + num_bytes[1] + num_bytes[2]))));
    uint8_t* next = memory.back().as<uint8_t>().data();
    members_[i].normed = reinterpret_cast<float*>(next);
    members_[i].activations[is_of_codes(ActivationType::kBF16x2)] = next + num_bytes[0];
    members_[i].activations[is_of_codes(ActivationType::kInt16)] =
        next + num_bytes[0] + num_bytes[1];
  }
  row_memory_ = std::move(memory);
  row_inputs_ = max_inputs;
  return {};
}

}  // namespace headrace::cpu
