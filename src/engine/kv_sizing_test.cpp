#include "engine/kv_sizing.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(KvSizing, DefaultIsFourContextsWithinAQuarterOfMemory) {
  const KvSize plenty = size_kv({}, 1000, 100, size_t{1} << 30).value();
  EXPECT_EQ(plenty.num_blocks, 4 * 63);
  EXPECT_EQ(plenty.max_context, 1000);
  const KvSize tight = size_kv({}, 1000, 100, 4 * 100 * 10).value();
  EXPECT_EQ(tight.num_blocks, 10);
  EXPECT_EQ(tight.max_context, 160);
}

TEST(KvSizing, OptionsWin) {
  EngineOptions options;
  options.kv_memory_bytes = 1050;
  options.max_context = 64;
  EXPECT_EQ(size_kv(options, 1000, 100, 0).value().num_blocks, 10);
  EXPECT_EQ(size_kv(options, 1000, 100, 0).value().max_context, 64);
  options.num_kv_blocks = 3;
  EXPECT_EQ(size_kv(options, 1000, 100, 0).value().num_blocks, 3);
  EXPECT_EQ(size_kv(options, 1000, 100, 0).value().max_context, 48);
  options.max_context = 5000;
  options.num_kv_blocks = 1000;
  EXPECT_EQ(size_kv(options, 1000, 100, 0).value().max_context, 5000);
}

TEST(KvSizing, NoBlockIsAnErrorWithNumbers) {
  const auto size = size_kv({}, 1000, 4096, 8192);
  ASSERT_FALSE(size.ok());
  EXPECT_EQ(size.error().code, ErrorCode::kExhausted);
  EXPECT_NE(size.error().message.find("2048"), std::string::npos);
  EXPECT_NE(size.error().message.find("4096"), std::string::npos);
}

TEST(KvSizing, SystemTellsItsMemory) { EXPECT_GT(available_memory_bytes(), size_t{1} << 20); }

}  // namespace
}  // namespace headrace
