// What a request is told of what the cache had no more, and what its session keeps alive.

#include <gtest/gtest.h>

#include <map>

#include "engine/scheduler.h"
#include "model/adapter.h"

namespace headrace {
namespace scheduler_sessions_test {

using Reason = CacheMiss::Reason;

SchedulerOptions session_options() {
  SchedulerOptions options;
  options.max_batch_tokens = 64;
  options.max_logit_rows = 8;
  options.max_sequences = 4;
  options.num_blocks = 24;
  options.max_context = 380;
  options.end_ids = {2};
  options.rope_epoch = [](int64_t count) -> int64_t { return count > 300 ? 1 : 0; };
  return options;
}

Request turn_of(const std::string& session, int32_t num_prompt, int32_t first = 100) {
  Request request;
  for (int32_t i = 0; i < num_prompt; ++i) request.prompt_ids.push_back(first + i);
  request.max_tokens = 2;
  request.session = session;
  return request;
}

class SessionEngine {
 public:
  // The usage of a request that has the engine to itself.
  Usage ask(Request request) {
    scheduler.admit(++last_id_, std::move(request), ++now_);
    Usage usage;
    while (!scheduler.idle()) {
      const StepPlan& plan = scheduler.plan(++now_);
      std::vector<SpanResult> results(plan.spans.size());
      for (size_t i = 0; i < results.size(); ++i) {
        results[i].sampled.assign(static_cast<size_t>(plan.spans[i].num_sampled), {9});
      }
      std::vector<Event> events;
      scheduler.commit(results, ++now_, &events);
      scheduler.take_block_copies();
      const Status sound = scheduler.check();
      EXPECT_TRUE(sound.ok()) << sound.error().message;
      for (const Event& event : events) usage = event.usage;
    }
    return usage;
  }
  // Pushes out what came once.
  void fill(int32_t first) {
    for (int32_t i = 0; i < 3; ++i) ask(turn_of("", 200, first + 1000 * i));
  }

  Scheduler scheduler{session_options()};

 private:
  RequestId last_id_ = 0;
  TimeUs now_ = 1;
};

void expect_miss(const Usage& usage, Reason reason, int32_t offset) {
  EXPECT_EQ(usage.miss.reason, reason);
  EXPECT_EQ(usage.miss.offset, offset);
}

TEST(SchedulerSessions, WhatGoesOnIsNoMiss) {
  SessionEngine engine;
  EXPECT_EQ(engine.ask(turn_of("a", 60)).miss.reason, Reason::kNone);
  Request next = turn_of("a", 60);
  next.prompt_ids.insert(next.prompt_ids.end(), {9, 9, 500, 501, 502});  // its answer, and more
  const Usage usage = engine.ask(next);
  EXPECT_EQ(usage.miss.reason, Reason::kNone);
  EXPECT_EQ(usage.cached_tokens, 61);
}

TEST(SchedulerSessions, AnEditIsNamedWithBothTokens) {
  SessionEngine engine;
  engine.ask(turn_of("a", 60));
  Request next = turn_of("a", 70);
  next.prompt_ids[35] = 7;
  const Usage usage = engine.ask(next);
  expect_miss(usage, Reason::kEdited, 35);
  EXPECT_EQ(usage.miss.was, 135);
  EXPECT_EQ(usage.miss.is, 7);
  EXPECT_EQ(usage.cached_tokens, 32);
}

// Tokens that a request of another name or domain has had are nobody's business.
TEST(SchedulerSessions, NothingIsToldToWhoDoesNotNameTheSession) {
  SessionEngine engine;
  engine.ask(turn_of("a", 60));
  for (const char* session : {"", "b"}) {
    Request next = turn_of(session, 70);
    next.prompt_ids[35] = 7;
    EXPECT_EQ(engine.ask(next).miss.reason, Reason::kNone);
  }
  Request other = turn_of("a", 70);
  other.prompt_ids[36] = 7;
  other.cache_domain = "x";
  EXPECT_EQ(engine.ask(other).miss.reason, Reason::kNone);
}

// Without keys every connection is a client of its own.
TEST(SchedulerSessions, ASessionGoesOnOverAnotherConnection) {
  SessionEngine engine;
  engine.ask(turn_of("a", 60));
  Request next = turn_of("a", 70);
  next.prompt_ids[35] = 7;
  next.client = 5;
  expect_miss(engine.ask(next), Reason::kEdited, 35);
}

TEST(SchedulerSessions, WhatWasEvictedIsSaidWithAndWithoutASession) {
  SessionEngine engine;
  engine.ask(turn_of("", 60));
  engine.fill(1000);
  expect_miss(engine.ask(turn_of("", 60)), Reason::kEvicted, 0);
  engine.ask(turn_of("a", 60, 50'000));
  engine.fill(10'000);
  engine.fill(20'000);
  expect_miss(engine.ask(turn_of("a", 60, 50'000)), Reason::kEvicted, 0);
}

TEST(SchedulerSessions, AnotherAdapterAndAnotherRopeTableAreSaid) {
  SessionEngine engine;
  engine.ask(turn_of("a", 60));
  Request next = turn_of("a", 60);
  auto adapter = std::make_shared<Adapter>();
  adapter->digest = "b";
  next.adapter = adapter;
  expect_miss(engine.ask(next), Reason::kAdapter, 0);
  engine.ask(turn_of("c", 60));
  expect_miss(engine.ask(turn_of("c", 310)), Reason::kRope, 0);
}

TEST(SchedulerSessions, AResetForgetsSessions) {
  SessionEngine engine;
  engine.ask(turn_of("a", 60));
  engine.scheduler.reset_cache();
  EXPECT_EQ(engine.ask(turn_of("a", 60)).miss.reason, Reason::kNone);
}

// Errands that come back for each other's prefix push out what a session left once, unless they
// name it.
TEST(SchedulerSessions, AnErrandKeepsItsParentAlive) {
  for (const bool names_parent : {false, true}) {
    SessionEngine engine;
    engine.ask(turn_of("parent", 100));
    for (int32_t i = 0; i < 12; ++i) {
      Request errand = turn_of("", 150, 1000 * (1 + i % 6));
      if (names_parent) errand.parent_session = "parent";
      engine.ask(errand);
    }
    const Usage usage = engine.ask(turn_of("parent", 100));
    EXPECT_EQ(usage.cached_tokens, names_parent ? 96 : 0);
  }
}

}  // namespace scheduler_sessions_test
}  // namespace headrace
