// head_linear: a small product for each head. An item is a head, some of its rows and some of its
// panels; a member quantises the rows that it multiplies.
#include <algorithm>

#include "backend/cpu/kernels/pack.h"
#include "backend/cpu/latent.h"
#include "backend/device_access.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

constexpr int64_t kMostRows = 48;
constexpr int64_t kItemsPerMember = 4;
constexpr int64_t kUnitPanels = 4;  // fewer do not fill the kernels' registers

const CpuWeight& head_of(const HeadLinearArgs& args, int64_t head) {
  return static_cast<const CpuWeight&>(args.weight->expert(head));
}

// How the work is cut; the same for all heads.
class HeadTiles {
 public:
  HeadTiles(const HeadLinearArgs& args, int num_members) : args_(args) {
    const int64_t num_slices = divide_up(args.weight->num_inputs(), kSliceInputs);
    constexpr int64_t kRoom = kTileFloats * int64_t{sizeof(float)};
    const int64_t fit = kRoom / (num_slices * activation_record_bytes(ActivationType::kBF16x2));
    rows_ = std::clamp<int64_t>(fit, 1, kMostRows);
    rows_ = std::min(rows_, args.num_rows);
    num_panels_ = divide_up(args.weight->num_outputs(), kPanel);
    const int64_t most = kTileFloats / (rows_ * kPanel) / kUnitPanels * kUnitPanels;
    const int64_t tiles = args.num_heads * num_row_blocks();
    const int64_t wanted = divide_up(kItemsPerMember * num_members, tiles);
    panels_ = divide_up(divide_up(num_panels_, wanted), kUnitPanels) * kUnitPanels;
    panels_ = std::min({panels_, most, num_panels_});
  }

  int64_t num_items() const { return args_.num_heads * num_row_blocks() * num_groups(); }

  struct Tile {
    int64_t head, first_row, num_rows, first_panel, num_panels;
  };
  Tile at(int64_t item) const {
    Tile tile{};
    tile.first_panel = item % num_groups() * panels_;
    tile.num_panels = std::min(panels_, num_panels_ - tile.first_panel);
    item /= num_groups();
    tile.first_row = item % num_row_blocks() * rows_;
    tile.num_rows = std::min(rows_, args_.num_rows - tile.first_row);
    tile.head = item / num_row_blocks();
    return tile;
  }

 private:
  int64_t num_row_blocks() const { return divide_up(args_.num_rows, rows_); }
  int64_t num_groups() const { return divide_up(num_panels_, panels_); }

  const HeadLinearArgs& args_;
  int64_t rows_ = 0, panels_ = 0;  // of a tile
  int64_t num_panels_ = 0;         // of a head
};

class HeadItem {
 public:
  HeadItem(const CpuContext& context, const HeadLinearArgs& args, const HeadTiles::Tile& tile,
           const MemberScratch& scratch)
      : context_(context),
        args_(args),
        tile_(tile),
        scratch_(scratch),
        weight_(head_of(args, tile.head)),
        segment_(weight_.segments()[0]) {}

  void run() const {
    MatmulArgs matmul{};
    matmul.weight = segment_.data;
    matmul.panel_bytes = segment_.panel_bytes;
    matmul.num_inputs = weight_.num_inputs();
    const ActivationType type = segment_.matmul.activation();
    if (type == ActivationType::kF32) {
      matmul.x = row(0);
      matmul.x_stride = args_.num_heads * args_.x_width;
    } else {
      quantise(type);
      matmul.x = scratch_.up_sums;
      matmul.x_stride = stride_of(type);
    }
    matmul.num_rows = tile_.num_rows;
    matmul.first_panel = tile_.first_panel;
    matmul.num_panels = tile_.num_panels;
    matmul.sums = scratch_.sums;
    matmul.sums_stride = tile_.num_panels * kPanel;
    matmul.scratch = scratch_.matmul;
    segment_.matmul.for_rows(args_.num_rows).function.matmul(matmul);
    finish();
  }

 private:
  const float* row(int64_t i) const {
    const int64_t index = (tile_.first_row + i) * args_.num_heads + tile_.head;
    return raw(args_.x) + index * args_.x_width;
  }

  int64_t stride_of(ActivationType type) const {
    return activation_stride(type, tile_.num_rows, weight_.num_inputs());
  }

  void quantise(ActivationType type) const {
    const KernelRow& kernel =
        is_of_codes(type) ? *context_.kernels.quantise : *context_.kernels.quantise_dense;
    const int64_t stride = stride_of(type), width = weight_.num_inputs();
    auto* records = reinterpret_cast<uint8_t*>(scratch_.up_sums);
    for (int64_t i = 0; i < tile_.num_rows; ++i) {
      const float* x = row(i);
      if (is_of_codes(type) && !weight_.input_order().empty()) {
        for (int64_t k = 0; k < width; ++k) {
          scratch_.normed[k] = x[weight_.input_order()[static_cast<size_t>(k)]];
        }
        x = scratch_.normed;
      }
      const StoredRows at = stored_rows(type, i, 1, tile_.num_rows, stride);
      kernel.function.quantise({x, 1, width, records + at.offset, stride, at.beside});
    }
  }

  void finish() const {
    const int64_t column = tile_.first_panel * kPanel;
    const int64_t index = tile_.first_row * args_.num_heads + tile_.head;
    FinishArgs finish{};
    finish.sums = scratch_.sums;
    finish.sums_stride = tile_.num_panels * kPanel;
    finish.out = raw(args_.out) + index * args_.out_width + column;
    finish.out_stride = args_.num_heads * args_.out_width;
    finish.num_rows = tile_.num_rows;
    finish.num_outputs = std::min(tile_.num_panels * kPanel, weight_.num_outputs() - column);
    finish.scale = 1.0f;
    context_.kernels.finish->function.finish(finish);
  }

  const CpuContext& context_;
  const HeadLinearArgs& args_;
  const HeadTiles::Tile& tile_;
  const MemberScratch& scratch_;
  const CpuWeight& weight_;
  const Segment& segment_;
};

}  // namespace

void run_head_linear(const CpuContext& context, const HeadLinearArgs& args) {
  if (args.num_rows == 0) return;
  const HeadTiles tiles(args, context.team.num_threads());
  context.team.run(tiles.num_items(), [&](int64_t item, int member) {
    const HeadTiles::Tile tile = tiles.at(item);
    HeadItem(context, args, tile, context.workspace.member(member)).run();
  });
}

}  // namespace headrace::cpu
