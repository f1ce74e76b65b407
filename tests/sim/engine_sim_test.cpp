// The engine's thread on a model that checks the KV protocol: equal bits however requests meet,
// exactly one terminal event in every case, cancels, refusing sinks, drain and destruction.

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <set>
#include <thread>

#include "engine/engine.h"
#include "sim/collector.h"
#include "sim/fake_model.h"

namespace headrace {
namespace {

using std::chrono::milliseconds;

EngineOptions engine_options(int max_sequences = 8, int64_t num_blocks = 128) {
  EngineOptions options;
  options.max_batch_tokens = 64;
  options.max_sequences = max_sequences;
  options.num_kv_blocks = num_blocks;
  return options;
}

struct Rig {
  explicit Rig(FakeModelOptions fake = {}, EngineOptions options = engine_options(),
               std::vector<int32_t> end_ids = {})
      : model(fake), engine(Engine::create(model, backend, options, std::move(end_ids)).value()) {}
  ~Rig() {
    engine.reset();
    EXPECT_EQ(model.num_errors(), 0) << "K and V of another prefix were read";
  }
  FakeBackend backend;
  FakeModel model;
  std::unique_ptr<Engine> engine;
};

Request make_request(uint64_t seed, int32_t num_prompt, int32_t max_tokens) {
  Request request;
  for (int32_t i = 0; i < num_prompt; ++i) {
    // The first 40 tokens are common to all: prefix hits.
    const uint64_t bits = mix_bits((i < 40 ? 0 : seed * 1000) + static_cast<uint64_t>(i));
    request.prompt_ids.push_back(static_cast<int32_t>(bits % 50));
  }
  request.max_tokens = max_tokens;
  request.num_logprobs = 3;
  request.sampling.seed = seed;
  request.sampling.temperature = seed % 3 == 0 ? 0.0f : 0.8f;
  request.sampling.top_p = seed % 3 == 1 ? 0.9f : 1.0f;
  request.sampling.repetition_penalty = seed % 4 == 0 ? 1.2f : 1.0f;
  if (seed % 5 == 0) request.num_prompt_logprobs = 2;
  return request;
}

std::vector<Request> mixed_requests() {
  std::vector<Request> requests;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    requests.push_back(make_request(seed, static_cast<int32_t>(1 + seed * 37 % 150),
                                    static_cast<int32_t>(5 + seed * 11 % 60)));
  }
  return requests;
}

std::vector<Collector> run_alone(const FakeModelOptions& fake,
                                 const std::vector<Request>& requests) {
  std::vector<Collector> collectors;
  for (const Request& request : requests) {
    Rig rig(fake);  // a fresh engine each time: nothing cached
    collectors.push_back(run_together(*rig.engine, {request})[0]);
  }
  return collectors;
}

TEST(EngineSim, AloneEqualsBatchedChunkedPreemptedAndCached) {
  for (const int64_t short_context : {INT64_MAX, int64_t{100}}) {
    FakeModelOptions fake;
    fake.short_context = short_context;
    const std::vector<Request> requests = mixed_requests();
    const std::vector<Collector> alone = run_alone(fake, requests);
    {
      Rig rig(fake);
      expect_equal(alone, run_together(*rig.engine, requests));
      expect_equal(alone, run_together(*rig.engine, requests));  // now with prefix hits
      EXPECT_GT(rig.engine->metrics().prefix_cache_hits, 0u);
    }
    {
      EngineOptions timed = engine_options();
      timed.inter_token_target = milliseconds(1);
      Rig rig(fake, timed);
      expect_equal(alone, run_together(*rig.engine, requests));
    }
    {
      EngineOptions small_steps = engine_options(4);
      small_steps.max_batch_tokens = 5;
      Rig rig(fake, small_steps);
      expect_equal(alone, run_together(*rig.engine, requests));
    }
    {
      Rig rig(fake, engine_options(8, 16));  // blocks for little more than one request
      expect_equal(alone, run_together(*rig.engine, requests));
      EXPECT_GT(rig.engine->snapshot().num_preemptions, 0u);
    }
  }
}

// Whether requests run or none does.
// Steps of the start tell what steps cost, and are counted nowhere.
TEST(EngineSim, StepsArePredictedFromTheFirstOn) {
  EngineOptions options = engine_options();
  options.inter_token_target = milliseconds(50);
  Rig rig({}, options);
  const int64_t num_measured = rig.model.num_steps();
  EXPECT_GT(num_measured, 4);
  EXPECT_EQ(rig.engine->metrics().steps_total, 0u);
  EXPECT_EQ(rig.engine->snapshot().kv_blocks_cached, 0);
  run_together(*rig.engine, mixed_requests());
  const MetricsSnapshot metrics = rig.engine->metrics();
  EXPECT_EQ(static_cast<int64_t>(metrics.steps_total), rig.model.num_steps() - num_measured);
  EXPECT_EQ(metrics.steps_predicted, metrics.steps_total);
  EXPECT_LE(metrics.steps_close, metrics.steps_total);
  EXPECT_GE(metrics.wakes_total, metrics.steps_total - 1);
  EXPECT_GT(metrics.step_gap.count(), 0u);
  EXPECT_LT(metrics.step_gap.count(), metrics.steps_total);  // after a rest there is none
  EXPECT_GT(rig.engine->recent_steps(1).at(0).predicted_us, 0);
}

TEST(EngineSim, AResetForgetsAtOnce) {
  Rig rig;
  const Request request = make_request(1, 120, 4);
  run_together(*rig.engine, {request});
  ASSERT_GT(rig.engine->snapshot().kv_blocks_cached, 0);
  rig.engine->reset_cache();
  for (int i = 0; i < 5000 && rig.engine->snapshot().kv_blocks_cached > 0; ++i) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(rig.engine->snapshot().kv_blocks_cached, 0);
  EXPECT_EQ(run_together(*rig.engine, {request})[0].wait().usage.cached_tokens, 0);
  EXPECT_GT(run_together(*rig.engine, {request})[0].wait().usage.cached_tokens, 0);
}

TEST(EngineSim, OutputEqualsTheModelWithoutAnEngine) {
  Rig rig;
  Request request = make_request(3, 70, 30);  // greedy
  const std::vector<Collector> collectors = run_together(*rig.engine, {request});
  std::vector<int32_t> tokens = request.prompt_ids;
  std::vector<float> logits(50);
  for (int i = 0; i < 30; ++i) {
    rig.model.fill_logits(prefix_hash(tokens, tokens.size(), 0), logits.data());
    tokens.push_back(
        static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  EXPECT_EQ(collectors[0].output(), std::vector<int32_t>(tokens.begin() + 70, tokens.end()));
}

TEST(EngineSim, FinishReasonsUsageAndTimes) {
  Rig rig;
  Collector collector;
  ASSERT_TRUE(rig.engine->submit(make_request(3, 20, 12), collector.sink()).ok());
  const Event length = collector.wait();
  EXPECT_EQ(length.reason, FinishReason::kLength);
  EXPECT_EQ(length.usage.prompt_tokens, 20);
  EXPECT_EQ(length.usage.output_tokens, 12);
  EXPECT_GT(length.times.submitted, 0);
  EXPECT_LE(length.times.submitted, length.times.started);
  EXPECT_LE(length.times.started, length.times.first_token);
  EXPECT_LE(length.times.first_token, length.times.finished);

  Request stopped = make_request(3, 20, 12);
  stopped.stop_ids = {collector.output()[5]};
  const auto& output = collector.output();
  const auto first = std::find(output.begin(), output.end(), output[5]) - output.begin();
  Collector second;
  ASSERT_TRUE(rig.engine->submit(stopped, second.sink()).ok());
  const Event stop = second.wait();
  EXPECT_EQ(stop.reason, FinishReason::kStop);
  EXPECT_EQ(stop.stop_id, output[5]);
  EXPECT_EQ(second.output(), std::vector<int32_t>(output.begin(), output.begin() + first));
  EXPECT_EQ(stop.usage.cached_tokens, 19);  // of the same prompt all but the last token

  stopped.min_tokens = 12;  // now the stop id may not come
  Collector third;
  ASSERT_TRUE(rig.engine->submit(stopped, third.sink()).ok());
  EXPECT_EQ(third.wait().reason, FinishReason::kLength);
  EXPECT_EQ(third.output().size(), 12u);
}

TEST(EngineSim, EndIdsStopUnlessIgnored) {
  std::vector<int32_t> output;
  {
    Rig rig;
    output = run_together(*rig.engine, {make_request(6, 10, 8)})[0].output();
  }
  Rig rig({}, engine_options(), {output[0]});
  Collector ended;
  ASSERT_TRUE(rig.engine->submit(make_request(6, 10, 8), ended.sink()).ok());
  const Event event = ended.wait();
  EXPECT_EQ(event.reason, FinishReason::kStop);
  EXPECT_EQ(event.stop_id, output[0]);
  EXPECT_TRUE(ended.output().empty());
  Request ignoring = make_request(6, 10, 8);
  ignoring.ignore_eos = true;
  EXPECT_EQ(run_together(*rig.engine, {ignoring})[0].output(), output);
}

TEST(EngineSim, ContextLimitEndsWithLength) {
  EngineOptions options = engine_options();
  options.max_context = 40;
  Rig rig({}, options);
  EXPECT_EQ(rig.engine->max_context(), 40);
  Collector collector;
  ASSERT_TRUE(rig.engine->submit(make_request(1, 30, 1000), collector.sink()).ok());
  EXPECT_EQ(collector.wait().reason, FinishReason::kLength);
  EXPECT_EQ(collector.output().size(), 10u);
  const Result<RequestId> refused = rig.engine->submit(make_request(1, 40, 1), collector.sink());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().param, "prompt");
  EXPECT_NE(refused.error().message.find("40"), std::string::npos);
}

TEST(EngineSim, PromptScoringAloneNeedsNoToken) {
  Rig rig;
  Request request = make_request(5, 100, 0);
  const std::vector<Collector> scored = run_together(*rig.engine, {request});
  EXPECT_TRUE(scored[0].output().empty());
  const auto prompt_logprobs = scored[0].prompt_logprobs();
  ASSERT_EQ(prompt_logprobs.size(), 100u);
  EXPECT_FALSE(prompt_logprobs[0].has_value());
  for (size_t i = 1; i < 100; ++i) {
    ASSERT_TRUE(prompt_logprobs[i].has_value());
    EXPECT_EQ(prompt_logprobs[i]->top.size(), 2u);
  }
}

TEST(EngineSim, NotFiniteLogitsEndThatRequestOnly) {
  FakeModelOptions fake;
  fake.poison_token = 49;
  Request good = make_request(3, 30, 10);
  Request bad = good;
  for (int32_t& id : good.prompt_ids) id %= 49;
  bad.prompt_ids.back() = 49;
  good.sampling.logit_bias = bad.sampling.logit_bias = {{49, -100.0f}};
  Rig rig(fake);
  const std::vector<int32_t> alone = run_together(*rig.engine, {good})[0].output();
  ASSERT_EQ(alone.size(), 10u);
  Collector first, second;
  ASSERT_TRUE(rig.engine->submit(bad, first.sink()).ok());
  ASSERT_TRUE(rig.engine->submit(good, second.sink()).ok());
  const Event failed = first.wait();
  EXPECT_EQ(failed.reason, FinishReason::kError);
  EXPECT_NE(failed.error.message.find("token 3"), std::string::npos) << failed.error.message;
  EXPECT_EQ(failed.error.code, ErrorCode::kUnprocessable);  // not worth a retry
  EXPECT_TRUE(first.output().empty());
  second.wait();
  EXPECT_EQ(second.output(), alone);
}

// Greedy requests whose logits nobody reads take the other way to the same tokens.
TEST(EngineSim, GreedyWithoutLogprobsGivesTheSameTokens) {
  std::vector<Request> with, without;
  for (int i = 0; i < 6; ++i) {
    Request request = make_request(static_cast<uint64_t>(i), 10 + 5 * i, 20);
    request.sampling = {};
    request.sampling.temperature = i == 4 ? 0.8f : 0.0f;  // one in the batch that needs its logits
    request.num_prompt_logprobs = i == 2 ? std::optional(1) : std::nullopt;
    request.num_logprobs = 0;
    with.push_back(request);
    request.num_logprobs.reset();
    without.push_back(request);
  }
  Rig rig;
  const std::vector<Collector> expected = run_together(*rig.engine, with);
  EXPECT_EQ(rig.model.num_best_rows(), 0);
  const std::vector<Collector> found = run_together(*rig.engine, without);
  EXPECT_EQ(rig.model.num_best_rows(), 5 * 20);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].output(), expected[i].output()) << i;
    EXPECT_TRUE(equal_logprobs(found[i].prompt_logprobs(), expected[i].prompt_logprobs())) << i;
  }
}

TEST(EngineSim, NotFiniteLogitsEndAGreedyRequestInTheSameWords) {
  FakeModelOptions fake;
  fake.poison_token = 49;
  Request bad = make_request(3, 30, 10);
  bad.sampling = {};
  bad.sampling.temperature = 0;
  bad.prompt_ids.back() = 49;
  std::vector<std::string> messages;
  for (const auto& num_logprobs : {std::optional<int>(0), std::optional<int>()}) {
    bad.num_logprobs = num_logprobs;
    Rig rig(fake);
    Collector collector;
    ASSERT_TRUE(rig.engine->submit(bad, collector.sink()).ok());
    const Event failed = collector.wait();
    EXPECT_EQ(failed.reason, FinishReason::kError);
    messages.push_back(failed.error.message);
  }
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_NE(messages[0].find("token 3"), std::string::npos) << messages[0];
}

TEST(EngineSim, CancelInEveryState) {
  FakeModelOptions fake;
  fake.step_time = std::chrono::microseconds(2000);
  Rig rig(fake, engine_options(1));
  Collector decoding, prefilling, waiting;
  const RequestId first = rig.engine->submit(make_request(1, 10, 400), decoding.sink()).value();
  const RequestId queued = rig.engine->submit(make_request(2, 10, 400), waiting.sink()).value();
  ASSERT_TRUE(decoding.wait_for_tokens(3));
  rig.engine->cancel(queued);
  EXPECT_EQ(waiting.wait().reason, FinishReason::kCancelled);
  EXPECT_TRUE(waiting.output().empty());
  rig.engine->cancel(first);
  rig.engine->cancel(first);
  EXPECT_EQ(decoding.wait().reason, FinishReason::kCancelled);
  EXPECT_LT(decoding.output().size(), 400u);
  const RequestId third = rig.engine->submit(make_request(3, 400, 100), prefilling.sink()).value();
  rig.engine->cancel(third);
  EXPECT_EQ(prefilling.wait().reason, FinishReason::kCancelled);
  rig.engine->cancel(third);  // over: ignored
  rig.engine->cancel(987654);
  EXPECT_EQ(rig.engine->snapshot().kv_blocks_used, 0);
  EXPECT_EQ(rig.engine->snapshot().finished_cancelled, 3u);
}

// A caller that found its stop string ends the request: that is a stop, not an abort.
TEST(EngineSim, StopByTheCallerCountsAsStop) {
  FakeModelOptions fake;
  fake.step_time = std::chrono::microseconds(2000);
  Rig rig(fake, engine_options(1));
  Collector running, queued;
  const RequestId first = rig.engine->submit(make_request(1, 10, 400), running.sink()).value();
  const RequestId second = rig.engine->submit(make_request(2, 10, 400), queued.sink()).value();
  ASSERT_TRUE(running.wait_for_tokens(3));
  rig.engine->stop(second);
  rig.engine->cancel(second);  // too late: it has its end
  rig.engine->stop(first);
  rig.engine->stop(first);
  const Event stopped = running.wait();
  EXPECT_EQ(stopped.reason, FinishReason::kStop);
  EXPECT_EQ(stopped.stop_id, -1);
  EXPECT_EQ(stopped.usage.output_tokens, static_cast<int32_t>(running.output().size()));
  EXPECT_LT(running.output().size(), 400u);
  EXPECT_EQ(queued.wait().reason, FinishReason::kStop);
  EXPECT_EQ(rig.engine->snapshot().finished_stop, 2u);
  EXPECT_EQ(rig.engine->snapshot().finished_cancelled, 0u);
}

TEST(EngineSim, LatenciesCountFromTheArrivalOfTheRequest) {
  Rig rig;
  Request request = make_request(1, 10, 5);
  run_together(*rig.engine, {request});
  const double before = rig.engine->metrics().time_to_first_token.sum();
  request.arrived_us = 1;  // its first byte came when the clock began
  const double age = static_cast<double>(now_us() - 1) * 1e-6;
  run_together(*rig.engine, {request});
  EXPECT_LT(before, age);
  EXPECT_GE(rig.engine->metrics().time_to_first_token.sum(), before + age);
  EXPECT_GE(rig.engine->metrics().request_latency.sum(), before + age);
  EXPECT_LT(rig.engine->metrics().queue_time.sum(), age);
}

TEST(EngineSim, DomainsDoNotShareAPrefix) {
  Rig rig;
  std::vector<int32_t> found;
  for (const char* domain : {"mine", "yours", "", "mine"}) {
    Request request = make_request(3, 40, 2);
    request.cache_domain = domain;
    Collector collector;
    ASSERT_TRUE(rig.engine->submit(request, collector.sink()).ok());
    found.push_back(collector.wait().usage.cached_tokens);
  }
  EXPECT_EQ(found, (std::vector<int32_t>{0, 0, 0, 39}));
}

TEST(EngineSim, SinkThatRefusesIsCancelled) {
  Rig rig;
  Collector slow(4), other;
  ASSERT_TRUE(rig.engine->submit(make_request(1, 10, 200), slow.sink()).ok());
  ASSERT_TRUE(rig.engine->submit(make_request(2, 10, 50), other.sink()).ok());
  EXPECT_EQ(slow.wait().reason, FinishReason::kCancelled);
  EXPECT_EQ(slow.output().size(), 4u);
  EXPECT_EQ(slow.num_refused(), 1);
  EXPECT_EQ(other.wait().reason, FinishReason::kLength);
}

TEST(EngineSim, FullQueueRefuses) {
  FakeModelOptions fake;
  fake.step_time = std::chrono::microseconds(1000);
  EngineOptions options = engine_options(1);
  options.max_waiting = 2;
  Rig rig(fake, options);
  std::vector<Collector> collectors(3);
  for (Collector& collector : collectors) {
    ASSERT_TRUE(rig.engine->submit(make_request(1, 10, 300), collector.sink()).ok());
  }
  Collector refused;
  const Result<RequestId> result = rig.engine->submit(make_request(1, 10, 3), refused.sink());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(refused.num_terminal(), 0);
}

TEST(EngineSim, OneClientCannotFillTheWaitingRoom) {
  FakeModelOptions fake;
  fake.step_time = std::chrono::microseconds(1000);
  EngineOptions options = engine_options(1);
  options.max_waiting = 39;
  Rig rig(fake, options);
  std::vector<RequestId> held;
  Collector hog;
  Error refusal;
  for (int i = 0; i < 40; ++i) {
    Request request = make_request(1, 10, 400);
    request.client = 7;
    const Result<RequestId> id = rig.engine->submit(request, Collector().sink());
    if (id.ok()) {
      held.push_back(*id);
    } else {
      refusal = id.error();
    }
  }
  EXPECT_EQ(held.size(), 30u);
  EXPECT_EQ(refusal.code, ErrorCode::kExhausted);
  EXPECT_NE(refusal.message.find("30 requests of this client"), std::string::npos);
  EXPECT_EQ(refusal.hint, "try again later");
  Request other = make_request(2, 3, 2);
  other.client = 8;
  Collector answered;
  ASSERT_TRUE(rig.engine->submit(other, answered.sink()).ok());
  for (const RequestId id : held) rig.engine->cancel(id);
  EXPECT_EQ(answered.wait().reason, FinishReason::kLength);
  EXPECT_TRUE(rig.engine->drain(milliseconds(20'000)));
  EXPECT_EQ(rig.engine->snapshot().num_waiting, 0);
}

// Answers to one prompt at once: the prompt is computed once, and each answer is as alone.
TEST(EngineSim, ChoicesOfOnePromptShareItAndKeepTheirBits) {
  std::vector<Request> choices;
  for (uint32_t i = 0; i < 16; ++i) {
    Request request = make_request(1, 300, 8);
    request.sampling.choice_idx = i;
    choices.push_back(request);
  }
  const std::vector<Collector> alone = run_alone({}, choices);
  EngineOptions options = engine_options(16);
  Rig rig({}, options);
  expect_equal(alone, run_together(*rig.engine, choices));
  EXPECT_LE(rig.model.num_tokens(), 300 + 16 * (16 + 8));
  std::set<std::vector<int32_t>> different;
  for (const Collector& collector : alone) different.insert(collector.output());
  EXPECT_GT(different.size(), 12u);
}

// What is not finite inside the model ends the request in the step that computes it, chunk or not,
// and whoever shares its beginning is well.
TEST(EngineSim, RowsThatAreNotFiniteArePublishedToNobody) {
  FakeModelOptions fake;
  fake.broken_token = 49;
  Request good = make_request(3, 200, 10);
  for (int32_t& id : good.prompt_ids) id %= 49;
  good.sampling.logit_bias = {{49, -100.0f}};
  Request bad = good;
  bad.prompt_ids[150] = 49;
  Rig rig(fake);
  const std::vector<int32_t> alone = run_together(*rig.engine, {good})[0].output();
  for (int round = 0; round < 3; ++round) {
    Collector broken, well;
    ASSERT_TRUE(rig.engine->submit(bad, broken.sink()).ok());
    ASSERT_TRUE(rig.engine->submit(good, well.sink()).ok());
    const Event failed = broken.wait();
    EXPECT_EQ(failed.reason, FinishReason::kError);
    EXPECT_EQ(failed.error.code, ErrorCode::kUnprocessable);
    EXPECT_NE(failed.error.message.find("position 150"), std::string::npos) << failed.error.message;
    const Event finished = well.wait();
    EXPECT_EQ(well.output(), alone);
    EXPECT_EQ(finished.usage.cached_tokens, 192);  // the shared beginning was never taken away
  }
}

TEST(EngineSim, DrainWaitsThenCancels) {
  FakeModelOptions fake;
  fake.step_time = std::chrono::microseconds(1000);
  {
    Rig rig(fake);
    Collector collector;
    ASSERT_TRUE(rig.engine->submit(make_request(1, 10, 10), collector.sink()).ok());
    EXPECT_TRUE(rig.engine->drain(milliseconds(30'000)));
    EXPECT_EQ(collector.num_terminal(), 1);
    const Result<RequestId> late = rig.engine->submit(make_request(1, 10, 10), collector.sink());
    ASSERT_FALSE(late.ok());
    EXPECT_EQ(late.error().code, ErrorCode::kUnavailable);
  }
  Rig rig(fake, engine_options(1));
  Collector running, queued;
  ASSERT_TRUE(rig.engine->submit(make_request(1, 10, 450), running.sink()).ok());
  ASSERT_TRUE(rig.engine->submit(make_request(2, 10, 450), queued.sink()).ok());
  EXPECT_FALSE(rig.engine->drain(milliseconds(20)));
  EXPECT_EQ(running.wait().reason, FinishReason::kCancelled);
  EXPECT_EQ(queued.wait().reason, FinishReason::kCancelled);
}

TEST(EngineSim, DrainGivesUpAStepThatHangs) {
  FakeModelOptions fake;
  fake.step_time = std::chrono::microseconds(1'500'000);
  EngineOptions options = engine_options(1);
  options.cancel_patience = milliseconds(50);
  Rig rig(fake, options);
  Collector collector;
  ASSERT_TRUE(rig.engine->submit(make_request(1, 10, 10), collector.sink()).ok());
  std::this_thread::sleep_for(milliseconds(30));
  const TimeUs start = now_us();
  EXPECT_FALSE(rig.engine->drain(milliseconds(10)));
  EXPECT_LT(now_us() - start, 1'200'000);
  EXPECT_EQ(collector.num_terminal(), 0);
}

TEST(EngineSim, AHungStepEndsEveryRequestWithAnErrorOnce) {
  FakeModelOptions fake;
  fake.step_time = std::chrono::microseconds(3'000'000);
  EngineOptions options = engine_options(1);
  options.step_deadline = milliseconds(100);
  std::promise<void> hung;
  options.on_hang = [&hung] { hung.set_value(); };
  Collector running, queued;
  {
    Rig rig(fake, options);
    ASSERT_TRUE(rig.engine->submit(make_request(1, 10, 10), running.sink()).ok());
    ASSERT_TRUE(rig.engine->submit(make_request(2, 10, 10), queued.sink()).ok());
    hung.get_future().wait();
    for (const Collector& collector : {running, queued}) {
      Collector told = collector;
      EXPECT_EQ(told.wait().reason, FinishReason::kError);
      EXPECT_EQ(told.wait().error.code, ErrorCode::kUnavailable);
    }
    const Result<RequestId> late = rig.engine->submit(make_request(3, 10, 10), queued.sink());
    ASSERT_FALSE(late.ok());
    EXPECT_EQ(late.error().code, ErrorCode::kUnavailable);
  }
  EXPECT_EQ(running.num_terminal(), 1);  // also when the step came back
  EXPECT_EQ(queued.num_terminal(), 1);
}

TEST(EngineSim, DestructionEndsEveryRequestOnce) {
  FakeModelOptions fake;
  fake.step_time = std::chrono::microseconds(500);
  for (int round = 0; round < 20; ++round) {
    std::vector<Collector> collectors(30);
    {
      Rig rig(fake, engine_options(4));
      for (size_t i = 0; i < collectors.size(); ++i) {
        ASSERT_TRUE(rig.engine->submit(make_request(i, 20, 100), collectors[i].sink()).ok());
      }
      std::this_thread::sleep_for(std::chrono::microseconds(round * 200));
    }
    for (const Collector& collector : collectors) {
      EXPECT_EQ(collector.num_terminal(), 1);
      EXPECT_FALSE(collector.late());
    }
  }
}

TEST(EngineSim, IdleEngineTakesNoStep) {
  Rig rig;
  run_together(*rig.engine, {make_request(1, 10, 5)});
  const int64_t steps = rig.model.num_steps();
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(rig.model.num_steps(), steps);
  EXPECT_EQ(rig.engine->snapshot().num_running, 0);
}

TEST(EngineSim, MetricsAndStepsAddUp) {
  Rig rig;
  const std::vector<Request> requests = mixed_requests();
  run_together(*rig.engine, requests);
  const MetricsSnapshot metrics = rig.engine->metrics();
  const EngineSnapshot snapshot = rig.engine->snapshot();
  EXPECT_EQ(metrics.request_latency.count(), requests.size());
  EXPECT_EQ(metrics.time_to_first_token.count(), requests.size());
  EXPECT_EQ(metrics.queue_time.count(), requests.size());
  EXPECT_EQ(metrics.generation_tokens.sum(), static_cast<double>(metrics.generation_tokens_total));
  EXPECT_EQ(metrics.prompt_tokens.sum(), static_cast<double>(metrics.prompt_tokens_total));
  EXPECT_EQ(metrics.inter_token_latency.count(), metrics.generation_tokens_total - requests.size());
  EXPECT_EQ(metrics.finished[static_cast<size_t>(FinishReason::kLength)], requests.size());
  EXPECT_EQ(metrics.prompt_tokens_computed + metrics.prompt_tokens_cached,
            metrics.prompt_tokens_total);
  EXPECT_EQ(snapshot.kv_type, "f32");
  EXPECT_EQ(metrics.iteration_tokens.count(), metrics.steps_total);
  EXPECT_EQ(snapshot.num_requests, requests.size());
  EXPECT_EQ(snapshot.finished_length, requests.size());
  EXPECT_EQ(snapshot.num_running + snapshot.num_waiting, 0);
  EXPECT_GT(snapshot.decode_tokens_per_s, 0);
  const std::vector<StepRecord> steps = rig.engine->recent_steps(10);
  ASSERT_EQ(steps.size(), 10u);
  for (size_t i = 1; i < steps.size(); ++i) EXPECT_EQ(steps[i].step_idx, steps[i - 1].step_idx + 1);
}

TEST(EngineSim, ManySubmittersCancelsAndReaders) {
  FakeModelOptions fake;
  fake.step_time = std::chrono::microseconds(50);
  std::vector<std::vector<Collector>> collectors(4);
  std::atomic<bool> done{false};
  {
    EngineOptions options = engine_options(6, 24);
    options.max_waiting = 40;
    Rig rig(fake, options);
    std::thread reader([&] {
      while (!done) {
        const EngineSnapshot snapshot = rig.engine->snapshot();
        EXPECT_LE(snapshot.kv_blocks_used, snapshot.kv_blocks_total);
        EXPECT_LE(snapshot.num_running, 6);
        rig.engine->metrics();
        rig.engine->recent_steps(5);
        std::this_thread::sleep_for(milliseconds(1));
      }
    });
    std::vector<std::thread> submitters;
    for (size_t worker = 0; worker < collectors.size(); ++worker) {
      submitters.emplace_back([&, worker] {
        for (uint64_t i = 0; i < 100; ++i) {
          Collector collector(i % 7 == 0 ? 3 : -1);
          const auto id =
              rig.engine->submit(make_request(worker * 1000 + i, static_cast<int32_t>(1 + i % 90),
                                              static_cast<int32_t>(1 + i % 40)),
                                 collector.sink());
          if (!id.ok()) {
            EXPECT_EQ(id.error().code, ErrorCode::kExhausted);
            std::this_thread::sleep_for(milliseconds(1));
            continue;
          }
          collectors[worker].push_back(collector);
          if (i % 5 == 0) rig.engine->cancel(id.value());
          if (i % 11 == 0) rig.engine->cancel(id.value() - 1);
        }
      });
    }
    for (std::thread& submitter : submitters) submitter.join();
    rig.engine->drain(milliseconds(5));
    EXPECT_EQ(rig.engine->snapshot().kv_blocks_used, 0);
    done = true;
    reader.join();
  }
  size_t num_accepted = 0;
  for (const std::vector<Collector>& worker : collectors) {
    for (const Collector& collector : worker) {
      EXPECT_EQ(collector.num_terminal(), 1);
      EXPECT_FALSE(collector.late());
      ++num_accepted;
    }
  }
  EXPECT_GT(num_accepted, 50u);
}

TEST(EngineSim, SinkMayCancelAndSubmit) {
  Rig rig;
  Collector chained;
  std::promise<void> over;
  RequestId own = 0;
  std::mutex mutex;
  std::unique_lock hold(mutex);
  const Result<RequestId> id = rig.engine->submit(make_request(1, 10, 200), [&](Event&& event) {
    std::lock_guard lock(mutex);
    if (event.kind == Event::Kind::kToken) rig.engine->cancel(own);
    if (event.kind == Event::Kind::kFinished) {
      EXPECT_EQ(event.reason, FinishReason::kCancelled);
      EXPECT_TRUE(rig.engine->submit(make_request(2, 5, 5), chained.sink()).ok());
      over.set_value();
    }
    return true;
  });
  own = id.value();
  hold.unlock();
  over.get_future().wait();
  EXPECT_EQ(chained.wait().reason, FinishReason::kLength);
}

TEST(EngineSim, CreateRefusesNonsense) {
  FakeBackend backend;
  FakeModel model({});
  EngineOptions options = engine_options(0);
  EXPECT_EQ(Engine::create(model, backend, options, {}).error().code, ErrorCode::kInvalidArgument);
  options = engine_options(4);
  options.num_kv_blocks = 0;
  options.kv_memory_bytes = 10;
  const auto small = Engine::create(model, backend, options, {});
  EXPECT_EQ(small.error().code, ErrorCode::kExhausted);
  EXPECT_NE(small.error().message.find("256"), std::string::npos);
}

}  // namespace
}  // namespace headrace
