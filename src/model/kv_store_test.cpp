#include "model/kv_store.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "model/testing/cache_models.h"

namespace headrace {
namespace kv_store_test {

using testing::keys_and_values;
using testing::reference_backend;

CacheLayout two_layers(const Backend& backend) {
  CacheGroup group;
  group.layers = {{0, keys_and_values(KvType::kF32, 2, 16)},
                  {1, keys_and_values(KvType::kF32, 1, 24)}};
  return plan_cache({group}, backend);
}

TEST(KvStore, ABlockIsContiguousOverTheLayersOfItsColumn) {
  const auto backend = reference_backend();
  auto store = KvStore::create(*backend, two_layers(*backend), 5);
  ASSERT_TRUE(store.ok());
  const size_t first_bytes = backend->kv_layer_bytes({KvType::kF32, 2, 16});
  const size_t second_bytes = backend->kv_layer_bytes({KvType::kF32, 1, 24});
  const size_t block = store->block_bytes();
  EXPECT_GE(block, first_bytes + second_bytes);
  EXPECT_EQ(store->num_bytes(), 5 * block);
  EXPECT_EQ(store->num_blocks(), 5);
  EXPECT_EQ(store->num_columns(), 1);
  const KvLayer first = store->layer(0), second = store->layer(1);
  EXPECT_EQ(first.block_stride, block);
  EXPECT_EQ(second.block_stride, block);
  const auto offset = static_cast<size_t>(second.base - first.base);
  EXPECT_GE(offset, first_bytes);
  EXPECT_LE(offset + second_bytes, block);
  EXPECT_EQ(second.shape.head_dim, 24);
}

TEST(KvStore, LayersOfAnotherColumnLieInTheSameSlabAndHaveTheirTable) {
  const auto backend = reference_backend();
  const CacheLayout layout = plan_cache(testing::gemma3_270m(KvType::kBF16), *backend);
  auto store = KvStore::create(*backend, layout, 12);
  ASSERT_TRUE(store.ok());
  EXPECT_EQ(store->num_columns(), 6);
  EXPECT_EQ(store->layer(0).table, store->layer(1).table);
  EXPECT_NE(store->layer(4).table, store->layer(5).table);  // layer 5 sees everything
  EXPECT_EQ(store->layer(5).table, store->layer(17).table);
  EXPECT_EQ(store->layer(0).base, store->layer(5).base);  // the first of its column each
}

// A latent of 576 numbers is wider than any head, and its layer has one plane.
TEST(KvStore, PlanesMayHaveAnyWidth) {
  const auto backend = reference_backend();
  CacheGroup group;
  group.layers = {{0, {{"latent", KvType::kBF16, 1, 576}}},
                  {1, {{"keys", KvType::kInt8, 2, 192}, {"values", KvType::kBF16, 2, 128}}}};
  const CacheLayout layout = plan_cache({group}, *backend);
  auto store = KvStore::create(*backend, layout, 3);
  ASSERT_TRUE(store.ok());
  EXPECT_EQ(store->block_bytes(), 576u * 16 * 2 + 2 * (192 * 16 + 64) + 2 * 128 * 16 * 2);
  const KvPlaneView latent = store->plane(0, 0);
  EXPECT_EQ(latent.plane.width, 576);
  EXPECT_EQ(latent.plane.name, "latent");
  EXPECT_EQ(latent.block_stride, store->block_bytes());
  const KvPlaneView keys = store->plane(1, 0), values = store->plane(1, 1);
  EXPECT_EQ(keys.base - latent.base, 576 * 16 * 2);
  EXPECT_EQ(values.base - keys.base, 2 * (192 * 16 + 64));
  // All of it can be written.
  const auto stride = static_cast<ptrdiff_t>(latent.block_stride);
  std::ranges::fill(backend->write_view(latent.base + 2 * stride, 576 * 16 * 2), std::byte{7});
  store->copy_block(2, 0);
  EXPECT_EQ(backend->read_view(latent.base, 576 * 16 * 2).back(), std::byte{7});
}

TEST(KvStore, CopyAndZeroTouchOneBlock) {
  const auto backend = reference_backend();
  auto store = KvStore::create(*backend, two_layers(*backend), 3);
  ASSERT_TRUE(store.ok());
  const size_t block = store->block_bytes();
  const DevicePtr<std::byte> all = store->layer(0).base;
  const std::span<std::byte> bytes = backend->write_view(all, 3 * block);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(1 + i / block);
  store->copy_block(0, 2);
  store->zero_block(1);
  const std::span<const std::byte> after = backend->read_view(all, 3 * block);
  for (size_t i = 0; i < after.size(); ++i) {
    ASSERT_EQ(after[i], static_cast<std::byte>(i / block == 1 ? 0 : 1)) << i;
  }
  EXPECT_DEATH(store->copy_block(0, 3), "block 3 of 3");
  EXPECT_DEATH(store->copy_block(-1, 0), "block -1 of 3");
  EXPECT_DEATH(store->zero_block(3), "block 3 of 3");
}

// Pages of a range that the system has given memory for.
size_t num_resident_pages(const std::byte* begin, size_t num_bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t start = reinterpret_cast<uintptr_t>(begin) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(begin) + num_bytes;
  std::vector<unsigned char> pages((end - start + page - 1) / page);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(start), end - start, pages.data()), 0);
  return static_cast<size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char each) { return each & 1; }));
}

TEST(KvStore, ATouchedPieceHasMemoryBeforeItIsWritten) {
  const auto backend = reference_backend();
  const size_t block = two_layers(*backend).block_bytes;
  constexpr size_t kPiece = KvStore::kPieceBytes;
  const auto num_blocks = static_cast<int64_t>(5 * kPiece / 2 / block);
  auto store = KvStore::create(*backend, two_layers(*backend), num_blocks);
  ASSERT_TRUE(store.ok());
  const size_t num_bytes = static_cast<size_t>(num_blocks) * block;
  const std::byte* base = backend->read_view(store->layer(0).base, num_bytes).data();
  EXPECT_EQ(num_resident_pages(base, num_bytes), 0u);
  EXPECT_EQ(store->num_pieces(0), 0);
  EXPECT_EQ(store->num_pieces(1), 1);
  EXPECT_EQ(store->num_pieces(num_blocks), 3);
  store->touch_piece(1);
  EXPECT_GE(num_resident_pages(base + kPiece, kPiece), kPiece / 4096);
  EXPECT_EQ(num_resident_pages(base, kPiece - 4096), 0u);
  store->touch_piece(2);  // half a piece
  EXPECT_GE(num_resident_pages(base + 2 * kPiece, num_bytes - 2 * kPiece), kPiece / 2 / 4096);
  EXPECT_DEATH(store->touch_piece(3), "piece 3 of 3");
}

TEST(KvStore, ImpossibleSizesAreRefused) {
  const auto backend = reference_backend();
  const CacheLayout layout = two_layers(*backend);
  for (const int64_t num_blocks : {int64_t{0}, int64_t{-1}, INT64_MAX}) {
    const auto store = KvStore::create(*backend, layout, num_blocks);
    ASSERT_FALSE(store.ok()) << num_blocks;
    EXPECT_NE(store.error().message.find("the number must be at least 1"), std::string::npos);
  }
}

}  // namespace kv_store_test
}  // namespace headrace
