#include "engine/tiers/segment_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <optional>
#include <random>

#include "base/testing/temp_folder.h"
#include "engine/tiers/tier_fixture.h"

namespace headrace {
namespace segment_store_test {

using testing::FailingDisk;
using testing::kTestBlockBytes;
using testing::TestBlock;

constexpr uint64_t kRecord = sizeof(RecordHeader) + kTestBlockBytes;

class StoreTest : public ::testing::Test {
 protected:
  SegmentStore open(uint64_t max_bytes = 1 << 20, HashKey key = {1, 2}) {
    found_.clear();
    return SegmentStore::open(
        {fd_.get(), folder_.path(), {key, {3, 4}, kTestBlockBytes}, max_bytes}, disk_, &found_);
  }
  // The block's bytes as the store gives them back.
  static Status read(SegmentStore& store, const TestBlock& block, const BlockPlace& place,
                     bool* same) {
    std::vector<std::byte> bytes(kTestBlockBytes);
    const Status status = store.read(place, block.block, bytes);
    *same = bytes == block.bytes;
    return status;
  }
  bool has(SegmentStore& store, const TestBlock& block, const BlockPlace& place) {
    bool same = false;
    return read(store, block, place, &same).ok() && same;
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  uint64_t bytes_on_disk() const {
    uint64_t total = 0;
    for (const std::string& name : files()) {
      total += std::filesystem::file_size(folder_.file(name));
    }
    return total;
  }

  testing::TempFolder folder_;
  Descriptor fd_{::open(folder_.path().c_str(), O_RDONLY | O_DIRECTORY)};
  FailingDisk disk_;
  std::vector<SegmentStore::Found> found_;
};

TEST_F(StoreTest, BlocksComeBackAfterItIsOpenedAgain) {
  std::vector<BlockPlace> places;
  {
    SegmentStore store = open();
    for (uint64_t id = 0; id < 5; ++id) {
      const TestBlock block(id);
      places.push_back(store.append(block.block, block.bytes).value());
      EXPECT_TRUE(has(store, block, places.back()));
    }
  }
  SegmentStore store = open();
  ASSERT_EQ(found_.size(), 5u);
  for (uint64_t id = 0; id < 5; ++id) {
    EXPECT_EQ(found_[id].block, TestBlock(id).block);
    EXPECT_EQ(found_[id].place, places[id]);
    EXPECT_TRUE(has(store, TestBlock(id), places[id]));
    EXPECT_FALSE(has(store, TestBlock(id + 1), places[id]));
  }
  const TestBlock more(9);
  EXPECT_TRUE(has(store, more, store.append(more.block, more.bytes).value()));
  EXPECT_EQ(files().size(), 1u);
  EXPECT_EQ(store.num_bytes(), bytes_on_disk());
}

TEST_F(StoreTest, ATornEndCostsTheLastBlockOnly) {
  {
    SegmentStore store = open();
    for (uint64_t id = 0; id < 3; ++id) {
      EXPECT_TRUE(store.append(TestBlock(id).block, TestBlock(id).bytes).ok());
    }
  }
  const std::string whole = folder_.read(files()[0]);
  for (size_t size = 0; size < whole.size(); size += 7) {
    folder_.write(files().empty() ? "0000000001.kv" : files()[0], whole.substr(0, size));
    SegmentStore store = open();
    const size_t expected =
        size < sizeof(SegmentHeader) ? 0 : (size - sizeof(SegmentHeader)) / kRecord;
    ASSERT_EQ(found_.size(), expected) << size;
    for (size_t i = 0; i < expected; ++i) {
      EXPECT_TRUE(has(store, TestBlock(i), found_[i].place));
    }
    const TestBlock more(9);  // goes where the torn one was
    EXPECT_TRUE(has(store, more, store.append(more.block, more.bytes).value()));
    EXPECT_EQ(store.num_bytes(), bytes_on_disk());
    for (const std::string& name : files()) std::filesystem::remove(folder_.file(name));
  }
}

TEST_F(StoreTest, AFlippedBitIsNeverABlock) {
  const TestBlock first(1), second(2);
  {
    SegmentStore store = open();
    EXPECT_TRUE(store.append(first.block, first.bytes).ok());
    EXPECT_TRUE(store.append(second.block, second.bytes).ok());
  }
  const std::string name = files()[0];
  const std::string whole = folder_.read(name);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << i % 8));
    folder_.write(name, damaged);
    SegmentStore store = open();
    for (const SegmentStore::Found& found : found_) {
      const TestBlock& block = found.block == first.block ? first : second;
      ASSERT_EQ(found.block, block.block) << i;
      bool same = false;
      if (read(store, block, found.place, &same).ok()) {
        ASSERT_TRUE(same) << i;
      }
    }
  }
}

TEST_F(StoreTest, TheOldestGoWhenTheSizeIsReached) {
  const uint64_t max_bytes = 40 * kRecord;
  SegmentStore store = open(max_bytes);
  std::map<uint32_t, int> num_in;  // blocks by file
  std::vector<std::pair<uint64_t, BlockPlace>> places;
  for (uint64_t id = 0; id < 200; ++id) {
    const TestBlock block(id);
    places.emplace_back(id, store.append(block.block, block.bytes).value());
    ASSERT_LE(bytes_on_disk(), max_bytes);
    for (const uint32_t number : store.take_dropped()) {
      std::erase_if(places, [&](const auto& entry) { return entry.second.segment == number; });
    }
  }
  EXPECT_GT(places.size(), 30u);
  EXPECT_EQ(places.back().first, 199u);
  for (const auto& [id, place] : places) EXPECT_TRUE(has(store, TestBlock(id), place)) << id;
  bool same = false;
  EXPECT_EQ(read(store, TestBlock(0), {1, sizeof(SegmentHeader)}, &same).error().code,
            ErrorCode::kNotFound);
  const size_t num_kept = places.size();
  {
    SegmentStore again = open(max_bytes);
    EXPECT_EQ(found_.size(), num_kept);
  }
  SegmentStore smaller = open(10 * kRecord);
  EXPECT_LE(bytes_on_disk(), 10 * kRecord);
}

TEST_F(StoreTest, ADiskThatFailsLosesOnlyWhatItRefused) {
  for (const int error : {ENOSPC, EIO, EDQUOT}) {
    disk_.write_error = 0;
    SegmentStore store = open();
    const TestBlock kept(1), refused(2), later(3);
    const BlockPlace place = store.append(kept.block, kept.bytes).value();
    disk_.write_error = error;
    const auto failed = store.append(refused.block, refused.bytes);
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code, ErrorCode::kIo);
    EXPECT_NE(failed.error().message.find(std::strerror(error)), std::string::npos);
    EXPECT_FALSE(store.append(refused.block, refused.bytes).ok());  // no new file either
    disk_.write_error = 0;
    const BlockPlace next = store.append(later.block, later.bytes).value();
    EXPECT_TRUE(has(store, kept, place));
    EXPECT_TRUE(has(store, later, next));
    open();
    ASSERT_EQ(found_.size(), 2u);
    EXPECT_EQ(found_[0].block, kept.block);
    EXPECT_EQ(found_[1].block, later.block);
    store.clear();
  }
}

TEST_F(StoreTest, ShortWritesAndFailingReads) {
  SegmentStore store = open();
  disk_.short_writes = true;
  const TestBlock block(1);
  const BlockPlace place = store.append(block.block, block.bytes).value();
  EXPECT_TRUE(has(store, block, place));
  disk_.read_error = EIO;
  bool same = false;
  const Status failed = read(store, block, place, &same);
  EXPECT_EQ(failed.error().message,
            "cannot read from '" + folder_.path() + "': Input/output error");
  disk_.read_error = 0;
  EXPECT_TRUE(has(store, block, place));
}

// A process that ends at any write leaves what was stored before it.
TEST_F(StoreTest, AnEndAtAnyWriteCostsMissesOnly) {
  for (int64_t num_writes = 0; num_writes < 24; ++num_writes) {
    std::vector<std::pair<uint64_t, BlockPlace>> places;
    {
      SegmentStore store = open(40 * kRecord);
      disk_.writes_until_error = num_writes;
      for (uint64_t id = 0; id < 8; ++id) {
        const auto place = store.append(TestBlock(id).block, TestBlock(id).bytes);
        if (place.ok()) places.emplace_back(id, *place);
      }
      disk_.writes_until_error = -1;
      disk_.write_error = 0;
    }
    SegmentStore store = open(40 * kRecord);
    ASSERT_EQ(found_.size(), places.size());
    for (const auto& [id, place] : places) ASSERT_TRUE(has(store, TestBlock(id), place));
    store.clear();
    ASSERT_TRUE(files().empty());
  }
}

TEST_F(StoreTest, DeadBlocksAreNotFoundAndTheirNeighboursAre) {
  SegmentStore store = open();
  const TestBlock a(1), b(2);
  const BlockPlace place = store.append(a.block, a.bytes).value();
  EXPECT_TRUE(store.append(b.block, b.bytes).ok());
  store.kill(place);
  bool same = false;
  EXPECT_EQ(read(store, a, place, &same).error().code, ErrorCode::kNotFound);
  open();
  ASSERT_EQ(found_.size(), 1u);
  EXPECT_EQ(found_[0].block, b.block);
}

TEST_F(StoreTest, FilesOfAnotherKeyAreNotTaken) {
  {
    SegmentStore store = open();
    EXPECT_TRUE(store.append(TestBlock(1).block, TestBlock(1).bytes).ok());
  }
  folder_.write("notes.txt", "not ours");
  std::filesystem::create_symlink(folder_.file("notes.txt"), folder_.file("0000000007.kv"));
  SegmentStore store = open(1 << 20, HashKey{5, 6});
  EXPECT_TRUE(found_.empty());
  EXPECT_EQ(files(), (std::vector<std::string>{"0000000007.kv", "notes.txt"}));
  EXPECT_EQ(folder_.read("notes.txt"), "not ours");
}

}  // namespace segment_store_test
}  // namespace headrace
