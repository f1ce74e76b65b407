#include "backend/cpu/cpu_backend.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "backend/cpu/attention.h"
#include "backend/cpu/delta.h"
#include "backend/cpu/embed.h"
#include "backend/cpu/experts.h"
#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/layouts.h"
#include "backend/cpu/latent.h"
#include "backend/cpu/matmul.h"
#include "backend/cpu/norm.h"
#include "backend/cpu/recurrent.h"
#include "backend/cpu/step_plan.h"
#include "backend/cpu/streams.h"
#include "backend/cpu/team/shared_team.h"
#include "backend/cpu/team/topology.h"
#include "backend/cpu/verify/sound_unit.h"
#include "backend/device_access.h"
#include "backend/host_backend.h"

namespace headrace {
namespace cpu {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int64_t kDefaultMaxRows = 64;

class CpuBackend final : public HostBackend {
 public:
  CpuBackend(const KernelSet& kernels, uint32_t available, std::shared_ptr<CpuTeam> team,
             CpuWorkspace workspace)
      : available_(available),
        kernels_(kernels),
        shared_team_(std::move(team)),
        team_(shared_team_->team),
        workspace_(std::move(workspace)),
        step_(team_.num_threads(), workspace_.attention_partials().size()),
        adapters_(kernels_),
        context_{kernels_, team_, workspace_, best_, adapters_} {}

  Result<std::unique_ptr<PackedWeight>> pack(std::span<const WeightView> parts,
                                             PackForm form) override {
    const std::lock_guard turn(shared_team_->turn);
    return admit(TRY(pack_weight(parts, form, kernels_, team_)));
  }

  Status reserve(int64_t max_rows) override {
    max_rows_ = std::max(max_rows_, max_rows);
    TRY(best_.reserve(max_rows_));
    for (size_t i = 0; i < quantise_rows_.size(); ++i) {
      if (max_inputs_[i] == 0) continue;
      TRY(workspace_.reserve_activations(quantise_rows_[i]->activation, max_rows_, max_inputs_[i]));
    }
    return {};
  }

  Result<std::unique_ptr<PackedWeight>> pack_into(std::span<const WeightView> parts, PackForm form,
                                                  DevicePtr<std::byte> memory) override {
    const size_t num_bytes = packed_bytes(parts, form);
    const std::lock_guard turn(shared_team_->turn);
    return admit(TRY(pack_weight_into(parts, form, kernels_, team_, {raw(memory), num_bytes})));
  }

  Result<std::unique_ptr<PackedWeight>> adopt(std::span<const WeightView> parts, PackForm form,
                                              DevicePtr<const std::byte> bytes) override {
    const size_t num_bytes = packed_bytes(parts, form);
    return admit(TRY(adopt_weight(parts, form, kernels_, {raw(bytes), num_bytes})));
  }

  std::string packing_id() const override { return cpu::packing_id(); }

  size_t packed_bytes(std::span<const WeightView> parts, PackForm form) const override {
    return packed_weight_bytes(parts, form);
  }

  Result<std::unique_ptr<PackedAdapter>> pack_adapter(
      std::span<const WeightDelta> deltas) override {
    return std::unique_ptr<PackedAdapter>(TRY(pack_cpu_adapter(deltas, kernels_)));
  }

  size_t kv_plane_bytes(const KvPlane& plane) const override {
    return static_cast<size_t>(plane.num_heads) *
           cpu::kv_plane_bytes(kv_dtype(plane.type), plane.width);
  }

  const StepGeometry* begin_step(std::span<const Span> spans) override {
    step_.begin(spans);
    adapters_.begin(spans);
    return &step_;
  }

  void embed(const PackedWeight& table, std::span<const int32_t> ids, float scale,
             DevicePtr<const float> addend, DevicePtr<float> out) override {
    const CpuWeight& weight = own(table);
    CHECK(weight.role() == WeightRole::kEmbedding);
    for (const int32_t id : ids) CHECK(id >= 0 && id < weight.num_outputs(), "token id {}", id);
    run_embed(context_, weight, ids, scale, raw(addend), raw(out));
  }

  void norm(const NormArgs& args) override {
    CHECK(args.width > 0 && args.num_rows >= 0, "[{}, {}]", args.num_rows, args.width);
    run_norm(context_, args);
  }

  void linear(const PackedWeight& weight, const Input& input, int64_t num_rows,
              const Epilogue& epilogue, DevicePtr<float> out) override {
    CHECK(own(weight).role() != WeightRole::kGateUp, "a gate_up weight");
    check_rows(input, num_rows);
    CHECK(!epilogue.post_norm.weight || (epilogue.branch && epilogue.softcap == 0),
          "a norm of the output needs room and has no softcap");
    CHECK(!epilogue.gain || epilogue.post_norm.weight, "a gain comes with a norm of the output");
    CHECK(epilogue.reduction == nullptr || epilogue.branch, "a reduction needs room");
    run_linear(context_, call(weight, input, num_rows, out), epilogue);
  }

  void gated_linear(const PackedWeight& gate_up, const Input& input, int64_t num_rows,
                    Activation activation, DevicePtr<const float> bias,
                    DevicePtr<float> out) override {
    CHECK(own(gate_up).role() == WeightRole::kGateUp, "not a gate_up weight");
    check_rows(input, num_rows);
    run_gated_linear(context_, call(gate_up, input, num_rows, out), gate_form(activation),
                     raw(bias));
  }

  void activated_linear(const PackedWeight& weight, const Input& input, int64_t num_rows,
                        const ActivatedArgs& args, DevicePtr<float> out) override {
    CHECK(own(weight).role() != WeightRole::kGateUp, "a gate_up weight");
    check_rows(input, num_rows);
    CHECK(!args.factors || args.factor_stride >= weight.num_outputs(), "factors {} apart for {}",
          args.factor_stride, weight.num_outputs());
    run_activated_linear(context_, call(weight, input, num_rows, out), args);
  }

  void mix_streams(const StreamArgs& args) override {
    CHECK(args.num_streams > 1 && args.num_streams <= kMaxStreams, "{} streams", args.num_streams);
    CHECK(args.width > 0 && args.num_rows >= 0 && args.stream_stride >= args.num_rows * args.width,
          "[{}, {}] streams {} apart", args.num_rows, args.width, args.stream_stride);
    run_mix_streams(context_, args);
  }

  void sparse_gate(const SparseGateArgs& args) override {
    CHECK(args.width > 0 && args.num_rows >= 0, "[{}, {}]", args.num_rows, args.width);
    run_sparse_gate(context_, args);
  }

  void experts(const ExpertsArgs& args) override {
    check_routing(args.routing);
    check_router(args);
    check_rows(args.input, args.routing.num_rows);
    const PackedWeight &gate_up = *args.gate_up, &down = *args.down;
    CHECK(gate_up.num_experts() == args.routing.num_experts &&
              down.num_experts() == args.routing.num_experts &&
              2 * down.num_inputs() == gate_up.num_outputs(),
          "[{}, {}, {}] and [{}, {}, {}] for {} experts", gate_up.num_experts(),
          gate_up.num_outputs(), gate_up.num_inputs(), down.num_experts(), down.num_outputs(),
          down.num_inputs(), args.routing.num_experts);
    CHECK(!args.epilogue.bias && args.epilogue.softcap == 0, "no bias and no softcap");
    CHECK(!args.shared_gate || args.shared, "a gate of no shared expert");
    run_experts(context_, args);
  }

  void qkv_linear(const PackedWeight& weight, const Input& input, DevicePtr<const float> bias,
                  DevicePtr<float> projection, const QkvArgs& args) override {
    check_qkv(args);
    check_rows(input, args.num_rows);
    const KvShape& shape = args.kv.shape;
    CHECK(weight.num_outputs() ==
              (args.num_heads + int64_t{args.kv_parts} * shape.num_kv_heads) * shape.head_dim +
                  args.num_others,
          "{} outputs for {} heads and {} times {} kv heads of {} and {} others",
          weight.num_outputs(), args.num_heads, args.kv_parts, shape.num_kv_heads, shape.head_dim,
          args.num_others);
    QkvArgs finish = args;
    finish.qkv = projection;
    run_qkv_linear(context_, call(weight, input, args.num_rows, projection), bias, finish);
  }

  void finish_qkv(const QkvArgs& args) override {
    check_qkv(args);
    run_finish_qkv(context_, args);
  }

  void attention(const AttentionArgs& args) override {
    check_heads(args.num_heads, args.kv.shape);
    check_step(args.step);
    CHECK(args.window >= 0, "window {}", args.window);
    CHECK(!args.gate || args.gate_stride >= int64_t{args.num_heads} * args.kv.shape.head_dim,
          "gates in rows of {}", args.gate_stride);
    run_attention(context_, args);
  }

  void causal_conv(const CausalConvArgs& args) override {
    check_recurrent(args.step, args.num_rows);
    CHECK(args.num_taps >= 2 && args.num_taps <= kMaxTaps && args.num_channels > 0 &&
              args.row_stride >= args.num_channels,
          "{} taps, {} channels, stride {}", args.num_taps, args.num_channels, args.row_stride);
    check_state(args.state, args.num_taps - 1, args.num_channels);
    run_causal_conv(context_, args);
  }

  void scan(const ScanArgs& args) override {
    check_recurrent(args.step, args.num_rows);
    CHECK(args.num_heads > 0 && args.num_groups > 0 && args.num_heads % args.num_groups == 0 &&
              args.row_stride >= int64_t{args.num_heads} * args.head_dim,
          "{} heads of {} in {} groups, stride {}", args.num_heads, args.head_dim, args.num_groups,
          args.row_stride);
    CHECK(std::ssize(args.state) == args.num_heads, "{} states for {} heads", args.state.size(),
          args.num_heads);
    for (const KvPlaneView& plane : args.state) {
      check_state(plane, args.state_width, args.head_dim);
    }
    run_scan(context_, args);
  }

  void delta(const DeltaArgs& args) override {
    check_recurrent(args.step, args.num_rows);
    CHECK(args.num_key_heads > 0 && args.num_value_heads % args.num_key_heads == 0 &&
              args.num_value_heads > 0,
          "{} value heads, {} key heads", args.num_value_heads, args.num_key_heads);
    CHECK(args.key_dim > 0 && args.key_dim <= headrace::kMaxDeltaDim && args.value_dim > 0 &&
              args.value_dim <= headrace::kMaxDeltaDim,
          "state [{}, {}]", args.key_dim, args.value_dim);
    CHECK(args.decay_dims == 1 || args.decay_dims == args.key_dim, "{} decays", args.decay_dims);
    CHECK(std::ssize(args.state) == args.num_value_heads, "{} states for {} heads",
          args.state.size(), args.num_value_heads);
    for (const KvPlaneView& plane : args.state) {
      check_state(plane, 1, delta_state_width(args.key_dim, args.value_dim));
    }
    run_delta(context_, args);
  }

  void append_row(const AppendRowArgs& args) override {
    check_step(args.step);
    check_plane(args.plane);
    const int width = args.plane.plane.width;
    CHECK(args.num_rows == step_.num_rows(), "{} rows in a step of {}", args.num_rows,
          step_.num_rows());
    CHECK(args.rope_dims >= 0 && args.rope_dims % 2 == 0 && args.norm_width <= width &&
              args.key_rope + args.rope_dims <= width,
          "a norm of {} and {} rotated from {} of {}", args.norm_width, args.rope_dims,
          args.key_rope, width);
    CHECK(args.num_heads == 0 ||
              (args.rope_dims <= args.q_dims && args.q_rope + args.q_dims <= args.q_width &&
               args.q_out_rope + args.q_dims <= args.q_out_width),
          "{} of a head of {} into one of {}", args.q_dims, args.q_width, args.q_out_width);
    run_append_row(context_, args);
  }

  void head_linear(const HeadLinearArgs& args) override {
    const PackedWeight& weight = *args.weight;
    CHECK(args.num_rows >= 0 && args.num_rows <= max_rows_, "{} rows", args.num_rows);
    CHECK(weight.num_experts() == args.num_heads && weight.num_inputs() <= args.x_width &&
              weight.num_outputs() <= args.out_width,
          "[{}, {}, {}] for {} heads of {} and {}", weight.num_experts(), weight.num_outputs(),
          weight.num_inputs(), args.num_heads, args.x_width, args.out_width);
    run_head_linear(context_, args);
  }

  void select_keys(const SelectKeysArgs& args) override {
    check_step(args.step);
    check_plane(args.plane);
    CHECK(args.num_heads > 0 && args.num_heads <= kMaxIndexHeads && args.max_kept > 0 &&
              args.plane.plane.width <= kMaxHeadDim,
          "{} heads keep {} of width {}", args.num_heads, args.max_kept, args.plane.plane.width);
    run_select_keys(context_, args);
  }

  void latent_attention(const LatentAttentionArgs& args) override {
    check_step(args.step);
    check_plane(args.plane);
    CHECK(args.num_heads > 0 && args.value_dim > 0 && args.value_dim <= args.plane.plane.width,
          "{} heads, values of {}", args.num_heads, args.value_dim);
    run_latent_attention(context_, args);
  }

  void head(const PackedWeight& weight, const Input& input, const HeadArgs& args) override {
    CHECK(own(weight).role() != WeightRole::kGateUp, "a gate_up weight");
    check_rows(input, args.num_rows);
    CHECK(args.num_written >= 0 && args.num_written <= args.num_rows, "{} rows written of {}",
          args.num_written, args.num_rows);
    CHECK(args.rows.empty() || std::ssize(args.rows) == args.num_rows, "{} rows of the step for {}",
          args.rows.size(), args.num_rows);
    run_head(
        context_,
        {own(weight), input, args.num_rows, raw(args.logits), adapters_.of_rows(weight, args.rows)},
        args);
  }

  void run_on_team(int64_t num_items, ItemWork work) override { team_.run(num_items, work); }
  void begin_turn() override { shared_team_->turn.lock(); }
  void end_turn() override { shared_team_->turn.unlock(); }
  void keep_apart() override { team_.keep_apart(); }
  bool has_spare_core() const override { return team_.has_spare_core(); }
  void call_beside(std::function<void()> call) override { team_.call_beside(std::move(call)); }
  void call_near_end(std::function<void()> call) override { team_.call_near_end(std::move(call)); }

  int num_threads() const override { return team_.num_threads(); }
  int64_t num_joins() const override { return team_.num_joins(); }
  std::string_view isa() const override { return kernels_.unit->name; }
  std::string numerics(KvType kv_type) const override;
  KvType default_kv_type() const override { return headrace::default_kv_type(kernels_); }
  std::vector<KernelInfo> kernels() const override;

 private:
  // Makes room for what the weight's op will need.
  Result<std::unique_ptr<PackedWeight>> admit(std::unique_ptr<CpuWeight> weight) {
    for (size_t i = 0; i < quantise_rows_.size(); ++i) {
      if (quantise_rows_[i] == nullptr || !weight->takes(quantise_rows_[i]->activation)) continue;
      max_inputs_[i] = std::max(max_inputs_[i], weight->num_inputs());
    }
    TRY(reserve(max_rows_));
    TRY(workspace_.reserve_rows(weight->num_inputs()));
    return std::unique_ptr<PackedWeight>(std::move(weight));
  }

  static const CpuWeight& own(const PackedWeight& weight) {
    CHECK(weight.num_experts() == 1, "an op takes one of {} experts", weight.num_experts());
    return static_cast<const CpuWeight&>(weight);
  }

  // Of the rows of the step.
  LinearCall call(const PackedWeight& weight, const Input& input, int64_t num_rows,
                  DevicePtr<float> out) {
    return {own(weight), input, num_rows, raw(out), adapters_.of_call(weight, num_rows)};
  }

  void check_rows(const Input& input, int64_t num_rows) const {
    CHECK(num_rows >= 0 && num_rows <= max_rows_, "{} rows, but {} are reserved", num_rows,
          max_rows_);
    CHECK(!input.norm.weight || input.normed, "a norm needs room");
  }

  void check_routing(const Routing& routing) const {
    CHECK(routing.num_rows >= 0 && routing.num_rows <= max_rows_, "{} rows, but {} are reserved",
          routing.num_rows, max_rows_);
    CHECK(routing.num_chosen > 0 && routing.num_chosen <= routing.num_experts &&
              routing.num_experts <= kMaxExperts,
          "{} of {} experts", routing.num_chosen, routing.num_experts);
  }

  static void check_router(const ExpertsArgs& args) {
    const Router& router = args.route.router;
    CHECK(router.num_groups > 0 && args.routing.num_experts % router.num_groups == 0 &&
              router.num_groups_kept > 0 && router.num_groups_kept <= router.num_groups,
          "{} of {} groups of {} experts", router.num_groups_kept, router.num_groups,
          args.routing.num_experts);
    CHECK(!router.normalise || router.score != RouterScore::kSoftmaxChosen, "normalised twice");
  }

  void check_qkv(const QkvArgs& args) const {
    check_heads(args.num_heads, args.kv.shape);
    check_table(args.kv);
    check_step(args.step);
    CHECK(args.kv_parts >= 0 && args.kv_parts <= 2, "{} parts of keys and values", args.kv_parts);
    CHECK(args.num_rows == step_.num_rows(), "{} rows in a step of {}", args.num_rows,
          step_.num_rows());
    CHECK(
        args.rope_dims >= 0 && args.rope_dims % 2 == 0 && args.rope_dims <= args.kv.shape.head_dim,
        "rope_dims {} of head_dim {}", args.rope_dims, args.kv.shape.head_dim);
    CHECK(args.kv.block_stride >= kv_layer_bytes(args.kv.shape), "stride {}", args.kv.block_stride);
  }

  static void check_heads(int num_heads, const KvShape& shape) {
    CHECK(shape.num_kv_heads > 0 && num_heads > 0 && num_heads % shape.num_kv_heads == 0,
          "{} heads, {} kv heads", num_heads, shape.num_kv_heads);
    CHECK(shape.head_dim > 0 && shape.head_dim <= kMaxHeadDim, "head_dim {}", shape.head_dim);
  }

  static void check_plane(const KvPlaneView& view) {
    CHECK(view.table >= 0 && view.plane.num_heads == 1 && view.plane.width > 0 &&
              view.plane.width <= kMaxRowWidth,
          "plane {} of {} heads of {}, table {}", view.plane.name, view.plane.num_heads,
          view.plane.width, view.table);
  }

  static void check_table(const KvLayer& kv) { CHECK(kv.table >= 0, "table {}", kv.table); }

  void check_recurrent(const StepGeometry* step, int64_t num_rows) const {
    check_step(step);
    CHECK(num_rows == step_.num_rows(), "{} rows in a step of {}", num_rows, step_.num_rows());
  }

  static void check_state(const KvPlaneView& view, int64_t num_heads, int64_t width) {
    const KvPlane& plane = view.plane;
    CHECK(plane.type == KvType::kF32 && plane.num_heads == num_heads && plane.width == width &&
              view.table >= 0,
          "state {} is [{}, {}] in table {}, needed [{}, {}]", plane.name, plane.num_heads,
          plane.width, view.table, num_heads, width);
  }

  void check_step(const StepGeometry* step) const {
    CHECK(step == &step_, "an op of a step that was not begun here");
  }

  const uint32_t available_;
  const KernelSet kernels_;
  const std::shared_ptr<CpuTeam> shared_team_;
  Team& team_;
  CpuWorkspace workspace_;
  CpuStep step_;
  BestOutputs best_;
  StepAdapters adapters_;
  const CpuContext context_;
  int64_t max_rows_ = kDefaultMaxRows;
  const std::array<const KernelRow*, 2> quantise_rows_ = {kernels_.quantise,
                                                          kernels_.quantise_dense};
  std::array<int64_t, 2> max_inputs_{};  // of the weights that take such input
};

// Not names or tiles of rows, which do not reach a result bit.
std::string CpuBackend::numerics(KvType kv_type) const {
  const KernelRow& attention = kernels_.attention_of(kv_dtype(kv_type));
  std::set<std::string> lines;
  for (const KernelUnit* unit : all_units()) {
    for (const KernelRow* row : rows_of(*unit)) {
      if (!kernels_.uses(*row)) continue;
      if (row->op == KernelOp::kAttention && row != &attention) continue;
      const bool has_layout = row->layout != Layout::kCount;
      lines.insert(fmt::format(
          "{} {} activation {}: {} v{}", kernel_op_name(row->op),
          has_layout ? layout_info(row->layout).name : "-", static_cast<int>(row->activation),
          numerics_class_name(row->numerics), numerics_class_version(row->numerics)));
    }
  }
  lines.insert(fmt::format("keys and values in splits of {}, steps of {}", kKvSplit, kKvStep));
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

std::vector<KernelInfo> CpuBackend::kernels() const {
  std::vector<KernelInfo> infos;
  for (const KernelUnit* unit : all_units()) {
    for (const KernelRow* row : rows_of(*unit)) {
      const bool has_layout = row->layout != Layout::kCount;
      KernelInfo info;
      info.op = kernel_op_name(row->op);
      info.name = fmt::format("{}_{}", row->name, unit->name);
      info.isa = isa_names(row->isa);
      info.layout = has_layout ? layout_info(row->layout).name : "";
      info.weight_dtype = has_layout ? layout_info(row->layout).format : "";
      info.numerics_class = numerics_class_name(row->numerics);
      info.available = (row->isa & ~available_) == 0;
      info.selected = kernels_.uses(*row);
      infos.push_back(std::move(info));
    }
  }
  return infos;
}

}  // namespace
}  // namespace cpu

KvType default_kv_type(const cpu::KernelSet& kernels) {
  return kernels.attends_in_tiles() ? KvType::kInt16 : KvType::kF16;
}

Result<std::shared_ptr<CpuTeam>> create_cpu_team(int num_threads) {
  const std::vector<int> cores = cpu::usable_cores();
  const int count = num_threads == 0 ? static_cast<int>(cores.size()) : num_threads;
  if (count < 1 || count > cpu::kMaxThreads) {
    return make_error(ErrorCode::kInvalidArgument,
                      "num_threads is {}; it must be 0 (automatic) to {}", count, cpu::kMaxThreads);
  }
  return std::make_shared<CpuTeam>(count, cores);
}

Result<std::unique_ptr<Backend>> create_cpu_backend(const CpuBackendOptions& options) {
  const auto activations = cpu::coded_activations(options.activations);
  const uint32_t available = cpu::detect_isa();
  const cpu::KernelUnit* unit = TRY(cpu::select_sound_unit(options.isa, available, activations));
  return create_cpu_backend(options, cpu::select_kernels(*unit, available, activations), available);
}

Result<std::unique_ptr<Backend>> create_cpu_backend(const CpuBackendOptions& options,
                                                    const cpu::KernelSet& kernels,
                                                    uint32_t available) {
  std::shared_ptr<CpuTeam> team = options.team;
  if (team == nullptr) team = TRY(create_cpu_team(options.num_threads));
  cpu::CpuWorkspace workspace = TRY(cpu::CpuWorkspace::create(team->team.num_threads()));
  auto backend =
      std::make_unique<cpu::CpuBackend>(kernels, available, std::move(team), std::move(workspace));
  TRY(backend->reserve(cpu::kDefaultMaxRows));
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace headrace
