#include "server/server.h"

#include <gtest/gtest.h>

#include "server/api/json.h"
#include "server/routes.h"
#include "server/test_support.h"

namespace headrace {
namespace server_test {

using test::Client;
using test::events_of;
using test::eventually;
using test::RunningServer;
using test::Script;
using namespace std::chrono_literals;

constexpr const char* kHello = R"({"messages":[{"role":"user","content":"Hi"}]})";

boost::json::value json_of(const std::string& body) {
  auto value = parse_json(body, "body");
  CHECK(value.ok(), "{}", body);
  return std::move(value).value();
}

std::string error_message(const std::string& body) {
  return json_of(body).at("error").at("message").as_string().c_str();
}

TEST(Server, AnswersAConversation) {
  RunningServer server;
  const auto response = Client(server.port()).post("/v1/chat/completions", kHello);
  ASSERT_EQ(response.status, 200) << response.body;
  const auto json = json_of(response.body);
  EXPECT_EQ(json.at("object").as_string(), "chat.completion");
  EXPECT_EQ(json.at("model").as_string(), "scripted");
  EXPECT_EQ(json.at("system_fingerprint").as_string(), "fp-scripted");
  const auto& choice = json.at("choices").at(0);
  EXPECT_EQ(choice.at("message").at("role").as_string(), "assistant");
  EXPECT_EQ(choice.at("message").at("content").as_string(), "Hello, world!");
  EXPECT_EQ(choice.at("finish_reason").as_string(), "stop");
  EXPECT_TRUE(choice.at("logprobs").is_null());
  EXPECT_EQ(json.at("usage").at("completion_tokens").as_int64(), 13);
  // <s>[user]Hi\n[assistant] with exactly one BOS.
  const auto ids = server.engine().last_request().prompt_ids;
  EXPECT_EQ(std::count(ids.begin(), ids.end(), test::kBos), 1);
  EXPECT_EQ(ids.size(), 1 + std::string("[user]Hi\n[assistant]").size());
}

TEST(Server, StreamsAConversation) {
  RunningServer server;
  const auto response =
      Client(server.port())
          .post("/v1/chat/completions", R"({"stream":true,"stream_options":{"include_usage":true},)"
                                        R"("messages":[{"role":"user","content":"Hi"}]})");
  ASSERT_EQ(response.status, 200);
  EXPECT_NE(response.head.find("Content-Type: text/event-stream"), std::string::npos);
  const auto events = events_of(response.body);
  ASSERT_EQ(events.size(), 1u + 13u + 3u);  // role, tokens, end, usage, [DONE]
  const auto first = json_of(events[0]);
  EXPECT_EQ(first.at("object").as_string(), "chat.completion.chunk");
  EXPECT_EQ(first.at("choices").at(0).at("delta").at("role").as_string(), "assistant");
  EXPECT_EQ(first.at("choices").at(0).at("delta").at("content").as_string(), "");
  EXPECT_TRUE(first.at("usage").is_null());
  const auto second = json_of(events[1]);
  EXPECT_EQ(to_text(second.at("choices").at(0).at("delta")), R"({"content":"H"})");
  EXPECT_EQ(second.at("id").as_string(), first.at("id").as_string());
  EXPECT_EQ(json_of(events[14]).at("choices").at(0).at("finish_reason").as_string(), "stop");
  EXPECT_TRUE(json_of(events[15]).at("choices").as_array().empty());
  EXPECT_EQ(json_of(events[15]).at("usage").at("total_tokens").as_int64(), 21 + 13);
  EXPECT_EQ(events[16], "[DONE]");
}

// OpenAI's clients add the log-probs of a choice's first chunk twice, and take the choice that
// comes second for number 1.
TEST(Server, AStreamBeginsWithTheRolesOfAllChoicesInOrder) {
  RunningServer server;
  const auto response =
      Client(server.port())
          .post("/v1/chat/completions", R"({"stream":true,"n":3,"logprobs":true,"max_tokens":2,)"
                                        R"("stream_options":{"include_usage":true,)"
                                        R"("continuous_usage_stats":true},)"
                                        R"("messages":[{"role":"user","content":"Hi"}]})");
  ASSERT_EQ(response.status, 200);
  const auto events = events_of(response.body);
  ASSERT_GT(events.size(), 6u);
  for (size_t i = 0; i < 3; ++i) {
    const auto event = json_of(events[i]);
    EXPECT_EQ(to_text(event.at("choices").at(0)),
              fmt::format(R"({{"index":{},"delta":{{"role":"assistant","content":""}},)"
                          R"("logprobs":null,"finish_reason":null}})",
                          i));
    EXPECT_EQ(event.at("usage").at("completion_tokens").as_int64(), 0);
  }
  for (size_t i = 3; i + 2 < events.size(); ++i) {
    const auto choice = json_of(events[i]).at("choices").at(0);
    EXPECT_FALSE(choice.at("delta").as_object().contains("role")) << events[i];
  }
}

TEST(Server, ContinuesAllFormsOfPrompt) {
  RunningServer server;
  Client client(server.port());
  struct Case {
    std::string prompt;
    size_t num_choices;
    int64_t prompt_tokens;
  };
  for (const Case& each : {Case{R"("abc")", 1, 4}, Case{R"(["abc","d"])", 2, 6},
                           Case{"[1,2,3]", 1, 3}, Case{"[[1,2],[3]]", 2, 3}}) {
    const auto response = client.post(
        "/v1/completions", fmt::format(R"({{"prompt":{},"max_tokens":2}})", each.prompt));
    ASSERT_EQ(response.status, 200) << response.body;
    const auto json = json_of(response.body);
    EXPECT_EQ(json.at("choices").as_array().size(), each.num_choices) << each.prompt;
    EXPECT_EQ(json.at("usage").at("prompt_tokens").as_int64(), each.prompt_tokens) << each.prompt;
    EXPECT_EQ(json.at("choices").at(0).at("text").as_string(), "He");
    EXPECT_EQ(json.at("choices").at(0).at("finish_reason").as_string(), "length");
  }
}

TEST(Server, ScoresAPromptAsEvaluationHarnessesAsk) {
  RunningServer server;
  const auto response =
      Client(server.port())
          .post("/v1/completions", R"({"prompt":[[97,98,200],[99]],"temperature":0,"max_tokens":1,)"
                                   R"("logprobs":1,"seed":1234,"echo":true})");
  ASSERT_EQ(response.status, 200) << response.body;
  const auto json = json_of(response.body);
  ASSERT_EQ(json.at("choices").as_array().size(), 2u);
  const auto& scores = json.at("choices").at(0).at("logprobs");
  ASSERT_EQ(scores.at("tokens").as_array().size(), 4u);  // prompt and one token
  EXPECT_TRUE(scores.at("token_logprobs").at(0).is_null());
  EXPECT_TRUE(scores.at("top_logprobs").at(0).is_null());
  EXPECT_EQ(scores.at("tokens").at(2).as_string(), "bytes:\\xc8");
  for (size_t i = 1; i < 4; ++i) {
    const auto token = scores.at("tokens").at(i).as_string();
    const auto& top = scores.at("top_logprobs").at(i).as_object();
    ASSERT_TRUE(top.contains(token)) << i;
    EXPECT_EQ(top.at(token), scores.at("token_logprobs").at(i));  // the same printed number
  }
  EXPECT_EQ(server.engine().last_request().num_prompt_logprobs, 1);
  const auto only =
      Client(server.port())
          .post("/v1/completions", R"({"prompt":"ab","max_tokens":0,"logprobs":0,"echo":true})");
  ASSERT_EQ(only.status, 200) << only.body;
  EXPECT_EQ(json_of(only.body).at("choices").at(0).at("text").as_string(), "ab");
  EXPECT_EQ(json_of(only.body).at("choices").at(0).at("logprobs").at("tokens").as_array().size(),
            3u);
}

TEST(Server, StreamedEchoBeginsWithThePrompt) {
  RunningServer server;
  const auto response =
      Client(server.port())
          .post("/v1/completions",
                R"({"prompt":"ab","max_tokens":2,"logprobs":0,"echo":true,"stream":true})");
  const auto events = events_of(response.body);
  ASSERT_EQ(events.size(), 4u);
  const auto echo = json_of(events[0]).at("choices").at(0);
  EXPECT_EQ(echo.at("text").as_string(), "ab");
  EXPECT_EQ(echo.at("logprobs").at("tokens").as_array().size(), 3u);
  EXPECT_EQ(json_of(events[1]).at("choices").at(0).at("logprobs").at("tokens").as_array().size(),
            1u);
}

TEST(Server, ChatLogprobsHaveTokenBytesAndTop) {
  RunningServer server;
  const auto response =
      Client(server.port())
          .post("/v1/chat/completions",
                R"({"logprobs":true,"top_logprobs":2,"max_tokens":2,)"
                R"("messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]}]})");
  ASSERT_EQ(response.status, 200) << response.body;
  const auto content =
      json_of(response.body).at("choices").at(0).at("logprobs").at("content").as_array();
  ASSERT_EQ(content.size(), 2u);
  EXPECT_EQ(content[0].at("token").as_string(), "H");
  EXPECT_EQ(content[0].at("bytes").at(0).as_int64(), 'H');
  ASSERT_EQ(content[0].at("top_logprobs").as_array().size(), 2u);
  EXPECT_EQ(content[0].at("top_logprobs").at(0).at("logprob"), content[0].at("logprob"));
}

TEST(Server, APathThatIsAlmostRightNamesTheRightOne) {
  RunningServer server;
  Client client(server.port());
  const std::pair<const char*, const char*> paths[] = {
      {"/chat/completions", "/v1/chat/completions"},
      {"/v1/v1/messages", "/v1/messages"},
      {"/v1/api/chat", "/api/chat"},
      {"//v1/embeddings", "/v1/embeddings"},
      {"/v1/completions/", "/v1/completions"},
  };
  for (const auto& [asked, meant] : paths) {
    const auto answer = client.post(asked, "{}");
    EXPECT_EQ(answer.status, 404);
    const std::string text = std::string("there is no ") + asked + " here, but " + meant + ":";
    EXPECT_NE(answer.body.find(text), std::string::npos) << answer.body;
  }
  EXPECT_EQ(error_message(client.get("/v2").body), "there is no /v2 here");
  EXPECT_EQ(client.get("/").status, 200);
}

TEST(Server, ClientsOfADialectCanReadThatAPathIsMissing) {
  RunningServer server;
  Client client(server.port());
  EXPECT_EQ(json_of(client.post("/v1/messages/batches", "{}").body).at("type").as_string(),
            "error");
  EXPECT_TRUE(json_of(client.post("/api/copy", "{}").body).at("error").is_string());
  EXPECT_TRUE(json_of(client.post("/v1/files", "{}").body).at("error").is_object());
}

TEST(Server, KnowsItsPathsAndMethods) {
  RunningServer server;
  Client client(server.port());
  EXPECT_EQ(client.get("/nothing").status, 404);
  EXPECT_EQ(error_message(client.get("/nothing").body), "there is no /nothing here");
  const auto wrong = client.get("/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_NE(wrong.head.find("Allow: POST\r\n"), std::string::npos);
  EXPECT_EQ(client.post("/health", "{}").status, 405);
  EXPECT_EQ(client.get("/v1/models", "OPTIONS").status, 204);
  EXPECT_EQ(client.get("/health", "HEAD").status, 200);
  EXPECT_EQ(client.get("/health").status, 200);
  EXPECT_EQ(client.get("/ready").status, 200);
  EXPECT_EQ(json_of(client.get("/version").body).at("version").as_string(), server_version());
  const auto info = json_of(client.get("/tokenizer_info").body);
  EXPECT_EQ(info.at("bos_token").as_string(), "<s>");
  EXPECT_TRUE(info.at("chat_template").as_string().starts_with("plain"));
}

ServerOptions with_a_key_for_each_scope() {
  ServerOptions options;
  options.api_keys = {{"i", kInferenceScope, digest_of_key("inference")},
                      {"a", kAdminScope, digest_of_key("admin")},
                      {"m", kMetricsScope, digest_of_key("metrics")},
                      plain_api_key("plain")};
  return options;
}

std::string example_path(const RouteRow& row) {
  std::string path(row.path);
  if (path.ends_with('*')) path.back() = 'x';
  return path;
}

TEST(Server, EveryRouteHasAScopeThatHolds) {
  const std::map<Scope, std::string> kGood = {{Scope::kReading, "inference admin plain"},
                                              {Scope::kInference, "inference plain"},
                                              {Scope::kMetrics, "admin metrics plain"},
                                              {Scope::kManaging, "admin"},
                                              {Scope::kAdmin, "admin"}};
  RunningServer server({}, with_a_key_for_each_scope());
  size_t num_guarded = 0;
  for (const RouteRow& row : rows_with({})) {
    Client client(server.port());
    const auto status_with = [&](const std::string& headers) {
      const std::string path = example_path(row);
      return row.method == "POST" ? client.post(path, "{}", headers).status
                                  : client.get(path, std::string(row.method), headers).status;
    };
    const bool guarded = row.scope != Scope::kPublic;
    EXPECT_EQ(status_with("") == 401, guarded) << row.path;
    EXPECT_EQ(status_with("Authorization: Bearer wrong!\r\n") == 401, guarded) << row.path;
    num_guarded += guarded ? 1 : 0;
    if (!guarded) continue;
    for (const std::string key : {"inference", "admin", "metrics", "plain"}) {
      const int status = status_with("x-api-key: " + key + "\r\n");
      const bool good = kGood.at(row.scope).find(key) != std::string::npos;
      EXPECT_EQ(status == 403, !good) << row.path << " with " << key << ": " << status;
      EXPECT_NE(status, 401) << row.path << " with " << key;
    }
  }
  EXPECT_GE(num_guarded, 8u);
}

// All ways to write a path that one server may read as another does, and all methods: whoever has
// no key learns only of the rows that are public, byte for byte as they stand in the table.
TEST(Server, WithoutAKeyNothingButPublicRowsAnswers) {
  RunningServer server({}, with_a_key_for_each_scope());
  const std::vector<RouteRow> rows = rows_with({});
  const std::string methods[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "TRACE", "BREW"};
  const auto variants = [](const std::string& path) {
    std::string upper = path, escaped = path;
    for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    const size_t slash = path.rfind('/');
    escaped.insert(slash + 1, "%2e%2e/");
    return std::vector<std::string>{
        path,           "/" + path,   upper,        path + ".",           path + "/",
        path + "/../x", path + "%00", path + "%2f", path + ";a",          "/." + path,
        "/x/.." + path, escaped,      path + "?a",  "http://test" + path, "http://test/" + path};
  };
  const auto is_public = [&](const std::string& method, const std::string& target) {
    std::string path = target.substr(0, target.find('?'));
    if (path.starts_with("http://test")) path = path.substr(11);
    return std::any_of(rows.begin(), rows.end(), [&](const RouteRow& row) {
      const std::string_view prefix = row.path.substr(0, row.path.find('*'));
      const bool same_path = row.path.ends_with('*') ? path.starts_with(prefix) : path == prefix;
      return row.scope == Scope::kPublic && same_path &&
             (row.method == method || (method == "HEAD" && row.method == "GET"));
    });
  };
  size_t num_asked = 0;
  auto client = std::make_unique<Client>(server.port());
  for (const RouteRow& row : rows) {
    for (const std::string& target : variants(example_path(row))) {
      for (const std::string& method : methods) {
        if (is_public(method, target)) continue;
        int status = client->get(target, method).status;
        if (status == 0) {  // a refusal of the head ended the connection
          client = std::make_unique<Client>(server.port());
          status = client->get(target, method).status;
        }
        EXPECT_TRUE(status == 401 || status == 400) << method << " " << target << ": " << status;
        ++num_asked;
      }
    }
  }
  EXPECT_GE(num_asked, 1500u);
}

TEST(Server, NewKeysHoldFromTheNextRequestOn) {
  RunningServer server({}, with_a_key_for_each_scope());
  Client client(server.port());
  const auto status_with = [&](const std::string& key) {
    return client.get("/v1/models", "GET", "x-api-key: " + key + "\r\n").status;
  };
  EXPECT_EQ(status_with("plain"), 200);
  server.server().set_api_keys({plain_api_key("next")});
  EXPECT_EQ(status_with("plain"), 401);
  EXPECT_EQ(status_with("next"), 200);
}

TEST(Server, ListsModelsAndAliases) {
  RunningServer server({}, {}, true, {}, {"gpt-x"});
  Client client(server.port());
  const auto list = json_of(client.get("/v1/models").body).at("data").as_array();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].at("id").as_string(), "scripted");
  EXPECT_EQ(list[0].at("max_model_len").as_int64(), 4096);
  EXPECT_EQ(list[1].at("id").as_string(), "gpt-x");
  EXPECT_EQ(client.get("/v1/models/gpt-x").status, 200);
  const auto unknown = client.get("/v1/models/other");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(error_message(unknown.body),
            "the model \"other\" does not exist here, this server has 'scripted'");
  const auto asked = client.post("/v1/completions", R"({"model":"other","prompt":"a"})");
  EXPECT_EQ(asked.status, 404);
  EXPECT_EQ(json_of(asked.body).at("error").at("param").as_string(), "model");
  EXPECT_EQ(client.post("/v1/completions", R"({"model":"gpt-x","prompt":"a"})").status, 200);
}

TEST(Server, TokenizesAndDetokenizes) {
  RunningServer server;
  Client client(server.port());
  const auto plain = json_of(client.post("/tokenize", R"({"prompt":"ab"})").body);
  EXPECT_EQ(plain.at("count").as_int64(), 3);
  EXPECT_TRUE(plain.at("token_strs").is_null());
  const auto bare =
      json_of(client
                  .post("/tokenize",
                        R"({"prompt":"ab","add_special_tokens":false,"return_token_strs":true})")
                  .body);
  EXPECT_EQ(to_text(bare.at("tokens")), "[97,98]");
  EXPECT_EQ(to_text(bare.at("token_strs")), R"(["a","b"])");
  const auto chat = json_of(client.post("/tokenize", kHello).body);
  EXPECT_EQ(chat.at("count").as_int64(), 21);
  const std::pair<std::string_view, std::string_view> kWrong[] = {
      {R"("messages":5)", "messages"},
      {R"("tools":5)", "tools"},
      {R"("tools":[{"type":"x"}])", "tools[0].type"},
      {R"("tool_choice":5)", "tool_choice"},
      {R"("parallel_tool_calls":"x")", "parallel_tool_calls"},
      {R"("documents":"x")", "documents"},
      {R"("chat_template_kwargs":[])", "chat_template_kwargs"},
      {R"("add_generation_prompt":"x")", "add_generation_prompt"},
      {R"("continue_final_message":1)", "continue_final_message"},
      {R"("reasoning_effort":1)", "reasoning_effort"},
      {R"("enable_thinking":1)", "enable_thinking"},
      {R"("think":1)", "think"},
      {R"("thinking":1)", "thinking"},
      {R"("reasoning":1)", "reasoning"},
      {R"("thinking_budget":"y")", "thinking_budget"},
      {R"("max_reasoning_tokens":-2)", "max_reasoning_tokens"},
      {R"("separate_reasoning":1)", "separate_reasoning"},
      {R"("reasoning_format":1)", "reasoning_format"},
      {R"("add_special_tokens":1)", "add_special_tokens"},
      {R"("return_token_strs":1)", "return_token_strs"}};
  for (const auto& [member, param] : kWrong) {
    const auto wrong = client.post("/tokenize", fmt::format(R"({{"prompt":"ab",{}}})", member));
    EXPECT_EQ(wrong.status, 400) << member;
    EXPECT_EQ(text_view(json_of(wrong.body).at("error").at("param").as_string()), param) << member;
  }
  EXPECT_EQ(client
                .post("/tokenize", R"({"prompt":"ab","tools":[],"add_generation_prompt":false,)"
                                   R"("thinking_budget":-1,"reasoning_effort":null})")
                .status,
            200);
  const auto text = json_of(client.post("/detokenize", R"({"tokens":[97,98]})").body);
  EXPECT_EQ(text.at("prompt").as_string(), "ab");
  EXPECT_EQ(error_message(client.post("/detokenize", R"({"tokens":[258]})").body),
            "tokens holds 258, but token ids are whole numbers from 0 to 257");
}

TEST(Server, AFullQueueIsA429WithRetryAfter) {
  Script script;
  script.max_waiting = 1;
  RunningServer server(script);
  server.engine().hold(true);
  Client first(server.port());
  first.send(
      fmt::format("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{}",
                  std::string(kHello).size(), kHello));
  ASSERT_TRUE(eventually([&] { return server.engine().num_live() == 1; }));
  const auto second = Client(server.port()).post("/v1/chat/completions", kHello);
  EXPECT_EQ(second.status, 429);
  EXPECT_NE(second.head.find("Retry-After: 1\r\n"), std::string::npos);
  EXPECT_EQ(json_of(second.body).at("error").at("type").as_string(), "rate_limit_error");
  server.engine().hold(false);
  EXPECT_EQ(first.receive().status, 200);
}

TEST(Server, AClientThatLeavesCancelsItsRequestBeforeAndAfterTheFirstToken) {
  RunningServer server;
  server.engine().hold(true);
  for (const bool stream : {false, true}) {
    const uint64_t before = server.engine().num_cancelled();
    {
      Client client(server.port());
      const std::string body = fmt::format(
          R"({{"stream":{},"messages":[{{"role":"user","content":"Hi"}}],"n":3}})", stream);
      client.send(fmt::format(
          "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{}",
          body.size(), body));
      ASSERT_TRUE(eventually([&] { return server.engine().num_live() == 3; }));
    }
    EXPECT_TRUE(eventually([&] { return server.engine().num_cancelled() == before + 3; }));
    EXPECT_TRUE(eventually([&] { return server.engine().num_live() == 0; }));
  }
  server.engine().hold(false);
  EXPECT_EQ(Client(server.port()).post("/v1/chat/completions", kHello).status, 200);
}

TEST(Server, AClientThatNeverReadsIsCancelled) {
  ServerOptions options;
  options.write_timeout = 500ms;
  Script script;
  script.max_context = 1'000'000;
  RunningServer server(script, options);
  Client client(server.port());
  client.limit_receive_buffer(4096);
  const std::string body = R"({"stream":true,"prompt":"a","max_tokens":900000,"ignore_eos":true})";
  client.send(
      fmt::format("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{}",
                  body.size(), body));
  ASSERT_TRUE(eventually([&] { return server.engine().num_submitted() == 1; }));
  EXPECT_TRUE(eventually([&] { return server.engine().num_live() == 0; }));
  EXPECT_GE(server.engine().num_cancelled(), 1u);
}

TEST(Server, AnEngineErrorIsToldBeforeAndAfterTheHeaders) {
  Script script;
  script.fail = true;
  RunningServer server(script);
  EXPECT_EQ(Client(server.port()).post("/v1/completions", R"({"prompt":"a"})").status, 500);
  const auto stream =
      Client(server.port()).post("/v1/completions", R"({"prompt":"a","stream":true})");
  const auto events = events_of(stream.body);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(error_message(events[2]), "the logits of this request are not finite");
  EXPECT_TRUE(stream.complete);
}

TEST(Server, DrainFinishesWhatRunsAndRefusesWhatIsNew) {
  Script script;
  script.token_delay = 20ms;
  RunningServer server(script);
  Client client(server.port());
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 28\r\n\r\n"
      R"({"prompt":"a","stream":true})");
  Client other(server.port());
  EXPECT_EQ(other.get("/ready").status, 200);
  ASSERT_TRUE(client.receive_until("data: "));
  bool all_finished = false;
  std::thread drainer([&] { all_finished = server.server().drain(10s); });
  ASSERT_TRUE(eventually([&] { return other.get("/ready").status == 503; }));
  EXPECT_EQ(other.get("/health").status, 200);
  const auto refused = other.post("/v1/completions", R"({"prompt":"a"})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.head.find("Retry-After: 1"), std::string::npos);
  const auto response = client.receive();
  EXPECT_TRUE(response.complete);
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
  drainer.join();
  EXPECT_TRUE(all_finished);
  EXPECT_FALSE(Client(server.port()).connected());
}

TEST(Server, DrainEndsWhatIsLateWithAnError) {
  RunningServer server;
  server.engine().hold(true);
  Client client(server.port());
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 28\r\n\r\n"
      R"({"prompt":"a","stream":true})");
  ASSERT_TRUE(eventually([&] { return server.engine().num_live() == 1; }));
  EXPECT_FALSE(server.server().drain(50ms));
  const auto events = events_of(client.receive().body);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(error_message(events[0]),
            "the answer was ended early because the server is shutting down");
}

TEST(Server, HealthFollowsProgress) {
  ServerOptions options;
  options.stall_limit = 100ms;
  RunningServer server({}, options);
  server.engine().hold(true);
  Client waiting(server.port());
  waiting.send(
      "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 14\r\n\r\n"
      R"({"prompt":"a"})");
  ASSERT_TRUE(eventually([&] { return server.engine().num_live() == 1; }));
  Client client(server.port());
  EXPECT_TRUE(eventually([&] { return client.get("/health").status == 503; }));
  EXPECT_EQ(client.get("/ready").status, 503);
  server.engine().hold(false);
  EXPECT_TRUE(eventually([&] { return client.get("/health").status == 200; }));
}

TEST(Server, MetricsHaveTheNamesThatDashboardsRead) {
  RunningServer server;
  Client client(server.port());
  client.post("/v1/completions", R"({"prompt":"a"})");
  client.get("/nothing");
  const auto response = client.get("/metrics");
  EXPECT_NE(response.head.find("Content-Type: text/plain; version=0.0.4"), std::string::npos);
  constexpr std::string_view kLabels = R"({model_name="scripted",engine="0")";
  for (const std::string_view name : {"vllm:num_requests_running",
                                      "vllm:num_requests_waiting",
                                      "vllm:kv_cache_usage_perc",
                                      "vllm:prompt_tokens_total",
                                      "vllm:generation_tokens_total",
                                      "vllm:request_success_total",
                                      "vllm:time_to_first_token_seconds_bucket",
                                      "vllm:inter_token_latency_seconds_sum",
                                      "vllm:e2e_request_latency_seconds_count",
                                      "vllm:iteration_tokens_total_count",
                                      "vllm:request_prompt_tokens_bucket",
                                      "vllm:request_generation_tokens_bucket",
                                      "vllm:request_queue_time_seconds_sum",
                                      "vllm:request_prefill_time_seconds_sum",
                                      "vllm:request_decode_time_seconds_sum",
                                      "vllm:request_max_num_generation_tokens_sum",
                                      "vllm:num_requests_waiting_by_reason",
                                      "vllm:num_preemptions_total",
                                      "vllm:prefix_cache_queries_total",
                                      "vllm:prefix_cache_hits_total"}) {
    EXPECT_NE(response.body.find(fmt::format("\n{}{}", name, kLabels)), std::string::npos) << name;
  }
  EXPECT_NE(response.body.find(R"(le="0.001"})"), std::string::npos);
  EXPECT_NE(response.body.find(R"(le="1.0"})"), std::string::npos);
  EXPECT_NE(response.body.find("headrace:http_errors_total 1\n"), std::string::npos);
  // Every line is a comment or NAME{labels} VALUE; process and server have no labels.
  size_t num_samples = 0;
  for (size_t at = 0; at < response.body.size();) {
    const size_t end = response.body.find('\n', at);
    ASSERT_NE(end, std::string::npos);
    const std::string line = response.body.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("# HELP ") || line.starts_with("# TYPE ")) continue;
    EXPECT_TRUE(line.find("} ") != std::string::npos || line.starts_with("process_") ||
                line.starts_with("headrace:"))
        << line;
    ++num_samples;
  }
  EXPECT_GT(num_samples, 100u);
}

TEST(Server, StatusShowsModelAndEngine) {
  RunningServer server;
  const auto status = json_of(Client(server.port()).get("/api/headrace/status").body);
  EXPECT_EQ(status.at("model").at("id").as_string(), "scripted");
  EXPECT_EQ(status.at("model").at("context").as_int64(), 4096);
  EXPECT_EQ(status.at("engine").at("kv_blocks_total").as_int64(), 100);
  EXPECT_EQ(status.at("engine").at("numerics_id").as_string(), "fp-scripted");
  EXPECT_TRUE(status.at("steps").is_array());
  EXPECT_EQ(to_text(status.at("sampling")),
            R"({"temperature":7E-1,"top_p":9.5E-1,"top_k":0,"min_p":0,"repetition_penalty":1})");
}

TEST(Server, ThePageOrANoteIsAtTheRoot) {
  RunningServer server;
  Client client(server.port());
  const auto page = client.get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(client.get("/assets/none.js").status, 404);
  const size_t tag = page.head.find("ETag: ");
  if (tag == std::string::npos) {
    EXPECT_NE(page.body.find("HEADRACE_UI=OFF"), std::string::npos);
    return;
  }
  EXPECT_NE(page.head.find("Content-Security-Policy: default-src 'none'"), std::string::npos);
  const std::string etag = page.head.substr(tag + 6, page.head.find("\r\n", tag) - tag - 6);
  EXPECT_EQ(client.get("/", "GET", "If-None-Match: " + etag + "\r\n").status, 304);
}

TEST(Server, TheRequestIdComesBack) {
  RunningServer server;
  const auto response =
      Client(server.port()).post("/v1/completions", R"({"prompt":"a"})", "x-request-id: id-77\r\n");
  EXPECT_NE(response.head.find("x-request-id: id-77\r\n"), std::string::npos);
  EXPECT_EQ(server.engine().last_request().client_id, "id-77");
}

TEST(Server, ManyClientsAtOnceGetTheSameAnswer) {
  RunningServer server;
  std::atomic<int> num_good = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      Client client(server.port());
      for (int i = 0; i < 25; ++i) {
        const auto whole = client.post("/v1/completions", R"({"prompt":"a"})");
        const auto stream = client.post("/v1/completions", R"({"prompt":"a","stream":true})");
        std::string text;
        for (const std::string& event : events_of(stream.body)) {
          if (event == "[DONE]") continue;
          text += json_of(event).at("choices").at(0).at("text").as_string().c_str();
        }
        const auto json = json_of(whole.body);
        if (json.at("choices").at(0).at("text").as_string() == "Hello, world!" &&
            text == "Hello, world!") {
          ++num_good;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_good, 200);
}

}  // namespace server_test
}  // namespace headrace
