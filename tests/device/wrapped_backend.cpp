#include "device/wrapped_backend.h"

#include <optional>
#include <utility>

namespace headrace::device {
namespace {

template <typename T>
std::vector<T> copy_of(std::span<const T> values) {
  return {values.begin(), values.end()};
}

}  // namespace

Result<DeviceMemory> WrappedBackend::allocate(size_t num_bytes, MemoryUse use) {
  std::optional<Result<DeviceMemory>> memory;
  now([&](Backend& inner) { memory = inner.allocate(num_bytes, use); });
  return *std::move(memory);
}

void WrappedBackend::upload(std::span<const std::byte> from, DevicePtr<std::byte> to) {
  later([from = copy_of(from), to](Backend& inner) { inner.upload(from, to); });
}

void WrappedBackend::download(DevicePtr<const std::byte> from, std::span<std::byte> to) {
  now([&](Backend& inner) { inner.download(from, to); });
}

std::span<const std::byte> WrappedBackend::read_view(DevicePtr<const std::byte> from,
                                                     size_t num_bytes) {
  std::span<const std::byte> view;
  now([&](Backend& inner) { view = inner.read_view(from, num_bytes); });
  return view;
}

std::span<std::byte> WrappedBackend::write_view(DevicePtr<std::byte> to, size_t num_bytes) {
  std::span<std::byte> view;
  now([&](Backend& inner) { view = inner.write_view(to, num_bytes); });
  return view;
}

void WrappedBackend::copy(DevicePtr<const std::byte> from, DevicePtr<std::byte> to,
                          size_t num_bytes) {
  later([=](Backend& inner) { inner.copy(from, to, num_bytes); });
}

void WrappedBackend::zero(DevicePtr<std::byte> to, size_t num_bytes) {
  later([=](Backend& inner) { inner.zero(to, num_bytes); });
}

void WrappedBackend::synchronize() {
  now([](Backend& inner) { inner.synchronize(); });
}

void WrappedBackend::gather_rows(const GatherArgs& args) {
  later([args = args, rows = copy_of(args.rows)](Backend& inner) mutable {
    args.rows = rows;
    inner.gather_rows(args);
  });
}

void WrappedBackend::rope_rows(const RopeArgs& args) {
  later([args = args, frequencies = copy_of(args.frequencies),
         positions = copy_of(args.positions)](Backend& inner) mutable {
    args.frequencies = frequencies;
    args.positions = positions;
    inner.rope_rows(args);
  });
}

void WrappedBackend::find_finite_rows(DevicePtr<const float> x, int64_t num_rows, int64_t width,
                                      bool* finite) {
  later([=](Backend& inner) { inner.find_finite_rows(x, num_rows, width, finite); });
}

void WrappedBackend::run_on_team(int64_t num_items, ItemWork work) {
  inner_->run_on_team(num_items, work);
}

Result<std::unique_ptr<PackedWeight>> WrappedBackend::pack(std::span<const WeightView> parts,
                                                           PackForm form) {
  std::optional<Result<std::unique_ptr<PackedWeight>>> weight;
  now([&](Backend& inner) { weight = inner.pack(parts, form); });
  return *std::move(weight);
}

Result<std::unique_ptr<PackedWeight>> WrappedBackend::pack_into(std::span<const WeightView> parts,
                                                                PackForm form,
                                                                DevicePtr<std::byte> memory) {
  std::optional<Result<std::unique_ptr<PackedWeight>>> weight;
  now([&](Backend& inner) { weight = inner.pack_into(parts, form, memory); });
  return *std::move(weight);
}

Result<std::unique_ptr<PackedWeight>> WrappedBackend::adopt(std::span<const WeightView> parts,
                                                            PackForm form,
                                                            DevicePtr<const std::byte> bytes) {
  std::optional<Result<std::unique_ptr<PackedWeight>>> weight;
  now([&](Backend& inner) { weight = inner.adopt(parts, form, bytes); });
  return *std::move(weight);
}

const StepGeometry* WrappedBackend::begin_step(std::span<const Span> spans) {
  step_ = std::make_shared<Geometry>();
  later([step = step_, spans = copy_of(spans)](Backend& inner) {
    step->inner = inner.begin_step(spans);
  });
  return step_.get();
}

void WrappedBackend::embed(const PackedWeight& table, std::span<const int32_t> ids, float scale,
                           DevicePtr<const float> addend, DevicePtr<float> out) {
  later([&table, ids = copy_of(ids), scale, addend, out](Backend& inner) {
    inner.embed(table, ids, scale, addend, out);
  });
}

void WrappedBackend::norm(const NormArgs& args) {
  later([args](Backend& inner) { inner.norm(args); });
}

void WrappedBackend::linear(const PackedWeight& weight, const Input& input, int64_t num_rows,
                            const Epilogue& epilogue, DevicePtr<float> out) {
  later([&weight, input, num_rows, epilogue, out](Backend& inner) {
    inner.linear(weight, input, num_rows, epilogue, out);
  });
}

void WrappedBackend::gated_linear(const PackedWeight& gate_up, const Input& input, int64_t num_rows,
                                  Activation activation, DevicePtr<const float> bias,
                                  DevicePtr<float> out) {
  later([&gate_up, input, num_rows, activation, bias, out](Backend& inner) {
    inner.gated_linear(gate_up, input, num_rows, activation, bias, out);
  });
}

void WrappedBackend::activated_linear(const PackedWeight& weight, const Input& input,
                                      int64_t num_rows, const ActivatedArgs& args,
                                      DevicePtr<float> out) {
  later([&weight, input, num_rows, args, out](Backend& inner) {
    inner.activated_linear(weight, input, num_rows, args, out);
  });
}

void WrappedBackend::qkv_linear(const PackedWeight& weight, const Input& input,
                                DevicePtr<const float> bias, DevicePtr<float> projection,
                                const QkvArgs& args) {
  CHECK(args.step == step_.get(), "an op of another step");
  later([&weight, input, bias, projection, args = args, step = step_](Backend& inner) mutable {
    args.step = step->inner;
    inner.qkv_linear(weight, input, bias, projection, args);
  });
}

void WrappedBackend::finish_qkv(const QkvArgs& args) {
  CHECK(args.step == step_.get(), "an op of another step");
  later([args = args, step = step_](Backend& inner) mutable {
    args.step = step->inner;
    inner.finish_qkv(args);
  });
}

void WrappedBackend::attention(const AttentionArgs& args) {
  CHECK(args.step == step_.get(), "an op of another step");
  later([args = args, step = step_](Backend& inner) mutable {
    args.step = step->inner;
    inner.attention(args);
  });
}

void WrappedBackend::causal_conv(const CausalConvArgs& args) {
  CHECK(args.step == step_.get(), "an op of another step");
  later([args = args, step = step_](Backend& inner) mutable {
    args.step = step->inner;
    inner.causal_conv(args);
  });
}

void WrappedBackend::scan(const ScanArgs& args) {
  CHECK(args.step == step_.get(), "an op of another step");
  later([args = args, step = step_](Backend& inner) mutable {
    args.step = step->inner;
    inner.scan(args);
  });
}

void WrappedBackend::delta(const DeltaArgs& args) {
  CHECK(args.step == step_.get(), "an op of another step");
  later([args = args, step = step_](Backend& inner) mutable {
    args.step = step->inner;
    inner.delta(args);
  });
}

void WrappedBackend::append_row(const AppendRowArgs& args) {
  CHECK(args.step == step_.get(), "an op of another step");
  later([args = args, step = step_](Backend& inner) mutable {
    args.step = step->inner;
    inner.append_row(args);
  });
}

void WrappedBackend::select_keys(const SelectKeysArgs& args) {
  CHECK(args.step == step_.get(), "an op of another step");
  later([args = args, step = step_](Backend& inner) mutable {
    args.step = step->inner;
    inner.select_keys(args);
  });
}

void WrappedBackend::latent_attention(const LatentAttentionArgs& args) {
  CHECK(args.step == step_.get(), "an op of another step");
  later([args = args, step = step_](Backend& inner) mutable {
    args.step = step->inner;
    inner.latent_attention(args);
  });
}

void WrappedBackend::head_linear(const HeadLinearArgs& args) {
  later([args](Backend& inner) { inner.head_linear(args); });
}

void WrappedBackend::mix_streams(const StreamArgs& args) {
  later([args](Backend& inner) { inner.mix_streams(args); });
}

void WrappedBackend::sparse_gate(const SparseGateArgs& args) {
  later([args](Backend& inner) { inner.sparse_gate(args); });
}

void WrappedBackend::experts(const ExpertsArgs& args) {
  later([args](Backend& inner) { inner.experts(args); });
}

void WrappedBackend::head(const PackedWeight& weight, const Input& input, const HeadArgs& args) {
  later([&weight, input, args = args, rows = copy_of(args.rows)](Backend& inner) mutable {
    args.rows = rows;
    inner.head(weight, input, args);
  });
}

}  // namespace headrace::device
