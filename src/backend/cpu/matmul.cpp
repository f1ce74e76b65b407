#include "backend/cpu/matmul.h"

#include <algorithm>

namespace headrace::cpu {
namespace {

constexpr int64_t kMaxGroupPanels = 64;

// Panels whose sums for these rows fit a member's scratch.
int64_t group_panels(int64_t num_rows) {
  const int64_t rows = std::min(num_rows, kMaxTileRows);
  return std::min(kMaxGroupPanels, kTileFloats / (rows * kPanel));
}

// Panel range of a member in one segment, where the segment's bytes lie in [begin, end) of the
// member's share of all bytes. Even boundaries suit kernels that take two panels at a time.
struct PanelRange {
  int64_t first;
  int64_t end;
};

int64_t panel_boundary(const Segment& segment, size_t segment_start, size_t byte) {
  if (byte <= segment_start) return 0;
  const auto panel = static_cast<int64_t>((byte - segment_start) / segment.panel_bytes);
  if (panel >= segment.num_panels) return segment.num_panels;
  return panel / 2 * 2;
}

PanelRange member_range(const Segment& segment, size_t segment_start, size_t total_bytes,
                        int member, int num_members) {
  const auto share = [&](int index) {
    return total_bytes / static_cast<size_t>(num_members) * static_cast<size_t>(index);
  };
  const int64_t first = panel_boundary(segment, segment_start, share(member));
  const int64_t end = member + 1 == num_members
                          ? segment.num_panels
                          : panel_boundary(segment, segment_start, share(member + 1));
  return {first, end};
}

// Sums of a group of panels for a block of rows.
struct Tile2D {
  int64_t first_row;
  int64_t num_rows;
  int64_t first_panel;
  int64_t num_panels;
};

void compute_sums(const LinearCall& call, const Segment& segment, const Tile2D& tile, float* sums,
                  float* scratch) {
  MatmulArgs args{};
  args.weight = segment.data;
  args.panel_bytes = segment.panel_bytes;
  args.num_inputs = call.weight.num_inputs();
  args.x = call.x + tile.first_row * args.num_inputs;
  args.x_stride = args.num_inputs;
  args.num_rows = tile.num_rows;
  args.first_panel = tile.first_panel;
  args.num_panels = tile.num_panels;
  args.sums = sums;
  args.sums_stride = tile.num_panels * kPanel;
  args.scratch = scratch;
  // By the rows of the whole call, so that a last short block of rows changes nothing.
  segment.matmul.for_rows(call.num_rows).function.matmul(args);
}

// Calls visit(tile) for each group of panels and block of rows of a range.
template <typename F>
void for_each_tile(const PanelRange& range, int64_t num_rows, const F& visit) {
  const int64_t group = group_panels(num_rows);
  for (int64_t panel = range.first; panel < range.end; panel += group) {
    for (int64_t row = 0; row < num_rows; row += kMaxTileRows) {
      visit(Tile2D{row, std::min(kMaxTileRows, num_rows - row), panel,
                   std::min(group, range.end - panel)});
    }
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
  const size_t total = call.weight.num_bytes();
  context.team.run([&](int member) {
    const MemberScratch& scratch = context.workspace.member(member);
    size_t start = 0;
    for (const Segment& segment : call.weight.segments()) {
      const PanelRange range =
          member_range(segment, start, total, member, context.team.num_threads());
      for_each_tile(range, call.num_rows, [&](const Tile2D& tile) {
        compute_sums(call, segment, tile, scratch.sums, scratch.matmul);
        finish_tile(context, call, segment, tile, epilogue, scratch.sums);
      });
      start += static_cast<size_t>(segment.num_panels) * segment.panel_bytes;
    }
  });
}

void run_gated_linear(const CpuContext& context, const LinearCall& call, Activation activation,
                      const float* bias) {
  if (call.num_rows == 0) return;
  const Segment& gate = call.weight.segments()[0];
  const Segment& up = call.weight.segments()[1];
  const size_t total = static_cast<size_t>(gate.num_panels) * gate.panel_bytes;
  context.team.run([&](int member) {
    const MemberScratch& scratch = context.workspace.member(member);
    const PanelRange range = member_range(gate, 0, total, member, context.team.num_threads());
    for_each_tile(range, call.num_rows, [&](const Tile2D& tile) {
      compute_sums(call, gate, tile, scratch.sums, scratch.matmul);
      compute_sums(call, up, tile, scratch.up_sums, scratch.matmul);
      gate_tile(context, call, tile, activation, bias, scratch);
    });
  });
}

void run_embed(const CpuContext& context, const CpuWeight& table, std::span<const int32_t> ids,
               float scale, float* out) {
  const int64_t width = table.num_inputs();
  const auto num_ids = static_cast<int64_t>(ids.size());
  context.team.run([&](int member) {
    float* values = context.workspace.member(member).matmul;
    const int64_t end = num_ids * (member + 1) / context.team.num_threads();
    for (int64_t i = num_ids * member / context.team.num_threads(); i < end; ++i) {
      int64_t row = ids[static_cast<size_t>(i)];
      const Segment* segment = table.segments().data();
      while (row >= segment->first_output + segment->num_outputs) ++segment;
      row -= segment->first_output;
      const uint8_t* panel =
          segment->data + static_cast<size_t>(row / kPanel) * segment->panel_bytes;
      for (int64_t first = 0; first < width; first += kSliceInputs) {
        const int64_t count = std::min<int64_t>(kSliceInputs, width - first);
        segment->unpack({panel, width, first, count, values});
        for (int64_t k = 0; k < count; ++k) {
          out[i * width + first + k] = scale * values[k * kPanel + row % kPanel];
        }
      }
    }
  });
}

}  // namespace headrace::cpu
