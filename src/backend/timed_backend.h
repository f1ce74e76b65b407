// TimedBackend: passes every call to another backend and, while it is watched, records the ops:
// when each ran and what it had to do at the least. The same bits come out. Rules as in backend.h.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/delegating_backend.h"
#include "backend/op_record.h"

namespace headrace {

class TimedBackend final : public DelegatingBackend {
 public:
  using DelegatingBackend::DelegatingBackend;

  bool watch_ops(std::vector<OpRecord>* records) override;
  void enter_layer(int layer) override { layer_ = layer; }

  Result<DeviceMemory> allocate(size_t num_bytes, MemoryUse use) override {
    return inner_->allocate(num_bytes, use);
  }
  void touch(DevicePtr<std::byte> memory, size_t num_bytes) override {
    inner_->touch(memory, num_bytes);
  }
  void upload(std::span<const std::byte> from, DevicePtr<std::byte> to) override {
    inner_->upload(from, to);
  }
  void download(DevicePtr<const std::byte> from, std::span<std::byte> to) override {
    inner_->download(from, to);
  }
  std::span<const std::byte> read_view(DevicePtr<const std::byte> from, size_t num_bytes) override {
    return inner_->read_view(from, num_bytes);
  }
  std::span<std::byte> write_view(DevicePtr<std::byte> to, size_t num_bytes) override {
    return inner_->write_view(to, num_bytes);
  }
  void copy(DevicePtr<const std::byte> from, DevicePtr<std::byte> to, size_t num_bytes) override {
    inner_->copy(from, to, num_bytes);
  }
  void zero(DevicePtr<std::byte> to, size_t num_bytes) override { inner_->zero(to, num_bytes); }
  void synchronize() override { inner_->synchronize(); }
  void run_on_team(int64_t num_items, ItemWork work) override {
    inner_->run_on_team(num_items, work);
  }
  void call_beside(std::function<void()> call) override { inner_->call_beside(std::move(call)); }
  void call_near_end(std::function<void()> call) override {
    inner_->call_near_end(std::move(call));
  }

  Result<std::unique_ptr<PackedWeight>> pack(std::span<const WeightView> parts,
                                             PackForm form) override {
    return inner_->pack(parts, form);
  }
  Result<std::unique_ptr<PackedWeight>> pack_into(std::span<const WeightView> parts, PackForm form,
                                                  DevicePtr<std::byte> memory) override {
    return inner_->pack_into(parts, form, memory);
  }
  Result<std::unique_ptr<PackedWeight>> adopt(std::span<const WeightView> parts, PackForm form,
                                              DevicePtr<const std::byte> bytes) override {
    return inner_->adopt(parts, form, bytes);
  }

  const StepGeometry* begin_step(std::span<const Span> spans) override;
  void embed(const PackedWeight& table, std::span<const int32_t> ids, float scale,
             DevicePtr<const float> addend, DevicePtr<float> out) override;
  void norm(const NormArgs& args) override;
  void linear(const PackedWeight& weight, const Input& input, int64_t num_rows,
              const Epilogue& epilogue, DevicePtr<float> out) override;
  void gated_linear(const PackedWeight& gate_up, const Input& input, int64_t num_rows,
                    Activation activation, DevicePtr<const float> bias,
                    DevicePtr<float> out) override;
  void activated_linear(const PackedWeight& weight, const Input& input, int64_t num_rows,
                        const ActivatedArgs& args, DevicePtr<float> out) override;
  void experts(const ExpertsArgs& args) override;
  void qkv_linear(const PackedWeight& weight, const Input& input, DevicePtr<const float> bias,
                  DevicePtr<float> projection, const QkvArgs& args) override;
  void finish_qkv(const QkvArgs& args) override;
  void attention(const AttentionArgs& args) override;
  void causal_conv(const CausalConvArgs& args) override;
  void scan(const ScanArgs& args) override;
  void delta(const DeltaArgs& args) override;
  void append_row(const AppendRowArgs& args) override;
  void head_linear(const HeadLinearArgs& args) override;
  void select_keys(const SelectKeysArgs& args) override;
  void latent_attention(const LatentAttentionArgs& args) override;
  void mix_streams(const StreamArgs& args) override;
  void sparse_gate(const SparseGateArgs& args) override;
  void head(const PackedWeight& weight, const Input& input, const HeadArgs& args) override;
  void gather_rows(const GatherArgs& args) override;
  void rope_rows(const RopeArgs& args) override;
  void find_finite_rows(DevicePtr<const float> x, int64_t num_rows, int64_t width,
                        bool* finite) override;

 private:
  // Positions of a step that its rows see: each row its own, and each span's without repetition.
  struct Seen {
    double by_rows = 0, by_spans = 0;
  };
  // Of the spans of the step; window 0: all.
  Seen seen(int64_t window) const;
  double plane_position_bytes(const KvPlane& plane) const;
  double state_bytes(std::span<const KvPlaneView> planes) const;
  // Runs the op; watched: timed, and what describe(record) says of it.
  template <typename Op, typename Describe>
  void run(OpKind kind, int64_t num_rows, const Op& op, const Describe& describe);
  template <typename Op>
  void run_product(OpKind kind, const PackedWeight& weight, int64_t num_rows, const Op& op);
  double experts_met(const ExpertsArgs& args);

  std::vector<OpRecord>* records_ = nullptr;  // null: not watched
  int layer_ = kNoOpLayer;
  std::vector<Span> spans_;  // of the step, while watched
};

}  // namespace headrace
