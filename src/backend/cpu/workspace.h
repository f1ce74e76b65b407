// Per-member memory of the CPU back end, allocated once: no op allocates.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cpu/kernels/kernels.h"
#include "base/buffer.h"

namespace headrace::cpu {

inline constexpr int64_t kMaxTileRows = 240;  // rows of one sums tile; a multiple of 12 and 8
inline constexpr int64_t kTileFloats = kMaxTileRows * 8 * kPanel;

struct MemberScratch {
  float* sums;       // kTileFloats
  float* up_sums;    // kTileFloats
  float* matmul;     // kMatmulScratchFloats
  float* attention;  // kAttentionScratchFloats
};

class CpuWorkspace {
 public:
  static Result<CpuWorkspace> create(int num_members);
  const MemberScratch& member(int index) const { return members_[static_cast<size_t>(index)]; }

  // Quantised activations of one linear layer, shared by the members (layout: kernels.h). Grows,
  // never shrinks.
  Status reserve_activations(ActivationType type, int64_t max_rows, int64_t max_inputs);
  uint8_t* activations() const { return activations_; }

 private:
  std::vector<Buffer> memory_;
  std::vector<MemberScratch> members_;
  Buffer activation_memory_;
  uint8_t* activations_ = nullptr;
};

}  // namespace headrace::cpu
