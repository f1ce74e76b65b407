#include "engine/prefix_index.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <span>
#include <utility>

namespace headrace {
namespace prefix_index_test {

using Tokens = std::array<int32_t, kBlockTokens>;

Tokens tokens_from(int32_t first) {
  Tokens tokens;
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

void expect_sound(const PrefixIndex& index) {
  const Status status = index.check();
  EXPECT_TRUE(status.ok()) << status.error().message;
}

TEST(PrefixIndex, ANodeLivesAsLongAsItsLastBlock) {
  PrefixIndex index(8, 3, {}, "");
  const Tokens tokens = tokens_from(0);
  const Digest name = index.extend(index.root({}), tokens.data());
  EXPECT_EQ(index.find(name, tokens.data()), -1);
  const int32_t node = index.add(name, tokens);
  index.attach(node, 0, 5);
  index.attach(node, 2, 6);
  EXPECT_EQ(index.find(name, tokens.data()), node);
  EXPECT_EQ(index.block(node, 0), 5);
  EXPECT_EQ(index.block(node, 1), -1);
  EXPECT_EQ(index.block(node, 2), 6);
  EXPECT_TRUE(index.contains(5));
  expect_sound(index);
  index.remove(5);
  EXPECT_FALSE(index.contains(5));
  EXPECT_EQ(index.find(name, tokens.data()), node);
  index.remove(6);
  EXPECT_EQ(index.find(name, tokens.data()), -1);
  expect_sound(index);
  EXPECT_DEATH(index.remove(6), "block 6 is not in the index");
}

// Equal names with other tokens are not a hit: a name is not believed alone.
TEST(PrefixIndex, TokensAreComparedOnAHit) {
  PrefixIndex index(4, 1, {}, "");
  const Tokens stored = tokens_from(0), asked = tokens_from(1);
  const Digest name = index.extend(index.root({}), stored.data());
  index.attach(index.add(name, stored), 0, 0);
  EXPECT_EQ(index.find(name, asked.data()), -1);
  const int32_t second = index.add(name, asked);  // as if two prefixes had met
  index.attach(second, 0, 1);
  EXPECT_EQ(index.find(name, asked.data()), second);
  EXPECT_NE(index.find(name, stored.data()), second);
  EXPECT_EQ(index.longest_chain(), 2);
  expect_sound(index);
}

TEST(PrefixIndex, EveryTokenAndEveryPrefixMakesAnotherName) {
  const PrefixIndex index(4, 1, {1, 2}, "numerics");
  std::set<std::pair<uint64_t, uint64_t>> names;
  const auto add = [&](const Digest& name) {
    return names.insert({name.first, name.second}).second;
  };
  const Digest root = index.root({});
  EXPECT_TRUE(add(root));
  const Tokens tokens = tokens_from(7);
  const Digest name = index.extend(root, tokens.data());
  EXPECT_TRUE(add(name));
  EXPECT_TRUE(add(index.extend(name, tokens.data())));
  for (size_t i = 0; i < kBlockTokens; ++i) {
    for (const int32_t change : {1, -1, 1 << 30}) {
      Tokens other = tokens;
      other[i] += change;
      EXPECT_TRUE(add(index.extend(root, other.data()))) << i;
    }
    Tokens swapped = tokens;
    std::swap(swapped[i], swapped[(i + 1) % kBlockTokens]);
    EXPECT_TRUE(add(index.extend(root, swapped.data()))) << i;
  }
}

// What follows a prefix in a block that is not full has a name of its own.
TEST(PrefixIndex, EndsAreFoundByThePrefixBeforeThem) {
  PrefixIndex index(4, 1, {1, 2}, "");
  const Tokens tokens = tokens_from(0);
  const Digest root = index.root({}), name = index.end_of(root);
  EXPECT_NE(name, index.end_of(index.extend(root, tokens.data())));
  EXPECT_EQ(index.find_end(name), -1);
  const int32_t node = index.add(name, std::span(tokens).first(5));
  index.attach(node, 0, 3);
  EXPECT_EQ(index.find_end(name), node);
  EXPECT_EQ(index.tokens(node).size(), 5u);
  EXPECT_EQ(index.tokens(node)[4], 4);
  EXPECT_EQ(index.find(index.extend(root, tokens.data()), tokens.data()), -1);
  expect_sound(index);
  index.remove(3);
  EXPECT_EQ(index.find_end(name), -1);
}

// As many prefixes as blocks, come and go in any order.
TEST(PrefixIndex, NodesAreUsedAgain) {
  constexpr int32_t kBlocks = 16;
  PrefixIndex index(kBlocks, 1, {3, 4}, "");
  for (int32_t round = 0; round < 50; ++round) {
    for (int32_t i = 0; i < kBlocks; ++i) {
      const Tokens tokens = tokens_from(round * kBlocks + i);
      const Digest name = index.extend(index.root({}), tokens.data());
      index.attach(index.add(name, tokens), 0, i);
    }
    expect_sound(index);
    for (int32_t i = 0; i < kBlocks; ++i) index.remove((i * 5 + round) % kBlocks);
    expect_sound(index);
    EXPECT_EQ(index.longest_chain(), 0);
  }
}

}  // namespace prefix_index_test
}  // namespace headrace
