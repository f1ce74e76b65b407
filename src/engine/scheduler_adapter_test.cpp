// Adapters in the scheduler: who shares what is cached, and that what a step reads is what its own
// adapter wrote there.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "engine/scheduler.h"
#include "model/adapter.h"

namespace headrace {
namespace scheduler_adapter_test {

class NoWeights final : public PackedAdapter {
 public:
  size_t num_bytes() const override { return 0; }
};

std::shared_ptr<const Adapter> adapter_named(const std::string& digest) {
  auto adapter = std::make_shared<Adapter>();
  adapter->packed = std::make_unique<NoWeights>();
  adapter->digest = digest;
  return adapter;
}

SchedulerOptions adapter_options(int64_t num_blocks = 64) {
  SchedulerOptions options;
  options.max_batch_tokens = 32;
  options.max_logit_rows = 8;
  options.max_sequences = 4;
  options.num_blocks = num_blocks;
  options.max_context = 128;
  options.rope_epoch = [](int64_t) { return int64_t{0}; };
  return options;
}

Request adapted_request(std::shared_ptr<const Adapter> adapter, int32_t num_prompt = 40,
                        int32_t max_tokens = 4, int32_t first = 10) {
  Request request;
  for (int32_t i = 0; i < num_prompt; ++i) request.prompt_ids.push_back(first + i);
  request.max_tokens = max_tokens;
  request.adapter = std::move(adapter);
  return request;
}

// A model whose state of a position is a number made of the adapter and of all tokens up to it, and
// whose next token is made of that: what is kept in blocks can be told apart.
struct ToyModel {
  using State = uint64_t;

  static State state_of(const Request& request, std::span<const int32_t> tokens, int64_t position) {
    State state =
        request.adapter == nullptr ? 1 : std::hash<std::string>()(request.adapter->digest);
    for (int64_t p = 0; p <= position; ++p) {
      state = (state ^ static_cast<State>(tokens[static_cast<size_t>(p)])) * 0x9E3779B97F4A7C15u;
      state ^= state >> 29;
    }
    return state;
  }
  static int32_t token_after(State state) { return static_cast<int32_t>(10 + state % 50); }
  // What a request gives when nobody else is there.
  static std::vector<int32_t> answer(const Request& request, std::vector<int32_t> tokens) {
    const size_t num_prompt = tokens.size();
    while (std::ssize(tokens) < std::ssize(request.prompt_ids) + request.max_tokens) {
      tokens.push_back(token_after(state_of(request, tokens, std::ssize(tokens) - 1)));
    }
    return {tokens.begin() + static_cast<ptrdiff_t>(num_prompt), tokens.end()};
  }
};

// Runs a scheduler over blocks of such states.
class ToyEngine {
 public:
  explicit ToyEngine(SchedulerOptions options)
      : scheduler(std::move(options)),
        states_(static_cast<size_t>(scheduler.options().num_blocks) * kBlockTokens) {}

  void step() {
    const StepPlan& plan = scheduler.plan(++now);
    for (const BlockCopy& copy : scheduler.take_block_copies()) {
      std::copy_n(state_at(copy.from), kBlockTokens, state_at(copy.to));
    }
    std::vector<SpanResult> results(plan.spans.size());
    for (size_t i = 0; i < results.size(); ++i) {
      compute(plan.spans[i], *plan.sequences[i], &results[i]);
    }
    events_.clear();
    scheduler.commit(results, ++now, &events_);
    const Status sound = scheduler.check();
    ASSERT_TRUE(sound.ok()) << sound.error().message;
    for (Event& event : events_) {
      if (event.kind == Event::Kind::kToken) answers[event.request_id].push_back(event.token_id);
      if (event.kind == Event::Kind::kFinished) ends[event.request_id] = event;
    }
  }
  void run() {
    while (!scheduler.idle()) step();
  }
  // One request from its beginning to its end.
  const Event& serve(RequestId id, Request request) {
    scheduler.admit(id, std::move(request), 1);
    run();
    return ends.at(id);
  }

  Scheduler scheduler;
  TimeUs now = 1;
  std::map<RequestId, std::vector<int32_t>> answers;
  std::map<RequestId, Event> ends;
  std::set<const PackedAdapter*> seen;  // of all spans

 private:
  ToyModel::State* state_at(int32_t block_id) {
    return states_.data() + int64_t{block_id} * kBlockTokens;
  }
  ToyModel::State& state_of(const Span& span, int64_t position) {
    return state_at(span.tables[0][position / kBlockTokens])[position % kBlockTokens];
  }
  void compute(const Span& span, const Sequence& sequence, SpanResult* result) {
    const Request& request = sequence.request;
    const PackedAdapter* own = request.adapter == nullptr ? nullptr : request.adapter->packed.get();
    EXPECT_EQ(span.adapter, own);
    seen.insert(span.adapter);
    int64_t num_wrong = 0;
    for (int64_t p = 0; p < span.first_position; ++p) {
      num_wrong += state_of(span, p) != ToyModel::state_of(request, sequence.tokens, p);
    }
    EXPECT_EQ(num_wrong, 0) << "request " << sequence.id << " reads states of others";
    for (int64_t p = span.first_position; p < span.end_position(); ++p) {
      state_of(span, p) = ToyModel::state_of(request, sequence.tokens, p);
    }
    if (span.num_sampled == 0) return;
    const ToyModel::State last = state_of(span, span.end_position() - 1);
    result->sampled.push_back({ToyModel::token_after(last)});
  }

  std::vector<ToyModel::State> states_;
  std::vector<Event> events_;
};

TEST(SchedulerAdapters, ThePrefixOfAnotherAdapterIsNotFound) {
  ToyEngine engine(adapter_options());
  const auto one = adapter_named("one"), two = adapter_named("two");
  EXPECT_EQ(engine.serve(1, adapted_request(one)).usage.cached_tokens, 0);
  EXPECT_EQ(engine.serve(2, adapted_request(two)).usage.cached_tokens, 0);
  EXPECT_EQ(engine.serve(3, adapted_request(nullptr)).usage.cached_tokens, 0);
  // Each finds its own: all of the prompt but the token that is always computed.
  EXPECT_EQ(engine.serve(4, adapted_request(two)).usage.cached_tokens, 39);
  EXPECT_EQ(engine.serve(5, adapted_request(nullptr)).usage.cached_tokens, 39);
  EXPECT_EQ(engine.answers[4], engine.answers[2]);
  EXPECT_EQ(engine.answers[5], engine.answers[3]);
  EXPECT_NE(engine.answers[1], engine.answers[2]);
}

// Loaded again under whatever name, from the same files.
TEST(SchedulerAdapters, WhatCountsIsTheContentNotTheObject) {
  ToyEngine engine(adapter_options());
  engine.serve(1, adapted_request(adapter_named("one")));
  const auto again = adapter_named("one");
  EXPECT_EQ(engine.serve(2, adapted_request(again)).usage.cached_tokens, 39);
  EXPECT_EQ(engine.answers[2], engine.answers[1]);
  EXPECT_TRUE(engine.seen.contains(again->packed.get()));
}

TEST(SchedulerAdapters, DomainsDivideWhatAnAdapterShares) {
  ToyEngine engine(adapter_options());
  const auto one = adapter_named("one");
  const auto in_domain = [&](const std::string& domain) {
    Request request = adapted_request(one);
    request.cache_domain = domain;
    return request;
  };
  engine.serve(1, in_domain("a"));
  EXPECT_EQ(engine.serve(2, in_domain("b")).usage.cached_tokens, 0);
  EXPECT_EQ(engine.serve(3, in_domain("a")).usage.cached_tokens, 39);
  // Texts that are the same one after the other are not the same root.
  Request shifted = adapted_request(adapter_named("ne"));
  shifted.cache_domain = "ao";
  EXPECT_EQ(engine.serve(4, shifted).usage.cached_tokens, 0);
}

// Equal prompts at once: one leads those with its adapter, and nobody else.
TEST(SchedulerAdapters, OnlyThoseWithTheSameAdapterFollow) {
  const auto one = adapter_named("one");
  for (const bool same : {true, false}) {
    ToyEngine engine(adapter_options());
    engine.scheduler.admit(1, adapted_request(one, 60), 1);
    engine.scheduler.admit(2, adapted_request(same ? one : nullptr, 60), 1);
    engine.run();
    EXPECT_EQ(engine.scheduler.stats().num_followed, same ? 1u : 0u);
    EXPECT_EQ(engine.answers[1] == engine.answers[2], same);
  }
}

TEST(SchedulerAdapters, AnAdapterIsHeldUntilItsLastRequestEnds) {
  ToyEngine engine(adapter_options());
  auto adapter = adapter_named("one");
  const std::weak_ptr<const Adapter> watched = adapter;
  engine.scheduler.admit(1, adapted_request(adapter, 20, 2), 1);
  engine.scheduler.admit(2, adapted_request(std::move(adapter), 50, 9), 1);
  while (!engine.ends.contains(1)) engine.step();
  EXPECT_FALSE(watched.expired());
  engine.run();
  EXPECT_TRUE(watched.expired());  // what it left in the cache needs only its name
}

TEST(SchedulerAdapters, AResetLeavesRunningRequestsWhatTheyHold) {
  ToyEngine engine(adapter_options());
  const auto one = adapter_named("one");
  engine.serve(1, adapted_request(one, 40, 20));
  engine.scheduler.admit(2, adapted_request(one, 40, 20), 1);
  for (int i = 0; i < 5; ++i) engine.step();
  engine.scheduler.reset_cache();
  EXPECT_TRUE(engine.scheduler.check().ok());
  engine.run();
  EXPECT_EQ(engine.answers[2], engine.answers[1]);
  engine.scheduler.reset_cache();
  EXPECT_EQ(engine.serve(3, adapted_request(one, 40, 20)).usage.cached_tokens, 0);
  EXPECT_EQ(engine.answers[3], engine.answers[1]);
}

// Names that a router hears of.
class Listener final : public KvEventSink {
 public:
  void on_kv_event(const KvEvent& event) override {
    if (event.kind == KvEvent::Kind::kCleared) ++num_clears;
    if (event.kind != KvEvent::Kind::kStored) return;
    num_first += !event.parent.has_value();
    EXPECT_TRUE(!event.parent || names.contains(*event.parent));
    EXPECT_TRUE(names.insert(event.name).second) << "told twice";
  }
  std::set<uint64_t> names;
  int num_first = 0, num_clears = 0;
};

TEST(SchedulerAdapters, EachAdapterTellsOfItsOwnBlocks) {
  Listener listener;
  SchedulerOptions options = adapter_options();
  options.kv_events = &listener;
  ToyEngine engine(options);
  RequestId id = 0;
  for (const auto& adapter : {adapter_named("one"), adapter_named("two"), adapter_named("one")}) {
    engine.serve(++id, adapted_request(adapter, 40, 1));
  }
  EXPECT_EQ(listener.names.size(), 4u);  // two blocks of two adapters
  EXPECT_EQ(listener.num_first, 2);
  listener.names.clear();
  engine.scheduler.reset_cache();
  EXPECT_EQ(listener.num_clears, 1);
  engine.serve(++id, adapted_request(nullptr, 40, 1));
  EXPECT_EQ(listener.names.size(), 2u);
}

// Whatever comes together, in however few blocks: everybody reads states of its own adapter (the
// engine looks at each), and answers as if alone.
TEST(SchedulerAdapters, AnyMixtureAnswersAsEachAlone) {
  const std::vector<std::shared_ptr<const Adapter>> adapters = {
      nullptr, adapter_named("one"), adapter_named("two"), adapter_named("one")};
  for (const int64_t num_blocks : {10, 18, 60}) {
    ToyEngine engine(adapter_options(num_blocks));
    std::mt19937 random(17);
    std::map<RequestId, std::vector<int32_t>> expected;
    for (RequestId id = 1; id <= 60; ++id) {
      const auto& adapter = adapters[random() % adapters.size()];
      Request request = adapted_request(adapter, 3 + static_cast<int32_t>(random() % 60),
                                        1 + static_cast<int32_t>(random() % 50),
                                        10 + static_cast<int32_t>(random() % 2));
      expected[id] = ToyModel::answer(request, request.prompt_ids);
      engine.scheduler.admit(id, std::move(request), 1);
      for (auto steps = random() % 12; steps > 0 && !engine.scheduler.idle(); --steps) {
        engine.step();
        if (HasFatalFailure()) return;
      }
      if (id % 20 == 0) engine.scheduler.reset_cache();
    }
    engine.run();
    for (const auto& [id, answer] : expected) EXPECT_EQ(engine.answers[id], answer) << id;
    EXPECT_GT(engine.scheduler.stats().cached_tokens, 100u) << num_blocks;
    if (num_blocks == 10) {
      EXPECT_GT(engine.scheduler.stats().num_preemptions, 3u);
    }
  }
}

}  // namespace scheduler_adapter_test
}  // namespace headrace
