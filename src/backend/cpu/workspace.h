// Memory of the CPU back end beside weights and KV, allocated once: no op allocates.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/panel_shares.h"
#include "base/buffer.h"

namespace headrace::cpu {

inline constexpr int64_t kMaxTileRows = 240;  // rows of one sums tile; a multiple of 12 and 8
inline constexpr int64_t kTileFloats = kMaxTileRows * 8 * kPanel;
inline constexpr int64_t kMaxAmxTileRows = 256;  // the same for kernels of tile instructions
inline constexpr int64_t kAmxTileFloats = kMaxAmxTileRows * 16 * kPanel;

struct MemberScratch {
  float* sums;       // kAmxTileFloats
  float* up_sums;    // kAmxTileFloats
  float* matmul;     // kMatmulScratchFloats
  float* attention;  // kAttentionScratchFloats
  // One row of the widest input, normed and quantised by the member for itself.
  float* normed;
  uint8_t* activations[2];  // by is_of_codes()
};

class CpuWorkspace {
 public:
  static Result<CpuWorkspace> create(int num_members);
  const MemberScratch& member(int index) const { return members_[static_cast<size_t>(index)]; }
  // Partial results of the attention that runs (step_plan.h).
  std::span<float> attention_partials() const { return partials_; }
  PanelShares& shares() const { return *shares_[0]; }
  PanelShares& second_shares() const { return *shares_[1]; }  // of an op of two products
  // kMaxExperts + 1 numbers of an op of experts, for either product.
  std::span<int32_t> expert_items(int product) const {
    constexpr size_t kCount = kMaxExperts + 1;
    return expert_items_.subspan(static_cast<size_t>(product) * kCount, kCount);
  }

  // Quantised activations of one linear layer, shared by the members (layout: kernels.h): one place
  // for integers, one for bf16. Grows, never shrinks.
  Status reserve_activations(ActivationType type, int64_t max_rows, int64_t max_inputs);
  uint8_t* activations(ActivationType type) const { return activations_[is_of_codes(type)]; }
  // The members' own rows. Grows, never shrinks.
  Status reserve_rows(int64_t max_inputs);

 private:
  std::vector<Buffer> memory_;
  std::vector<MemberScratch> members_;
  Buffer activation_memory_[2];
  uint8_t* activations_[2] = {};
  std::vector<Buffer> row_memory_;  // by member
  int64_t row_inputs_ = 0;          // that it has room for
  Buffer partial_memory_;
  std::span<float> partials_;
  std::unique_ptr<PanelShares> shares_[2];
  Buffer expert_memory_;
  std::span<int32_t> expert_items_;
};

}  // namespace headrace::cpu
