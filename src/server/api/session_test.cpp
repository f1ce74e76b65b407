#include "server/api/session.h"

#include <gtest/gtest.h>

#include <random>

#include "server/api/llamacpp/llamacpp.h"
#include "server/api/ollama/ollama.h"
#include "server/api/test_session.h"

namespace headrace {
namespace session_test {

TEST_F(SessionTest, EachTokenIsOneChunkAndTheStreamEndsOnce) {
  start(request(true));
  for (const char c : std::string("abc")) engine_.token(0, c);
  writer_->run();
  EXPECT_EQ(test::events_of(writer_->body).size(), 3u);
  engine_.finish(0, FinishReason::kLength, 3);
  writer_->run();
  const auto events = test::events_of(writer_->body);
  ASSERT_EQ(events.size(), 5u);
  EXPECT_NE(events[3].find(R"("finish_reason":"length")"), std::string::npos);
  EXPECT_EQ(events[4], "[DONE]");
  EXPECT_TRUE(writer_->ended);
  EXPECT_EQ(counters_.live_responses, 1);
  engine_.sinks.clear();
  EXPECT_EQ(counters_.live_responses, 0);
}

BeamHypothesis found(std::string_view text, int32_t stop_id = -1) {
  BeamHypothesis hypothesis;
  for (const char c : text) hypothesis.token_ids.push_back(static_cast<unsigned char>(c));
  hypothesis.stop_id = stop_id;
  return hypothesis;
}

// One search for each prompt; its outputs are the choices, the best first.
TEST_F(SessionTest, WhatASearchFindsAreTheChoices) {
  for (const size_t window : {1, 2, 32}) {
    SCOPED_TRACE(window);
    engine_ = ManualEngine();
    writer_ = std::make_shared<RecordingWriter>();
    limits_.max_open_choices = window;
    GenerationRequest made = request(false, 3);
    made.prompts.push_back({{4, 5}, {}});
    made.prototype.beams = {4, 3, 1, EarlyStopping::kNo};
    made.prototype.max_tokens = 200;
    start(std::move(made));
    ASSERT_EQ(engine_.requests.size(), window == 32 ? 2u : 1u);
    EXPECT_EQ(engine_.requests[0].beams.width, 4);
    engine_.find(0, {found("ab", 2), found(std::string(200, 'x')), found("")});
    writer_->run();
    ASSERT_EQ(engine_.requests.size(), 2u);
    EXPECT_EQ(engine_.requests[1].prompt_ids, (std::vector<int32_t>{4, 5}));
    engine_.find(1, {found("d"), found("e"), found("f", 2)});
    writer_->run();
    const auto json = parse_json(writer_->response.body, "body").value();
    const auto& choices = json.at("choices").as_array();
    ASSERT_EQ(choices.size(), 6u);
    const std::string texts[] = {"ab", std::string(200, 'x'), "", "d", "e", "f"};
    const char* finishes[] = {"stop", "length", "length", "length", "length", "stop"};
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(choices[i].at("index").as_int64(), static_cast<int64_t>(i));
      EXPECT_EQ(choices[i].at("text").as_string(), texts[i]);
      EXPECT_EQ(choices[i].at("finish_reason").as_string(), finishes[i]);
    }
    EXPECT_EQ(json.at("usage").at("completion_tokens").as_int64(), 2 + 200 + 0 + 3);
    EXPECT_EQ(json.at("usage").at("prompt_tokens").as_int64(), 5);
  }
}

TEST_F(SessionTest, ASearchThatFailsIsAnError) {
  GenerationRequest made = request(false, 3);
  made.prototype.beams = {3, 3, 1, EarlyStopping::kNo};
  start(std::move(made));
  engine_.finish(0, FinishReason::kError, 0, {ErrorCode::kUnprocessable, "not finite", {}, {}});
  writer_->run();
  EXPECT_EQ(writer_->response.status, 422);
}

TEST_F(SessionTest, ASearchWhoseClientLeavesIsCancelled) {
  GenerationRequest made = request(false, 3);
  made.prototype.beams = {3, 3, 1, EarlyStopping::kNo};
  start(std::move(made));
  writer_->disconnect();
  EXPECT_EQ(engine_.cancelled, std::vector<RequestId>{1});
}

// Of each prompt's choices those of the highest mean log-prob, without their log-probs.
TEST_F(SessionTest, TheBestOfSeveralAreTheAnswer) {
  GenerationRequest made = request(false, 4);
  made.num_best = 2;
  made.prompts.push_back({{4, 5}, {}});
  start(std::move(made));
  ASSERT_EQ(engine_.requests.size(), 8u);
  // Two tokens of these log-probs together; the fifth has one that is better than any mean.
  const float logprobs[] = {-0.9f, -0.3f, -0.3f, -0.1f, -0.2f, -2, -1, -3};
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(engine_.requests[i].num_logprobs, 0);
    engine_.token(i, static_cast<char>('a' + i), 0, logprobs[i]);
    if (i != 4) engine_.token(i, static_cast<char>('A' + i), 0, logprobs[i]);
  }
  for (size_t i = 0; i < 8; ++i) {
    engine_.finish(i, FinishReason::kLength, i == 4 ? 1 : 2);
    writer_->run();
  }
  const auto json = parse_json(writer_->response.body, "body").value();
  const auto& choices = json.at("choices").as_array();
  ASSERT_EQ(choices.size(), 4u);
  const char* texts[] = {"dD", "bB", "e", "gG"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(choices[i].at("index").as_int64(), static_cast<int64_t>(i));
    EXPECT_EQ(choices[i].at("text").as_string(), texts[i]);
    EXPECT_TRUE(choices[i].at("logprobs").is_null());
  }
  EXPECT_EQ(json.at("usage").at("completion_tokens").as_int64(), 15);  // of all that were made
}

// Nothing can be said of an empty one: it comes last.
TEST_F(SessionTest, AnEmptyChoiceIsTheWorst) {
  GenerationRequest made = request(false, 2);
  made.num_best = 1;
  start(std::move(made));
  engine_.finish(0, FinishReason::kStop, 0);
  engine_.token(1, 'b', 0, -9);
  engine_.finish(1, FinishReason::kLength, 1);
  writer_->run();
  const auto json = parse_json(writer_->response.body, "body").value();
  EXPECT_EQ(json.at("choices").at(0).at("text").as_string(), "b");
}

// Threads are not woken for what nobody is sent yet.
TEST_F(SessionTest, TokensOfAWholeAnswerComeTogether) {
  start(request(false));
  for (const char c : std::string("0123456789abcde")) engine_.token(0, c);
  EXPECT_TRUE(writer_->tasks.empty());
  engine_.token(0, 'f');
  EXPECT_EQ(writer_->tasks.size(), 1u);  // not more than so many are kept
  writer_->run();
  engine_.token(0, 'g');
  EXPECT_TRUE(writer_->tasks.empty());
  engine_.finish(0, FinishReason::kLength, 17);
  EXPECT_EQ(writer_->tasks.size(), 1u);
  writer_->run();
  const auto json = parse_json(writer_->response.body, "body").value();
  EXPECT_EQ(json.at("choices").at(0).at("text").as_string(), "0123456789abcdefg");
}

TEST_F(SessionTest, TokensThatMayEndAWholeAnswerAreLookedAtAtOnce) {
  start(request(false, 1, {"b"}));
  engine_.token(0, 'a');
  EXPECT_EQ(writer_->tasks.size(), 1u);
  writer_->run();
  engine_.token(0, 'b');
  writer_->run();
  EXPECT_EQ(engine_.stopped, std::vector<RequestId>{1});
}

TEST_F(SessionTest, TokensThatAreNoWholeCharacterWaitForTheRest) {
  start(request(true));
  for (const char c : std::string("a\xC3\xA9z")) engine_.token(0, c);
  engine_.finish(0, FinishReason::kStop, 4);
  writer_->run();
  const auto events = test::events_of(writer_->body);
  ASSERT_EQ(events.size(), 5u);  // a, é, z, end, [DONE]
  EXPECT_NE(events[1].find("\"text\":\"\xC3\xA9\""), std::string::npos);
}

TEST_F(SessionTest, AStopStringEndsTheTextWhereverTokensAndEventsAreCut) {
  const std::string reply = "one STwo STOP three STOP";
  size_t num_cases = 0;
  // Every way to cut the events of the reply into two or three bursts.
  for (size_t a = 0; a <= reply.size(); ++a) {
    for (size_t b = a; b <= reply.size(); ++b) {
      writer_ = std::make_shared<RecordingWriter>();
      engine_.sinks.clear();
      engine_.requests.clear();
      engine_.stopped.clear();
      start(request(true, 1, {"STOP", "never"}));
      for (size_t i = 0; i < reply.size(); ++i) {
        if (i == a || i == b) writer_->run();
        engine_.token(0, reply[i]);
      }
      writer_->run();
      EXPECT_EQ(engine_.stopped, std::vector<RequestId>{1});
      engine_.finish(0, FinishReason::kStop, 24);
      writer_->run();
      std::string finish;
      EXPECT_EQ(streamed_text(&finish), "one STwo ") << a << " " << b;
      EXPECT_EQ(finish, "stop");
      EXPECT_TRUE(writer_->ended);
      ++num_cases;
    }
  }
  EXPECT_EQ(num_cases, 325u);
}

TEST_F(SessionTest, WholeAndStreamedTextAgreeForRandomStops) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::string reply;
    for (int i = 0; i < 40; ++i) reply += "ab"[random() % 2];
    std::vector<std::string> stops;
    for (int i = 0; i < 3; ++i) {
      std::string stop;
      for (size_t k = 0; k < 3 + random() % 5; ++k) stop += "ab"[random() % 2];
      stops.push_back(stop);
    }
    std::string texts[2];
    for (const bool stream : {false, true}) {
      writer_ = std::make_shared<RecordingWriter>();
      engine_.sinks.clear();
      engine_.requests.clear();
      start(request(stream, 1, stops));
      for (const char c : reply) {
        engine_.token(0, c);
        if (random() % 3 == 0) writer_->run();
      }
      engine_.finish(0, FinishReason::kLength, 40);
      writer_->run();
      if (stream) {
        texts[1] = streamed_text();
      } else {
        const auto json = parse_json(writer_->response.body, "body").value();
        texts[0] = json.at("choices").at(0).at("text").as_string().c_str();
      }
    }
    size_t first = reply.size();
    size_t first_end = reply.size() + 1;
    for (const std::string& stop : stops) {
      const size_t at = reply.find(stop);
      if (at == std::string::npos) continue;
      if (at + stop.size() < first_end || (at + stop.size() == first_end && at < first)) {
        first = at;
        first_end = at + stop.size();
      }
    }
    EXPECT_EQ(texts[0], reply.substr(0, first));
    EXPECT_EQ(texts[1], texts[0]);
  }
}

TEST_F(SessionTest, UsageCountsTokensUpToTheStop) {
  start(request(false, 1, {"c"}));
  for (const char c : std::string("abcdef")) engine_.token(0, c);
  engine_.finish(0, FinishReason::kCancelled, 6);
  writer_->run();
  const auto json = parse_json(writer_->response.body, "body").value();
  EXPECT_EQ(json.at("choices").at(0).at("text").as_string(), "ab");
  EXPECT_EQ(json.at("usage").at("prompt_tokens").as_int64(), 3);
  EXPECT_EQ(json.at("usage").at("completion_tokens").as_int64(), 3);
  EXPECT_EQ(json.at("usage").at("prompt_tokens_details").at("cached_tokens").as_int64(), 2);
}

TEST_F(SessionTest, ChoicesHaveAnIndexOfTheirOwnAndOneEnd) {
  start(request(true, 3));
  ASSERT_EQ(engine_.requests.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(engine_.requests[i].sampling.choice_idx, i);
  engine_.token(1, 'b');
  engine_.finish(1, FinishReason::kStop, 1);
  engine_.finish(2, FinishReason::kLength, 0);
  writer_->run();
  EXPECT_FALSE(writer_->ended);
  engine_.token(0, 'a');
  engine_.finish(0, FinishReason::kStop, 1);
  writer_->run();
  EXPECT_TRUE(writer_->ended);
  EXPECT_EQ(test::events_of(writer_->body).size(), 6u);  // two tokens, three ends, [DONE]
}

TEST_F(SessionTest, ARefusedChoiceCancelsTheOthersAndAnswersOnce) {
  engine_.max_requests = 2;
  start(request(true, 3));
  EXPECT_FALSE(writer_->started);
  EXPECT_EQ(writer_->response.status, 429);
  EXPECT_EQ(engine_.cancelled, (std::vector<RequestId>{1, 2}));
  EXPECT_FALSE(engine_.token(0, 'a'));  // nobody takes it any more
  engine_.finish(0, FinishReason::kCancelled, 0);
  engine_.finish(1, FinishReason::kCancelled, 0);
  writer_->run();
  EXPECT_TRUE(writer_->body.empty());
}

TEST_F(SessionTest, EventsThatComeBeforeTheLastSubmitAreKept) {
  // The engine may answer at once, before submit returns.
  class Eager : public ManualEngine {
   public:
    Result<RequestId> submit(Request request, EventSink sink) override {
      const auto id = ManualEngine::submit(std::move(request), std::move(sink));
      token(*id - 1, 'x');
      finish(*id - 1, FinishReason::kLength, 1);
      return id;
    }
  } eager;
  GenerationRequest made = request(false, 2);
  start(eager, std::move(made));
  EXPECT_EQ(writer_->response.status, 200);
  EXPECT_NE(writer_->response.body.find(R"("text":"x")"), std::string::npos);
}

TEST_F(SessionTest, ADisconnectCancelsEveryChoice) {
  start(request(true, 2));
  engine_.token(0, 'a');
  writer_->run();
  writer_->disconnect();
  EXPECT_EQ(engine_.cancelled, (std::vector<RequestId>{1, 2}));
  EXPECT_FALSE(engine_.token(0, 'b'));
  engine_.finish(0, FinishReason::kCancelled, 1);
  engine_.finish(1, FinishReason::kCancelled, 0);
  writer_->run();
  EXPECT_FALSE(writer_->ended);
  EXPECT_EQ(counters_.disconnects.value(), 1u);
}

TEST_F(SessionTest, AnErrorAfterTheHeadersIsAnEventAndNoSuccess) {
  start(request(true));
  engine_.token(0, 'a');
  engine_.finish(0, FinishReason::kError, 1,
                 make_error(ErrorCode::kInternal, "the logits are not finite"));
  writer_->run();
  const auto events = test::events_of(writer_->body);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(
      events[1],
      R"({"error":{"message":"the logits are not finite","type":"server_error","param":null,"code":500}})");
  EXPECT_TRUE(writer_->ended);
}

TEST_F(SessionTest, AnErrorWithoutStreamingIsAStatus) {
  start(request(false));
  engine_.token(0, 'a');
  engine_.finish(0, FinishReason::kCancelled, 1);
  writer_->run();
  EXPECT_EQ(writer_->response.status, 503);
  EXPECT_NE(writer_->response.body.find("the server is shutting down"), std::string::npos);
}

TEST_F(SessionTest, ASlowReaderPausesThenIsCancelled) {
  limits_.max_queued_bytes = 2000;
  limits_.max_queued_events = 50;
  start(request(true));
  int num_taken = 0;
  while (engine_.token(0, 'a')) {
    writer_->run();
    ASSERT_LT(++num_taken, 1000);
  }
  EXPECT_LT(writer_->queued, 3000u);
  EXPECT_GE(num_taken, 50);
  engine_.finish(0, FinishReason::kCancelled, num_taken);
  writer_->run();
  EXPECT_EQ(streamed_text(), "error: the client read too slowly, so the answer was ended early");
  EXPECT_TRUE(writer_->ended);
  EXPECT_EQ(counters_.slow_clients.value(), 1u);
}

TEST_F(SessionTest, APausedStreamGoesOnWhenItsDataIsWritten) {
  limits_.max_queued_bytes = 2000;
  start(request(true));
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(engine_.token(0, static_cast<char>('0' + i)));
    writer_->run();
  }
  EXPECT_LT(streamed_text().size(), 50u);
  engine_.finish(0, FinishReason::kStop, 50);
  for (int i = 0; i < 50 && !writer_->ended; ++i) {
    writer_->queued = 0;
    writer_->written();
    writer_->run();
  }
  EXPECT_EQ(streamed_text().size(), 50u);
  EXPECT_TRUE(writer_->ended);
}

TEST_F(SessionTest, ContinuousUsageCountsEachToken) {
  GenerationRequest made = request(true);
  start_counting(std::move(made));
  engine_.token(0, 'a');
  engine_.token(0, 'b');
  engine_.finish(0, FinishReason::kStop, 2);
  writer_->run();
  const auto events = test::events_of(writer_->body);
  ASSERT_EQ(events.size(), 5u);
  for (size_t i = 0; i < 4; ++i) {
    const auto json = parse_json(events[i], "event").value();
    EXPECT_EQ(json.at("usage").at("completion_tokens").as_int64(),
              static_cast<int64_t>(std::min<size_t>(i + 1, 2)));
    EXPECT_EQ(json.at("choices").as_array().size(), i < 3 ? 1u : 0u);
  }
}

TEST_F(SessionTest, TheLastTextCarriesTheReason) {
  // The last token that fits; a stop string; text that was held back when the model ended.
  GenerationRequest made = request(true);
  made.prototype.max_tokens = 2;
  start(std::move(made));
  engine_.token(0, 'a');
  engine_.token(0, 'b');
  writer_->run();  // the end may come a little later
  engine_.finish(0, FinishReason::kLength, 2);
  writer_->run();
  auto events = test::events_of(writer_->body);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_NE(events[1].find(R"("text":"b","logprobs":null,"finish_reason":"length")"),
            std::string::npos);
  writer_ = std::make_shared<RecordingWriter>();
  start(request(true, 1, {"yz"}));
  for (const char c : std::string("xyz")) engine_.token(1, c);
  writer_->run();
  events = test::events_of(writer_->body);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_NE(events[1].find(R"("text":"","logprobs":null,"finish_reason":"stop")"),
            std::string::npos);
  writer_ = std::make_shared<RecordingWriter>();
  start(request(true, 1, {"yz"}));
  for (const char c : std::string("xy")) engine_.token(2, c);
  engine_.finish(2, FinishReason::kStop, 2);
  writer_->run();
  events = test::events_of(writer_->body);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_NE(events[1].find(R"("text":"y","logprobs":null,"finish_reason":"stop")"),
            std::string::npos);
}

TEST_F(SessionTest, AWindowOfChoicesIsInTheEngineAtOnce) {
  limits_.max_open_choices = 3;
  GenerationRequest made = request(false);
  made.prompts.assign(8, Prompt{{1, 2, 3}, {}, false});
  start(std::move(made));
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(engine_.requests.size(), std::min<size_t>(i + 3, 8));
    engine_.token(i, static_cast<char>('a' + i));
    engine_.finish(i, FinishReason::kStop, 1);
    writer_->run();
  }
  const auto json = parse_json(writer_->response.body, "body").value();
  ASSERT_EQ(json.at("choices").as_array().size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(json.at("choices").at(i).at("text").as_string(),
              std::string(1, static_cast<char>('a' + i)));
  }
  EXPECT_EQ(json.at("usage").at("prompt_tokens").as_int64(), 24);
}

TEST_F(SessionTest, AChoiceThatFindsTheQueueFullLaterWaitsForAnother) {
  limits_.max_open_choices = 2;
  start(request(false, 3));
  engine_.max_requests = 2;  // the third is refused when its turn comes
  engine_.finish(0, FinishReason::kStop, 0);
  writer_->run();
  EXPECT_EQ(writer_->response.status, 0);
  engine_.max_requests = 100;
  engine_.finish(1, FinishReason::kStop, 0);
  writer_->run();
  ASSERT_EQ(engine_.requests.size(), 3u);
  engine_.finish(2, FinishReason::kStop, 0);
  writer_->run();
  EXPECT_EQ(writer_->response.status, 200);
}

TEST_F(SessionTest, AClientWhoseThreadIsBusyIsNotSlow) {
  limits_.max_queued_bytes = 2000;
  limits_.max_queued_events = 50;
  start(request(true));
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(engine_.token(0, 'a')) << i;  // nothing was rendered
  writer_->run();  // now it pauses: from here on it is the client's turn
  for (int i = 0; i < 49; ++i) ASSERT_TRUE(engine_.token(0, 'a')) << i;
  writer_->written();  // it reads something
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(engine_.token(0, 'a')) << i;
  EXPECT_FALSE(engine_.token(0, 'a'));  // it read nothing for 50 tokens
  writer_->run();
  EXPECT_EQ(counters_.slow_clients.value(), 1u);
}

TEST_F(SessionTest, LongWorkIsCutIntoTurns) {
  GenerationRequest made = request(false, 1);
  made.prompts[0].ids.assign(5000, 'p');
  made.prototype.num_prompt_logprobs = made.prototype.num_logprobs = 20;
  made.echo = true;
  start(std::move(made));
  Event scores;
  scores.kind = Event::Kind::kPromptLogprobs;
  scores.prompt_logprobs.resize(5000, TokenLogprobs{-1, 1, {{'a', -1.0f}, {'b', -2.0f}}});
  engine_.sinks[0](std::move(scores));
  for (int i = 0; i < 1000; ++i) engine_.token(0, 'x', 20);
  engine_.finish(0, FinishReason::kStop, 1000);
  size_t num_turns = 0;
  while (!writer_->tasks.empty()) {
    auto task = std::move(writer_->tasks.front());
    writer_->tasks.pop_front();
    task();
    ++num_turns;
  }
  EXPECT_GE(num_turns, 5000u / 64 + 1000 / 32);
  const auto json = parse_json(writer_->response.body, "body").value();
  EXPECT_EQ(json.at("choices").at(0).at("logprobs").at("tokens").as_array().size(), 6000u);
}

TEST_F(SessionTest, AnAnswerThatFindsNoMoreMemoryEndsWithANamedError) {
  for (const bool stream : {false, true}) {
    writer_ = std::make_shared<RecordingWriter>();
    ByteBudget budget(20'000);
    ManualEngine engine;
    GenerationRequest made = request(stream);
    made.prototype.num_logprobs = 20;
    made.prototype.max_tokens = 900;
    made.memory = budget.lease();
    start(engine, std::move(made));
    int num_taken = 0;
    while (engine.token(0, 'a', 20)) {
      if (!stream) writer_->run();  // a stream whose thread is busy
      ASSERT_LT(++num_taken, 1000);
    }
    writer_->run();
    EXPECT_EQ(engine.cancelled, std::vector<RequestId>{1});
    const std::string& said = stream ? writer_->body : writer_->response.body;
    EXPECT_NE(said.find("the answer needs more memory than is left for answers"),
              std::string::npos);
    if (!stream) {
      EXPECT_EQ(writer_->response.status, 429);
    }
    engine.finish(0, FinishReason::kCancelled, num_taken);
    engine.sinks.clear();
    EXPECT_EQ(budget.used(), 0u);
  }
}

TEST_F(SessionTest, TheWholeAnswerKeepsItsMemoryUntilItIsSent) {
  ByteBudget budget(100'000);
  GenerationRequest made = request(false);
  made.memory = budget.lease();
  start(std::move(made));
  for (int i = 0; i < 40; ++i) engine_.token(0, 'a');
  writer_->run();
  EXPECT_EQ(budget.used(), 40u);
  engine_.finish(0, FinishReason::kStop, 40);
  writer_->run();
  engine_.sinks.clear();
  EXPECT_GE(budget.used(), writer_->response.body.size());
  writer_->response = HttpResponse{};
  EXPECT_EQ(budget.used(), 0u);
}

TEST_F(SessionTest, CachedTokensAreKnownFromTheFirstTokenAndStay) {
  GenerationRequest made = request(true, 2);
  start_counting(std::move(made));
  const auto token = [&](size_t index, int32_t cached) {
    Event event;
    event.token_id = 'a';
    event.usage = {3, 1, cached};
    engine_.sinks[index](std::move(event));
  };
  token(0, 1);
  token(1, 3);
  engine_.finish(0, FinishReason::kStop, 1);
  engine_.finish(1, FinishReason::kStop, 1);
  writer_->run();
  const auto events = test::events_of(writer_->body);
  ASSERT_EQ(events.size(), 6u);
  for (size_t i = 0; i < 5; ++i) {
    const auto usage = parse_json(events[i], "event").value().at("usage");
    EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens").as_int64(), 1) << i;
    EXPECT_EQ(usage.at("prompt_tokens").as_int64(), 3);
  }
}

TEST_F(SessionTest, AnEchoAloneAsksNothingOfTheEngine) {
  for (const bool stream : {false, true}) {
    writer_ = std::make_shared<RecordingWriter>();
    GenerationRequest made = request(stream, 2);
    made.prompts[0].echo_text = "abc";
    made.prototype.max_tokens = 0;
    made.echo = true;
    start(std::move(made));
    EXPECT_TRUE(engine_.requests.empty());
    if (stream) {
      EXPECT_EQ(test::events_of(writer_->body).size(), 3u);
      EXPECT_EQ(streamed_text(), "abcabc");
    } else {
      const auto json = parse_json(writer_->response.body, "body").value();
      EXPECT_EQ(json.at("choices").at(1).at("text").as_string(), "abc");
      EXPECT_EQ(json.at("choices").at(1).at("finish_reason").as_string(), "length");
      EXPECT_EQ(json.at("usage").at("completion_tokens").as_int64(), 0);
    }
  }
}

TEST_F(SessionTest, OffsetsAreOfTheTextThatIsSent) {
  GenerationRequest made = request(false, 1, {"zz"});
  // A BOS that the text does not show, one that it spells, two characters in three bytes.
  made.prompts[0] = {{test::kBos, 'a', test::kBos, 0xC3, 0xA9}, "a<s>\xC3\xA9"};
  made.prototype.num_prompt_logprobs = made.prototype.num_logprobs = 0;
  made.echo = true;
  start(std::move(made));
  Event scores;
  scores.kind = Event::Kind::kPromptLogprobs;
  scores.prompt_logprobs.resize(5, TokenLogprobs{-1, 1, {}});
  engine_.sinks[0](std::move(scores));
  for (const char c : std::string("bczz")) engine_.token(0, c, 0);
  engine_.finish(0, FinishReason::kStop, 4);
  writer_->run();
  const auto json = parse_json(writer_->response.body, "body").value();
  EXPECT_EQ(json.at("choices").at(0).at("text").as_string(),
            "a<s>\xC3\xA9"
            "bc");
  EXPECT_EQ(to_text(json.at("choices").at(0).at("logprobs").at("text_offset")),
            "[0,0,1,4,4,5,6,7,7]");
}

// Where a dialect has a word for it, the answer says that it went round in a loop.
TEST_F(SessionTest, ALoopIsNamedAsTheReason) {
  const auto end_of = [&](std::unique_ptr<AnswerRenderer> renderer) {
    writer_ = std::make_shared<RecordingWriter>();
    start(engine_, request(true), std::move(renderer));
    const size_t index = engine_.sinks.size() - 1;
    engine_.token(index, 'a');
    Event event;
    event.kind = Event::Kind::kFinished;
    event.reason = FinishReason::kStop;
    event.repeats = true;
    event.usage = {3, 1, 0};
    engine_.sinks[index](std::move(event));
    writer_->run();
    EXPECT_EQ(writer_->last_note.finish, "repetition");
    return writer_->body;
  };
  const std::pair<std::string, const char*> kCases[] = {
      {end_of(make_completion_renderer(model_, answer_to(request(true)))),
       R"("finish_reason":"stop","stop_reason":"repetition")"},
      {end_of(make_llama_renderer(model_, {})), R"("stop_type":"repetition")"},
      {end_of(make_ollama_renderer(model_, {})), R"("done_reason":"repetition")"},
  };
  for (const auto& [body, expected] : kCases) {
    EXPECT_NE(body.find(expected), std::string::npos) << body;
  }
}

TEST_F(SessionTest, TheLogIsToldOfTheAnswer) {
  GenerationRequest made = request(false);
  made.prototype.arrived_us = now_us() - 5000;
  start(std::move(made));
  engine_.token(0, 'a');
  engine_.finish(0, FinishReason::kLength, 1);
  writer_->run();
  const RequestNote& note = writer_->last_note;
  EXPECT_TRUE(note.answer_id.starts_with("cmpl-"));
  EXPECT_EQ(note.finish, "length");
  EXPECT_EQ(note.prompt_tokens, 3);
  EXPECT_EQ(note.cached_tokens, 2);
  EXPECT_EQ(note.output_tokens, 1);
  EXPECT_GE(note.first_token_us, 5000);
}

}  // namespace session_test
}  // namespace headrace
