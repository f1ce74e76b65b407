// What layers keep of each token, or of all: keys and values, a latent, a state. How numbers are
// stored, and where a layer's part of a block lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

#include "backend/device_memory.h"

namespace headrace {

// How numbers of the KV store are stored; see Backend::kv_plane_bytes. fp8 (e4m3), int8 and int16
// have a scale per position and head.
enum class KvType : uint8_t { kF32, kBF16, kF16, kFp8, kInt8, kInt16 };
inline constexpr std::string_view kKvTypeNames[] = {"f32", "bf16", "f16", "fp8", "int8", "int16"};
inline constexpr int kNumKvTypes = static_cast<int>(std::size(kKvTypeNames));
inline constexpr std::string_view kv_type_name(KvType type) {
  return kKvTypeNames[static_cast<size_t>(type)];
}
inline constexpr std::optional<KvType> kv_type_of(std::string_view name) {
  for (int type = 0; type < kNumKvTypes; ++type) {
    if (kKvTypeNames[type] == name) return static_cast<KvType>(type);
  }
  return std::nullopt;
}
inline constexpr int kBlockTokens = 16;
inline constexpr int kMaxHeadDim = 512;    // largest head_dim of a KvShape
inline constexpr int kMaxRowWidth = 1024;  // largest width of a plane of append_row()

// One array that a layer keeps: for each token num_heads rows of `width` numbers (keys, values, a
// latent of any width); of a layer with state, num_heads x width float32 in all.
struct KvPlane {
  std::string_view name;  // outlives the plane
  KvType type = KvType::kBF16;
  int num_heads = 0;
  int width = 0;
};

// A plane of a layer, or of a piece of its state: its part of block b starts at base + b *
// block_stride, b from the table of its column among those of a span (model/cache_groups.h says
// which block holds the state after a position).
struct KvPlaneView {
  KvPlane plane;
  DevicePtr<std::byte> base;
  size_t block_stride = 0;
  int table = 0;
};

// The two planes, keys and values, of a layer that attention() reads.
struct KvShape {
  KvType type = KvType::kBF16;
  int num_kv_heads = 0;
  int head_dim = 0;
};

// Block b of this layer starts at base + b * block_stride. What lies there is the backend's
// business. b comes from the layer's table among those of a span.
struct KvLayer {
  KvShape shape;
  DevicePtr<std::byte> base;
  size_t block_stride = 0;
  int table = 0;  // its blocks are those of Span::tables[table]
};

}  // namespace headrace
