#include "engine/kv_sizing.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

constexpr size_t kPlenty = size_t{1} << 30;

TEST(KvSizing, DefaultIsFourContextsWithinAQuarterOfMemory) {
  const KvSize plenty = size_kv({}, 1000, 100, kPlenty).value();
  EXPECT_EQ(plenty.num_blocks, 4 * 63);
  EXPECT_EQ(plenty.max_context, 1000);
  const KvSize some = size_kv({}, 1000, 100, 4 * 100 * 100).value();
  EXPECT_EQ(some.num_blocks, 100);
  EXPECT_EQ(some.max_context, 1000);
}

TEST(KvSizing, WhereMemoryIsTightOneContextMayTakeHalfOfIt) {
  const KvSize one = size_kv({}, 1000, 100, 2 * 100 * 70).value();
  EXPECT_EQ(one.num_blocks, 63);
  EXPECT_EQ(one.max_context, 1000);
  const KvSize less = size_kv({}, 1000, 100, 2 * 100 * 10).value();
  EXPECT_EQ(less.num_blocks, 10);
  EXPECT_EQ(less.max_context, 160);
}

TEST(KvSizing, OptionsWin) {
  EngineOptions options;
  options.kv_memory_bytes = 1050;
  options.max_context = 64;
  EXPECT_EQ(size_kv(options, 1000, 100, kPlenty).value().num_blocks, 10);
  EXPECT_EQ(size_kv(options, 1000, 100, kPlenty).value().max_context, 64);
  options.num_kv_blocks = 3;
  EXPECT_EQ(size_kv(options, 1000, 100, kPlenty).value().num_blocks, 3);
  EXPECT_EQ(size_kv(options, 1000, 100, kPlenty).value().max_context, 48);
  options.max_context = 5000;
  options.num_kv_blocks = 1000;
  EXPECT_EQ(size_kv(options, 1000, 100, kPlenty).value().max_context, 5000);
}

TEST(KvSizing, MoreThanThereIsIsRefused) {
  EngineOptions options;
  options.kv_memory_bytes = size_t{2} << 30;
  const auto size = size_kv(options, 1000, 100, size_t{300} << 20);
  ASSERT_FALSE(size.ok());
  EXPECT_EQ(size.error().code, ErrorCode::kExhausted);
  EXPECT_NE(size.error().message.find("2 GiB"), std::string::npos);
  EXPECT_NE(size.error().message.find("300 MiB"), std::string::npos);
  EXPECT_NE(size.error().hint.find("--kv-memory"), std::string::npos);
}

TEST(KvSizing, NoBlockIsAnErrorWithNumbers) {
  const auto size = size_kv({}, 1000, 4096, 8191);
  ASSERT_FALSE(size.ok());
  EXPECT_EQ(size.error().code, ErrorCode::kExhausted);
  EXPECT_NE(size.error().message.find("4095"), std::string::npos);
  EXPECT_NE(size.error().message.find("4096"), std::string::npos);
}

}  // namespace
}  // namespace headrace
