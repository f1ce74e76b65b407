// Which prefixes the cache gives up first.

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

#include "engine/testing/cache_fixture.h"

namespace headrace {
namespace kv_cache_worth_test {

using namespace testing;

constexpr TimeUs kMinute = 60'000'000;

// Tokens of whole blocks, nobody else's.
std::vector<int32_t> story(int32_t blocks, int32_t number) {
  return iota_tokens(blocks * kBlockTokens, number * 10'000);
}

std::vector<int32_t> longer(std::vector<int32_t> tokens, int32_t blocks, int32_t number) {
  const std::vector<int32_t> more = story(blocks, number);
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

// One that asks for something.
void visit(CacheFixture* f, const std::vector<int32_t>& tokens, const Retention& retention,
           uint64_t owner = 0) {
  BlockTable table;
  f->match(tokens, &table);
  table.retention = retention;
  table.owner = owner;
  f->compute(tokens, &table);
  f->cache.release(&table);
}

TEST(KvCacheWorth, WhatSomebodyCameBackForOutlivesWhatCameOnce) {
  CacheFixture f(options_of(40));
  f.visit(story(8, 1));
  f.visit(longer(story(8, 1), 4, 2));
  for (int32_t i = 10; i < 60; ++i) f.visit(story(6, i));
  EXPECT_EQ(f.found(longer(story(8, 1), 5, 2)), 12);  // with what followed
  f.expect_sound({});
}

TEST(KvCacheWorth, WhatWasEvictedTooEarlyIsKeptWhenItComesBack) {
  CacheFixture f(options_of(40));
  f.visit(story(8, 1));
  for (int32_t i = 10; i < 18; ++i) f.visit(story(6, i));
  ASSERT_EQ(f.found(story(8, 1)), 0);
  f.visit(story(8, 1));
  for (int32_t i = 20; i < 28; ++i) f.visit(story(6, i));
  EXPECT_EQ(f.found(longer(story(8, 1), 1, 2)), 8);
}

TEST(KvCacheWorth, SharingAtOneTimeSaysNothingOfLaterTimes) {
  CacheFixture f(options_of(40));
  BlockTable first = f.run(story(8, 1));
  BlockTable second;
  EXPECT_EQ(f.match(longer(story(8, 1), 9, 2), &second), 8 * kBlockTokens);
  f.cache.release(&first);
  f.cache.release(&second);
  for (int32_t i = 10; i < 18; ++i) f.visit(story(6, i));
  EXPECT_EQ(f.found(longer(story(8, 1), 1, 2)), 0);
}

TEST(KvCacheWorth, OfLowPriorityGoesFirst) {
  CacheFixture f(options_of(20));
  f.visit(story(6, 1));
  visit(&f, story(6, 2), {Retention::Priority::kLow});
  f.visit(story(6, 3));
  f.visit(story(8, 4));
  EXPECT_EQ(f.found(longer(story(6, 2), 1, 9)), 0);
  EXPECT_EQ(f.found(longer(story(6, 1), 1, 9)), 6);
}

TEST(KvCacheWorth, OfHighPriorityStaysForItsTimeAndNoLonger) {
  CacheFixture f(options_of(40));
  f.cache.set_time(kMinute);
  visit(&f, story(8, 1), {Retention::Priority::kHigh, kMinute});
  for (int32_t i = 10; i < 30; ++i) f.visit(story(6, i));
  EXPECT_EQ(f.found(longer(story(8, 1), 1, 9)), 8);
  f.cache.set_time(3 * kMinute);
  for (int32_t i = 30; i < 50; ++i) {
    for (int turn = 0; turn < 3; ++turn) f.visit(story(30, i));
  }
  EXPECT_EQ(f.found(longer(story(8, 1), 1, 9)), 0);
}

// A client that keeps all it can keeps the beginning of it, and a quarter of the cache.
TEST(KvCacheWorth, AHintPinsNoMoreThanAClientsShare) {
  CacheFixture f(options_of(40));
  visit(&f, story(30, 1), {Retention::Priority::kHigh, kMinute}, 7);
  for (int32_t i = 10; i < 30; ++i) f.visit(story(20, i));
  EXPECT_EQ(f.found(longer(story(30, 1), 1, 9)), 10);
  f.expect_sound({});
}

// Every block can still be taken, whatever was asked for.
TEST(KvCacheWorth, HintsNeverKeepASequenceFromItsBlocks) {
  CacheFixture f(options_of(16));
  for (uint64_t owner = 0; owner < 8; ++owner) {
    visit(&f, story(4, static_cast<int32_t>(owner)), {Retention::Priority::kHigh, kMinute}, owner);
  }
  f.visit(story(16, 20));
  EXPECT_EQ(f.found(longer(story(16, 20), 1, 9)), 16);
  f.expect_sound({});
}

// Hears what is cached, and that a prefix goes from its end.
class Listener final : public KvEventSink {
 public:
  void on_kv_event(const KvEvent& event) override {
    if (event.kind == KvEvent::Kind::kStored) {
      num_after_[event.parent.value_or(0)] += 1;
      parents_[event.name] = event.parent.value_or(0);
    } else if (event.kind == KvEvent::Kind::kRemoved) {
      EXPECT_EQ(num_after_[event.name], 0) << "what goes on from it is cached";
      num_after_[parents_.at(event.name)] -= 1;
      ++num_removed_;
    }
  }
  int64_t num_removed() const { return num_removed_; }

 private:
  std::map<uint64_t, int64_t> num_after_;  // cached blocks after each
  std::map<uint64_t, uint64_t> parents_;
  int64_t num_removed_ = 0;
};

TEST(KvCacheWorth, APrefixGoesFromItsEndWhateverIsAskedFor) {
  std::mt19937_64 random(3);
  Listener listener;
  KvCacheOptions options = options_of(60);
  options.events = &listener;
  CacheFixture f(options);
  std::vector<std::vector<int32_t>> stories = {story(3, 0)};
  std::vector<BlockTable> running;
  for (int i = 0; i < 3000; ++i) {
    f.cache.set_time(i * kMinute / 10);
    std::vector<int32_t> tokens = stories[random() % stories.size()];
    tokens.resize(tokens.size() / kBlockTokens * kBlockTokens / (1 + random() % 2));
    tokens = longer(std::move(tokens), static_cast<int32_t>(1 + random() % 5), i + 1);
    if (tokens.size() > 16 * kBlockTokens) tokens.resize(16 * kBlockTokens);
    stories.push_back(tokens);
    if (stories.size() > 12) stories.erase(stories.begin());
    BlockTable table;
    f.match(tokens, &table);
    table.retention = {static_cast<Retention::Priority>(random() % 3),
                       static_cast<TimeUs>(random() % 5) * kMinute};
    table.owner = random() % 4;
    f.compute(tokens, &table);
    running.push_back(std::move(table));
    while (running.size() > random() % 3) {
      const auto which = running.begin() + static_cast<ptrdiff_t>(random() % running.size());
      f.cache.release(&*which);
      running.erase(which);
    }
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(listener.num_removed(), 3000);
}

}  // namespace kv_cache_worth_test
}  // namespace headrace
