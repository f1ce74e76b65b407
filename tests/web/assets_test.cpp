#include "server/assets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

namespace headrace {
namespace {

#if HEADRACE_UI_EMBEDDED

const EmbeddedAsset* find_asset(std::string_view path) {
  for (const EmbeddedAsset& asset : embedded_assets()) {
    if (asset.path == path) return &asset;
  }
  return nullptr;
}

TEST(Assets, HoldsThePage) {
  ASSERT_NE(find_asset("/"), nullptr);
  EXPECT_EQ(find_asset("/")->mime, "text/html; charset=utf-8");
  ASSERT_NE(find_asset("/lab"), nullptr);
  EXPECT_EQ(find_asset("/lab")->mime, "text/html; charset=utf-8");
  const auto ends_with = [](std::string_view suffix) {
    return [suffix](const EmbeddedAsset& asset) { return asset.path.ends_with(suffix); };
  };
  EXPECT_TRUE(std::ranges::any_of(embedded_assets(), ends_with(".js")));
  EXPECT_TRUE(std::ranges::any_of(embedded_assets(), ends_with(".css")));
}

TEST(Assets, RowsAreSortedAndReadyForHeaders) {
  EXPECT_TRUE(std::ranges::is_sorted(embedded_assets(), {}, &EmbeddedAsset::path));
  for (const EmbeddedAsset& asset : embedded_assets()) {
    EXPECT_TRUE(asset.path.starts_with('/')) << asset.path;
    EXPECT_FALSE(asset.mime.empty()) << asset.path;
    ASSERT_EQ(asset.etag.size(), 34U) << asset.path;
    EXPECT_TRUE(asset.etag.starts_with('"') && asset.etag.ends_with('"')) << asset.path;
  }
}

// The table's sizes and the assembler's bytes come from one generator but meet only in the linker.
TEST(Assets, BytesAreWholeGzipStreams) {
  size_t total = 0;
  for (const EmbeddedAsset& asset : embedded_assets()) {
    ASSERT_GT(asset.gzip.size(), 18U) << asset.path;
    EXPECT_EQ(asset.gzip[0], 0x1f) << asset.path;
    EXPECT_EQ(asset.gzip[1], 0x8b) << asset.path;
    EXPECT_EQ(asset.gzip[2], 8) << asset.path;
    // The last four bytes are the length of the content, little-endian: no file of the page has 16
    // MiB.
    const auto tail = asset.gzip.last(4);
    const size_t length = tail[0] | size_t{tail[1]} << 8 | size_t{tail[2]} << 16;
    EXPECT_EQ(tail[3], 0) << asset.path;
    EXPECT_GT(length, 100U) << asset.path;
    total += asset.gzip.size();
  }
  EXPECT_LT(total, 250'000U) << "the page has grown beyond its budget";
}

#else

TEST(Assets, AreEmptyWithoutThePage) { EXPECT_TRUE(embedded_assets().empty()); }

#endif

}  // namespace
}  // namespace headrace
