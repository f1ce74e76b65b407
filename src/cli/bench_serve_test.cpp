// headrace bench serve as a user meets it: against scripted servers, and against one that it
// starts.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>

#include <algorithm>

#include "base/descriptor.h"
#include "base/testing/temp_folder.h"
#include "cli/testing/program.h"
#include "cli/testing/scripted_server.h"

namespace headrace {
namespace bench_serve_test {

namespace fs = std::filesystem;
namespace json = boost::json;
using testing::http_answer;
using testing::Outcome;
using testing::run_program;
using testing::ScriptedServer;
using testing::SeenRequest;
using testing::TempFolder;

constexpr std::string_view kModels = R"({"data": [{"id": "scripted"}]})";

// Three tokens and what was counted.
std::vector<std::string> streamed() {
  std::vector<std::string> pieces = {testing::http_stream()};
  for (int i = 0; i < 3; ++i) {
    pieces.emplace_back("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n");
  }
  pieces.emplace_back(
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":3}}\n\n"
      "data: [DONE]\n\n");
  return pieces;
}

// Lists its models, has no metrics, and answers requests so.
ScriptedServer::Script script_of(std::vector<std::string> answer) {
  return [answer = std::move(answer)](const SeenRequest& request) -> std::vector<std::string> {
    if (request.line.starts_with("GET /v1/models")) return {http_answer(200, kModels)};
    if (request.line.starts_with("GET ")) return {http_answer(404, "")};
    return answer;
  };
}

Outcome bench(const std::string& arguments) {
  return run_program("bench serve " + arguments, "NO_PROXY=127.0.0.1");
}

json::object parsed(const std::string& text) {
  boost::system::error_code error;
  const json::value value = json::parse(text, error);
  EXPECT_FALSE(error) << text;
  return value.is_object() ? value.get_object() : json::object();
}

json::object saved(const TempFolder& folder) { return parsed(folder.read("load.json")); }

TEST(BenchServe, MeasuresAServerAndWritesItsReports) {
  const ScriptedServer server(script_of(streamed()));
  const TempFolder folder;
  const Outcome outcome =
      bench(server.url() + " --requests 6 --duration 60 --answer-tokens 3 --save " +
            folder.file("load.json") + " --html " + folder.file("load.html"));
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_NE(outcome.text.find("sync"), std::string::npos) << outcome.text;
  const json::object report = saved(folder);
  EXPECT_EQ(report.at("model").as_string(), "scripted");
  const json::object& stage = report.at("stages").as_array().at(0).as_object();
  EXPECT_EQ(stage.at("answered").to_number<int>(), 6);
  EXPECT_EQ(stage.at("failed").to_number<int>(), 0);
  EXPECT_GT(stage.at("ttft_ms").at("p50").at("value").to_number<double>(), 0);
  EXPECT_TRUE(folder.read("load.html").starts_with("<!doctype html>"));
  bool asked = false;
  for (const SeenRequest& request : server.seen()) {
    if (!request.line.starts_with("POST /v1/chat/completions")) continue;
    asked = true;
    EXPECT_NE(request.body.find("\"model\":\"scripted\""), std::string::npos) << request.body;
  }
  EXPECT_TRUE(asked);
}

TEST(BenchServe, ReportsFollowLinksAndAFifoGetsTheLastOne) {
  const ScriptedServer server(script_of(streamed()));
  const TempFolder folder;
  fs::create_symlink("load.html", folder.file("link.html"));
  const std::string fifo = folder.file("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const Descriptor reader = open_file(fifo).value();
  const Outcome outcome =
      bench(server.url() + " --load sweep --rates 2 --requests 3 --duration 60 --answer-tokens 3" +
            " --save " + fifo + " --html " + folder.file("link.html"));
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(fs::is_symlink(folder.file("link.html")));
  EXPECT_TRUE(folder.read("load.html").starts_with("<!doctype html>"));
  ASSERT_TRUE(fs::is_fifo(fifo));
  std::string text(size_t{1} << 16, '\0');  // what a FIFO holds
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, read(reader.get(), text.data(), 1 << 16))));
  EXPECT_GT(parsed(text).at("stages").as_array().size(), 1u);
}

TEST(BenchServe, StandardOutputKeepsWhatItHas) {
  const ScriptedServer server(script_of(streamed()));
  const TempFolder folder;
  fs::create_symlink("/proc/self/fd/1", folder.file("output"));
  const Outcome outcome =
      bench(server.url() + " --requests 3 --duration 60 --answer-tokens 3 --save " +
            folder.file("output") + " > " + folder.file("all"));
  EXPECT_EQ(outcome.status, 0) << folder.read("all");
  EXPECT_TRUE(fs::is_symlink(folder.file("output")));
  const std::string all = folder.read("all");
  EXPECT_LT(all.find("sync"), all.find("\"stages\":")) << all;
  EXPECT_NE(all.find("\"stages\":"), std::string::npos) << all;
}

TEST(BenchServe, ClientsPlayARecordingInItsOrderWhateverItsTimes) {
  const ScriptedServer server(script_of(streamed()));
  const TempFolder folder;
  std::string lines;
  for (const char* prompt : {"first", "second", "third"}) {
    lines += fmt::format(R"({{"time": {}, "prompt": "{}", "output_tokens": 3}})", lines.size() * 10,
                         prompt);
    lines += '\n';
  }
  const Outcome outcome =
      bench(server.url() + " --load sync --trace " + folder.write("asked.jsonl", lines) +
            " --save " + folder.file("load.json"));
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_EQ(saved(folder).at("stages").as_array().at(0).at("answered").to_number<int>(), 3);
  std::string asked;
  for (const SeenRequest& request : server.seen()) {
    for (const char* prompt : {"first", "second", "third"}) {
      if (request.body.find(prompt) != std::string::npos) asked += fmt::format("{} ", prompt);
    }
  }
  EXPECT_EQ(asked, "first second third ");
}

TEST(BenchServe, AnswersThatAreNoStreamAreToldAndKept) {
  const ScriptedServer server(script_of({http_answer(200, "{\"choices\": []}")}));
  const TempFolder folder;
  const Outcome outcome =
      bench(server.url() + " --requests 3 --warmup 0 --save " + folder.file("load.json"));
  EXPECT_EQ(outcome.status, 1) << outcome.text;
  EXPECT_NE(outcome.text.find("the answer is no stream of events"), std::string::npos)
      << outcome.text;
  EXPECT_EQ(saved(folder).at("stages").as_array().at(0).at("failed").to_number<int>(), 3);
}

TEST(BenchServe, AServerThatGoesAwayLosesNothing) {
  auto server = std::make_unique<ScriptedServer>(script_of(streamed()));
  const std::string url = server->url();
  const TempFolder folder;
  Outcome outcome;
  std::atomic<bool> ended = false;
  std::thread run([&] {
    outcome = bench(url + " --load closed:2 --warmup 0 --duration 600 --save " +
                    folder.file("load.json"));
    ended = true;
  });
  while (server->seen().size() < 6 && !ended) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  server.reset();
  run.join();
  EXPECT_EQ(outcome.status, 1) << outcome.text;
  EXPECT_NE(outcome.text.find("the load ended early: the server is gone"), std::string::npos)
      << outcome.text;
  EXPECT_GT(saved(folder).at("stages").as_array().at(0).at("answered").to_number<int>(), 0);
}

TEST(BenchServe, WhatCannotBeDoneIsToldBeforeAnythingIsSent) {
  const TempFolder folder;
  const std::string trace = folder.write("t.jsonl", "{\"time\": 0}\n");
  const std::string good =
      folder.write("g.jsonl", "{\"time\": 0, \"prompt\": \"a\", \"output_tokens\": 2}\n");
  struct Case {
    std::string arguments, message;
  };
  const Case cases[] = {
      {"http://127.0.0.1:1", "cannot reach http://127.0.0.1:1/v1/models"},
      {"http://127.0.0.1:1 --load fast", "--load is 'fast'"},
      {"http://127.0.0.1:1 --slo ttft=3", "--slo has the time '3'"},
      {"http://127.0.0.1:1 --warmup 40", "--warmup is 40 s, but must be shorter than --duration"},
      {"http://127.0.0.1:1 --prompt-tokens many", "--prompt-tokens is 'many'"},
      {"http://127.0.0.1:1 --load trace", "--load trace needs --trace FILE"},
      {"http://127.0.0.1:1 --trace " + trace, "t.jsonl:1: \"output_tokens\": it is missing"},
      {"http://127.0.0.1:1 --trace " + good + " --load poisson:1", "leave out one"},
      {"http://127.0.0.1:1 --machine m.json", "--machine is for a MODEL"},
      {"http://127.0.0.1:1 --speculation off", "--speculation is for a MODEL"},
  };
  for (const Case& c : cases) {
    const Outcome outcome = bench(c.arguments);
    EXPECT_NE(outcome.status, 0) << c.arguments;
    EXPECT_NE(outcome.text.find(c.message), std::string::npos) << outcome.text;
  }
  const ScriptedServer locked(http_answer(401, "{}"));
  const Outcome refused = bench(locked.url());
  EXPECT_NE(refused.text.find("wants a key (status 401) (name it with --api-key"),
            std::string::npos)
      << refused.text;
  const ScriptedServer server(script_of(streamed()));
  const Outcome unwritable = bench(server.url() + " --save " + folder.file("no/such/folder"));
  EXPECT_NE(unwritable.text.find("cannot write '"), std::string::npos) << unwritable.text;
}

TEST(BenchServe, StartsAServerOfItsOwnForAModel) {
  const TempFolder folder;
  const std::string model = folder.file("tiny.gguf");
  const Outcome written = run_program(
      "bench synth --shape llama-1b --format q8_0 --layers 2 --hidden 64 --heads 4 --kv-heads 2 "
      "--head-dim 16 --intermediate 96 --vocab 320 --out " +
      model);
  ASSERT_EQ(written.status, 0) << written.text;
  const std::string machine = folder.write(
      "machine.json",
      "{\"kind\":\"machine\",\"processor\":\"P\",\"isa\":\"avx2+fma+f16c\",\"memory_bytes\":1e9}\n"
      "{\"kind\":\"peak\",\"name\":\"a\",\"arithmetic\":\"f32\",\"isa\":\"avx2\",\"threads\":1,"
      "\"one_thread_op_s\":1e9,\"all_threads_op_s\":1e9}\n"
      "{\"kind\":\"read\",\"working_set_bytes\":1024,\"threads\":1,\"one_thread_byte_s\":1e9,"
      "\"all_threads_byte_s\":1e9}\n");
  const Outcome outcome = bench(model +
                                " --api completions --load closed:2 --requests 4 --warmup 0 "
                                "--prompt-tokens 4 --answer-tokens 3 --threads 1 --machine " +
                                machine + " --save " + folder.file("load.json"));
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  const json::object report = saved(folder);
  const json::object& stage = report.at("stages").as_array().at(0).as_object();
  EXPECT_EQ(stage.at("answered").to_number<int>(), 4) << outcome.text;
  EXPECT_TRUE(stage.contains("server_queue_ms_mean"));
  EXPECT_GT(stage.at("forecast").at("tpot_ms").to_number<double>(), 0);
  const Outcome missing = bench("./no-such.gguf");
  EXPECT_EQ(missing.status, 1);
  EXPECT_NE(missing.text.find("no-such.gguf"), std::string::npos) << missing.text;
  const Outcome bare = bench(model +
                             " --bare --load sync --requests 1 --warmup 0 --prompt-tokens 4 "
                             "--answer-tokens 3 --threads 1 --save " +
                             folder.file("load.json"));
  EXPECT_EQ(bare.status, 0) << bare.text;
  EXPECT_FALSE(saved(folder).at("stages").as_array().at(0).as_object().contains("forecast"));
}

}  // namespace bench_serve_test
}  // namespace headrace
