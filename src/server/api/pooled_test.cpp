#include "server/api/pooled.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "server/api/pool_session.h"
#include "server/api/test_session.h"

namespace headrace {
namespace pooled_test {

TEST(UnitVector, HasLengthOneWhateverItWas) {
  EXPECT_EQ(unit_vector({3, 4}), (std::vector<float>{0.6f, 0.8f}));
  EXPECT_EQ(unit_vector({0, 0}), (std::vector<float>{0, 0}));
  const std::vector<float> cut = unit_vector({3, 4, 12}, 2);
  EXPECT_EQ(cut, (std::vector<float>{0.6f, 0.8f}));  // scaled after the cut
  EXPECT_EQ(unit_vector({2, 0}, 7).size(), 2u);
  EXPECT_NEAR(dot(unit_vector({1e-30f, 2e-30f}), unit_vector({1, 2})), 1, 1e-6);
}

TEST(Base64, IsThatOfTheBytes) {
  EXPECT_EQ(base64_of({}), "");
  EXPECT_EQ(base64_of(std::vector<float>{1.0f}), "AACAPw==");
  EXPECT_EQ(base64_of(std::vector<float>{1.0f, -2.0f}), "AACAPwAAAMA=");
  EXPECT_EQ(base64_of(std::vector<float>{0, 0, 0}), "AAAAAAAAAAAAAAAA");
}

// Writes the first value of each vector, and the first label.
class ListRenderer : public PooledRenderer {
 public:
  const Dialect& dialect() const override { return kOpenAi; }
  const std::string& id() const override { return id_; }
  void add(size_t prompt_idx, PooledOutput output, JsonWriter& json) override {
    if (prompt_idx == 0) json.open_array();
    json.number(output.embedding.empty() ? output.label_logprobs.at(0) : output.embedding[0]);
  }
  void end(const AnswerEnd& end, JsonWriter& json) override {
    json.integer(end.usage.prompt_tokens).close_array();
  }

 private:
  const std::string id_ = "list-1";
};

class PoolSessionTest : public SessionTest {
 protected:
  void start_pool(size_t num_prompts, bool labels = false) {
    GenerationRequest made;
    for (size_t i = 0; i < num_prompts; ++i) made.prompts.push_back({{1, 2}, {}});
    made.prototype.pooling = labels ? Pooling::kNone : Pooling::kMean;
    made.prototype.max_tokens = labels ? 1 : 0;
    if (labels) made.prototype.label_ids = {5, 6};
    PoolSession::start({engine_, model_, counters_, limits_}, std::move(made),
                       std::make_unique<ListRenderer>(), writer_);
    writer_->run();
  }
  void finish(size_t idx, float value) {
    Event event;
    event.kind = Event::Kind::kFinished;
    event.reason = FinishReason::kStop;
    event.embedding = {value};
    engine_.sinks[idx](std::move(event));
    writer_->run();
  }
};

TEST_F(PoolSessionTest, AnswersInTheOrderOfThePrompts) {
  start_pool(3);
  EXPECT_EQ(counters_.live_responses, 1);
  ASSERT_EQ(engine_.requests.size(), 3u);
  EXPECT_EQ(engine_.requests[2].pooling, Pooling::kMean);
  EXPECT_EQ(engine_.requests[2].max_tokens, 0);
  finish(2, 7);
  finish(0, 5);
  EXPECT_EQ(writer_->response.status, 0);
  finish(1, 6);
  EXPECT_EQ(writer_->response.status, 200);
  EXPECT_EQ(writer_->response.body, "[5,6,7,6]");
  EXPECT_EQ(writer_->last_note.answer_id, "list-1");
  EXPECT_EQ(writer_->last_note.finish, "stop");
  engine_.sinks.clear();
  EXPECT_EQ(counters_.live_responses, 0);
}

TEST_F(PoolSessionTest, AWindowIsInTheEngineAtOnce) {
  limits_.max_open_choices = 2;
  constexpr size_t kPrompts = 45;
  start_pool(kPrompts);
  for (size_t i = 0; i < kPrompts; ++i) {
    EXPECT_EQ(engine_.requests.size(), std::min(i + 2, kPrompts));
    finish(i, static_cast<float>(i));
  }
  EXPECT_EQ(writer_->response.status, 200);
  EXPECT_TRUE(writer_->response.body.ends_with(",43,44,90]")) << writer_->response.body;
}

TEST_F(PoolSessionTest, ScarcityWaitsForItsOwnPrompts) {
  engine_.max_requests = 2;
  start_pool(3);
  ASSERT_EQ(engine_.requests.size(), 2u);
  EXPECT_EQ(writer_->response.status, 0);
  engine_.max_requests = 3;
  finish(0, 1);
  ASSERT_EQ(engine_.requests.size(), 3u);
  finish(1, 2);
  finish(2, 3);
  EXPECT_EQ(writer_->response.body, "[1,2,3,6]");
}

TEST_F(PoolSessionTest, AFullEngineIsAnErrorWhereNothingRuns) {
  engine_.max_requests = 0;
  start_pool(2);
  EXPECT_EQ(writer_->response.status, 429);
  EXPECT_EQ(counters_.live_responses, 0);
}

TEST_F(PoolSessionTest, LabelsComeWithTheToken) {
  start_pool(2, /*labels=*/true);
  for (size_t i = 0; i < 2; ++i) {
    Event token;
    token.label_logprobs = {-0.5f - static_cast<float>(i), -3};
    EXPECT_TRUE(engine_.sinks[i](std::move(token)));
    engine_.finish(i, FinishReason::kLength, 1);
  }
  writer_->run();
  EXPECT_EQ(writer_->response.body, "[-0.5,-1.5,4]");
}

TEST_F(PoolSessionTest, OneFailureEndsAll) {
  start_pool(3);
  Error error = make_error(ErrorCode::kUnprocessable, "not finite");
  engine_.finish(1, FinishReason::kError, 0, error);
  writer_->run();
  EXPECT_EQ(writer_->response.status, 422);
  EXPECT_EQ(engine_.cancelled.size(), 3u);
  EXPECT_EQ(writer_->last_note.finish, "error");
  Event late;
  late.kind = Event::Kind::kFinished;
  EXPECT_FALSE(engine_.sinks[0](std::move(late)));
  writer_->run();
}

TEST_F(PoolSessionTest, AnAdministratorEndsIt) {
  start_pool(2);
  ASSERT_EQ(counters_.live.list().size(), 1u);
  EXPECT_EQ(counters_.live.list()[0].answer_id, "list-1");
  EXPECT_EQ(counters_.live.abort("list-1"), 1u);
  writer_->run();
  EXPECT_EQ(writer_->response.status, 503);
  EXPECT_EQ(engine_.cancelled.size(), 2u);
  engine_.sinks.clear();
  EXPECT_TRUE(counters_.live.list().empty());
}

TEST_F(PoolSessionTest, AClientThatLeavesCancelsAll) {
  start_pool(2);
  writer_->disconnect();
  EXPECT_EQ(engine_.cancelled.size(), 2u);
  EXPECT_EQ(counters_.disconnects.value(), 1u);
  EXPECT_EQ(writer_->last_note.finish, "cancelled");
  EXPECT_EQ(writer_->response.status, 0);
}

}  // namespace pooled_test
}  // namespace headrace
