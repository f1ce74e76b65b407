// What requests want of rows beside tokens: states to be pooled and log-probs of labels. The checks
// at the door, and the ends of requests that do not end well.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "engine/pool.h"
#include "engine/request_check.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "model/adapter.h"

namespace headrace {
namespace wanted_rows_test {

const RequestLimits kDoor{100, 50, {}};

Request wanting_request(Pooling pooling, int32_t num_prompt = 3) {
  Request request;
  for (int32_t i = 0; i < num_prompt; ++i) request.prompt_ids.push_back(i);
  request.pooling = pooling;
  if (pooling != Pooling::kNone) request.max_tokens = 0;
  return request;
}

SchedulerOptions wanting_options() {
  SchedulerOptions options;
  options.max_batch_tokens = 16;
  options.max_logit_rows = 4;
  options.max_sequences = 4;
  options.num_blocks = 32;
  options.max_context = 128;
  options.end_ids = {2};
  options.rope_epoch = [](int64_t) { return int64_t{0}; };
  return options;
}

// Rows of a step whose state is made of the position and of how long the adapter's name is.
class StatesEngine {
 public:
  explicit StatesEngine(SchedulerOptions options = wanting_options())
      : scheduler(std::move(options)) {}

  void commit(const StepPlan& plan, RequestId failing = 0) {
    std::vector<SpanResult> results(plan.spans.size());
    std::vector<std::vector<float>> states(plan.spans.size());
    for (size_t i = 0; i < results.size(); ++i) {
      const Span& span = plan.spans[i];
      const Request& request = plan.sequences[i]->request;
      const float base = request.adapter == nullptr
                             ? 0
                             : 1000.0f * static_cast<float>(request.adapter->digest.size());
      for (int32_t k = 0; k < span.num_pooled; ++k) {
        const auto position = static_cast<float>(span.first_pooled + k);
        states[i].insert(states[i].end(), {base + position, -position});
      }
      num_rows += span.num_rows;
      results[i].pooled = states[i];
      SampledToken token{9};
      if (plan.sequences[i]->num_output() == 0) token.label_logprobs = {-0.5f, -2.0f};
      results[i].sampled.assign(static_cast<size_t>(span.num_sampled), token);
      if (plan.sequences[i]->id == failing) results[i].failure = "not a number";
    }
    std::vector<Event> events;
    scheduler.commit(results, ++now, &events);
    const Status sound = scheduler.check();
    EXPECT_TRUE(sound.ok()) << sound.error().message;
    for (Event& event : events) heard[event.request_id].push_back(std::move(event));
  }
  void run() {
    while (!scheduler.idle()) commit(scheduler.plan(++now));
  }
  const Event& last(RequestId id) { return heard.at(id).back(); }

  Scheduler scheduler;
  TimeUs now = 1;
  int64_t num_rows = 0;
  std::map<RequestId, std::vector<Event>> heard;
};

std::shared_ptr<const Adapter> adapter_of_digest(const std::string& digest) {
  auto adapter = std::make_shared<Adapter>();
  adapter->digest = digest;
  return adapter;
}

TEST(WantedRows, TheDoorNamesWhatDoesNotGoTogether) {
  struct Case {
    std::string_view param, message;
    void (*spoil)(Request*);
  };
  const Case cases[] = {
      {"pooling", "max_tokens is 1", [](Request* r) { r->max_tokens = 1; }},
      {"pooling", "the prompt is scored", [](Request* r) { r->num_prompt_logprobs = 0; }},
      {"max_tokens", "max_tokens is 0", [](Request* r) { r->pooling = Pooling::kNone; }},
      {"label_ids", "17", [](Request* r) { r->label_ids.assign(17, 1); }},
      {"label_ids", "100", [](Request* r) { r->label_ids = {5, 100}; }},
      {"label_ids", "-1", [](Request* r) { r->label_ids = {-1}; }},
      {"prompt", "", [](Request* r) { r->prompt_ids.clear(); }},
      {"prompt", "51", [](Request* r) { r->prompt_ids.assign(51, 1); }},
  };
  for (const Case& at : cases) {
    Request request = wanting_request(Pooling::kMean);
    ASSERT_TRUE(check_request(request, kDoor).ok());
    at.spoil(&request);
    const Status status = check_request(request, kDoor);
    ASSERT_FALSE(status.ok()) << at.param << " " << at.message;
    EXPECT_EQ(status.error().param, at.param) << status.error().message;
    EXPECT_NE(status.error().message.find(at.message), std::string::npos) << status.error().message;
  }
}

// A prompt that is only pooled may fill the whole context.
TEST(WantedRows, TheDoorTakesTheEdges) {
  EXPECT_TRUE(check_request(wanting_request(Pooling::kLast, 50), kDoor).ok());
  Request labels = wanting_request(Pooling::kNone);
  labels.label_ids.assign(16, 99);
  EXPECT_TRUE(check_request(labels, kDoor).ok());
}

TEST(WantedRows, LabelsNeedTheLogitsOfTheirRow) {
  Request request = wanting_request(Pooling::kNone);
  request.sampling.temperature = 0;
  const SampleContext context{.tokens = request.prompt_ids, .num_prompt = 3, .end_ids = {}};
  EXPECT_TRUE(Sampler::needs_best_only(request, context));
  request.label_ids = {4};
  EXPECT_FALSE(Sampler::needs_best_only(request, context));
}

TEST(WantedRows, LabelsComeWithTheFirstTokenAlone) {
  StatesEngine engine;
  Request request = wanting_request(Pooling::kNone, 40);  // of three chunks
  request.label_ids = {7, 8};
  request.max_tokens = 3;
  engine.scheduler.admit(1, std::move(request), 1);
  engine.run();
  const std::vector<Event>& events = engine.heard[1];
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].label_logprobs, (std::vector<float>{-0.5f, -2.0f}));
  for (const size_t i : {1u, 2u, 3u}) EXPECT_TRUE(events[i].label_logprobs.empty()) << i;
}

TEST(WantedRows, LabelLogProbsAreThoseOfTheSoftmax) {
  const std::vector<float> logits = {0.5f, -1.0f, 3.0f, 3.0f, -40.0f};
  Sampler sampler(5);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit});
  for (int32_t id = 0; id < 5; ++id) {
    const auto scored = sampler.score(logits.data(), id, 0);
    ASSERT_TRUE(scored.ok());
    EXPECT_NEAR(scored->logprob, logits[static_cast<size_t>(id)] - std::log(sum), 1e-5);
    EXPECT_TRUE(scored->top.empty());
  }
  EXPECT_EQ(sampler.score(logits.data(), 2, 0)->logprob,
            sampler.score(logits.data(), 3, 0)->logprob);
}

// The state of the last row is computed; what comes before it is found where its adapter was.
TEST(WantedRows, PooledPromptsShareOnlyWithTheirAdapter) {
  StatesEngine engine;
  const auto pooled = [&](RequestId id, std::shared_ptr<const Adapter> adapter) -> const Event& {
    Request request = wanting_request(Pooling::kLast, 40);
    request.adapter = std::move(adapter);
    engine.scheduler.admit(id, std::move(request), 1);
    engine.run();
    return engine.last(id);
  };
  EXPECT_EQ(pooled(1, adapter_of_digest("a")).embedding, (std::vector<float>{1039, -39}));
  EXPECT_EQ(engine.num_rows, 40);
  EXPECT_EQ(pooled(2, adapter_of_digest("bb")).embedding, (std::vector<float>{2039, -39}));
  EXPECT_EQ(pooled(3, nullptr).embedding, (std::vector<float>{39, -39}));
  EXPECT_EQ(engine.num_rows, 120);
  EXPECT_EQ(pooled(4, adapter_of_digest("bb")).embedding, (std::vector<float>{2039, -39}));
  EXPECT_EQ(engine.last(4).usage.cached_tokens, 39);
  EXPECT_EQ(engine.num_rows, 121);
}

// A prompt that was generated from serves the pooling of its last row, and the other way round.
TEST(WantedRows, PoolingAndAnswersShareACache) {
  StatesEngine engine;
  Request talks = wanting_request(Pooling::kNone, 40);
  talks.max_tokens = 1;
  engine.scheduler.admit(1, talks, 1);
  engine.run();
  engine.scheduler.admit(2, wanting_request(Pooling::kLast, 40), 1);
  engine.run();
  EXPECT_EQ(engine.last(2).usage.cached_tokens, 39);
  EXPECT_EQ(engine.last(2).embedding, (std::vector<float>{39, -39}));
  engine.scheduler.reset_cache();
  engine.scheduler.admit(3, wanting_request(Pooling::kMean, 40), 1);
  engine.run();
  EXPECT_EQ(engine.last(3).embedding, (std::vector<float>{19.5f, -19.5f}));
  engine.scheduler.admit(4, talks, 1);
  engine.run();
  EXPECT_EQ(engine.last(4).usage.cached_tokens, 39);
}

// Several at once, of every kind, beside one that talks: each gets its own rows.
TEST(WantedRows, EachGetsTheRowsOfItsOwnSpan) {
  StatesEngine engine;
  Request talks = wanting_request(Pooling::kNone, 5);
  talks.max_tokens = 9;
  engine.scheduler.admit(1, talks, 1);
  engine.scheduler.admit(2, wanting_request(Pooling::kMean, 7), 1);
  engine.scheduler.admit(3, wanting_request(Pooling::kLast, 30), 1);
  engine.scheduler.admit(4, wanting_request(Pooling::kFirst, 21), 1);
  engine.run();
  EXPECT_EQ(engine.last(2).embedding, (std::vector<float>{3, -3}));
  EXPECT_EQ(engine.last(3).embedding, (std::vector<float>{29, -29}));
  EXPECT_EQ(engine.last(4).embedding, (std::vector<float>{0, 0}));
  EXPECT_TRUE(engine.last(1).embedding.empty());
  EXPECT_EQ(engine.last(1).reason, FinishReason::kLength);
}

TEST(WantedRows, AFailedChunkGivesAnErrorAndNoVector) {
  StatesEngine engine;
  engine.scheduler.admit(1, wanting_request(Pooling::kMean, 40), 1);
  engine.commit(engine.scheduler.plan(2));
  engine.commit(engine.scheduler.plan(3), 1);
  const Event& end = engine.last(1);
  EXPECT_EQ(end.reason, FinishReason::kError);
  EXPECT_EQ(end.error.message, "not a number");
  EXPECT_EQ(end.error.code, ErrorCode::kUnprocessable);
  EXPECT_TRUE(end.embedding.empty());
  EXPECT_TRUE(engine.scheduler.idle());
  // Nothing of it is left that the next one would read.
  engine.scheduler.admit(2, wanting_request(Pooling::kLast, 40), 1);
  engine.run();
  EXPECT_EQ(engine.last(2).usage.cached_tokens, 0);
}

TEST(WantedRows, ACancelledOneGivesNoVector) {
  StatesEngine engine;
  engine.scheduler.admit(1, wanting_request(Pooling::kMean, 40), 1);
  const StepPlan& plan = engine.scheduler.plan(2);
  std::vector<Event> events;
  engine.scheduler.end(1, FinishReason::kCancelled, 3, &events);
  engine.commit(plan);
  EXPECT_EQ(engine.last(1).reason, FinishReason::kCancelled);
  EXPECT_TRUE(engine.last(1).embedding.empty());
  EXPECT_EQ(engine.scheduler.kv_cache().pool().num_used(), 0);
}

TEST(WantedRows, StatesThatWereAskedForAreThere) {
  StatesEngine engine;
  engine.scheduler.admit(1, wanting_request(Pooling::kMean, 4), 1);
  engine.scheduler.plan(2);
  std::vector<SpanResult> results(1);
  std::vector<Event> events;
  EXPECT_DEATH(engine.scheduler.commit(results, 3, &events), "no states of 4 rows");
}

TEST(WantedRows, APoolTakesRowsOfOneWidth) {
  Pool pool;
  pool.add({}, 0);
  EXPECT_EQ(pool.num_rows(), 0);
  const std::vector<float> row = {1, 2, 3};
  pool.add(row, 1);
  pool.add({}, 0);
  EXPECT_EQ(pool.mean(), row);
  EXPECT_DEATH(pool.add(std::span(row).first(2), 1), "2 values in 1 rows, after rows of 3");
}

// 2^24 + 1 is no float32: a sum of such would lose every second 1.
TEST(WantedRows, LongPromptsLoseNothing) {
  Pool pool;
  const std::vector<float> large = {16777216.0f}, one = {1.0f};
  pool.add(large, 1);
  for (int i = 0; i < 1023; ++i) pool.add(one, 1);
  EXPECT_EQ(pool.mean(), std::vector<float>{static_cast<float>((16777216.0 + 1023) / 1024)});
}

}  // namespace wanted_rows_test
}  // namespace headrace
