#include "tile_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/numeric.h"

namespace headrace::cpu {
namespace {

template <typename T>
T element(const uint8_t* row, int index) {
  T value;
  std::memcpy(&value, row + static_cast<size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void set_element(uint8_t* row, int index, T value) {
  std::memcpy(row + static_cast<size_t>(index) * sizeof(T), &value, sizeof(T));
}

// What is wrong with a configuration, or nothing.
std::string config_problem(const TileConfig& config) {
  if (config.palette != 1) return fmt::format("palette {}", config.palette);
  if (config.start_row != 0) return "a start row: only an interrupted instruction sets one";
  for (const uint8_t byte : config.reserved) {
    if (byte != 0) return "a reserved byte is not zero";
  }
  for (int i = 0; i < kTileRows; ++i) {
    const int rows = config.rows[i], bytes = config.row_bytes[i];
    if (i >= kNumTiles && (rows != 0 || bytes != 0)) return fmt::format("no tile {} exists", i);
    if (rows > kTileRows) return fmt::format("tile {} with {} rows", i, rows);
    if (bytes > kTileRowBytes) return fmt::format("tile {} with rows of {} bytes", i, bytes);
    if ((rows == 0) != (bytes == 0)) return fmt::format("tile {} of {} x {}", i, rows, bytes);
  }
  return "";
}

// Elements of a tile, one conversion each.
template <typename T, int kCount>
using Elements = std::array<std::array<T, kCount>, kTileRows>;

Elements<int16_t, kTileRowBytes> bytes_of(const TileMachine::Tile& tile, bool is_signed) {
  Elements<int16_t, kTileRowBytes> all;
  for (size_t r = 0; r < all.size(); ++r) {
    for (size_t i = 0; i < all[r].size(); ++i) {
      const uint8_t byte = tile[r][i];
      all[r][i] = static_cast<int16_t>(is_signed ? static_cast<int8_t>(byte) : byte);
    }
  }
  return all;
}

Elements<float, kTileRowBytes / 2> bf16_of(const TileMachine::Tile& tile) {
  Elements<float, kTileRowBytes / 2> all;
  for (size_t r = 0; r < all.size(); ++r) {
    for (size_t i = 0; i < all[r].size(); ++i) {
      all[r][i] = bf16_to_float(element<uint16_t>(tile[r].data(), static_cast<int>(i)));
    }
  }
  return all;
}

}  // namespace

bool TileMachine::fail(std::string text) {
  if (fault_.empty()) fault_ = std::move(text);
  return false;
}

bool TileMachine::usable(int tile, const char* instruction) {
  if (!fault_.empty()) return false;
  if (!configured()) return fail(fmt::format("{}: no configuration", instruction));
  if (tile < 0 || tile >= kNumTiles || rows(tile) == 0) {
    return fail(fmt::format("{}: tile {} has no shape", instruction, tile));
  }
  if (row_bytes(tile) % 4 != 0) {
    return fail(
        fmt::format("{}: tile {} has rows of {} bytes", instruction, tile, row_bytes(tile)));
  }
  return true;
}

bool TileMachine::can_multiply(int sum, int a, int b, const char* instruction) {
  if (!usable(sum, instruction) || !usable(a, instruction) || !usable(b, instruction)) {
    return false;
  }
  if (sum == a || sum == b || a == b) {
    return fail(fmt::format("{}: tiles {}, {}, {} are not different", instruction, sum, a, b));
  }
  if (rows(sum) != rows(a) || row_bytes(sum) != row_bytes(b) || row_bytes(a) != 4 * rows(b)) {
    return fail(fmt::format("{}: shapes {}x{}, {}x{}, {}x{} do not agree", instruction, rows(sum),
                            row_bytes(sum), rows(a), row_bytes(a), rows(b), row_bytes(b)));
  }
  ++counts_.products;
  counts_.product_rows += rows(a);
  return true;
}

void TileMachine::configure(const TileConfig& config) {
  if (!fault_.empty()) return;
  ++counts_.configures;
  tiles_ = {};
  if (config.palette == 0) {
    config_ = {};
    return;
  }
  if (const std::string problem = config_problem(config); !problem.empty()) {
    fail("ldtilecfg: " + problem);
    return;
  }
  config_ = config;
}

void TileMachine::release() {
  if (!fault_.empty()) return;
  ++counts_.releases;
  config_ = {};
  tiles_ = {};
}

void TileMachine::zero(int tile) {
  if (!usable(tile, "tilezero")) return;
  ++counts_.zeros;
  tiles_[static_cast<size_t>(tile)] = {};
}

void TileMachine::load(int tile, const void* base, int64_t stride) {
  if (!usable(tile, "tileloadd")) return;
  ++counts_.loads;
  Tile& to = tiles_[static_cast<size_t>(tile)];
  to = {};
  for (int r = 0; r < rows(tile); ++r) {
    std::memcpy(to[static_cast<size_t>(r)].data(), static_cast<const uint8_t*>(base) + r * stride,
                static_cast<size_t>(row_bytes(tile)));
  }
}

void TileMachine::store(int tile, void* base, int64_t stride) {
  if (!usable(tile, "tilestored")) return;
  ++counts_.stores;
  const Tile& from = tiles_[static_cast<size_t>(tile)];
  for (int r = 0; r < rows(tile); ++r) {
    std::memcpy(static_cast<uint8_t*>(base) + r * stride, from[static_cast<size_t>(r)].data(),
                static_cast<size_t>(row_bytes(tile)));
  }
}

void TileMachine::product_bytes(int sum, int a, int b, bool a_signed, bool b_signed) {
  if (!can_multiply(sum, a, b, "tdpb**d")) return;
  const auto x = bytes_of(tiles_[static_cast<size_t>(a)], a_signed);
  const auto w = bytes_of(tiles_[static_cast<size_t>(b)], b_signed);
  const auto depth = static_cast<size_t>(rows(b));
  const int width = row_bytes(sum) / 4;
  for (size_t m = 0; m < static_cast<size_t>(rows(sum)); ++m) {
    uint8_t* out = tiles_[static_cast<size_t>(sum)][m].data();
    uint32_t totals[kTileRowBytes / 4] = {};  // of all columns: fewer are a loop of unknown length
    for (size_t k = 0; k < depth; ++k) {
      for (size_t n = 0; n < std::size(totals); ++n) {
        int32_t dot = 0;
        for (size_t i = 0; i < 4; ++i) dot += x[m][4 * k + i] * w[k][4 * n + i];
        totals[n] += static_cast<uint32_t>(dot);
      }
    }
    for (int n = 0; n < width; ++n) set_element(out, n, element<uint32_t>(out, n) + totals[n]);
  }
}

void TileMachine::product_bf16(int sum, int a, int b) {
  if (!can_multiply(sum, a, b, "tdpbf16ps")) return;
  const auto x = bf16_of(tiles_[static_cast<size_t>(a)]);
  const auto w = bf16_of(tiles_[static_cast<size_t>(b)]);
  const auto depth = static_cast<size_t>(rows(b));
  const int width = row_bytes(sum) / 4;
  for (size_t m = 0; m < static_cast<size_t>(rows(sum)); ++m) {
    uint8_t* out = tiles_[static_cast<size_t>(sum)][m].data();
    for (int n = 0; n < width; ++n) {
      const auto at = static_cast<size_t>(2 * n);
      float part[2] = {0.0f, 0.0f};
      for (size_t k = 0; k < depth; ++k) {
        for (size_t i = 0; i < 2; ++i) part[i] = bf16_fma(x[m][2 * k + i], w[k][at + i], part[i]);
      }
      set_element(out, n, bf16_add(element<float>(out, n), bf16_add(part[0], part[1])));
    }
  }
}

TileMachine& tile_machine() {
  thread_local TileMachine machine;
  return machine;
}

}  // namespace headrace::cpu
