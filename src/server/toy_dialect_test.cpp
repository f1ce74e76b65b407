// The dialect seam: a second dialect is its own parse, renderer, error form and framing, and has
// everything else (sessions, budgets, doors, logs) without a word about it there.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "server/api/test_session.h"
#include "server/test_support.h"
#include "server/test_toy_dialect.h"

namespace headrace {
namespace toy_dialect_test {

using test::Client;
using test::eventually;
using test::RunningServer;
using test::Script;
using namespace std::chrono_literals;

class ToyServer : public RunningServer {
 public:
  explicit ToyServer(Script script = {}, ServerOptions options = {})
      : RunningServer(std::move(script), std::move(options), true, test::kToyRows) {}

  test::ClientResponse ask(const std::string& body, const std::string& headers = "") {
    return Client(port()).post("/toy/generate", body, headers);
  }
};

std::vector<std::string> lines_of(std::string_view body) {
  std::vector<std::string> lines;
  while (!body.empty()) {
    const size_t end = body.find('\n');
    EXPECT_NE(end, std::string_view::npos) << "a line without an end: " << body;
    lines.emplace_back(body.substr(0, end));
    body.remove_prefix(std::min(body.size(), end + 1));
  }
  return lines;
}

std::string bytes_as_json(const std::string& text) {
  std::string lines;
  for (const char c : text) {
    lines += fmt::format("{{\"index\":0,\"response\":\"{}\"}}\n", std::string(1, c));
  }
  return lines;
}

TEST(ToyDialect, StreamsLines) {
  ToyServer server(Script{.reply = "abc"});
  const auto response = server.ask(R"({"prompt":"Hi"})");
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_NE(response.head.find("Content-Type: application/x-ndjson\r\n"), std::string::npos);
  EXPECT_NE(response.head.find("x-toy: yes\r\n"), std::string::npos);
  EXPECT_EQ(response.body, "{\"prompt_eval_count\":3}\n" + bytes_as_json("abc") +
                               R"({"index":0,"done_reason":"end"})"
                               "\n"
                               R"({"done":true,"eval_count":3,"prompt_eval_count":3,)"
                               R"("has_times":true})"
                               "\n");
  EXPECT_TRUE(response.complete);
}

TEST(ToyDialect, AnswersWhole) {
  ToyServer server(Script{.reply = "abc"});
  const auto response = server.ask(R"({"prompt":"Hi","stream":false,"echo":true,"logprobs":true})");
  EXPECT_EQ(response.status, 200);
  EXPECT_NE(response.head.find("Content-Type: application/json\r\n"), std::string::npos);
  EXPECT_EQ(response.body, R"({"model":"scripted","answers":[{"index":0,"response":"Hiabc",)"
                           R"("logprobs":[-0.5,-0.5,-0.5],"done_reason":"end"}],)"
                           R"("done":true,"eval_count":3,"prompt_eval_count":3,"has_times":true})");
}

TEST(ToyDialect, ReadsConversationsByTheModelsTemplate) {
  ToyServer server;
  const auto response =
      server.ask(R"({"messages":[{"role":"developer","content":"Hi"}],"stream":false})");
  ASSERT_EQ(response.status, 200) << response.body;
  std::string prompt;
  for (const int32_t id : server.engine().last_request().prompt_ids) {
    if (id < 256) prompt += static_cast<char>(id);
  }
  EXPECT_EQ(prompt, "[system]Hi\n[assistant]");  // what the template does not know was mapped
}

TEST(ToyDialect, EveryWayToEndHasItsReason) {
  struct Case {
    std::string members, reason;
  };
  const Case cases[] = {
      {"", R"("done_reason":"end")"},
      {R"(,"options":{"num_predict":2})", R"("done_reason":"length")"},
      {R"(,"options":{"stop":", w"})", R"("done_reason":"stop string","stop":", w")"},
  };
  ToyServer server;
  for (const Case& each : cases) {
    for (const char* stream : {"true", "false"}) {
      const auto response =
          server.ask(fmt::format(R"({{"prompt":"Hi","stream":{}{}}})", stream, each.members));
      EXPECT_NE(response.body.find(each.reason), std::string::npos) << response.body;
    }
  }
}

TEST(ToyDialect, ReasoningAndCallsComeAsParts) {
  ToyServer server(Script{.reply = "<t>hm</t>a<c>f:{}</c>"});
  const auto whole = server.ask(R"({"prompt":"Hi","stream":false,"marks":true})");
  EXPECT_NE(whole.body.find(R"({"index":0,"response":"a","thinking":"hm","call":"f{}",)"
                            R"("done_reason":"call"})"),
            std::string::npos)
      << whole.body;
  const auto lines = lines_of(server.ask(R"({"prompt":"Hi","marks":true})").body);
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[1], R"({"index":0,"thinking":"hm"})");
  EXPECT_EQ(lines[2], R"({"index":0,"response":"a"})");
  EXPECT_EQ(lines[3], R"({"index":0,"call":"f{}"})");
  EXPECT_EQ(lines[4], R"({"index":0,"done_reason":"call"})");
}

TEST(ToyDialect, ManyAnswersToOnePrompt) {
  ToyServer server(Script{.reply = "ab"});
  const auto lines = lines_of(server.ask(R"({"prompt":"Hi","n":3})").body);
  std::string texts[3];
  int num_ends = 0;
  for (size_t i = 1; i + 1 < lines.size(); ++i) {
    const auto json = parse_json(lines[i], "line").value();
    const auto index = static_cast<size_t>(json.at("index").as_int64());
    ASSERT_LT(index, 3u);
    if (const auto* text = json_member(&json, "response")) {
      texts[index] += text->as_string().c_str();
    }
    num_ends += json_member(&json, "done_reason") != nullptr ? 1 : 0;
  }
  for (const std::string& text : texts) EXPECT_EQ(text, "ab");
  EXPECT_EQ(num_ends, 3);
  EXPECT_NE(lines.back().find(R"("eval_count":6)"), std::string::npos);
}

// Before the stream: a status, and the dialect's form, wherever the error arises.
TEST(ToyDialect, ErrorsBeforeTheStreamHaveItsForm) {
  ServerOptions options;
  options.max_body_bytes = 1000;
  options.api_keys = {plain_api_key("k")};
  ToyServer server(Script{.max_waiting = 0, .max_context = 8}, options);
  const std::string key = "Authorization: Bearer k\r\n";
  struct Case {
    std::string body, headers;
    int status;
    std::string_view answer;
  };
  const Case cases[] = {
      {"{}", "", 401, R"({"error":"a valid API key is needed"})"},
      {"{}", key + "Content-Type: text/css\r\n", 415,
       R"({"error":"Content-Type is 'text/css', but it must be application/json"})"},
      {"{}", key, 400,
       R"({"error":"prompt is missing, but it must be a string","field":"prompt"})"},
      {"[]", key, 400, R"({"error":"the body is a list, but it must be a JSON object"})"},
      {R"({"prompt":"a","n":9})", key, 400,
       R"({"error":"n is 9, but it must be a whole number from 1 to 4","field":"n"})"},
      {R"({"prompt":"too long a text"})", key, 400,
       R"({"error":"the prompt is too long: it has at least 9 tokens, but this model's maximum context length is )"
       R"x(8 tokens, prompt and answer together (shorten the prompt)","field":"prompt"})x"},
      {R"({"prompt":"a"})", key, 429, R"({"error":"the queue is full, it holds 0 requests"})"},
  };
  for (const Case& each : cases) {
    const auto response = server.ask(each.body, each.headers);
    EXPECT_EQ(response.status, each.status) << each.answer;
    EXPECT_EQ(response.body, each.answer);
    EXPECT_EQ(response.head.find("Retry-After: 1\r\n") != std::string::npos, each.status == 429);
  }
  // What the transport refuses once the route is known.
  Client chunked(server.port());
  chunked.send("POST /toy/generate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n" + key +
               "\r\n3e9\r\n" + std::string(1001, ' ') + "\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.receive().body, R"({"error":"the body is longer than 1000 bytes"})");
  // What has no route gets the form of the paths that it is most like, or that of the first
  // dialect.
  EXPECT_EQ(Client(server.port()).post("/toy/none", "{}", key).body,
            R"({"error":"there is no /toy/none here"})");
  const auto unknown = Client(server.port()).post("/absent", "{}", key);
  EXPECT_NE(unknown.body.find(R"("type":"not_found_error")"), std::string::npos);
}

TEST(ToyDialect, AServerThatDrainsSaysSoInItsForm) {
  ToyServer server;
  server.engine().hold(true);
  Client running(server.port());
  running.send(
      "POST /toy/generate HTTP/1.1\r\nHost: a\r\nContent-Length: 14\r\n\r\n"
      R"({"prompt":"a"})");
  ASSERT_TRUE(eventually([&] { return server.engine().num_live() == 1; }));
  Client late(server.port());
  ASSERT_EQ(late.get("/ready").status, 200);
  std::thread drain([&] { server.server().drain(10s); });
  EXPECT_TRUE(eventually([&] { return late.get("/ready").status == 503; }));
  EXPECT_EQ(late.post("/toy/generate", R"({"prompt":"a"})").body,
            R"({"error":"the server is shutting down and takes no new requests"})");
  server.engine().hold(false);
  EXPECT_TRUE(running.receive().complete);
  drain.join();
}

TEST(ToyDialect, AnErrorInTheStreamIsALineAndTheLast) {
  ToyServer server(Script{.reply = "abc", .fail = true});
  const auto response = server.ask(R"({"prompt":"Hi"})");
  EXPECT_EQ(response.status, 200);
  const auto lines = lines_of(response.body);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[3], R"({"error":"the logits of this request are not finite"})");
  EXPECT_TRUE(response.complete);
  const auto whole = server.ask(R"({"prompt":"Hi","stream":false})");
  EXPECT_EQ(whole.status, 500);
  EXPECT_EQ(whole.body, R"({"error":"the logits of this request are not finite"})");
}

// A framing without a heartbeat is silent; one with a blank line sends that.
TEST(ToyDialect, HeartbeatsAreTheDialects) {
  ServerOptions options;
  options.heartbeat = 20ms;
  ToyServer server(Script{.reply = "ab"}, options);
  for (const bool beats : {false, true}) {
    server.engine().hold(true);
    Client client(server.port());
    client.send(fmt::format("POST /toy/{} HTTP/1.1\r\nHost: a\r\nContent-Length: 14\r\n\r\n{}",
                            beats ? "beating" : "generate", R"({"prompt":"a"})"));
    ASSERT_TRUE(client.receive_until("{\"prompt_eval_count\":2}\n\r\n"));
    if (beats) {
      ASSERT_TRUE(client.receive_until("1\r\n\n\r\n1\r\n\n\r\n"));
    } else {
      std::this_thread::sleep_for(60ms);
    }
    server.engine().hold(false);
    const auto response = client.receive();
    EXPECT_TRUE(response.complete);
    size_t num_blank = 0;
    for (const std::string& line : lines_of(response.body)) num_blank += line.empty() ? 1 : 0;
    EXPECT_EQ(num_blank > 0, beats) << response.body;
    EXPECT_EQ(response.body.find("still here"), std::string::npos);
  }
}

TEST(ToyDialect, AClientThatLeavesIsCancelled) {
  ToyServer server(Script{.token_delay = 1ms});
  {
    Client client(server.port());
    client.send(
        "POST /toy/generate HTTP/1.1\r\nHost: a\r\nContent-Length: 52\r\n\r\n"
        R"({"prompt":"a","endless":true,"n":2,"stream":true   })");
    ASSERT_TRUE(client.receive_until("response"));
  }
  EXPECT_TRUE(eventually([&] { return server.engine().num_live() == 0; }));
  EXPECT_EQ(server.engine().num_cancelled(), 2u);
}

class ToySession : public SessionTest {};

TEST_F(ToySession, ASlowReaderIsToldInALine) {
  limits_.max_queued_bytes = 2000;
  limits_.max_queued_events = 50;
  GenerationRequest made = request(true);
  made.prototype.max_tokens = 500;
  start(engine_, std::move(made), std::make_unique<test::ToyRenderer>(model_, test::kToy));
  int num_taken = 0;
  while (engine_.token(0, 'a')) {
    writer_->run();
    ASSERT_LT(++num_taken, 1000);
  }
  engine_.finish(0, FinishReason::kCancelled, num_taken);
  writer_->run();
  const auto lines = lines_of(writer_->body);
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back(),
            R"({"error":"the client read too slowly, so the answer was ended early"})");
  EXPECT_TRUE(writer_->ended);
  EXPECT_EQ(counters_.slow_clients.value(), 1u);
}

struct OwnWords {
  std::string_view folder;
  std::vector<std::string_view> words;
};
const OwnWords kOwnWords[] = {
    {"api/openai/", {"openai/", "kOpenAi", "OpenAiAnswer"}},
    // The Responses API is of the same house: its errors are the same.
    {"api/responses/", {"openai/", "kOpenAi", "OpenAiAnswer"}},
    {"api/anthropic/", {"anthropic/", "kAnthropic", "AnthropicAnswer"}},
    {"api/ollama/", {"ollama/", "kOllama", "OllamaAnswer"}},
    {"api/llamacpp/", {"llamacpp/", "kLlamaCpp", "LlamaAnswer"}},
    {"api/dialect.h", {"openai/", "text/event-stream"}},
    {"api/anthropic/dialect.cpp", {"text/event-stream"}},
};

bool may_say(std::string_view path, std::string_view word) {
  return std::any_of(std::begin(kOwnWords), std::end(kOwnWords), [&](const OwnWords& own) {
    return path.starts_with(own.folder) &&
           std::find(own.words.begin(), own.words.end(), word) != own.words.end();
  });
}

// Outside a dialect's own folder and the rows, no file says which dialect there is.
TEST(DialectSeam, NobodyAsksWhichDialectItIs) {
  const std::filesystem::path server = std::filesystem::path(HEADRACE_SOURCE_DIR) / "src/server";
  size_t num_files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(server)) {
    const std::string path = entry.path().lexically_relative(server).string();
    const std::string name = entry.path().filename().string();
    const bool is_test = name.ends_with("_test.cpp") || name.starts_with("test_");
    const bool is_source = name.ends_with(".cpp") || name.ends_with(".h");
    const bool is_fields = name.starts_with("api_fields");
    if (!is_source || is_test || is_fields || path.starts_with("routes")) continue;
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    for (const OwnWords& own : kOwnWords) {
      for (const std::string_view word : own.words) {
        EXPECT_TRUE(may_say(path, word) || text.str().find(word) == std::string::npos)
            << path << ": " << word;
      }
    }
    ++num_files;
  }
  EXPECT_GT(num_files, 40u);
}

}  // namespace toy_dialect_test
}  // namespace headrace
