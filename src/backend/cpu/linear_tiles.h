// Tiles of linear layers: what goes into them, their sums, their outputs. For the schedules of
// linear layers (matmul.cpp) and of mixtures of experts (experts.cpp).
#pragma once

#include <algorithm>

#include "backend/backend.h"
#include "backend/cpu/context.h"
#include "backend/cpu/kernels/pack.h"
#include "base/numeric.h"

namespace headrace::cpu {

inline constexpr int64_t kItemsPerMember = 4;  // a slow item does not hold up the op
inline constexpr int64_t kMinTilePanels = 4;   // fewer do not fill the kernels' registers
inline constexpr int64_t kMinTileRows = 24;    // fewer do not repay unpacking the weight
inline constexpr int64_t kRowQuantum = 24;  // rows of a tile, but for the last: whole kernel tiles
inline constexpr double kMaxItemNs = 50'000;     // so short is a wait for a member off its core
inline constexpr double kWeightBytesPerNs = 20;  // what one thread reads, about
inline constexpr double kMultiplicationsPerNs = 250;  // and multiplies
// What tile instructions want otherwise: whole tiles of rows; more panels, that rows of x are read
// from the second cache for, but any number of pairs; more rows before panels are cut no further,
// as digits of weights are made for each block of rows. Rows of more inputs than the second cache
// holds come from the third again for each item, so that is as long as two dozen panels of such
// take.
inline constexpr int64_t kAmxRowQuantum = 16;
inline constexpr int64_t kMinAmxTilePanels = 2;
inline constexpr int64_t kMinAmxTileRows = 64;
inline constexpr double kAmxMultiplicationsPerNs = 500;
inline constexpr double kMaxAmxItemNs = 2'000'000;
static_assert(kMaxTileRows % kRowQuantum == 0);
static_assert(kTileFloats / (kMaxTileRows * kPanel) >= kMinTilePanels);

struct LinearCall {
  const CpuWeight& weight;
  const Input& input;
  int64_t num_rows;
  float* out;                          // [num_rows, N]; gated: [num_rows, I]
  const CallDeltas* deltas = nullptr;  // what adapters add; null: nothing
};

// A gated activation as its kernel takes it.
struct GateForm {
  GateKind kind = GateKind::kSilu;
  float alpha = 0.0f;
  float limit = 0.0f;
};
// Sums of a group of panels for a block of rows.
struct Tile2D {
  const Segment* segment;
  int64_t first_row;
  int64_t num_rows;
  int64_t first_panel;
  int64_t num_panels;
};

// Limits of a tile of sums.
struct TileLimits {
  int64_t row_quantum = kRowQuantum;
  int64_t most_rows = kMaxTileRows;
  int64_t most_floats = kTileFloats;
  double multiplications_per_ns = kMultiplicationsPerNs;
  double most_ns = kMaxItemNs;
  int64_t least_panels = kMinTilePanels;
  int64_t least_rows = kMinTileRows;

  // By the kernel of that many rows; a plan may be made without kernels.
  static TileLimits of(const MatmulRows& kernels, int64_t num_rows) {
    if (kernels.count == 0) return {};
    const auto& kernel_tile = kernels.for_rows(num_rows).tile;
    if (kernel_tile.rows < kAmxRowQuantum) return {};
    const int64_t panels = std::max<int64_t>(kMinAmxTilePanels, kernel_tile.outputs / kPanel);
    return {kAmxRowQuantum, kMaxAmxTileRows, kAmxTileFloats, kAmxMultiplicationsPerNs,
            kMaxAmxItemNs,  panels,          kMinAmxTileRows};
  }
};

// How a linear layer is cut into tiles: blocks of rows, in each the panels segment by segment.
// Sums of a tile fit a member's scratch.
class LinearTiles {
 public:
  LinearTiles(std::span<const Segment> segments, int64_t num_inputs, int64_t num_rows,
              int num_members)
      : segments_(segments),
        num_rows_(num_rows),
        limits_(TileLimits::of(segments[0].matmul, num_rows)) {
    int64_t num_panels = 0, num_bytes = 0;
    for (const Segment& segment : segments) {
      num_panels += segment.num_panels;
      num_bytes += segment.num_panels * static_cast<int64_t>(segment.panel_bytes);
    }
    const int64_t wanted = kItemsPerMember * num_members;
    set_row_blocks(divide_up(num_rows, limits_.most_rows));
    const double panel_ns = std::max(
        static_cast<double>(num_bytes) / static_cast<double>(num_panels) / kWeightBytesPerNs,
        static_cast<double>(rows_ * num_inputs * kPanel) / limits_.multiplications_per_ns);
    const int64_t even_share = num_panels * num_row_blocks() / wanted;
    const auto short_enough = static_cast<int64_t>(limits_.most_ns / panel_ns);
    const int64_t most = limits_.most_floats / (rows_ * kPanel);
    panels_ = std::min({even_share, short_enough, most});
    panels_ = std::max<int64_t>(1, panels_ / limits_.least_panels) * limits_.least_panels;
    for (const Segment& segment : segments) groups_ += groups_of(segment);
    if (num_items() < wanted && num_rows > limits_.least_rows) {
      const int64_t blocks = divide_up(wanted, groups_);
      set_row_blocks(std::min(blocks, divide_up(num_rows, limits_.least_rows)));
    }
  }

  int64_t num_items() const { return num_row_blocks() * groups_; }

  Tile2D at(int64_t item) const {
    const int64_t first_row = item / groups_ * rows_;
    int64_t group = item % groups_;
    const Segment* segment = segments_.data();
    while (group >= groups_of(*segment)) group -= groups_of(*segment++);
    const int64_t first = group * panels_;
    return {segment, first_row, std::min(rows_, num_rows_ - first_row), first,
            std::min(panels_, segment->num_panels - first)};
  }

 private:
  void set_row_blocks(int64_t count) {
    const int64_t even = divide_up(num_rows_, count);
    const int64_t quantum = limits_.row_quantum;
    rows_ = num_rows_ <= quantum ? num_rows_ : divide_up(even, quantum) * quantum;
  }
  int64_t num_row_blocks() const { return divide_up(num_rows_, rows_); }
  int64_t groups_of(const Segment& segment) const { return divide_up(segment.num_panels, panels_); }

  std::span<const Segment> segments_;
  int64_t num_rows_;
  TileLimits limits_;
  int64_t rows_ = 0;    // of a tile
  int64_t panels_ = 0;  // of a tile
  int64_t groups_ = 0;  // tiles of a block of rows
};
static_assert(kMinTileRows % kRowQuantum == 0);

inline int64_t outputs_of(const Tile2D& tile) {
  return std::min(tile.num_panels * kPanel, tile.segment->num_outputs - tile.first_panel * kPanel);
}
// Its first output, of the whole weight.
inline int64_t column_of(const Tile2D& tile) {
  return tile.segment->first_output + tile.first_panel * kPanel;
}

// What the kernels of a call multiply: its rows, and the records of each slice for all of them.
struct RowSource {
  const float* rows;        // of float kernels
  uint8_t* activations[2];  // by is_of_codes()
};

// The rows of the input, normed and quantised where the weight wants them so: as the first phase of
// an op, or a single row by each member for itself. A normed row that neither kernels nor adapters
// read as floats stays in the member's scratch. Refers to the call.
class InputRows {
 public:
  InputRows(const CpuContext& context, const LinearCall& call);

  int64_t num_items() const;
  void operator()(int64_t item, int member) const;
  // What the items make.
  RowSource all() const;
  // The only row, made for `member`.
  RowSource of_member(int member) const;

  // The types that rows are quantised to.
  std::span<const KernelRow* const> kernels() const {
    return {kernels_, static_cast<size_t>(num_kernels_)};
  }
  // Writes x, which needs no norm, as row `row` of what the call multiplies.
  void quantise_row(const float* x, int64_t row, const RowSource& to,
                    const MemberScratch& scratch) const;

 private:
  void prepare(int64_t row, float* normed, const RowSource& to, const MemberScratch& scratch) const;
  void quantise(const KernelRow& kernel, const float* x, int64_t row, uint8_t* rows,
                float* piece) const;

  const CpuContext& context_;
  const LinearCall& call_;
  int64_t width_;
  int64_t rows_per_item_;
  bool norms_;
  const KernelRow* kernels_[2] = {};  // that quantise
  int num_kernels_ = 0;
  float* normed_ = nullptr;  // where normed rows of the items are kept, if they are
};

// Sums of the tile, with what adapters add, into scratch.sums [rows, panels of the tile * kPanel].
void compute_sums(const LinearCall& call, const RowSource& source, const Tile2D& tile,
                  const MemberScratch& scratch);
// The first lines of a tile's weights come while its input is made.
void prefetch_start(const Tile2D& tile);

}  // namespace headrace::cpu
