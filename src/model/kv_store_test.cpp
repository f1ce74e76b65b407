#include "model/kv_store.h"

#include <gtest/gtest.h>

#include <cstring>

#include "backend/cpu/cpu_backend.h"

namespace headrace {
namespace {

std::unique_ptr<Backend> reference() {
  return create_cpu_backend({.isa = "reference", .num_threads = 1}).value();
}

TEST(KvStore, ABlockIsContiguousOverAllLayers) {
  const auto backend = reference();
  const std::vector<KvShape> shapes = {{KvType::kF32, 2, 16}, {KvType::kF32, 1, 24}};
  auto store = KvStore::create(*backend, shapes, 5);
  ASSERT_TRUE(store.ok());
  const size_t block = KvStore::block_bytes(*backend, shapes);
  EXPECT_GE(block, backend->kv_layer_bytes(shapes[0]) + backend->kv_layer_bytes(shapes[1]));
  EXPECT_EQ(store->num_bytes(), 5 * block);
  EXPECT_EQ(store->num_blocks(), 5);
  const KvLayer first = store->layer(0), second = store->layer(1);
  EXPECT_EQ(first.block_stride, block);
  EXPECT_EQ(second.block_stride, block);
  const auto offset = static_cast<size_t>(second.base - first.base);
  EXPECT_GE(offset, backend->kv_layer_bytes(shapes[0]));
  EXPECT_LE(offset + backend->kv_layer_bytes(shapes[1]), block);
  EXPECT_EQ(second.shape.head_dim, 24);
}

TEST(KvStore, CopyBlockCopiesEveryLayerAndNothingElse) {
  const auto backend = reference();
  auto store = KvStore::create(*backend, {{KvType::kF32, 1, 16}, {KvType::kF32, 1, 16}}, 3);
  ASSERT_TRUE(store.ok());
  const size_t block = store->num_bytes() / 3;
  const std::span<std::byte> bytes = backend->write_view(store->layer(0).base, 3 * block);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(1 + i / block);
  store->copy_block(0, 2);
  const std::span<const std::byte> copied = backend->read_view(store->layer(0).base, 3 * block);
  for (size_t i = 0; i < copied.size(); ++i) {
    ASSERT_EQ(copied[i], static_cast<std::byte>(i / block == 1 ? 2 : 1)) << i;
  }
  EXPECT_DEATH(store->copy_block(0, 3), "block 3 of 3");
  EXPECT_DEATH(store->copy_block(-1, 0), "block -1 of 3");
}

TEST(KvStore, ZeroBlockClearsEveryLayerAndNothingElse) {
  const auto backend = reference();
  const std::vector<KvShape> shapes = {{KvType::kF32, 1, 16}, {KvType::kInt8, 1, 24}};
  auto store = KvStore::create(*backend, shapes, 3);
  ASSERT_TRUE(store.ok());
  const size_t block = KvStore::block_bytes(*backend, shapes);
  for (std::byte& byte : backend->write_view(store->layer(0).base, 3 * block)) byte = std::byte{7};
  store->zero_block(1);
  const std::span<const std::byte> left = backend->read_view(store->layer(0).base, 3 * block);
  for (size_t i = 0; i < left.size(); ++i) {
    ASSERT_EQ(left[i], static_cast<std::byte>(i / block == 1 ? 0 : 7)) << i;
  }
  EXPECT_DEATH(store->zero_block(3), "block 3 of 3");
}

TEST(KvStore, ImpossibleSizesAreRefused) {
  const auto backend = reference();
  const std::vector<KvShape> shapes = {{KvType::kF32, 2, 16}};
  EXPECT_FALSE(KvStore::create(*backend, shapes, 0).ok());
  EXPECT_FALSE(KvStore::create(*backend, shapes, -1).ok());
  EXPECT_FALSE(KvStore::create(*backend, shapes, INT64_MAX).ok());
}

}  // namespace
}  // namespace headrace
