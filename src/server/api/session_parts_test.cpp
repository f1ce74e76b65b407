// What a session tells its renderer: parts, ends, usage and times.

#include <gtest/gtest.h>

#include "server/api/test_session.h"

namespace headrace {
namespace session_parts_test {

using SessionPartsTest = SessionTest;

TEST_F(SessionPartsTest, PartsThatAParserMakesReachTheAnswer) {
  const std::string reply = "<t>why</t>hm <c>f:{}</c><c>g:[1]</c>";
  for (const bool stream : {false, true}) {
    writer_ = std::make_shared<RecordingWriter>();
    GenerationRequest made = request(stream);
    made.prototype.max_tokens = 100;
    made.make_parser = [](const Prompt&) { return std::make_unique<test::TagParser>(); };
    engine_.sinks.clear();
    engine_.requests.clear();
    start(engine_, std::move(made), make_chat_renderer(model_, {"scripted", {}, false, false}));
    for (const char c : reply) engine_.token(0, c);
    engine_.finish(0, FinishReason::kStop, static_cast<int32_t>(reply.size()));
    writer_->run();
    EXPECT_EQ(writer_->last_note.finish, "tool_calls");
    if (!stream) {
      const auto choice = parse_json(writer_->response.body, "body").value().at("choices").at(0);
      EXPECT_EQ(
          to_text(choice.at("message")),
          R"({"role":"assistant","content":"hm ","reasoning_content":"why","reasoning":"why","refusal":null,)"
          R"("tool_calls":[{"id":"call-0","type":"function","function":{"name":"f","arguments":"{}"}},)"
          R"({"id":"call-1","type":"function","function":{"name":"g","arguments":"[1]"}}]})");
      EXPECT_EQ(choice.at("finish_reason").as_string(), "tool_calls");
      continue;
    }
    std::string deltas;
    for (const std::string& event : test::events_of(writer_->body)) {
      if (event == "[DONE]") continue;
      deltas += to_text(parse_json(event, "event").value().at("choices").at(0).at("delta")) + "\n";
    }
    EXPECT_EQ(deltas, R"({"role":"assistant","content":""})"
                      "\n"
                      R"({"reasoning_content":"why","reasoning":"why"})"
                      "\n"
                      R"({"content":"h"})"
                      "\n"
                      R"({"content":"m"})"
                      "\n"
                      R"({"content":" "})"
                      "\n"
                      R"({"tool_calls":[{"index":0,"id":"call-0","type":"function",)"
                      R"("function":{"name":"f","arguments":"{}"}}]})"
                      "\n"
                      R"({"tool_calls":[{"index":1,"id":"call-1","type":"function",)"
                      R"("function":{"name":"g","arguments":"[1]"}}]})"
                      "\n{}\n");
  }
}

TEST_F(SessionPartsTest, WhatAParserHoldsBackComesWithTheEnd) {
  GenerationRequest made = request(true);
  made.make_parser = [](const Prompt&) { return std::make_unique<test::TagParser>(); };
  start(std::move(made));
  for (const char c : std::string("ab<t")) engine_.token(0, c);
  writer_->run();
  EXPECT_EQ(streamed_text(), "ab");
  engine_.finish(0, FinishReason::kLength, 4);
  writer_->run();
  std::string finish;
  EXPECT_EQ(streamed_text(&finish), "ab<t");
  EXPECT_EQ(finish, "length");
}

TEST_F(SessionPartsTest, AParserKnowsWhetherTheModelHasEndedTheAnswer) {
  // Tells how it was ended.
  class Ended : public PartParser {
   public:
    std::vector<OutputPart> push(std::string_view) override { return {}; }
    std::vector<OutputPart> finish(bool is_cut) override {
      return {{OutputPart::Kind::kText, is_cut ? "cut" : "whole", 0, {}, {}}};
    }
  };
  const std::pair<FinishReason, std::string_view> kReasons[] = {{FinishReason::kStop, "whole"},
                                                                {FinishReason::kLength, "cut"}};
  for (size_t i = 0; i < std::size(kReasons); ++i) {
    writer_ = std::make_shared<RecordingWriter>();
    GenerationRequest made = request(true);
    made.make_parser = [](const Prompt&) { return std::make_unique<Ended>(); };
    start(std::move(made));
    engine_.finish(i, kReasons[i].first, 0);
    writer_->run();
    EXPECT_EQ(streamed_text(), kReasons[i].second);
  }
  writer_ = std::make_shared<RecordingWriter>();
  GenerationRequest made = request(true, 1, {"x"});
  made.make_parser = [](const Prompt&) { return std::make_unique<Ended>(); };
  start(std::move(made));
  engine_.token(std::size(kReasons), 'x');
  writer_->run();
  EXPECT_EQ(streamed_text(), "cut");
}

TEST_F(SessionPartsTest, AWholeAnswerCanComeInThePiecesOfAStream) {
  // Keeps what it is told, and how often tokens came that may be text.
  class Keeper : public AnswerRenderer {
   public:
    explicit Keeper(std::string& told) : told_(told) {}
    const Dialect& dialect() const override { return kOpenAi; }
    const std::string& id() const override { return id_; }
    void add_score(const ScoredToken& token, ScoreText& scores) override {
      if (token.may_be_text) scores.lists[0].integer(token.id);
    }
    std::string chunk(const ChoiceDelta& delta, const Usage&) override { return tell(delta), "x"; }
    std::string end_stream(const AnswerEnd&) override { return {}; }
    std::string stream_error(const Error&) override { return {}; }
    bool add_piece(const ChoiceDelta& piece) override { return tell(piece), true; }
    void begin_whole(JsonWriter& json) override { json.open_object(); }
    void add_choice(const ChoiceDelta& choice, JsonWriter&) override { tell(choice); }
    void end_whole(const AnswerEnd&, JsonWriter& json) override { json.close_object(); }

   private:
    void tell(const ChoiceDelta& delta) {
      for (const OutputPart& part : delta.parts) told_ += part.text + "|";
      told_ +=
          fmt::format("[{}]{};", delta.scores.lists[0].str(), static_cast<int>(delta.finish.kind));
    }
    std::string& told_;
    const std::string id_ = "x";
  };
  std::string told[2];
  for (const bool stream : {false, true}) {
    writer_ = std::make_shared<RecordingWriter>();
    engine_.sinks.clear();
    GenerationRequest made = request(stream);
    made.prototype.num_logprobs = 0;
    made.make_parser = [](const Prompt&) { return std::make_unique<test::TagParser>(); };
    start(engine_, std::move(made), std::make_unique<Keeper>(told[stream ? 1 : 0]));
    for (const char c : std::string("a<c>f:{}</c>b")) engine_.token(0, c, 0);
    engine_.finish(0, FinishReason::kStop, 13);
    writer_->run();
  }
  EXPECT_EQ(told[0], told[1]);
  EXPECT_TRUE(told[0].starts_with("a|[97]0;{}|[60,99,")) << told[0];
  EXPECT_TRUE(told[0].ends_with(fmt::format("[]{};", static_cast<int>(Finish::Kind::kToolCalls))))
      << told[0];
}

TEST_F(SessionPartsTest, TheRendererIsToldWhatEndedAChoiceAndWhatItTook) {
  // Writes what it is told.
  class Teller : public AnswerRenderer {
   public:
    const Dialect& dialect() const override { return kOpenAi; }
    const std::string& id() const override { return id_; }
    void add_score(const ScoredToken&, ScoreText&) override {}
    std::string begin_stream(const Usage& usage) override {
      return fmt::format("begin {};", usage.prompt_tokens);
    }
    std::string chunk(const ChoiceDelta& delta, const Usage& so_far) override {
      return fmt::format("{} {} {} {};", delta.text_of(OutputPart::Kind::kText),
                         static_cast<int>(delta.finish.kind), delta.finish.stop,
                         so_far.output_tokens);
    }
    std::string end_stream(const AnswerEnd& end) override {
      return fmt::format("end {} {} {} {}", end.usage.prompt_tokens, end.usage.cached_tokens,
                         end.usage.output_tokens, end.times.finished - end.times.started);
    }
    std::string stream_error(const Error&) override { return "error"; }
    void begin_whole(JsonWriter&) override {}
    void add_choice(const ChoiceDelta&, JsonWriter&) override {}
    void end_whole(const AnswerEnd&, JsonWriter&) override {}

   private:
    const std::string id_ = "x";
  };
  start(engine_, request(true, 1, {"yz"}), std::make_unique<Teller>());
  for (const char c : std::string("xyz")) engine_.token(0, c);
  Event end;
  end.kind = Event::Kind::kFinished;
  end.reason = FinishReason::kCancelled;
  end.usage = {3, 3, 2};
  end.times = {10, 20, 30, 70};
  engine_.sinks[0](std::move(end));
  writer_->run();
  EXPECT_EQ(writer_->body, fmt::format("begin 3;x 0  1; {} yz 3;end 3 2 3 50",
                                       static_cast<int>(Finish::Kind::kStopString)));
  EXPECT_EQ(writer_->head.content_type, "text/event-stream; charset=utf-8");
  EXPECT_EQ(writer_->head.heartbeat, ": still here\n\n");
}

TEST_F(SessionPartsTest, ItsTimeIsTheHosts) {
  static TimeUs time = 0;
  time = 1000;
  GenerationRequest made = request(true);
  made.prototype.arrived_us = 400;
  auto renderer = make_completion_renderer(model_, answer_to(made));
  Session::start({engine_, model_, counters_, limits_, [] { return time; }}, std::move(made),
                 std::move(renderer), writer_);
  EXPECT_EQ(counters_.busy_since, 1000);
  time = 5000;
  engine_.token(0, 'a');
  engine_.finish(0, FinishReason::kStop, 1);
  writer_->run();
  EXPECT_EQ(writer_->last_note.first_token_us, 4600);
}

}  // namespace session_parts_test
}  // namespace headrace
