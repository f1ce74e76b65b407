#include "backend/cpu/kernels/pack.h"

#include <algorithm>

#include "backend/cpu/kernels/layouts.h"
#include "backend/cpu/kernels/pack_groups.h"
#include "backend/cpu/kernels/pack_panel.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

int64_t panels_of(int64_t num_outputs) { return divide_up(num_outputs, kPanel); }

void pack_segment(const WeightView& weight, const Segment& segment, std::span<const int32_t> order,
                  uint8_t* data, Team& team) {
  constexpr int64_t kPanelsPerItem = 8;
  const int64_t num_items = divide_up(segment.num_panels, kPanelsPerItem);
  team.run(num_items, [&](int64_t item, int /*member*/) {
    PanelScratch scratch;
    const int64_t end = std::min(segment.num_panels, (item + 1) * kPanelsPerItem);
    for (int64_t p = item * kPanelsPerItem; p < end; ++p) {
      pack_panel(weight, segment.layout, order, p, scratch,
                 data + static_cast<size_t>(p) * segment.panel_bytes);
    }
  });
}

// The layout that keeps the weight's codes, its inputs in this order; else float32.
Layout coded_layout(const WeightView& weight, std::span<const int32_t> order) {
  if (!is_dense(weight.scheme)) return group_layout(weight, order);
  if (!weight.scales.empty() || !weight.global_scale.empty()) return Layout::kF32;
  for (const LayoutInfo& info : kLayouts) {
    if (is_of_groups(info) || info.format != dtype_name(weight.values.dtype)) continue;
    // A row that ends inside a block cannot keep its codes.
    const bool whole = weight.num_inputs % info.block_inputs == 0;
    return whole || !has_integer_codes(info) ? info.layout : Layout::kF32;
  }
  return Layout::kF32;
}

// How the parts are packed. Integer segments share one quantised input, so they have one order.
struct Plan {
  std::vector<Segment> segments;
  std::vector<int32_t> order;  // of the inputs of integer segments; empty: as they are
  size_t num_bytes = 0;
};

Plan plan_weight(std::span<const WeightView> parts, WeightRole role) {
  Plan plan;
  bool has_integers = false;
  int64_t first_output = 0;
  for (const WeightView& part : parts) {
    std::vector<int32_t> order = input_order(part);
    Segment segment;
    segment.layout = role == WeightRole::kRouter ? Layout::kF32 : coded_layout(part, order);
    if (has_integer_codes(layout_info(segment.layout))) {
      if (!has_integers && role != WeightRole::kEmbedding) plan.order = order;
      has_integers = true;
      if (order != plan.order) segment.layout = Layout::kF32;
    }
    segment.first_output = first_output;
    segment.num_outputs = part.num_outputs;
    segment.num_panels = panels_of(part.num_outputs);
    segment.panel_bytes = panel_bytes(segment.layout, part.num_inputs);
    first_output += part.num_outputs;
    plan.num_bytes += static_cast<size_t>(segment.num_panels) * segment.panel_bytes;
    plan.segments.push_back(segment);
  }
  return plan;
}

constexpr int64_t kMaxInputs = int64_t{1} << 24;
constexpr int64_t kMaxOutputs = int64_t{1} << 31;

Status check_parts(std::span<const WeightView> parts, WeightRole role) {
  CHECK(!parts.empty() && (role != WeightRole::kGateUp || parts.size() == 2), "{} parts",
        parts.size());
  for (const WeightView& part : parts) {
    CHECK(part.num_inputs == parts[0].num_inputs, "{}: {} inputs, expected {}", part.name,
          part.num_inputs, parts[0].num_inputs);
    CHECK(role != WeightRole::kGateUp || part.num_outputs == parts[0].num_outputs, "{}", part.name);
    if (part.num_inputs > 0 && part.num_inputs <= kMaxInputs && part.num_outputs >= 0 &&
        part.num_outputs <= kMaxOutputs) {
      continue;
    }
    return make_error(ErrorCode::kUnsupported,
                      "weight '{}' is [{}, {}]; this back end takes up to [{}, {}]", part.name,
                      part.num_outputs, part.num_inputs, kMaxOutputs, kMaxInputs);
  }
  return {};
}

}  // namespace

CpuWeight::CpuWeight(std::vector<Segment> segments, int64_t num_inputs, WeightRole role,
                     std::vector<int32_t> input_order, Buffer memory)
    : segments_(std::move(segments)),
      num_inputs_(num_inputs),
      num_outputs_(0),
      num_bytes_(0),
      role_(role),
      input_order_(std::move(input_order)),
      memory_(std::move(memory)) {
  for (const Segment& segment : segments_) {
    num_outputs_ += segment.num_outputs;
    num_bytes_ += static_cast<size_t>(segment.num_panels) * segment.panel_bytes;
    const std::string name = layout_info(segment.layout).name;
    if (layout_name_.find(name) != std::string::npos) continue;
    layout_name_ += layout_name_.empty() ? name : "+" + name;
  }
}

CpuWeight::CpuWeight(std::vector<std::unique_ptr<CpuWeight>> experts, Buffer memory)
    : num_inputs_(experts.front()->num_inputs()),
      num_outputs_(experts.front()->num_outputs()),
      num_bytes_(0),
      role_(experts.front()->role()),
      layout_name_(experts.front()->layout()),
      experts_(std::move(experts)),
      memory_(std::move(memory)) {
  for (const auto& expert : experts_) num_bytes_ += expert->num_bytes();
}

int64_t CpuWeight::num_experts() const {
  return experts_.empty() ? 1 : static_cast<int64_t>(experts_.size());
}

const PackedWeight& CpuWeight::expert(int64_t index) const {
  CHECK(index >= 0 && index < num_experts(), "expert {} of {}", index, num_experts());
  return experts_.empty() ? *this : *experts_[static_cast<size_t>(index)];
}

bool CpuWeight::takes(ActivationType type) const {
  if (std::any_of(experts_.begin(), experts_.end(),
                  [type](const auto& expert) { return expert->takes(type); })) {
    return true;
  }
  return std::any_of(segments_.begin(), segments_.end(), [type](const Segment& segment) {
    return segment.matmul.activation() == type;
  });
}

Layout layout_for(const WeightView& weight) { return coded_layout(weight, input_order(weight)); }

namespace {

constexpr size_t kExpertAlignment = 64;

// The experts of a weight one after the other; a weight without experts is one.
struct ExpertPlan {
  Plan plan;
  std::span<const WeightView> parts;
  size_t offset = 0;  // of its bytes in those of the weight
};

std::vector<ExpertPlan> plan_experts(std::span<const WeightView> parts, PackForm form) {
  CHECK(form.num_experts > 0 && parts.size() % static_cast<size_t>(form.num_experts) == 0,
        "{} parts of {} experts", parts.size(), form.num_experts);
  const size_t num_parts = parts.size() / static_cast<size_t>(form.num_experts);
  std::vector<ExpertPlan> experts;
  size_t offset = 0;
  for (size_t first = 0; first < parts.size(); first += num_parts) {
    const std::span<const WeightView> of_expert = parts.subspan(first, num_parts);
    offset = (offset + kExpertAlignment - 1) / kExpertAlignment * kExpertAlignment;
    experts.push_back({plan_weight(of_expert, form.role), of_expert, offset});
    offset += experts.back().plan.num_bytes;
  }
  return experts;
}

size_t bytes_of(const std::vector<ExpertPlan>& experts) {
  return experts.empty() ? 0 : experts.back().offset + experts.back().plan.num_bytes;
}

// Experts are of one shape: whoever asks for any of them gets what the first promises.
Status check_experts(std::span<const WeightView> parts, PackForm form) {
  const size_t num_parts = parts.size() / static_cast<size_t>(form.num_experts);
  for (size_t i = 0; i < parts.size(); i += num_parts) {
    TRY(check_parts(parts.subspan(i, num_parts), form.role));
    for (size_t part = 0; part < num_parts; ++part) {
      const WeightView &first = parts[part], &other = parts[i + part];
      CHECK(first.num_outputs == other.num_outputs && first.num_inputs == other.num_inputs,
            "{}: [{}, {}], expected [{}, {}]", other.name, other.num_outputs, other.num_inputs,
            first.num_outputs, first.num_inputs);
    }
  }
  return {};
}

// The segments one after the other from `memory` on.
void place_segments(std::span<Segment> segments, const KernelSet& kernels,
                    const std::byte* memory) {
  size_t offset = 0;
  for (Segment& segment : segments) {
    const auto layout = static_cast<size_t>(segment.layout);
    segment.data = reinterpret_cast<const uint8_t*>(memory) + offset;
    segment.matmul = kernels.matmul[layout];
    segment.unpack = kernels.unpack[layout]->function.unpack;
    offset += static_cast<size_t>(segment.num_panels) * segment.panel_bytes;
  }
}

// Writes every part behind the one before it.
Status pack_parts(std::span<const WeightView> parts, const Plan& plan, std::byte* memory,
                  Team& team) {
  auto* data = reinterpret_cast<uint8_t*>(memory);
  for (size_t i = 0; i < parts.size(); ++i) {
    const Segment& segment = plan.segments[i];
    TRY(check_group_scales(parts[i], segment.layout));
    pack_segment(parts[i], segment, plan.order, data, team);
    data += static_cast<size_t>(segment.num_panels) * segment.panel_bytes;
  }
  return {};
}

Status pack_experts(const std::vector<ExpertPlan>& experts, std::byte* memory, Team& team) {
  for (const ExpertPlan& expert : experts) {
    TRY(pack_parts(expert.parts, expert.plan, memory + expert.offset, team));
  }
  return {};
}

// The weight over bytes from `bytes` on, which `memory` owns, or somebody else.
std::unique_ptr<CpuWeight> make_weight(std::vector<ExpertPlan> plans, WeightRole role,
                                       const KernelSet& kernels, const std::byte* bytes,
                                       Buffer memory) {
  const auto place = [&](ExpertPlan& expert, Buffer owned) {
    place_segments(expert.plan.segments, kernels, bytes + expert.offset);
    return std::make_unique<CpuWeight>(std::move(expert.plan.segments), expert.parts[0].num_inputs,
                                       role, std::move(expert.plan.order), std::move(owned));
  };
  if (plans.size() == 1) return place(plans.front(), std::move(memory));
  std::vector<std::unique_ptr<CpuWeight>> experts;
  for (ExpertPlan& expert : plans) experts.push_back(place(expert, Buffer()));
  return std::make_unique<CpuWeight>(std::move(experts), std::move(memory));
}

}  // namespace

size_t packed_weight_bytes(std::span<const WeightView> parts, PackForm form) {
  return bytes_of(plan_experts(parts, form));
}

Result<std::unique_ptr<CpuWeight>> pack_weight(std::span<const WeightView> parts, PackForm form,
                                               const KernelSet& kernels, Team& team) {
  TRY(check_experts(parts, form));
  std::vector<ExpertPlan> experts = plan_experts(parts, form);
  Buffer memory = TRY(Buffer::allocate(bytes_of(experts)));
  TRY(pack_experts(experts, memory.data(), team));
  const std::byte* bytes = memory.data();
  return make_weight(std::move(experts), form.role, kernels, bytes, std::move(memory));
}

Result<std::unique_ptr<CpuWeight>> pack_weight_into(std::span<const WeightView> parts,
                                                    PackForm form, const KernelSet& kernels,
                                                    Team& team, std::span<std::byte> memory) {
  TRY(check_experts(parts, form));
  std::vector<ExpertPlan> experts = plan_experts(parts, form);
  CHECK(memory.size() == bytes_of(experts), "{} bytes, needed are {}", memory.size(),
        bytes_of(experts));
  TRY(pack_experts(experts, memory.data(), team));
  return make_weight(std::move(experts), form.role, kernels, memory.data(), Buffer());
}

Result<std::unique_ptr<CpuWeight>> adopt_weight(std::span<const WeightView> parts, PackForm form,
                                                const KernelSet& kernels,
                                                std::span<const std::byte> bytes) {
  TRY(check_experts(parts, form));
  std::vector<ExpertPlan> experts = plan_experts(parts, form);
  CHECK(bytes.size() == bytes_of(experts), "{} bytes, needed are {}", bytes.size(),
        bytes_of(experts));
  return make_weight(std::move(experts), form.role, kernels, bytes.data(), Buffer());
}

// FNV-1a over what decides the bytes; kPackVersion moves when the packer's rules do without a
// change of the table.
std::string packing_id() {
  constexpr int kPackVersion = 1;
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&hash](int value) {
    hash = (hash ^ static_cast<uint32_t>(value)) * 0x100000001b3u;
  };
  add(kPackVersion);
  add(kPanel);
  for (const LayoutInfo& info : kLayouts) {
    for (const char* c = info.name; *c != '\0'; ++c) add(*c);
    for (const int value :
         {static_cast<int>(info.block_inputs), static_cast<int>(info.chunk_bytes),
          static_cast<int>(info.scale_bytes), static_cast<int>(info.min_bytes),
          static_cast<int>(info.num_sub_blocks), static_cast<int>(info.sub_low_bits),
          static_cast<int>(info.sub_high_bits), static_cast<int>(info.sub_has_min),
          static_cast<int>(info.sub_zero), static_cast<int>(info.low_bits),
          static_cast<int>(info.high_bits), static_cast<int>(info.zero),
          static_cast<int>(info.table), static_cast<int>(info.zero_bytes),
          static_cast<int>(info.split_scale), static_cast<int>(info.sub_float)}) {
      add(value);
    }
  }
  return fmt::format("cpu-panels-{:016x}", hash);
}

}  // namespace headrace::cpu
