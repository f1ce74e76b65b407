// WrappedBackend: passes every call to another backend; what happens around a call is the derived
// class's. For tests of who may look at device memory, and when.
//
// Calls are handed over with copies of their arguments in host memory, as backend.h promises that
// those are read during the call; blocks' tables and places for results stay the caller's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/delegating_backend.h"

namespace headrace::device {

class WrappedBackend : public DelegatingBackend {
 public:
  using DelegatingBackend::DelegatingBackend;

  Result<DeviceMemory> allocate(size_t num_bytes, MemoryUse use) override;
  void upload(std::span<const std::byte> from, DevicePtr<std::byte> to) override;
  void download(DevicePtr<const std::byte> from, std::span<std::byte> to) override;
  std::span<const std::byte> read_view(DevicePtr<const std::byte> from, size_t num_bytes) override;
  std::span<std::byte> write_view(DevicePtr<std::byte> to, size_t num_bytes) override;
  void copy(DevicePtr<const std::byte> from, DevicePtr<std::byte> to, size_t num_bytes) override;
  void zero(DevicePtr<std::byte> to, size_t num_bytes) override;
  void synchronize() override;
  void gather_rows(const GatherArgs& args) override;
  void rope_rows(const RopeArgs& args) override;
  void find_finite_rows(DevicePtr<const float> x, int64_t num_rows, int64_t width,
                        bool* finite) override;
  void run_on_team(int64_t num_items, ItemWork work) override;

  Result<std::unique_ptr<PackedWeight>> pack(std::span<const WeightView> parts,
                                             PackForm form) override;
  Result<std::unique_ptr<PackedWeight>> pack_into(std::span<const WeightView> parts, PackForm form,
                                                  DevicePtr<std::byte> memory) override;
  Result<std::unique_ptr<PackedWeight>> adopt(std::span<const WeightView> parts, PackForm form,
                                              DevicePtr<const std::byte> bytes) override;

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
  void experts(const ExpertsArgs& args) override;
  void head(const PackedWeight& weight, const Input& input, const HeadArgs& args) override;

 protected:
  using Work = std::function<void(Backend& inner)>;
  // An op: done in order, when the next call waits at the latest.
  virtual void later(Work work) = 0;
  // A call whose result the caller has at once: waits for all before it.
  virtual void now(const Work& work) = 0;

 private:
  // The step as the inner backend knows it when its ops run.
  struct Geometry final : StepGeometry {
    const StepGeometry* inner = nullptr;
  };

  std::shared_ptr<Geometry> step_;  // the last that was begun

 protected:
  Backend& inner() { return *inner_; }
};

}  // namespace headrace::device
