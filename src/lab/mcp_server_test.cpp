#include "lab/mcp_server.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "base/testing/temp_folder.h"
#include "lab/actions.h"
#include "lab/forms.h"

namespace headrace::lab::mcp_server_test {

namespace json = boost::json;
using headrace::testing::TempFolder;

class LabMcp : public ::testing::Test {
 protected:
  LabMcp()
      : store_(Store::open(folder_.file("lab"), Store::Durability::kFast).value()),
        server_(*store_, "1") {}

  json::value ask(const std::string& line) { return json::parse(server_.answer(line).value()); }
  json::value call(std::string_view tool, const json::object& arguments) {
    return ask(json::serialize(
        json::object{{"jsonrpc", "2.0"},
                     {"id", 7},
                     {"method", "tools/call"},
                     {"params", json::object{{"name", tool}, {"arguments", arguments}}}}));
  }
  static std::string text_of(const json::value& answer) {
    return std::string(answer.at_pointer("/result/content/0/text").as_string());
  }

  TempFolder folder_;
  std::unique_ptr<Store> store_;
  McpServer server_;
};

TEST_F(LabMcp, IntroducesItselfAndListsTheActions) {
  const json::value hello = ask(
      R"({"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","clientInfo":{"name":"claude","version":"1"}}})");
  EXPECT_EQ(hello.at_pointer("/result/protocolVersion").as_string(), "2025-03-26");
  EXPECT_FALSE(server_.answer(R"({"jsonrpc":"2.0","method":"notifications/initialized"})"));
  const json::value tools = ask(R"({"jsonrpc":"2.0","id":1,"method":"tools/list"})");
  EXPECT_EQ(tools.at_pointer("/result/tools").as_array().size(), actions().size());
}

TEST_F(LabMcp, AnAgentProposesReadsAndConcludes) {
  ask(R"({"jsonrpc":"2.0","id":0,"method":"initialize","params":{"clientInfo":{"name":"claude"}}})");
  const json::object hypothesis{{"statement", "more is faster"}, {"metric", "speed"}};
  EXPECT_EQ(call("add_hypothesis", hypothesis).at_pointer("/result/structuredContent/id"), 1);
  const json::object experiment = json::parse(R"({"hypothesis":1,"title":"try","sides":[
      {"name":"a","command":["true"]},{"name":"b","command":["true"]}]})")
                                      .as_object();
  EXPECT_EQ(call("add_experiment", experiment).at_pointer("/result/isError"), false);
  EXPECT_NE(text_of(call("queue", {})).find("0.71 bits about hypothesis 1"), std::string::npos);
  call("pin", {{"id", 1}});
  EXPECT_EQ(call("show", {{"id", 1}}).at_pointer("/result/structuredContent/pinned"), true);
  call("conclude", {{"id", 1}, {"state", "ruled out"}, {"verdict", "it is not"}});
  EXPECT_EQ(store_->hypothesis(1).value().state, "ruled out");
  for (const LogEntry& entry : store_->log(0, 100).value()) EXPECT_EQ(entry.author, "agent claude");
}

TEST_F(LabMcp, WhatIsWrongIsToldToTheAgent) {
  const json::value answer = call("add_hypothesis", {{"statement", "x"}, {"metrik", "y"}});
  EXPECT_EQ(answer.at_pointer("/result/isError"), true);
  EXPECT_EQ(text_of(answer), "a hypothesis needs the field 'metric'");
  EXPECT_EQ(text_of(call("show", {{"id", 99}})), "there is no experiment 99");
  EXPECT_EQ(text_of(call("show", {})), "id: is missing, and needs a whole number");
  EXPECT_EQ(call("drop", {}).at_pointer("/error/code"), -32602);
  EXPECT_EQ(
      ask(R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"show","arguments":[1]}})")
          .at_pointer("/error/code"),
      -32602);
  EXPECT_EQ(ask("{").at_pointer("/error/code"), -32700);
  EXPECT_EQ(ask("[]").at_pointer("/error/code"), -32600);
  EXPECT_EQ(ask(R"({"jsonrpc":"2.0","id":1,"method":"tools/drop"})").at_pointer("/error/code"),
            -32601);
  EXPECT_EQ(ask(std::string(kMaxMessageBytes + 1, 'x')).at_pointer("/error/code"), -32600);
}

TEST_F(LabMcp, FormsAreStrict) {
  const auto problem = [](const char* form) {
    return experiment_from(json::parse(form)).error().message;
  };
  EXPECT_EQ(problem(R"({"title":"a","sides":[],"colour":1})"),
            "an experiment has no field 'colour'; it has cost_s, folder, hypothesis, limits, "
            "max_rounds, metric, pinned, rationale, sides, title");
  EXPECT_EQ(problem(R"({"title":1,"sides":[]})"), "title: is 1, and needs a text");
  EXPECT_EQ(problem(R"({"title":"a","sides":[{"name":"b","command":[1]}]})"),
            "command: is [1], and needs a list of texts");
  EXPECT_EQ(problem(R"({"title":"a","max_rounds":1.5,"sides":[]})"),
            "max_rounds: is 1.5E0, and needs a whole number");
  EXPECT_EQ(problem("[]"), "an experiment is [], and must be an object");
}

TEST_F(LabMcp, TheExportHoldsAll) {
  Hypothesis about;
  about.statement = "more is faster";
  about.metric = "speed";
  ASSERT_TRUE(store_->add(about, "ada").ok());
  Experiment made;
  made.title = "try it";
  made.hypothesis_id = 1;
  made.sides = {{"a", {"true"}}, {"b", {"true"}}};
  ASSERT_TRUE(store_->add(made, "ada").ok());
  ASSERT_TRUE(store_->add(Learning{0, "it depends", {"experiment:1"}, "", 0}, "ada").ok());
  const std::string page = export_markdown(*store_).value();
  for (const char* part : {"1. more is faster", "1. try it", "b beside a: no round yet",
                           "it depends (experiment:1)"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  const json::object whole = export_json(*store_).value();
  EXPECT_EQ(whole.at("experiments").as_array().size(), 1u);
  EXPECT_EQ(whole.at("learnings").as_array().size(), 1u);
}

}  // namespace headrace::lab::mcp_server_test
