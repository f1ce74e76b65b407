#include "engine/kv_events.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/testing/cache_fixture.h"

namespace headrace {
namespace kv_events_test {

using testing::CacheFixture;
using testing::iota_tokens;
using testing::kFull;
using testing::options_of;
using testing::state_every;
using testing::window_of;

// What a router knows: the prefixes by name, with the name before each and its last tokens.
class Router final : public KvEventSink {
 public:
  void on_kv_event(const KvEvent& event) override {
    ++num_events;
    switch (event.kind) {
      case KvEvent::Kind::kStored:
        EXPECT_FALSE(known.contains(event.name)) << "told twice";
        known[event.name] = event;
        return;
      case KvEvent::Kind::kRemoved:
        EXPECT_EQ(known.erase(event.name), 1u) << "gone, but never told of";
        return;
      case KvEvent::Kind::kCleared:
        known.clear();
        return;
    }
  }

  // Blocks of a prompt that it would count on, by tokens and parents alone.
  size_t blocks_of(std::span<const int32_t> tokens) const {
    std::optional<uint64_t> parent;
    size_t count = 0;
    while (tokens.size() >= kBlockTokens) {
      const auto next = std::find_if(known.begin(), known.end(), [&](const auto& entry) {
        return entry.second.parent == parent &&
               std::equal(entry.second.tokens.begin(), entry.second.tokens.end(), tokens.begin());
      });
      if (next == known.end()) break;
      parent = next->first;
      tokens = tokens.subspan(kBlockTokens);
      ++count;
    }
    return count;
  }

  std::map<uint64_t, KvEvent> known;
  size_t num_events = 0;
};

KvCacheOptions told_to(Router& router, KvCacheOptions options) {
  options.events = &router;
  return options;
}

TEST(KvEvents, ABlockIsToldWhenItCanBeFoundAndWhenItIsTaken) {
  Router router;
  CacheFixture f(told_to(router, options_of(4)));
  const std::vector<int32_t> tokens = iota_tokens(60);
  f.visit(tokens);
  EXPECT_EQ(router.known.size(), 3u);
  EXPECT_EQ(router.blocks_of(tokens), 3u);
  EXPECT_EQ(router.blocks_of(iota_tokens(60, 1)), 0u);
  BlockTable other = f.begin();
  ASSERT_TRUE(f.cache.reserve(32, &other));  // takes the end of the prefix
  EXPECT_EQ(router.blocks_of(tokens), 2u);
  f.cache.release(&other);
}

TEST(KvEvents, WhatIsComputedTwiceIsToldOnce) {
  Router router;
  CacheFixture f(told_to(router, options_of(8)));
  const std::vector<int32_t> tokens = iota_tokens(40);
  BlockTable a = f.begin(), b = f.begin();
  ASSERT_TRUE(f.cache.reserve(40, &a));
  ASSERT_TRUE(f.cache.reserve(40, &b));
  f.cache.commit(tokens, 40, &a);
  f.cache.commit(tokens, 40, &b);
  EXPECT_EQ(router.num_events, 2u);
}

TEST(KvEvents, AResetIsOneEventAndNothingIsFoundAfterIt) {
  Router router;
  CacheFixture f(told_to(router, options_of(8)));
  const std::vector<int32_t> tokens = iota_tokens(50);
  f.visit(tokens);
  const BlockTable held = f.run(tokens);  // of a sequence that goes on
  f.cache.reset();
  EXPECT_TRUE(router.known.empty());
  BlockTable found;
  EXPECT_EQ(f.match(tokens, &found), 0);
  f.expect_sound({&held});
  f.cache.release(&found);
  f.visit(iota_tokens(50, 3));
  EXPECT_EQ(router.known.size(), 3u);
  f.expect_sound({&held});
}

TEST(KvEvents, AFailedSequenceTakesBackWhatItTold) {
  Router router;
  CacheFixture f(told_to(router, options_of(8)));
  BlockTable a = f.run(iota_tokens(40));
  EXPECT_EQ(router.known.size(), 2u);
  f.cache.discard(&a);
  EXPECT_TRUE(router.known.empty());
}

// After any history a router knows exactly the prefixes whose blocks are there.
TEST(KvEvents, ARouterKnowsWhatTheCacheHolds) {
  const std::vector<std::vector<CacheRule>> kinds = {
      {kFull}, {kFull, window_of(32, 2)}, {kFull, state_every(2)}};
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    Router router;
    CacheFixture f(told_to(router, options_of(24, kinds[kind])));
    std::mt19937 random(7);
    size_t num_hits = 0;
    for (int round = 0; round < 400; ++round) {
      const int first = static_cast<int>(random() % 6);
      const std::vector<int32_t> tokens = iota_tokens(17 + static_cast<int>(random() % 60), first);
      BlockTable found;
      const auto num_found = static_cast<size_t>(f.match(tokens, &found)) / kBlockTokens;
      EXPECT_GE(router.blocks_of(tokens), num_found) << kind << " " << round;
      if (kind == 0) {
        const auto most = (tokens.size() - 1) / kBlockTokens;
        EXPECT_EQ(std::min(router.blocks_of(tokens), most), num_found) << round;
      }
      num_hits += num_found;
      f.cache.release(&found);
      f.visit(tokens);
      if (round % 97 == 96) f.cache.reset();
    }
    EXPECT_GT(num_hits, 100u);
  }
}

}  // namespace kv_events_test
}  // namespace headrace
