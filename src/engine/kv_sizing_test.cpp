#include "engine/kv_sizing.h"

#include <gtest/gtest.h>

namespace headrace {
namespace kv_sizing_test {

constexpr size_t kPlenty = size_t{1} << 30;
constexpr int64_t kChunk = 64;

// Blocks of so many bytes; one column of full attention.
CacheLayout plain(size_t block_bytes) {
  CacheLayout layout;
  layout.rules = {CacheRule{}};
  layout.num_columns = 1;
  layout.block_bytes = block_bytes;
  return layout;
}

// One column that keeps everything, five that keep 32 tokens.
CacheLayout with_windows(size_t block_bytes) {
  CacheLayout layout = plain(block_bytes);
  layout.rules.push_back({CachePolicy::kWindow, 32, 0, 5});
  layout.num_columns = 6;
  return layout;
}

Result<KvSize> size(const EngineOptions& options, const CacheLayout& layout, size_t available) {
  return size_kv(options, 1000, layout, kChunk, available);
}

TEST(KvSizing, DefaultIsFourContextsWithinAQuarterOfMemory) {
  const KvSize plenty = size({}, plain(100), kPlenty).value();
  EXPECT_EQ(plenty.num_blocks, 4 * 63);
  EXPECT_EQ(plenty.max_context, 1000);
  const KvSize some = size({}, plain(100), 4 * 100 * 100).value();
  EXPECT_EQ(some.num_blocks, 100);
  EXPECT_EQ(some.max_context, 1000);
}

TEST(KvSizing, WhereMemoryIsTightOneContextMayTakeHalfOfIt) {
  const KvSize one = size({}, plain(100), 2 * 100 * 70).value();
  EXPECT_EQ(one.num_blocks, 63);
  EXPECT_EQ(one.max_context, 1000);
  const KvSize less = size({}, plain(100), 2 * 100 * 10).value();
  EXPECT_EQ(less.num_blocks, 10);
  EXPECT_EQ(less.max_context, 160);
}

TEST(KvSizing, WindowsCountForWhatTheyHold) {
  // (32 - 1 + 64) tokens touch up to 7 blocks.
  const KvSize plenty = size({}, with_windows(100), kPlenty).value();
  EXPECT_EQ(plenty.num_blocks, 4 * (63 + 5 * 7));
  EXPECT_EQ(plenty.max_context, 1000);
  const KvSize tight = size({}, with_windows(100), 2 * 100 * 50).value();
  EXPECT_EQ(tight.num_blocks, 50);
  EXPECT_EQ(tight.max_context, (50 - 5 * 7) * 16);
  EngineOptions options;
  options.num_kv_blocks = 6 * 3;  // too few for a whole window: all columns have three blocks
  EXPECT_EQ(size(options, with_windows(100), kPlenty).value().max_context, 48);
  options.num_kv_blocks = 5;
  EXPECT_FALSE(size(options, with_windows(100), kPlenty).ok());
}

TEST(KvSizing, OptionsWin) {
  EngineOptions options;
  options.kv_memory_bytes = 1050;
  options.max_context = 64;
  EXPECT_EQ(size(options, plain(100), kPlenty).value().num_blocks, 10);
  EXPECT_EQ(size(options, plain(100), kPlenty).value().max_context, 64);
  options.num_kv_blocks = 3;
  EXPECT_EQ(size(options, plain(100), kPlenty).value().num_blocks, 3);
  EXPECT_EQ(size(options, plain(100), kPlenty).value().max_context, 48);
  options.max_context = 5000;
  options.num_kv_blocks = 1000;
  EXPECT_EQ(size(options, plain(100), kPlenty).value().max_context, 5000);
}

TEST(KvSizing, MoreThanThereIsIsRefused) {
  EngineOptions options;
  options.kv_memory_bytes = size_t{2} << 30;
  const auto refused = size(options, plain(100), size_t{300} << 20);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_NE(refused.error().message.find("2 GiB"), std::string::npos);
  EXPECT_NE(refused.error().message.find("300 MiB"), std::string::npos);
  EXPECT_NE(refused.error().hint.find("--kv-memory"), std::string::npos);
}

TEST(KvSizing, NoBlockIsAnErrorWithNumbers) {
  const auto refused = size({}, plain(4096), 8191);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_NE(refused.error().message.find("4095"), std::string::npos);
  EXPECT_NE(refused.error().message.find("4096"), std::string::npos);
  const auto columns = size({}, with_windows(4096), 8191);
  ASSERT_FALSE(columns.ok());
  EXPECT_NE(columns.error().message.find("24576"), std::string::npos);
}

}  // namespace kv_sizing_test
}  // namespace headrace
