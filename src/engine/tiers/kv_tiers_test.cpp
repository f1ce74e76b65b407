#include "engine/tiers/kv_tiers.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/testing/temp_folder.h"
#include "engine/tiers/tier_fixture.h"

namespace headrace {
namespace kv_tiers_test {

using testing::FailingDisk;
using testing::kTestBlockBytes;
using testing::TestBlock;

class TiersTest : public ::testing::Test {
 protected:
  TiersTest() {
    options_.block_bytes = kTestBlockBytes;
    options_.disk_folder = folder_.file("store");
    options_.disk_bytes = 1 << 20;
    options_.identity = {{"model", "m"}};
    options_.calls = &disk_;
  }
  void open() {
    tiers_.reset();
    tiers_ = KvTiers::create(options_).value();
    tiers_->poll(now_);
  }
  // As the engine does it: the copy follows, then all copies are done.
  bool keep(const TestBlock& block, KeepReason reason = KeepReason::kPublished) {
    const int32_t slot = tiers_->keep(block.tier(), reason);
    if (slot >= 0) {
      const std::span<std::byte> to = tiers_->bytes(slot);
      std::copy(block.bytes.begin(), block.bytes.end(), to.begin());
    }
    tiers_->copies_done();
    return slot >= 0;
  }
  // Polls until it holds; the time of the tiers stands still.
  template <typename Condition>
  bool await(const Condition& holds) {
    for (int i = 0; i < 60'000; ++i) {
      tiers_->poll(now_);
      if (holds()) return true;
      tiers_->wait(std::chrono::milliseconds(1));
    }
    return false;
  }
  bool store(const TestBlock& block) {
    return keep(block) && await([&] { return tiers_->holds(block.tier()); });
  }
  // Whether it comes from the disk with the bytes it had.
  bool fetch(const TestBlock& block) {
    const TierBlock wanted = block.tier();
    const uint64_t ticket = tiers_->fetch(std::span(&wanted, 1));
    tiers_->copies_done();
    if (ticket == 0 || !await([&] { return tiers_->is_done(ticket); })) return false;
    return is_in_memory(block);
  }
  bool is_in_memory(const TestBlock& block) {
    const int32_t slot = tiers_->find(block.tier());
    if (slot < 0) return false;
    const std::span<std::byte> bytes = tiers_->bytes(slot);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), block.bytes.begin()));
    return true;
  }

  testing::TempFolder folder_;
  FailingDisk disk_;
  KvTierOptions options_;
  std::unique_ptr<KvTiers> tiers_;
  TimeUs now_ = 1;
};

TEST_F(TiersTest, MemoryKeepsWhatIsEvicted) {
  options_.disk_folder.clear();
  options_.ram_bytes = 2 * kTestBlockBytes;
  open();
  EXPECT_FALSE(tiers_->key());
  const TestBlock a(1), b(2), c(3);
  EXPECT_FALSE(keep(a, KeepReason::kPublished));
  EXPECT_TRUE(keep(a, KeepReason::kEvicted));
  EXPECT_TRUE(keep(b, KeepReason::kEvicted));
  EXPECT_FALSE(keep(a, KeepReason::kEvicted));  // it is there
  EXPECT_TRUE(keep(c, KeepReason::kEvicted));
  EXPECT_TRUE(is_in_memory(a));
  EXPECT_FALSE(is_in_memory(b));
  EXPECT_TRUE(is_in_memory(c));
  tiers_->forget(c.block.key.name, c.block.key.column);
  EXPECT_FALSE(tiers_->holds(c.tier()));
  EXPECT_EQ(tiers_->stats().blocks_kept, 3u);
  EXPECT_EQ(tiers_->stats().ram_blocks, 1);
  tiers_->clear();
  EXPECT_FALSE(is_in_memory(a));
}

TEST_F(TiersTest, TheDiskKeepsWhatIsPublishedBeyondTheEnd) {
  open();
  const HashKey key = *tiers_->key();
  const TestBlock a(1), b(2);
  EXPECT_TRUE(keep(a));
  EXPECT_FALSE(keep(a));  // on its way
  tiers_.reset();         // writes it
  open();
  EXPECT_EQ(tiers_->key()->first, key.first);
  EXPECT_TRUE(tiers_->holds(a.tier()));
  EXPECT_FALSE(tiers_->in_memory(a.tier()));
  EXPECT_FALSE(tiers_->holds(b.tier()));
  EXPECT_FALSE(keep(a));  // it is there
  EXPECT_TRUE(fetch(a));
  EXPECT_FALSE(fetch(b));
  const TierStats stats = tiers_->stats();
  EXPECT_EQ(stats.disk_blocks, 1);
  EXPECT_EQ(stats.blocks_read, 1u);
  EXPECT_EQ(stats.blocks_restored, 1u);
  EXPECT_GT(stats.disk_bytes, kTestBlockBytes);
}

TEST_F(TiersTest, AFullDiskIsLeftAloneForAWhile) {
  open();
  const TestBlock a(1), b(2), c(3);
  EXPECT_TRUE(store(a));
  disk_.write_error = ENOSPC;
  EXPECT_TRUE(keep(b));
  EXPECT_TRUE(await([&] { return tiers_->stats().bypasses == 1; }));
  EXPECT_FALSE(keep(c));
  EXPECT_FALSE(tiers_->holds(a.tier()));
  EXPECT_FALSE(fetch(a));
  EXPECT_EQ(tiers_->stats().blocks_dropped, 1u);
  disk_.write_error = 0;
  now_ += KvTiers::kBypassUs;
  tiers_->poll(now_);
  EXPECT_TRUE(fetch(a));
  EXPECT_TRUE(store(c));
}

TEST_F(TiersTest, ReadsThatFailAreMisses) {
  open();
  const TestBlock a(1);
  EXPECT_TRUE(store(a));
  disk_.read_error = EIO;
  EXPECT_FALSE(fetch(a));
  EXPECT_EQ(tiers_->stats().bypasses, 1u);
  disk_.read_error = 0;
  now_ += KvTiers::kBypassUs;
  tiers_->poll(now_);
  EXPECT_TRUE(fetch(a));
}

TEST_F(TiersTest, SpoiledBytesAreNotGivenBackAndComputedAgain) {
  open();
  const TestBlock a(1);
  EXPECT_TRUE(store(a));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(options_.disk_folder)) {
    if (entry.path().extension() != ".kv") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put('!');
  }
  EXPECT_FALSE(fetch(a));
  EXPECT_EQ(tiers_->stats().blocks_unsound, 1u);
  EXPECT_FALSE(tiers_->holds(a.tier()));
  EXPECT_TRUE(store(a));
  EXPECT_TRUE(fetch(a));
  open();
  EXPECT_EQ(tiers_->stats().disk_blocks, 1);  // the spoiled one is dead
}

TEST_F(TiersTest, WhatIsForgottenOnItsWayDoesNotArrive) {
  open();
  const TestBlock a(1), b(2);
  EXPECT_TRUE(keep(a));
  tiers_->forget(a.block.key.name, a.block.key.column);
  EXPECT_TRUE(store(b));
  EXPECT_FALSE(tiers_->holds(a.tier()));
  tiers_->forget(b.block.key.name, b.block.key.column);
  tiers_->copies_done();
  open();
  EXPECT_EQ(tiers_->stats().disk_blocks, 0);
}

TEST_F(TiersTest, ClearEmptiesTheDisk) {
  open();
  EXPECT_TRUE(store(TestBlock(1)));
  tiers_->clear();
  tiers_->copies_done();
  EXPECT_TRUE(store(TestBlock(2)));
  open();
  EXPECT_EQ(tiers_->stats().disk_blocks, 1);
  EXPECT_TRUE(tiers_->holds(TestBlock(2).tier()));
}

TEST_F(TiersTest, TheSecondProcessRunsWithout) {
  open();
  EXPECT_TRUE(store(TestBlock(1)));
  const auto second = KvTiers::create(options_).value();
  EXPECT_FALSE(second->key());
  EXPECT_FALSE(second->holds(TestBlock(1).tier()));
  EXPECT_EQ(second->keep(TestBlock(2).tier(), KeepReason::kPublished), -1);
}

TEST_F(TiersTest, AFullQueueDropsBlocks) {
  options_.block_bytes = size_t{32} << 20;  // four buffers
  options_.disk_bytes = size_t{1} << 30;
  open();
  int num_kept = 0;
  for (uint64_t id = 0; id < 6; ++id) {  // none of them is handed over yet
    num_kept += tiers_->keep(TestBlock(id).tier(), KeepReason::kPublished) >= 0;
  }
  EXPECT_EQ(num_kept, 4);
  EXPECT_EQ(tiers_->stats().blocks_dropped, 2u);
}

TEST_F(TiersTest, SizesThatHoldNothing) {
  options_.disk_bytes = 1000;
  EXPECT_EQ(KvTiers::create(options_).error().message,
            "--kv-disk-size is 1000 bytes, but a store for this model needs 1728 or more");
  options_.disk_folder.clear();
  options_.ram_bytes = 255;
  EXPECT_EQ(KvTiers::create(options_).error().message,
            "--kv-ram is 255 bytes, but a block of this model takes 256");
}

}  // namespace kv_tiers_test
}  // namespace headrace
