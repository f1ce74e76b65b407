// Words that ask for a load, what is sent, and answers that are not what they should be.

#include "bench/serve/workload.h"

#include <gtest/gtest.h>

#include <cmath>

#include "bench/serve/answer_reader.h"
#include "bench/serve/campaign.h"

namespace headrace::loads {
namespace workload_test {

TEST(LoadWords, ShapesAreReadAndNamedAlike) {
  for (const std::string_view text :
       {"sync", "closed:5", "constant:0.5", "poisson:20", "trace", "sweep", "sweep:constant"}) {
    EXPECT_EQ(parse_load(text, 8)->name(), text);
  }
  EXPECT_EQ(parse_load("throughput", 8)->clients, 8);
  for (const std::string_view text :
       {"", "fast", "closed", "closed:", "closed:0", "closed:1.5", "constant:-1", "poisson:nan",
        "poisson:2x", "rate:5", "sweep:closed"}) {
    const auto wrong = parse_load(text, 8);
    ASSERT_FALSE(wrong.ok()) << text;
    EXPECT_EQ(wrong.error().message,
              "--load is '" + std::string(text) +
                  "', but it must be sync, throughput, closed:CLIENTS, "
                  "constant:RATE, poisson:RATE, trace, sweep or sweep:constant");
  }
  EXPECT_EQ(parse_load("closed:9", 8).error().message,
            "--load asks for 9 clients, but --connections allows 8");
}

TEST(LoadWords, LengthsAreDrawnAsTheySay) {
  Draws draws(1, 1);
  EXPECT_EQ(parse_lengths("64", "--x", false)->draw(draws), 64);
  EXPECT_EQ(parse_lengths("fixed:7", "--x", false)->draw(draws), 7);
  const Lengths lengths = parse_lengths("lognormal:100,0.5", "--x", false).value();
  std::vector<double> logs;
  for (int i = 0; i < 4000; ++i) {
    logs.push_back(std::log(static_cast<double>(lengths.draw(draws))));
  }
  std::ranges::sort(logs);
  EXPECT_NEAR(std::exp(logs[2000]), 100, 4);
  EXPECT_NEAR(logs[3364] - logs[2000], 0.5, 0.05) << "one sigma above";
  EXPECT_LE(parse_lengths("sharegpt", "--x", false)->draw(draws), 4096);
  for (const std::string_view text : {"", "0", "-4", "lognormal:5", "lognormal:5,9", "uniform:3"}) {
    EXPECT_FALSE(parse_lengths(text, "--x", false).ok()) << text;
  }
}

TEST(LoadWords, LimitsAreReadWithTheirUnits) {
  const Slo slo = parse_slo("ttft=300ms,itl=0.05s,e2e=2s").value();
  EXPECT_EQ(slo.ttft, 300);
  EXPECT_EQ(slo.itl, 50);
  EXPECT_EQ(slo.e2e, 2000);
  EXPECT_FALSE(parse_slo("")->any());
  EXPECT_EQ(parse_slo("ttft=300").error().message,
            "--slo has the time '300', but a time is such as 300ms or 1.5s");
  EXPECT_EQ(parse_slo("speed=3s").error().message,
            "--slo has 'speed=3s', but its parts are ttft=TIME, itl=TIME and e2e=TIME");
}

TEST(LoadWork, OneSeedIsOneLoad) {
  WorkloadOptions options;
  options.prompts = parse_lengths("sharegpt", "--x", false).value();
  Workload first(options), second(options);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(request_body(*first.next(), {}), request_body(*second.next(), {}));
  }
  const std::string before = request_body(*first.next(), {});
  first.begin_stage(1);
  second.begin_stage(0);
  EXPECT_NE(request_body(*first.next(), {}), request_body(*second.next(), {}));
}

TEST(LoadWork, ASharedPrefixBeginsEveryPrompt) {
  WorkloadOptions options;
  options.profile = Profile::kPrefix;
  options.prefix_tokens = 20;
  Workload work(options);
  const std::string first = work.next()->messages[0].text, second = work.next()->messages[0].text;
  const size_t end = first.find(". ");
  ASSERT_NE(end, std::string::npos);
  EXPECT_EQ(first.substr(0, end), second.substr(0, end));
  EXPECT_NE(first, second);
}

TEST(LoadWork, AConversationGrowsByItsAnswersAndEnds) {
  WorkloadOptions options;
  options.profile = Profile::kAgent;
  options.turns = 2;
  Workload work(options);
  const Ask first = *work.next();
  ASSERT_EQ(first.messages.size(), 2u);
  const Ask other = *work.next();
  EXPECT_NE(other.session, first.session) << "the first waits for its answer";
  work.answered(first.session, "an answer");
  const Ask second = *work.next();
  EXPECT_EQ(second.session, first.session);
  ASSERT_EQ(second.messages.size(), 4u);
  EXPECT_EQ(second.messages[2].text, "an answer");
  EXPECT_EQ(second.messages[1].text, first.messages[1].text);
  work.answered(first.session, "the last");
  EXPECT_NE(work.next()->session, first.session) << "it had its two turns";
  work.answered(other.session, "");
  EXPECT_NE(work.next()->session, other.session) << "a failure ends it";
}

TEST(LoadWork, BadRecordingsAreRefusedByLine) {
  struct Case {
    std::string_view line, message;
  };
  const Case cases[] = {
      {R"({"prompt": "x", "output_tokens": 1})", R"(t:2: "time": it is missing)"},
      {R"({"time": 0.5, "prompt": "x", "output_tokens": 1})",
       R"(t:2: "time": it is before that of the line before)"},
      {R"({"time": 1, "prompt": 5, "output_tokens": 1})", R"(t:2: "prompt": it must be a text)"},
      {R"({"time": 1, "output_tokens": 1})", R"(t:2: "prompt_tokens": it is missing)"},
      {R"({"time": 1, "prompt": "x", "output_tokens": 0})",
       R"(t:2: "output_tokens": it must be a whole number in 1..1048576)"},
      {R"({"time": "now", "prompt": "x", "output_tokens": 1})",
       R"(t:2: "time": it must be a number from 0 on)"},
  };
  for (const Case& c : cases) {
    const std::string text = R"({"time": 1, "prompt": "x", "output_tokens": 1})"
                             "\n" +
                             std::string(c.line) + "\n";
    const auto trace = parse_trace(text, "t", 0);
    ASSERT_FALSE(trace.ok()) << c.line;
    EXPECT_EQ(trace.error().message, c.message);
  }
  EXPECT_FALSE(parse_trace("{\"time\": 1,", "t", 0).ok());
  EXPECT_EQ(parse_trace("\n \n", "t", 0).error().message, "t holds no requests");
}

AnswerNotes read(std::initializer_list<std::string_view> pieces, long status = 200) {
  AnswerReader reader;
  TimeUs now = 0;
  for (const std::string_view piece : pieces) reader.feed(piece, now += 1000);
  return reader.finish(status);
}

TEST(LoadAnswer, PiecesAreStampedAsTheyComeHoweverTheyAreCut) {
  const AnswerNotes notes =
      read({"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\ndata: {\"choi",
            "ces\":[{\"delta\":{\"content\":\"Hel\"}}]}\r\n\r\n",
            "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"lo\"}}]}\n\n",
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4,"
            "\"prompt_tokens_details\":{\"cached_tokens\":5}},"
            "\"timings\":{\"prompt_ms\":12.5,\"predicted_ms\":30}}\n\ndata: [DONE]\n\n"});
  EXPECT_EQ(notes.error, "");
  EXPECT_EQ(notes.text, "Hello");
  EXPECT_EQ(notes.pieces, (std::vector<TimeUs>{2000, 3000}));
  EXPECT_EQ(notes.prompt_tokens, 9);
  EXPECT_EQ(notes.tokens(), 4);
  EXPECT_EQ(notes.cached_tokens, 5);
  EXPECT_EQ(notes.server_prompt_ms, 12.5);
  EXPECT_EQ(notes.server_answer_ms, 30);
}

TEST(LoadAnswer, WhatIsNoSuchStreamIsToldAsItIs) {
  EXPECT_EQ(read({"{\"choices\":[]}"}).error,
            "the answer is no stream of events (text/event-stream); it begins with "
            "'{\"choices\":[]}'");
  EXPECT_EQ(read({"{\"error\":{\"message\":\"too long\"}}"}, 400).error, "status 400: too long");
  EXPECT_EQ(read({"<html>"}, 502).error, "status 502: <html>");
  EXPECT_EQ(read({"data: {\"choices\":[{\"text\":\"a\"}]}\n\n"}).error,
            "the stream ended before its end was told (data: [DONE])");
  EXPECT_EQ(read({"data: [DONE]\n"}).error, "the answer has no text");
  EXPECT_EQ(read({"data: {\"error\":{\"message\":\"no memory\"}}\n\ndata: [DONE]\n"}).error,
            "no memory");
  EXPECT_NE(read({"data: {broken\n\ndata: [DONE]\n"}).error, "");
}

TEST(LoadAnswer, TheServersOwnQueueIsReadFromItsMetrics) {
  const ServerQueue queue = read_server_queue(
      "# TYPE vllm:request_queue_time_seconds histogram\n"
      "vllm:request_queue_time_seconds_bucket{le=\"1\"} 5\n"
      "vllm:request_queue_time_seconds_sum{model_name=\"a b\"} 1.5\n"
      "vllm:request_queue_time_seconds_count{model_name=\"a b\"} 4\n"
      "vllm:request_queue_time_seconds_sum{model_name=\"c\"} 0.5\n");
  EXPECT_EQ(queue.seconds, 2.0);
  EXPECT_EQ(queue.requests, 4.0);
  EXPECT_EQ(read_server_queue("").requests, 0);
}

}  // namespace workload_test
}  // namespace headrace::loads
