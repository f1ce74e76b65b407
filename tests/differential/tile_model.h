// A plain C++ model of the tile instructions: the semantics that kernels/amx/tile.h describes,
// usable on any processor. For tests only; no library that serves links it.
//
// TileMachine is one thread's tile state. Where the instruction would raise an exception, the
// machine notes the first fault in words and does nothing more until reset(). It counts what it
// executed, so that tests can demand the number of products. ModelTiles has the functions of
// HardwareTiles over the calling thread's machine.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "backend/cpu/kernels/amx/tile.h"
#include "backend/cpu/kernels/bf16_model.h"

namespace headrace::cpu {

struct TileCounts {
  int64_t configures = 0;
  int64_t releases = 0;
  int64_t zeros = 0;
  int64_t loads = 0;
  int64_t stores = 0;
  int64_t products = 0;
  int64_t product_rows = 0;  // rows of the first operands: what the products' time depends on
};

class TileMachine {
 public:
  using Tile = std::array<std::array<uint8_t, kTileRowBytes>, kTileRows>;

  void configure(const TileConfig& config);
  void release();
  void zero(int tile);
  void load(int tile, const void* base, int64_t stride);
  void store(int tile, void* base, int64_t stride);
  void product_bytes(int sum, int a, int b, bool a_signed, bool b_signed);
  void product_bf16(int sum, int a, int b);

  // What the processor would have stopped at; empty if nothing.
  const std::string& fault() const { return fault_; }
  bool configured() const { return config_.palette != 0; }
  const TileCounts& counts() const { return counts_; }
  void reset() { *this = TileMachine(); }

 private:
  bool fail(std::string text);
  bool usable(int tile, const char* instruction);
  bool can_multiply(int sum, int a, int b, const char* instruction);
  int rows(int tile) const { return config_.rows[tile]; }
  int row_bytes(int tile) const { return config_.row_bytes[tile]; }

  TileConfig config_{};
  std::array<Tile, kNumTiles> tiles_{};
  TileCounts counts_;
  std::string fault_;
};

TileMachine& tile_machine();  // of the calling thread

struct ModelTiles {
  static void configure(const TileConfig& config) { tile_machine().configure(config); }
  static void release() { tile_machine().release(); }
  template <int kTile>
  static void zero() {
    tile_machine().zero(kTile);
  }
  template <int kTile>
  static void load(const void* base, int64_t stride) {
    tile_machine().load(kTile, base, stride);
  }
  template <int kTile>
  static void load_once(const void* base, int64_t stride) {
    tile_machine().load(kTile, base, stride);
  }
  template <int kTile>
  static void store(void* base, int64_t stride) {
    tile_machine().store(kTile, base, stride);
  }
  template <int kSum, int kA, int kB>
  static void product_ss() {
    tile_machine().product_bytes(kSum, kA, kB, true, true);
  }
  template <int kSum, int kA, int kB>
  static void product_su() {
    tile_machine().product_bytes(kSum, kA, kB, true, false);
  }
  template <int kSum, int kA, int kB>
  static void product_us() {
    tile_machine().product_bytes(kSum, kA, kB, false, true);
  }
  template <int kSum, int kA, int kB>
  static void product_uu() {
    tile_machine().product_bytes(kSum, kA, kB, false, false);
  }
  template <int kSum, int kA, int kB>
  static void product_bf16() {
    tile_machine().product_bf16(kSum, kA, kB);
  }
};

}  // namespace headrace::cpu
