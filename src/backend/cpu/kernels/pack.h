// Pack: a checkpoint's weight as the panels that kernels read (layouts: kernels.h).
//
// Formats with a layout of their own keep their codes and size; what has none is written as exact
// float32. One layout per part: the parts of a fused projection may have different formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels/registry.h"
#include "backend/cpu/team/team.h"
#include "base/buffer.h"

namespace headrace::cpu {

// One part: outputs [first_output, first_output + num_outputs) of the weight.
struct Segment {
  Layout layout = Layout::kF32;
  int64_t first_output = 0;
  int64_t num_outputs = 0;
  int64_t num_panels = 0;
  size_t panel_bytes = 0;
  const uint8_t* data = nullptr;
  MatmulRows matmul;
  void (*unpack)(const UnpackArgs&) = nullptr;
};

class CpuWeight final : public PackedWeight {
 public:
  // `memory` is what the segments refer to, or empty if somebody else owns that.
  CpuWeight(std::vector<Segment> segments, int64_t num_inputs, WeightRole role,
            std::vector<int32_t> input_order, Buffer memory);
  // A weight with an expert axis: its experts, which lie in `memory` or in somebody else's.
  CpuWeight(std::vector<std::unique_ptr<CpuWeight>> experts, Buffer memory);

  int64_t num_experts() const override;
  const PackedWeight& expert(int64_t index) const override;
  int64_t num_outputs() const override { return num_outputs_; }
  int64_t num_inputs() const override { return num_inputs_; }
  size_t num_bytes() const override { return num_bytes_; }
  std::string_view layout() const override { return layout_name_; }

  std::span<const Segment> segments() const { return segments_; }  // none with an expert axis
  WeightRole role() const { return role_; }
  // Input i of integer segments is input input_order()[i] of x; empty: they are in order.
  std::span<const int32_t> input_order() const { return input_order_; }
  bool takes(ActivationType type) const;  // some segment's rows read such input

 private:
  std::vector<Segment> segments_;
  int64_t num_inputs_;
  int64_t num_outputs_;
  size_t num_bytes_;
  WeightRole role_;
  std::vector<int32_t> input_order_;
  std::string layout_name_;
  std::vector<std::unique_ptr<CpuWeight>> experts_;  // of an expert axis
  Buffer memory_;
};

// The layout of a weight that is packed alone.
Layout layout_for(const WeightView& weight);

// See Backend::pack. Runs on the team; kernels supplies the rows of each layout.
Result<std::unique_ptr<CpuWeight>> pack_weight(std::span<const WeightView> parts, PackForm form,
                                               const KernelSet& kernels, Team& team);
// The same into memory that outlives the weight, packed_weight_bytes(parts, form) of zeros.
Result<std::unique_ptr<CpuWeight>> pack_weight_into(std::span<const WeightView> parts,
                                                    PackForm form, const KernelSet& kernels,
                                                    Team& team, std::span<std::byte> memory);
// See Backend::adopt.
Result<std::unique_ptr<CpuWeight>> adopt_weight(std::span<const WeightView> parts, PackForm form,
                                                const KernelSet& kernels,
                                                std::span<const std::byte> bytes);
size_t packed_weight_bytes(std::span<const WeightView> parts, PackForm form);
// Digest of the layout table: equal ids, equal packed bytes of equal parts.
std::string packing_id();

}  // namespace headrace::cpu
