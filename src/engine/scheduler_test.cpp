#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace headrace {
namespace scheduler_test {

SchedulerOptions make_options() {
  SchedulerOptions options;
  options.max_batch_tokens = 32;
  options.max_logit_rows = 8;
  options.max_sequences = 4;
  options.num_blocks = 64;
  options.max_context = 256;
  options.end_ids = {2};
  options.rope_epoch = [](int64_t) { return int64_t{0}; };
  return options;
}

Request make_request(int32_t num_prompt, int32_t max_tokens) {
  Request request;
  request.prompt_ids.assign(static_cast<size_t>(num_prompt), 5);
  request.max_tokens = max_tokens;
  return request;
}

// A request whose prompt shares nothing with others: no prefix hits.
Request unlike_request(int32_t num_prompt, int32_t max_tokens, int32_t token) {
  Request request = make_request(num_prompt, max_tokens);
  std::fill(request.prompt_ids.begin(), request.prompt_ids.end(), token);
  return request;
}

class Driver {
 public:
  explicit Driver(SchedulerOptions options) : scheduler(std::move(options)) {}

  const StepPlan& plan() { return scheduler.plan(++now); }
  // Every sampling span gets this token.
  std::vector<Event> commit(const StepPlan& plan, int32_t token_id) {
    std::vector<SpanResult> results(plan.spans.size());
    for (size_t i = 0; i < results.size(); ++i) {
      results[i].sampled.assign(static_cast<size_t>(plan.spans[i].num_sampled), {token_id});
      results[i].scored.resize(static_cast<size_t>(plan.spans[i].num_scored));
    }
    std::vector<Event> events;
    scheduler.commit(results, ++now, &events);
    const Status sound = scheduler.check();
    EXPECT_TRUE(sound.ok()) << sound.error().message;
    return events;
  }
  std::vector<Event> step(int32_t token_id = 9) { return commit(plan(), token_id); }
  int32_t planned_tokens(RequestId id) {
    for (size_t i = 0; i < last().spans.size(); ++i) {
      if (last().sequences[i]->id == id) return last().spans[i].num_rows;
    }
    return 0;
  }
  const StepPlan& last() const { return *last_plan; }
  const StepPlan& keep(const StepPlan& plan) { return *(last_plan = &plan); }

  Scheduler scheduler;
  const StepPlan* last_plan = nullptr;
  TimeUs now = 1;
};

// Of requests without a domain.
Digest root_of(const Driver& driver) { return driver.scheduler.kv_cache().root({}); }

TEST(Scheduler, PromptIsComputedInChunksThenTokensOneByOne) {
  Driver driver(make_options());
  driver.scheduler.admit(1, make_request(70, 3), 1);
  for (const int32_t expected : {32, 32, 6}) {
    const StepPlan& plan = driver.plan();
    ASSERT_EQ(plan.spans.size(), 1u);
    EXPECT_EQ(plan.spans[0].num_rows, expected);
    EXPECT_EQ(plan.spans[0].num_sampled, expected == 6 ? 1 : 0);
    driver.commit(plan, 9);
  }
  EXPECT_EQ(driver.step().size(), 1u);
  const std::vector<Event> events = driver.step();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].token_id, 9);
  EXPECT_EQ(events[1].reason, FinishReason::kLength);
  EXPECT_EQ(events[1].usage.output_tokens, 3);
  EXPECT_TRUE(driver.scheduler.idle());
}

TEST(Scheduler, TokensGoFirstAndShortPromptsOvertakeLongOnes) {
  Driver driver(make_options());
  driver.scheduler.admit(1, unlike_request(2, 50, 3), 1);
  driver.step();
  driver.scheduler.admit(2, unlike_request(200, 5, 4), 1);
  driver.step();
  driver.scheduler.admit(3, unlike_request(10, 5, 6), 1);
  const StepPlan& plan = driver.keep(driver.plan());
  EXPECT_EQ(driver.planned_tokens(1), 1);
  EXPECT_EQ(driver.planned_tokens(3), 10);  // whole, although the long one is older
  EXPECT_EQ(driver.planned_tokens(2), 21);
  EXPECT_EQ(plan.sequences[0]->id, 1u);
  driver.commit(plan, 9);
}

TEST(Scheduler, OldestChunkKeepsHalfOfTheBudget) {
  Driver driver(make_options());
  driver.scheduler.admit(1, unlike_request(200, 5, 3), 1);
  driver.scheduler.admit(2, unlike_request(40, 5, 4), 1);
  driver.scheduler.admit(3, unlike_request(30, 5, 6), 1);
  const StepPlan& plan = driver.keep(driver.plan());
  EXPECT_EQ(driver.planned_tokens(3), 16);
  EXPECT_EQ(driver.planned_tokens(2), 0);
  EXPECT_EQ(driver.planned_tokens(1), 16);
  driver.commit(plan, 9);
}

TEST(Scheduler, ExhaustionPreemptsTheYoungestAndKeepsItsOutput) {
  SchedulerOptions options = make_options();
  options.num_blocks = 5;
  options.max_context = 80;
  Driver driver(options);
  driver.scheduler.admit(1, unlike_request(15, 60, 3), 1);
  driver.scheduler.admit(2, unlike_request(15, 60, 4), 1);
  while (driver.scheduler.stats().num_preemptions == 0) driver.step();
  const Sequence* young = driver.scheduler.find(2);
  EXPECT_FALSE(young->running);
  EXPECT_EQ(young->num_computed, 0);
  EXPECT_GT(young->num_output(), 10);
  EXPECT_TRUE(driver.scheduler.find(1)->running);
  const int32_t kept = young->num_output();
  std::vector<Event> finished;
  while (!driver.scheduler.idle()) {
    for (Event& event : driver.step()) {
      if (event.kind == Event::Kind::kFinished) finished.push_back(event);
    }
  }
  ASSERT_EQ(finished.size(), 2u);
  EXPECT_EQ(finished[0].request_id, 1u);
  EXPECT_EQ(finished[1].usage.output_tokens, 60);
  EXPECT_GT(kept, 0);
}

TEST(Scheduler, NobodyIsPreemptedMoreOftenThanIsAllowed) {
  SchedulerOptions options = make_options();
  options.num_blocks = 8;
  options.max_context = 128;
  Driver driver(options);
  driver.scheduler.admit(1, unlike_request(10, 110, 3), 1);
  driver.scheduler.admit(2, unlike_request(10, 60, 4), 1);
  RequestId next = 3;
  int32_t most = 0;
  for (int i = 0; i < 3000 && !driver.scheduler.idle(); ++i) {
    if (i % 20 == 0 && next < 40) {
      driver.scheduler.admit(next, unlike_request(10, 60, static_cast<int32_t>(next)), 1);
      ++next;
    }
    driver.step();
    for (const RequestId id : driver.scheduler.ids()) {
      const Sequence* sequence = driver.scheduler.find(id);
      most = std::max(most, sequence->num_preemptions);
      ASSERT_LE(sequence->num_preemptions, kMaxPreemptions);
    }
  }
  EXPECT_TRUE(driver.scheduler.idle());
  EXPECT_GT(most, 0);
}

TEST(Scheduler, SecondRequestWithTheSamePromptHitsTheCache) {
  Driver driver(make_options());
  driver.scheduler.admit(1, make_request(40, 1), 1);
  while (!driver.scheduler.idle()) driver.step();
  driver.scheduler.admit(2, make_request(40, 1), 1);
  const StepPlan& plan = driver.plan();
  EXPECT_EQ(plan.spans[0].first_position, 39);  // all but the row that is sampled from
  EXPECT_EQ(plan.spans[0].num_rows, 1);
  EXPECT_EQ(driver.scheduler.take_block_copies().size(), 1u);
  const std::vector<Event> events = driver.commit(plan, 9);
  EXPECT_EQ(events.back().usage.cached_tokens, 39);
}

TEST(Scheduler, PromptScoringIsLimitedByLogitRowsAndSkipsTheCache) {
  Driver driver(make_options());
  driver.scheduler.admit(1, make_request(20, 1), 1);
  while (!driver.scheduler.idle()) driver.step();
  Request request = make_request(20, 1);
  request.num_prompt_logprobs = 0;
  driver.scheduler.admit(2, request, 1);
  std::vector<std::pair<int32_t, int32_t>> steps;  // tokens, logit rows
  std::vector<Event> events;
  while (!driver.scheduler.idle()) {
    const StepPlan& plan = driver.plan();
    steps.push_back({plan.num_tokens, plan.num_logit_rows});
    events = driver.commit(plan, 9);
  }
  EXPECT_EQ(steps, (std::vector<std::pair<int32_t, int32_t>>{{8, 8}, {8, 8}, {4, 4}}));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].kind, Event::Kind::kPromptLogprobs);
  EXPECT_EQ(events[0].prompt_logprobs.size(), 20u);
  EXPECT_EQ(events[1].kind, Event::Kind::kToken);
  EXPECT_EQ(events[2].kind, Event::Kind::kFinished);
}

TEST(Scheduler, NewRopeEpochComputesFromTheBeginning) {
  SchedulerOptions options = make_options();
  options.rope_epoch = [](int64_t num_tokens) -> int64_t { return num_tokens > 20 ? 1 : 0; };
  Driver driver(options);
  driver.scheduler.admit(1, make_request(18, 10), 1);
  driver.step();
  driver.step();
  driver.step();  // 21 tokens are known now
  const StepPlan& plan = driver.plan();
  EXPECT_EQ(plan.spans[0].first_position, 0);
  EXPECT_EQ(plan.spans[0].num_rows, 21);
  EXPECT_EQ(plan.spans[0].rope_epoch, 1);
  driver.commit(plan, 9);
  EXPECT_EQ(driver.plan().spans[0].num_rows, 1);
}

TEST(Scheduler, CancelInFlightEndsWithTheStep) {
  Driver driver(make_options());
  driver.scheduler.admit(1, make_request(5, 5), 1);
  driver.scheduler.admit(2, make_request(300 - 60, 5), 1);
  const StepPlan& plan = driver.plan();
  std::vector<Event> events;
  driver.scheduler.end(1, FinishReason::kCancelled, driver.now, &events);
  driver.scheduler.end(77, FinishReason::kCancelled, driver.now, &events);
  EXPECT_TRUE(events.empty());
  events = driver.commit(plan, 9);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].request_id, 1u);
  EXPECT_EQ(events[0].reason, FinishReason::kCancelled);
  EXPECT_EQ(events[0].usage.output_tokens, 0);
}

TEST(Scheduler, FailedRowEndsThatSequenceAndFreesItsBlocks) {
  Driver driver(make_options());
  driver.scheduler.admit(1, unlike_request(20, 5, 3), 1);
  driver.scheduler.admit(2, unlike_request(5, 5, 4), 1);
  const StepPlan& plan = driver.plan();
  std::vector<SpanResult> results(plan.spans.size());
  for (size_t i = 0; i < results.size(); ++i) {
    results[i].sampled.resize(1);
    if (plan.sequences[i]->id == 1) results[i].failure = "broken row";
  }
  std::vector<Event> events;
  driver.scheduler.commit(results, driver.now, &events);
  ASSERT_EQ(events.size(), 2u);
  const Event& failed = events[0].request_id == 1 ? events[0] : events[1];
  EXPECT_EQ(failed.reason, FinishReason::kError);
  EXPECT_EQ(failed.error.message, "broken row");
  EXPECT_EQ(driver.scheduler.take_tainted_blocks().size(), 2u);
  EXPECT_TRUE(driver.scheduler.take_tainted_blocks().empty());
  EXPECT_NE(driver.scheduler.find(2), nullptr);
}

TEST(Scheduler, StopIdsEndAndAreNotCounted) {
  Driver driver(make_options());
  Request request = make_request(5, 10);
  request.stop_ids = {8};
  request.ignore_eos = true;
  driver.scheduler.admit(1, request, 1);
  EXPECT_EQ(driver.step(2)[0].kind, Event::Kind::kToken);  // an end id, ignored
  const std::vector<Event> events = driver.step(8);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].reason, FinishReason::kStop);
  EXPECT_EQ(events[0].stop_id, 8);
  EXPECT_EQ(events[0].usage.output_tokens, 1);
}

Request of_client(Request request, uint64_t client) {
  request.client = client;
  return request;
}

std::vector<int32_t> counting(int32_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

TEST(SchedulerSharing, EqualPromptsAreComputedOnce) {
  SchedulerOptions options = make_options();
  options.max_sequences = 8;
  Driver driver(options);
  Request request = make_request(0, 3);
  request.prompt_ids = counting(200);
  for (RequestId id = 1; id <= 8; ++id) driver.scheduler.admit(id, request, 1);
  int num_tokens = 0;
  while (!driver.scheduler.idle()) {
    const StepPlan& plan = driver.plan();
    num_tokens += plan.num_tokens;
    driver.commit(plan, 9);
  }
  // The prompt once, its last token for each of the others, two of the three outputs of each.
  EXPECT_EQ(num_tokens, 200 + 7 * 1 + 8 * 2);
  EXPECT_EQ(driver.scheduler.stats().num_followed, 7u);
  EXPECT_EQ(driver.scheduler.stats().cached_tokens, 7u * 199);
}

// The choices of one request: its prompt once, then one row for each to sample from.
TEST(SchedulerSharing, SixteenChoicesComputeThePromptOnce) {
  for (const int32_t num_prompt : {2, 15, 16, 17, 33, 200}) {
    SchedulerOptions options = make_options();
    options.max_sequences = options.max_batch_tokens;
    options.max_logit_rows = options.max_batch_tokens;
    options.num_blocks = 128;
    Driver driver(options);
    Request request = make_request(0, 4);
    request.prompt_ids = counting(num_prompt);
    for (RequestId id = 1; id <= 16; ++id) driver.scheduler.admit(id, request, 1);
    int num_tokens = 0, num_copies = 0;
    while (!driver.scheduler.idle()) {
      const StepPlan& plan = driver.plan();
      num_copies += static_cast<int>(driver.scheduler.take_block_copies().size());
      num_tokens += plan.num_tokens;
      driver.commit(plan, 9);
    }
    EXPECT_EQ(num_tokens, num_prompt + 15 + 16 * 3) << num_prompt;
    // No copy where whole blocks are all but the last token.
    EXPECT_EQ(num_copies, (num_prompt - 1) % kBlockTokens == 0 ? 0 : 15) << num_prompt;
  }
}

// A leader that ends with its first token leaves its last block, too.
TEST(SchedulerSharing, AnswersOfOneTokenComputeThePromptOnce) {
  SchedulerOptions options = make_options();
  options.max_sequences = 8;
  Driver driver(options);
  Request request = make_request(0, 1);
  request.prompt_ids = counting(40);
  for (RequestId id = 1; id <= 4; ++id) driver.scheduler.admit(id, request, 1);
  std::vector<int32_t> num_tokens;
  while (!driver.scheduler.idle()) {
    const StepPlan& plan = driver.plan();
    num_tokens.push_back(plan.num_tokens);
    driver.commit(plan, 9);
  }
  EXPECT_EQ(num_tokens, (std::vector<int32_t>{32, 8, 3}));
}

// With windows a prompt of 200 tokens needs blocks for all of it in one column and for the window
// and a chunk in the others; what it gives back serves the next.
TEST(SchedulerSharing, WindowsRunInTheBlocksOfWindowAndChunk) {
  SchedulerOptions options = make_options();
  options.cache_rules = {CacheRule{}, {CachePolicy::kWindow, 32, 0, 3}};
  options.num_blocks = most_blocks(options.cache_rules, 256, options.max_batch_tokens);
  ASSERT_EQ(options.num_blocks, 16 + 3 * 5);
  Driver driver(options);
  Request request = make_request(0, 40);
  request.prompt_ids = counting(200);
  driver.scheduler.admit(1, request, 1);
  while (!driver.scheduler.idle()) {
    const StepPlan& plan = driver.plan();
    EXPECT_LE(driver.scheduler.kv_cache().pool().num_used(), options.num_blocks);
    driver.commit(plan, 9);
  }
  driver.scheduler.admit(2, request, 1);
  driver.plan();
  // Not the prompt's last block, which went on with the answer.
  EXPECT_EQ(driver.scheduler.find(2)->cached_tokens, 192);
}

TEST(SchedulerSharing, RequestsOfAnotherDomainComputeTheirOwn) {
  Driver driver(make_options());
  Request request = make_request(0, 3);
  request.prompt_ids = counting(64);
  driver.scheduler.admit(1, request, 1);
  request.cache_domain = "another";
  driver.scheduler.admit(2, request, 1);
  driver.commit(driver.plan(), 9);
  EXPECT_TRUE(driver.scheduler.find(2)->running);
  EXPECT_EQ(driver.scheduler.find(2)->cached_tokens, 0);
}

TEST(SchedulerSharing, AnotherLeadsWhenTheLeaderGoesAway) {
  Driver driver(make_options());
  Request request = make_request(0, 3);
  request.prompt_ids = counting(200);
  for (RequestId id = 1; id <= 3; ++id) driver.scheduler.admit(id, request, 1);
  driver.step();
  driver.step();
  EXPECT_TRUE(driver.scheduler.find(1)->running);
  EXPECT_FALSE(driver.scheduler.find(2)->running);
  std::vector<Event> events;
  driver.scheduler.end(1, FinishReason::kCancelled, driver.now, &events);
  int num_tokens = 0;
  while (!driver.scheduler.idle()) {
    const StepPlan& plan = driver.plan();
    num_tokens += plan.num_tokens;
    EXPECT_LE(plan.spans.size(), 2u);
    driver.commit(plan, 9);
  }
  // What the first had computed was found; the third takes over all but the last token.
  EXPECT_EQ(num_tokens, (200 - 64) + 1 + 2 * 2);
}

// A leader that does not come forward is not waited for.
TEST(SchedulerSharing, FollowersLosePatience) {
  SchedulerOptions options = make_options();
  options.max_context = 1000;
  Driver driver(options);
  Request request = make_request(0, 2);
  request.prompt_ids = counting(900);
  driver.scheduler.admit(1, of_client(request, 1), 1);
  driver.scheduler.admit(2, of_client(request, 2), 1);
  int num_steps = 0;
  // Short prompts take half of each step from the leader, who takes longer than that alone.
  for (RequestId next = 3; !driver.scheduler.find(2)->running; ++num_steps, next += 2) {
    for (RequestId id = next; id < next + 2; ++id) {
      driver.scheduler.admit(id, of_client(unlike_request(31, 1, static_cast<int32_t>(id % 30)), 1),
                             1);
    }
    driver.step();
    ASSERT_LT(num_steps, 4 * (2 + 900 / 32));
  }
}

TEST(SchedulerSharing, BlocksOfAFailedChunkAreNotPublished) {
  Driver driver(make_options());
  Request healthy = make_request(0, 1);
  healthy.prompt_ids = counting(64);
  driver.scheduler.admit(1, healthy, 1);
  while (!driver.scheduler.idle()) driver.step();
  Request bad = healthy;
  for (int32_t i = 0; i < 100; ++i) bad.prompt_ids.push_back(7);
  driver.scheduler.admit(2, bad, 1);
  driver.step();  // a chunk that is fine
  const StepPlan& plan = driver.plan();
  ASSERT_EQ(plan.spans[0].num_sampled, 0);
  std::vector<SpanResult> results(1);
  results[0].failure = "broken row";
  std::vector<Event> events;
  driver.scheduler.commit(results, driver.now, &events);
  EXPECT_EQ(events.back().error.code, ErrorCode::kUnprocessable);
  EXPECT_EQ(driver.scheduler.kv_cache().peek(bad.prompt_ids, root_of(driver)).num_blocks,
            4);  // not its own
}

TEST(SchedulerSharing, ARopeTableOfEachLengthEvictsNothing) {
  SchedulerOptions options = make_options();
  options.max_batch_tokens = 128;
  options.num_blocks = 16;
  options.rope_epoch = [](int64_t num_tokens) { return std::max<int64_t>(0, num_tokens - 40); };
  Driver driver(options);
  Request useful = make_request(0, 1);
  useful.prompt_ids = counting(40);
  driver.scheduler.admit(1, useful, 1);
  while (!driver.scheduler.idle()) driver.step();
  ASSERT_EQ(driver.scheduler.kv_cache().peek(useful.prompt_ids, root_of(driver)).num_blocks, 2);
  driver.scheduler.admit(2, unlike_request(50, 60, 4), 1);
  while (!driver.scheduler.idle()) driver.step();
  EXPECT_GT(driver.scheduler.stats().num_epoch_restarts, 50u);
  EXPECT_EQ(driver.scheduler.kv_cache().peek(useful.prompt_ids, root_of(driver)).num_blocks, 2);
}

TEST(SchedulerTurns, LoneShortRequestAmongHogsHasItsTokenInTheNextStep) {
  Driver driver(make_options());
  RequestId id = 1;
  for (const uint64_t hog : {1u, 2u, 3u}) {
    for (int i = 0; i < 200; ++i, ++id) {
      driver.scheduler.admit(
          id, of_client(unlike_request(150, 100, static_cast<int32_t>(id % 90)), hog), 1);
    }
  }
  for (int i = 0; i < 30; ++i) driver.step();
  for (uint64_t lone = 10; lone < 20; ++lone) {
    driver.scheduler.admit(++id, of_client(make_request(3, 2), lone), 1);
    const std::vector<Event> events = driver.step();
    EXPECT_TRUE(std::any_of(events.begin(), events.end(), [&](const Event& event) {
      return event.request_id == id;
    })) << lone;
    driver.step();
    EXPECT_EQ(driver.scheduler.find(id), nullptr);
  }
  EXPECT_GT(driver.scheduler.stats().num_turns_given, 0u);
}

TEST(SchedulerTurns, ClientsGetEqualTokensHoweverManyRequestsTheyHave) {
  SchedulerOptions options = make_options();
  options.max_sequences = 1;  // one at a time: whose turn is it?
  Driver driver(options);
  RequestId id = 0;
  for (int i = 0; i < 100; ++i) driver.scheduler.admit(++id, of_client(make_request(3, 5), 1), 1);
  for (int i = 0; i < 20; ++i) driver.scheduler.admit(++id, of_client(make_request(3, 25), 2), 1);
  std::map<uint64_t, int> output;
  for (int i = 0; i < 300; ++i) {
    for (const Event& event : driver.step()) {
      if (event.kind == Event::Kind::kToken) ++output[event.request_id <= 100 ? 1 : 2];
    }
  }
  EXPECT_GT(output[1], 90);
  EXPECT_GT(output[2], 120);
}

TEST(SchedulerTurns, ChunksOfClientsShareAStep) {
  Driver driver(make_options());
  driver.scheduler.admit(1, of_client(unlike_request(200, 2, 3), 1), 1);
  driver.scheduler.admit(2, of_client(unlike_request(210, 2, 4), 1), 1);
  driver.scheduler.admit(3, of_client(unlike_request(200, 2, 5), 2), 1);
  driver.scheduler.admit(4, of_client(unlike_request(6, 2, 6), 3), 1);
  driver.keep(driver.plan());
  EXPECT_EQ(driver.planned_tokens(4), 6);   // wants less than its share
  EXPECT_EQ(driver.planned_tokens(3), 25);  // has taken nothing yet, so it may have more
  EXPECT_EQ(driver.planned_tokens(1) + driver.planned_tokens(2), 1);
  driver.commit(driver.last(), 9);
}

TEST(SchedulerTurns, ChunksLeaveOthersTheirGuarantees) {
  SchedulerOptions options = make_options();
  options.tenants = {{.name = "a", .guarantee = 0.25, .clients = {1}}};
  Driver driver(options);
  driver.scheduler.admit(1, of_client(unlike_request(200, 2, 3), 1), 1);
  driver.scheduler.admit(2, of_client(unlike_request(210, 2, 4), 1), 1);
  driver.scheduler.admit(3, of_client(unlike_request(200, 2, 5), 2), 1);
  driver.scheduler.admit(4, of_client(unlike_request(6, 2, 6), 3), 1);
  driver.keep(driver.plan());
  EXPECT_EQ(driver.planned_tokens(4), 6);
  EXPECT_EQ(driver.planned_tokens(1) + driver.planned_tokens(2), 9);  // a third of 26
  EXPECT_EQ(driver.planned_tokens(3), 17);
  driver.commit(driver.last(), 9);
}

}  // namespace scheduler_test
}  // namespace headrace
