#include "backend/cpu/step_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "base/numeric.h"

namespace headrace::cpu {
namespace step_plan_test {

constexpr size_t kPlentyOfFloats = size_t{1} << 24;

// Spans one after the other, of {rows, first position}.
std::vector<Span> spans_of(const std::vector<std::pair<int32_t, int64_t>>& sizes) {
  std::vector<Span> spans;
  int32_t first_row = 0;
  for (const auto& [num_rows, first_position] : sizes) {
    Span& span = spans.emplace_back();
    span.first_row = first_row;
    span.num_rows = num_rows;
    span.first_position = first_position;
    first_row += num_rows;
  }
  return spans;
}

const std::vector<std::vector<Span>>& steps() {
  static const std::vector<std::vector<Span>> all = {
      spans_of({{1, 0}}),
      spans_of({{1, 5000}}),
      spans_of({{512, 0}}),
      spans_of({{33, 7}, {1, 15}, {1, 16}, {64, 4000}}),
      spans_of({{1, 1}, {1, 200}, {1, 3000}, {1, 9000}, {1, 31}, {1, 32}, {1, 33}, {1, 2048}}),
      spans_of({{0, 0}, {16, 16}, {0, 9}, {17, 3}}),
  };
  return all;
}

TEST(CpuStep, AppendsEachRowOnceAndABlockInOneItem) {
  for (const auto& spans : steps()) {
    CpuStep step(3, kPlentyOfFloats);
    step.begin(spans);
    std::set<int64_t> rows;
    std::map<std::pair<const Span*, int64_t>, int64_t> item_of_block;
    for (int64_t item = 0; item < step.num_append_items(); ++item) {
      for (const AppendItem& append : step.appends_of(item)) {
        ASSERT_LT(append.first_row, append.end_row);
        for (int64_t row = append.first_row; row < append.end_row; ++row) {
          EXPECT_TRUE(rows.insert(row).second) << "row " << row;
          const Span& span = *append.span;
          ASSERT_TRUE(row >= span.first_row && row < span.first_row + span.num_rows);
          const int64_t position = span.first_position + row - span.first_row;
          const auto block = std::make_pair(&span, position / kKvBlock);
          EXPECT_EQ(item_of_block.try_emplace(block, item).first->second, item);
        }
      }
    }
    EXPECT_EQ(std::ssize(rows), step.num_rows());
  }
}

TEST(CpuStep, FewRowsAreOneItem) {
  CpuStep step(2, kPlentyOfFloats);
  step.begin(spans_of({{1, 15}, {1, 16}, {2, 31}}));
  EXPECT_EQ(step.num_append_items(), 1);
  EXPECT_EQ(step.appends_of(0).size(), 4u);  // the last span reaches into another block
  step.begin(spans_of({{9, 0}}));
  EXPECT_EQ(step.num_append_items(), 1);
  step.begin(spans_of({{9, 10}}));
  EXPECT_EQ(step.num_append_items(), 2);
  step.begin({});
  EXPECT_EQ(step.num_append_items(), 0);
  EXPECT_EQ(step.num_rows(), 0);
}

TEST(CpuStep, SpansThatLeaveRowsOutAreRefused) {
  CpuStep step(2, kPlentyOfFloats);
  auto gap = spans_of({{2, 0}, {3, 0}});
  gap[1].first_row = 3;
  EXPECT_DEATH(step.begin(gap), "a span of 3 rows at 3 from position 0, expected at 2");
  auto negative = spans_of({{2, 0}});
  negative[0].first_position = -1;
  EXPECT_DEATH(step.begin(negative), "from position -1");
  negative[0] = Span{};
  negative[0].num_rows = -1;
  EXPECT_DEATH(step.begin(negative), "a span of -1 rows");
}

// A caller's spans may change once the step has begun.
TEST(CpuStep, KeepsItsOwnSpans) {
  CpuStep step(2, kPlentyOfFloats);
  std::vector<Span> spans = spans_of({{3, 40}, {2, 0}});
  step.begin(spans);
  spans.assign(2, Span{});
  const AttentionPlan& plan = step.attention({4, 2, 64, 0});
  EXPECT_EQ(plan.tiles().front().span->first_position, 40);
  EXPECT_EQ(step.appends_of(0).back().end_row, 5);
}

const std::vector<AttentionShape>& shapes() {
  static const std::vector<AttentionShape> all = {{9, 3, 64, 0},    {32, 8, 128, 0}, {8, 8, 96, 0},
                                                  {4, 1, 256, 512}, {16, 2, 64, 40}, {9, 3, 64, 1}};
  return all;
}

// The splits of KV that a row of a tile may look at.
std::pair<int64_t, int64_t> splits_of(const AttentionTile& tile, const AttentionShape& shape) {
  const int64_t group = shape.num_heads / shape.num_kv_heads;
  const int64_t first = tile.span->first_position + tile.first_row / group;
  const int64_t last = tile.span->first_position + (tile.first_row + tile.num_rows - 1) / group;
  const int64_t lowest = shape.window > 0 ? std::max<int64_t>(0, first + 1 - shape.window) : 0;
  return {lowest / kKvSplit, last / kKvSplit + 1};
}

// Every head of every row in one tile; every tile whole in one item, or each of its splits in one.
void expect_complete(const AttentionPlan& plan, std::span<const Span> spans,
                     const AttentionShape& shape) {
  std::set<std::tuple<int64_t, int64_t, int>> rows;  // row of the batch times group, KV head
  const int64_t group = shape.num_heads / shape.num_kv_heads;
  for (const AttentionTile& tile : plan.tiles()) {
    ASSERT_GT(tile.num_rows, 0);
    for (int64_t row = tile.first_row; row < tile.first_row + tile.num_rows; ++row) {
      ASSERT_LT(row, tile.span->num_rows * group);
      EXPECT_TRUE(rows.emplace(tile.span->first_row, row, tile.kv_head).second);
    }
  }
  int64_t num_rows = 0;
  for (const Span& span : spans) num_rows += span.num_rows;
  EXPECT_EQ(std::ssize(rows), num_rows * group * shape.num_kv_heads);
  if (plan.is_serial()) {
    EXPECT_EQ(plan.num_items(), std::min<int64_t>(1, std::ssize(plan.tiles())));
    return;
  }
  std::map<int64_t, std::set<int64_t>> splits;  // by tile; {-1}: whole
  for (int64_t i = 0; i < plan.num_items(); ++i) {
    const AttentionItem& item = plan.item(i);
    const bool whole = item.cut == AttentionItem::kWhole;
    EXPECT_TRUE(splits[item.tile].insert(whole ? -1 : item.split).second);
  }
  EXPECT_EQ(splits.size(), plan.tiles().size());
  for (const auto& [tile_idx, found] : splits) {
    if (found == std::set<int64_t>{-1}) continue;
    const auto [first, end] = splits_of(plan.tiles()[static_cast<size_t>(tile_idx)], shape);
    EXPECT_EQ(std::ssize(found), end - first);
    EXPECT_EQ(*found.begin(), first);
    EXPECT_EQ(*found.rbegin(), end - 1);
  }
}

TEST(AttentionPlan, CoversEveryHeadOfEveryRowOnce) {
  int num_cut = 0, num_serial = 0;
  for (const int num_members : {1, 2, 16}) {
    for (const size_t partial_floats : {size_t{0}, size_t{5000}, kPlentyOfFloats}) {
      CpuStep step(num_members, partial_floats);
      for (const auto& spans : steps()) {
        step.begin(spans);
        for (const AttentionShape& shape : shapes()) {
          const AttentionPlan& plan = step.attention(shape);
          expect_complete(plan, spans, shape);
          num_serial += plan.is_serial() ? 1 : 0;
          num_cut += plan.num_items() > std::ssize(plan.tiles()) ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(num_cut, 5);
  EXPECT_GT(num_serial, 5);
}

// Where nothing is cut, a member has the items of its share of the rows, the last ones first.
TEST(AttentionPlan, MembersHaveTheirRows) {
  for (const int num_members : {2, 4}) {
    CpuStep step(num_members, 0);
    step.begin(spans_of({{512, 0}}));
    const AttentionPlan& plan = step.attention({9, 3, 64, 0});
    const int64_t num_items = plan.num_items(), share = num_items / num_members;
    ASSERT_EQ(num_items % num_members, 0);
    for (int64_t i = 0; i < num_items; ++i) {
      const int64_t member = i / share;
      const AttentionTile& tile = plan.tiles()[static_cast<size_t>(plan.item(i).tile)];
      EXPECT_GE(tile.first_row, 512 * 3 * member / num_members) << i;
      EXPECT_LE(tile.first_row + tile.num_rows, 512 * 3 * (member + 1) / num_members) << i;
      if (i % share == 0) continue;
      const AttentionTile& before = plan.tiles()[static_cast<size_t>(plan.item(i - 1).tile)];
      EXPECT_LE(tile.first_row, before.first_row) << i;
    }
  }
}

// An item attends to what its tile sees, or to what lies of that in its split.
TEST(AttentionPlan, SaysWhatAnItemAttendsTo) {
  CpuStep step(2, kPlentyOfFloats);
  const auto positions = [&](int64_t depth, int64_t window) {
    step.begin(spans_of({{1, depth}}));
    const AttentionPlan& plan = step.attention({9, 3, 64, window});
    std::set<std::pair<int64_t, int64_t>> found;
    if (plan.is_serial()) {
      const auto [begin, end] = plan.positions_of({.tile = 1});
      return std::set{std::pair{begin, end}};
    }
    for (int64_t i = 0; i < plan.num_items(); ++i) {
      const auto [begin, end] = plan.positions_of(plan.item(i));
      found.emplace(begin, end);
    }
    return found;
  };
  using Found = std::set<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(positions(100, 0), (Found{{0, 101}}));
  EXPECT_EQ(positions(100, 30), (Found{{71, 101}}));
  EXPECT_EQ(positions(2500, 0), (Found{{0, 1024}, {1024, 2048}, {2048, 2501}}));
  EXPECT_EQ(positions(2500, 1500), (Found{{1001, 1024}, {1024, 2048}, {2048, 2501}}));
}

// Few rows at a depth are cut into splits, one per item; little work is one item.
TEST(AttentionPlan, CutsLongAndKeepsShortTogether) {
  CpuStep step(2, kPlentyOfFloats);
  const auto items = [&](int64_t depth, int32_t num_rows) {
    step.begin(spans_of({{num_rows, depth}}));
    return step.attention({9, 3, 64, 0}).num_items();
  };
  EXPECT_EQ(items(0, 1), 1);
  EXPECT_EQ(items(100, 1), 1);
  EXPECT_EQ(items(4 * kKvSplit - 1, 1), 3 * 4);
  EXPECT_EQ(items(4 * kKvSplit, 1), 3 * 5);
  EXPECT_EQ(items(0, 512), 3 * 512 * 3 / kAttentionRows);
  EXPECT_EQ(items(0, 0), 0);
}

TEST(AttentionPlan, CutsNoMoreThanItsRoomHolds) {
  const auto spans = spans_of({{1, 8 * kKvSplit}, {1, 8 * kKvSplit}});
  const AttentionShape shape{2, 1, 64, 0};
  const auto size_of_cut = static_cast<size_t>(9 * 2 * partial_floats(64));
  for (const size_t num_cuts : {0, 1, 2}) {
    CpuStep step(4, num_cuts * size_of_cut + size_of_cut / 2);
    step.begin(spans);
    const AttentionPlan& plan = step.attention(shape);
    std::set<int64_t> offsets;
    for (int64_t i = 0; i < plan.num_items(); ++i) {
      if (plan.item(i).cut != AttentionItem::kWhole)
        offsets.insert(plan.offset_of(plan.item(i).cut));
    }
    EXPECT_EQ(offsets.size(), num_cuts);
    for (const int64_t offset : offsets) {
      EXPECT_EQ(offset % static_cast<int64_t>(size_of_cut), 0);
    }
  }
}

TEST(AttentionPlan, TheLastSplitOfATileFoldsInEveryLayer) {
  CpuStep step(2, kPlentyOfFloats);
  step.begin(spans_of({{1, 3 * kKvSplit}}));
  const AttentionPlan& plan = step.attention({2, 2, 64, 0});
  ASSERT_EQ(plan.num_items(), 2 * 4);
  for (int layer = 0; layer < 3; ++layer) {
    std::map<int64_t, int> num_last;
    for (int64_t i = plan.num_items(); i-- > 0;) {
      num_last[plan.item(i).cut] += plan.finish_split(plan.item(i).cut) ? 1 : 0;
    }
    EXPECT_EQ(num_last, (std::map<int64_t, int>{{0, 1}, {1, 1}}));
  }
}

TEST(AttentionPlan, IsMadeOncePerShapeAndStep) {
  CpuStep step(2, kPlentyOfFloats);
  step.begin(steps()[3]);
  std::vector<const AttentionPlan*> plans;
  for (const AttentionShape& shape : shapes()) plans.push_back(&step.attention(shape));
  EXPECT_EQ(std::set(plans.begin(), plans.end()).size(), shapes().size());
  for (size_t i = 0; i < shapes().size(); ++i) {
    EXPECT_EQ(&step.attention(shapes()[i]), plans[i]);
    EXPECT_EQ(plans[i]->shape(), shapes()[i]);
  }
  step.begin(steps()[4]);  // the same memory, other spans
  EXPECT_EQ(&step.attention(shapes()[1]), plans[0]);
  expect_complete(*plans[0], steps()[4], shapes()[1]);
}

}  // namespace step_plan_test
}  // namespace headrace::cpu
