// Tests of the small parts of base: checked sizes, quoting, JSON, tensor views, memory, queues.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "base/checked.h"
#include "base/json.h"
#include "base/queue.h"
#include "base/quote.h"
#include "base/tensor.h"

namespace headrace {
namespace base_test {

TEST(CheckedSize, RemembersOverflow) {
  const CheckedSize large = UINT64_MAX;
  EXPECT_TRUE(large.ok());
  EXPECT_FALSE((large + 1).ok());
  EXPECT_FALSE((large + 1 - 5).ok());
  EXPECT_FALSE((CheckedSize(1) - 2 + 5).ok());
  EXPECT_FALSE((CheckedSize(uint64_t{1} << 42) * (uint64_t{1} << 22)).ok());
  EXPECT_EQ((CheckedSize(uint64_t{1} << 42) * (uint64_t{1} << 21)).value(), uint64_t{1} << 63);
  EXPECT_FALSE((large * 2 * 0).ok());
  EXPECT_FALSE((large + 1).at_most(UINT64_MAX));
  EXPECT_TRUE(CheckedSize(7).at_most(7));
  EXPECT_FALSE(CheckedSize(8).at_most(7));
}

TEST(CheckedSize, RoundsUp) {
  EXPECT_EQ(CheckedSize(0).round_up(32).value(), 0u);
  EXPECT_EQ(CheckedSize(1).round_up(32).value(), 32u);
  EXPECT_EQ(CheckedSize(32).round_up(32).value(), 32u);
  EXPECT_EQ(CheckedSize(10).round_up(3).value(), 12u);
  EXPECT_FALSE(CheckedSize(UINT64_MAX - 3).round_up(32).ok());
}

TEST(CheckedSizeDeathTest, OverflowedValueIsNeverUsed) {
  EXPECT_DEATH((void)(CheckedSize(UINT64_MAX) + 1).value(), "overflowed");
}

TEST(Quote, EscapesAndCuts) {
  EXPECT_EQ(quote("blk.0.attn_q"), "'blk.0.attn_q'");
  EXPECT_EQ(quote("a'b\\c\n\xff"), "'a\\x27b\\x5cc\\x0a\\xff'");
  EXPECT_EQ(quote(std::string_view("\0", 1)), "'\\x00'");
  const std::string cut = quote(std::string(1000, 'x'));
  EXPECT_EQ(cut, "'" + std::string(120, 'x') + "...'");
}

TEST(Json, ParsesAndNamesTheFault) {
  const auto value = parse_json(R"( {"a": [1, 2], "a": 3} )", "x.json");
  ASSERT_TRUE(value.ok()) << value.error().message;
  const boost::json::value* member = json_member(&*value, "a");
  ASSERT_NE(member, nullptr);
  EXPECT_EQ(member->as_int64(), 3);
  EXPECT_EQ(json_member(member, "b"), nullptr);
  EXPECT_EQ(json_member(nullptr, "b"), nullptr);
  for (const char* bad : {"", "{", "{} x", "{'a': 1}", "[1,]", "nul", "\xff"}) {
    const auto refused = parse_json(bad, "x.json");
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
    EXPECT_NE(refused.error().message.find("x.json is not valid JSON"), std::string::npos);
  }
}

TEST(Json, BoundsTheDepth) {
  const std::string fits = std::string(64, '[') + std::string(64, ']');
  EXPECT_TRUE(parse_json(fits, "x").ok());
  EXPECT_FALSE(parse_json("[" + fits + "]", "x").ok());
  EXPECT_FALSE(parse_json(std::string(1'000'000, '['), "x").ok());
}

TEST(TensorView, SlicesTheSlowestDimension) {
  std::vector<std::byte> bytes(24);
  TensorView view;
  view.data = bytes.data();
  view.dtype = DType::kU8;
  view.rank = 3;
  view.shape = {2, 3, 4};
  view.num_bytes = 24;
  EXPECT_EQ(view.shape_string(), "[2, 3, 4]");
  const TensorView slice = view.slice(1);
  EXPECT_EQ(slice.shape_string(), "[3, 4]");
  EXPECT_EQ(slice.data, bytes.data() + 12);
  EXPECT_EQ(slice.num_bytes, 12u);
  EXPECT_EQ(slice.num_elements(), 12);
  EXPECT_DEATH((void)view.slice(2), "slice 2");
}

// Bytes that another thread writes meanwhile too.
TEST(Buffer, ATouchChangesNothing) {
  constexpr size_t kPage = 4096, kPages = 512;
  Buffer buffer = Buffer::allocate(kPages * kPage).value();
  const std::span<std::byte> bytes(buffer.data(), buffer.size());
  std::thread writer([&] {
    for (size_t i = 0; i < kPages; ++i) bytes[i * kPage] = static_cast<std::byte>(i);
  });
  for (int i = 0; i < 20; ++i) touch_pages(bytes.subspan(100));  // from the page of its first byte
  writer.join();
  touch_pages(bytes);
  touch_pages({});
  for (size_t i = 0; i < bytes.size(); ++i) {
    ASSERT_EQ(bytes[i], i % kPage == 0 ? static_cast<std::byte>(i / kPage) : std::byte{0}) << i;
  }
}

TEST(Buffer, IsZeroedAlignedAndMovable) {
  for (const size_t size : {size_t{1}, size_t{4097}, size_t{5} << 20}) {
    Result<Buffer> made = Buffer::allocate(size);
    ASSERT_TRUE(made.ok());
    Buffer buffer = std::move(made).value();
    ASSERT_GE(buffer.size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    for (size_t i = 0; i < size; i += 511) ASSERT_EQ(buffer.data()[i], std::byte{0});
    buffer.data()[size - 1] = std::byte{7};
    const Buffer moved = std::move(buffer);
    EXPECT_EQ(moved.data()[size - 1], std::byte{7});
  }
  EXPECT_EQ(Buffer::allocate(0)->data(), nullptr);
  const Result<Buffer> huge = Buffer::allocate(SIZE_MAX / 2);
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(Buffer::allocate(SIZE_MAX).error().code, ErrorCode::kExhausted);
}

class MappedFileTest : public ::testing::Test {
 protected:
  std::string path_ = ::testing::TempDir() + "mapped_" + std::to_string(getpid());
  void TearDown() override { std::remove(path_.c_str()); }
};

TEST_F(MappedFileTest, MapsWhatWasWritten) {
  FILE* file = std::fopen(path_.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  std::fputs("hello", file);
  std::fclose(file);
  const Result<MappedFile> mapped = MappedFile::open(path_);
  ASSERT_TRUE(mapped.ok());
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(mapped->bytes().data()), 5), "hello");
  EXPECT_EQ(mapped->bytes().size(), 5u);
}

TEST_F(MappedFileTest, RefusesWhatIsNoRegularFile) {
  EXPECT_EQ(MappedFile::open(path_).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(MappedFile::open("/").error().code, ErrorCode::kIo);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::open(path_).error().code,
            ErrorCode::kIo);  // and does not wait for a writer
}

TEST_F(MappedFileTest, MapsAnEmptyFile) {
  std::fclose(std::fopen(path_.c_str(), "wb"));
  const Result<MappedFile> mapped = MappedFile::open(path_);
  ASSERT_TRUE(mapped.ok());
  EXPECT_TRUE(mapped->bytes().empty());
}

TEST(BoundedQueue, RefusesWhenFullAndDrainsAfterClose) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.try_push(1));
  EXPECT_TRUE(queue.try_push(2));
  EXPECT_FALSE(queue.try_push(3));
  EXPECT_EQ(queue.size(), 2u);
  queue.close();
  EXPECT_FALSE(queue.try_push(4));
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_EQ(queue.try_pop(), 2);
  EXPECT_EQ(queue.pop(), std::nullopt);
  EXPECT_EQ(queue.pop_for(std::chrono::microseconds(1)), std::nullopt);
}

TEST(BoundedQueue, AWaitIsEndedWithoutAnItem) {
  BoundedQueue<int> queue(2);
  queue.wake();  // before it waits
  EXPECT_EQ(queue.pop(), std::nullopt);
  std::thread waits([&] { EXPECT_EQ(queue.pop(), std::nullopt); });
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  queue.wake();
  waits.join();
  queue.wake();
  EXPECT_TRUE(queue.try_push(7));
  EXPECT_EQ(queue.pop(), 7);  // what is there comes
  EXPECT_FALSE(queue.closed());
}

TEST(BoundedQueue, DeliversEverythingFromManyProducers) {
  constexpr int kProducers = 4;
  constexpr int kItems = 2000;
  BoundedQueue<int> queue(16);
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&queue] {
      for (int i = 1; i <= kItems; ++i) {
        while (!queue.try_push(i)) std::this_thread::yield();
      }
    });
  }
  int64_t sum = 0;
  for (int i = 0; i < kProducers * kItems; ++i) sum += queue.pop().value_or(0);
  for (std::thread& producer : producers) producer.join();
  EXPECT_EQ(sum, int64_t{kProducers} * kItems * (kItems + 1) / 2);
}

}  // namespace base_test
}  // namespace headrace
