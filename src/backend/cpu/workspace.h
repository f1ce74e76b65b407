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

 private:
  std::vector<Buffer> memory_;
  std::vector<MemberScratch> members_;
};

}  // namespace headrace::cpu
