#include "backend/cpu/matmul.h"

#include <algorithm>

namespace headrace::cpu {
namespace {

constexpr int64_t kQuantiseRowsPerItem = 8;

// Items of a linear layer: groups of panels, segment by segment. A group's sums fit a member's
// scratch; there are several items per member, so that a slow one does not hold up the op.
class PanelGroups {
 public:
  struct Group {
    const Segment* segment;
    int64_t first;
    int64_t count;
  };

  PanelGroups(std::span<const Segment> segments, int64_t num_rows, int num_members)
      : segments_(segments) {
    int64_t num_panels = 0;
    for (const Segment& segment : segments) num_panels += segment.num_panels;
    const int64_t most = kTileFloats / (std::min(num_rows, kMaxTileRows) * kPanel);
    const int64_t wanted = num_panels / (num_members * kItemsPerMember) / 2 * 2;
    size_ = std::min(most, std::max(kMinGroupPanels, wanted));
    for (const Segment& segment : segments) num_items_ += items_of(segment);
  }

  int64_t num_items() const { return num_items_; }

  Group at(int64_t item) const {
    const Segment* segment = segments_.data();
    while (item >= items_of(*segment)) item -= items_of(*segment++);
    const int64_t first = item * size_;
    return {segment, first, std::min(size_, segment->num_panels - first)};
  }

 private:
  static constexpr int64_t kItemsPerMember = 4;
  static constexpr int64_t kMinGroupPanels = 4;

  int64_t items_of(const Segment& segment) const {
    return (segment.num_panels + size_ - 1) / size_;
  }

  std::span<const Segment> segments_;
  int64_t size_;
  int64_t num_items_ = 0;
};

// Sums of a group of panels for a block of rows.
struct Tile2D {
  int64_t first_row;
  int64_t num_rows;
  int64_t first_panel;
  int64_t num_panels;
};

int64_t slice_stride(const LinearCall& call, ActivationType type) {
  return call.num_rows * activation_record_bytes(type);
}

// Writes the rows of x as the integer rows of the weight read them.
void quantise_input(const CpuContext& context, const LinearCall& call) {
  if (!call.weight.needs_quantised_input()) return;
  const KernelRow& row = *context.kernels.quantise;
  const int64_t num_inputs = call.weight.num_inputs();
  const int64_t num_items = (call.num_rows + kQuantiseRowsPerItem - 1) / kQuantiseRowsPerItem;
  context.team.run(num_items, [&](int64_t item, int /*member*/) {
    const int64_t first = item * kQuantiseRowsPerItem;
    row.function.quantise(
        {call.x + first * num_inputs, std::min(kQuantiseRowsPerItem, call.num_rows - first),
         num_inputs,
         context.workspace.activations() + first * activation_record_bytes(row.activation),
         slice_stride(call, row.activation)});
  });
}

void compute_sums(const CpuContext& context, const LinearCall& call, const Segment& segment,
                  const Tile2D& tile, float* sums, float* scratch) {
  const ActivationType type = segment.matmul.activation();
  MatmulArgs args{};
  args.weight = segment.data;
  args.panel_bytes = segment.panel_bytes;
  args.num_inputs = call.weight.num_inputs();
  if (type == ActivationType::kF32) {
    args.x = call.x + tile.first_row * args.num_inputs;
    args.x_stride = args.num_inputs;
  } else {
    args.x = context.workspace.activations() + tile.first_row * activation_record_bytes(type);
    args.x_stride = slice_stride(call, type);
  }
  args.num_rows = tile.num_rows;
  args.first_panel = tile.first_panel;
  args.num_panels = tile.num_panels;
  args.sums = sums;
  args.sums_stride = tile.num_panels * kPanel;
  args.scratch = scratch;
  // By the rows of the whole call, so that a last short block of rows changes nothing.
  segment.matmul.for_rows(call.num_rows).function.matmul(args);
}

// Calls visit(tile) for each block of rows of a group.
template <typename F>
void for_each_tile(const PanelGroups::Group& group, int64_t num_rows, const F& visit) {
  for (int64_t row = 0; row < num_rows; row += kMaxTileRows) {
    visit(Tile2D{row, std::min(kMaxTileRows, num_rows - row), group.first, group.count});
  }
}

void finish_tile(const CpuContext& context, const LinearCall& call, const Segment& segment,
                 const Tile2D& tile, const Epilogue& epilogue, const float* sums) {
  const int64_t num_outputs = call.weight.num_outputs();
  const int64_t first = tile.first_panel * kPanel;
  const int64_t column = segment.first_output + first;
  const int64_t offset = tile.first_row * num_outputs + column;
  FinishArgs args{};
  args.sums = sums;
  args.sums_stride = tile.num_panels * kPanel;
  args.bias = epilogue.bias == nullptr ? nullptr : epilogue.bias + column;
  args.residual = epilogue.residual == nullptr ? nullptr : epilogue.residual + offset;
  args.out = call.out + offset;
  args.out_stride = num_outputs;
  args.num_rows = tile.num_rows;
  args.num_outputs = std::min(tile.num_panels * kPanel, segment.num_outputs - first);
  args.scale = epilogue.scale;
  args.softcap = epilogue.softcap;
  context.kernels.finish->function.finish(args);
}

void gate_tile(const CpuContext& context, const LinearCall& call, const Tile2D& tile,
               Activation activation, const float* bias, const MemberScratch& scratch) {
  const int64_t width = call.weight.num_outputs() / 2;
  const int64_t column = tile.first_panel * kPanel;
  GateArgs args{};
  args.gate = scratch.sums;
  args.up = scratch.up_sums;
  args.sums_stride = tile.num_panels * kPanel;
  args.gate_bias = bias == nullptr ? nullptr : bias + column;
  args.up_bias = bias == nullptr ? nullptr : bias + width + column;
  args.out = call.out + tile.first_row * width + column;
  args.out_stride = width;
  args.num_rows = tile.num_rows;
  args.num_outputs = std::min(tile.num_panels * kPanel, width - column);
  args.kind = activation == Activation::kSilu ? GateKind::kSilu : GateKind::kGeluTanh;
  context.kernels.gate->function.gate(args);
}

}  // namespace

void run_linear(const CpuContext& context, const LinearCall& call, const Epilogue& epilogue) {
  if (call.num_rows == 0) return;
  quantise_input(context, call);
  const PanelGroups groups(call.weight.segments(), call.num_rows, context.team.num_threads());
  context.team.run(groups.num_items(), [&](int64_t item, int member) {
    const MemberScratch& scratch = context.workspace.member(member);
    const PanelGroups::Group group = groups.at(item);
    for_each_tile(group, call.num_rows, [&](const Tile2D& tile) {
      compute_sums(context, call, *group.segment, tile, scratch.sums, scratch.matmul);
      finish_tile(context, call, *group.segment, tile, epilogue, scratch.sums);
    });
  });
}

void run_gated_linear(const CpuContext& context, const LinearCall& call, Activation activation,
                      const float* bias) {
  if (call.num_rows == 0) return;
  quantise_input(context, call);
  const Segment& up = call.weight.segments()[1];
  // Numbered over the gate; each item takes the same panels of both parts.
  const PanelGroups groups(call.weight.segments().first(1), call.num_rows,
                           context.team.num_threads());
  context.team.run(groups.num_items(), [&](int64_t item, int member) {
    const MemberScratch& scratch = context.workspace.member(member);
    const PanelGroups::Group group = groups.at(item);
    for_each_tile(group, call.num_rows, [&](const Tile2D& tile) {
      compute_sums(context, call, *group.segment, tile, scratch.sums, scratch.matmul);
      compute_sums(context, call, up, tile, scratch.up_sums, scratch.matmul);
      gate_tile(context, call, tile, activation, bias, scratch);
    });
  });
}

void run_embed(const CpuContext& context, const CpuWeight& table, std::span<const int32_t> ids,
               float scale, float* out) {
  const int64_t width = table.num_inputs();
  context.team.run(static_cast<int64_t>(ids.size()), [&](int64_t item, int member) {
    float* values = context.workspace.member(member).matmul;
    int64_t row = ids[static_cast<size_t>(item)];
    const Segment* segment = table.segments().data();
    while (row >= segment->first_output + segment->num_outputs) ++segment;
    row -= segment->first_output;
    const uint8_t* panel = segment->data + static_cast<size_t>(row / kPanel) * segment->panel_bytes;
    for (int64_t first = 0; first < width; first += kSliceInputs) {
      const int64_t count = std::min<int64_t>(kSliceInputs, width - first);
      segment->unpack({panel, width, first, count, values});
      for (int64_t k = 0; k < count; ++k) {
        out[item * width + first + k] = scale * values[k * kPanel + row % kPanel];
      }
    }
  });
}

}  // namespace headrace::cpu
