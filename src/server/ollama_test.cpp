// Ollama's routes over HTTP, against a scripted engine.

#include <gtest/gtest.h>

#include <boost/json/array.hpp>

#include "server/api/json.h"
#include "server/api/ollama/ollama.h"
#include "server/test_support.h"

namespace headrace {
namespace ollama_test {

using test::Client;
using test::RunningServer;
using test::Script;

std::vector<boost::json::object> lines_of(const std::string& body) {
  std::vector<boost::json::object> lines;
  size_t begin = 0;
  for (size_t end = body.find('\n'); end != std::string::npos; end = body.find('\n', begin)) {
    auto line = parse_body(body.substr(begin, end - begin));
    EXPECT_TRUE(line.ok()) << body;
    lines.push_back(std::move(line).value().get_object());
    begin = end + 1;
  }
  EXPECT_EQ(begin, body.size()) << "a line without an end";
  return lines;
}

std::string text_at(const boost::json::object& line, const char* name) {
  return line.contains(name) ? std::string(line.at(name).as_string().c_str()) : "";
}

class OllamaRoutes : public ::testing::Test {
 protected:
  test::ClientResponse post(const std::string& path, const std::string& body) {
    return Client(server_.port()).post(path, body);
  }
  RunningServer server_{Script{.reply = "abc"}};
};

TEST_F(OllamaRoutes, ChatStreamsLines) {
  const auto response =
      post("/api/chat", R"({"model":"scripted","messages":[{"role":"user","content":"Hi"}]})");
  EXPECT_NE(response.head.find("Content-Type: application/x-ndjson\r\n"), std::string::npos);
  const auto lines = lines_of(response.body);
  ASSERT_EQ(lines.size(), 4u);
  std::string text;
  for (const auto& line : lines) {
    EXPECT_EQ(text_at(line, "model"), "scripted");
    EXPECT_EQ(text_at(line, "created_at").back(), 'Z');
    EXPECT_EQ(line.at("message").at("role").as_string(), "assistant");
    text += line.at("message").at("content").as_string().c_str();
    EXPECT_EQ(line.at("done").as_bool(), &line == &lines.back());
  }
  EXPECT_EQ(text, "abc");
  const auto& last = lines.back();
  EXPECT_EQ(text_at(last, "done_reason"), "stop");
  EXPECT_EQ(last.at("prompt_eval_count").as_int64(), 21);
  EXPECT_EQ(last.at("eval_count").as_int64(), 3);
  for (const char* name :
       {"total_duration", "load_duration", "prompt_eval_duration", "eval_duration"}) {
    EXPECT_EQ(last.at(name).as_int64() % 1000, 0) << name;  // of microseconds
  }
}

TEST_F(OllamaRoutes, ChatAnswersWhole) {
  const auto response = post("/api/chat",
                             R"({"messages":[{"role":"user","content":"Hi"}],"stream":false,
                                 "options":{"num_predict":2},"logprobs":true,"top_logprobs":1})");
  const auto body = parse_body(response.body).value();
  EXPECT_EQ(body.at("message").at("content").as_string(), "ab");
  EXPECT_EQ(body.at("done_reason").as_string(), "length");
  EXPECT_TRUE(body.at("done").as_bool());
  const auto& scores = body.at("logprobs").as_array();
  ASSERT_EQ(scores.size(), 2u);
  EXPECT_EQ(scores[0].at("token").as_string(), "a");
  EXPECT_EQ(scores[0].at("top_logprobs").as_array().size(), 1u);
}

TEST_F(OllamaRoutes, GenerateGivesTheContextBack) {
  const auto response = post("/api/generate", R"({"prompt":"Hi","stream":false})");
  const auto body = parse_body(response.body).value();
  EXPECT_EQ(body.at("response").as_string(), "abc");
  const auto& context = body.at("context").as_array();
  ASSERT_EQ(context.size(), 24u);
  EXPECT_EQ(context[0].as_int64(), test::kBos);
  EXPECT_EQ(context[23].as_int64(), 'c');
  const auto next = post(
      "/api/generate",
      fmt::format(R"({{"prompt":"On","stream":false,"context":{}}})", to_text(body.at("context"))));
  EXPECT_EQ(next.status, 200) << next.body;
  EXPECT_EQ(server_.engine().last_request().prompt_ids.size(), 24 + 20u);
  const auto raw = post("/api/generate", R"({"prompt":"Hi","stream":false,"raw":true})");
  EXPECT_EQ(raw.body.find("context"), std::string::npos);
  EXPECT_EQ(server_.engine().last_request().prompt_ids.size(), 3u);
}

TEST_F(OllamaRoutes, AnEmptyRequestSaysThatTheModelIsThere) {
  const auto chat = post("/api/chat", R"({"model":"scripted","messages":[]})");
  EXPECT_NE(chat.body.find(R"("done_reason":"load","done":true})"), std::string::npos) << chat.body;
  // It was named at the start, and so stays.
  const auto off = post("/api/generate", R"({"model":"scripted","keep_alive":0})");
  EXPECT_NE(off.body.find(R"("done_reason":"load","done":true})"), std::string::npos) << off.body;
  EXPECT_EQ(post("/api/chat", R"({"model":"absent","messages":[]})").status, 404);
  EXPECT_EQ(server_.engine().num_submitted(), 0u);
}

TEST_F(OllamaRoutes, ErrorsHaveItsForm) {
  const auto bad = post("/api/chat", R"({"messages":[{"role":"user","content":"a"}],"think":7})");
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(bad.body, R"({"error":"think is 7, but it must be true, false, \"low\", \"medium\" or )"
                      R"(\"high\""})");
  const auto absent = post("/api/show", R"({"model":"absent"})");
  EXPECT_EQ(absent.status, 404);
  EXPECT_TRUE(absent.body.starts_with(R"({"error":)"));
  EXPECT_EQ(post("/api/show", "{}").status, 400);
  RunningServer failing(Script{.reply = "abc", .fail = true});
  const auto lines =
      lines_of(Client(failing.port()).post("/api/generate", R"({"prompt":"a"})").body);
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(text_at(lines.back(), "error"), "the logits of this request are not finite");
}

TEST_F(OllamaRoutes, ModelsAreListedAndShown) {
  const auto tags = parse_body(Client(server_.port()).get("/api/tags").body).value();
  const auto& listed = tags.at("models").as_array();
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].at("name").as_string(), "scripted:latest");
  EXPECT_EQ(listed[0].at("model").as_string(), "scripted:latest");
  EXPECT_EQ(listed[0].at("digest").as_string().size(), 64u);
  EXPECT_EQ(listed[0].at("details").at("format").as_string(), "gguf");
  EXPECT_TRUE(listed[0].as_object().contains("modified_at"));
  const auto ps = parse_body(Client(server_.port()).get("/api/ps").body).value();
  EXPECT_EQ(ps.at("models").as_array()[0].at("context_length").as_int64(), 4096);
  const auto show = parse_body(post("/api/show", R"({"model":"scripted"})").body).value();
  EXPECT_EQ(show.at("model_info").at("none.context_length").as_int64(), 4096);
  EXPECT_EQ(to_text(show.at("capabilities")).find(R"(["completion")"), 0u);
  EXPECT_EQ(parse_body(Client(server_.port()).get("/api/version").body)
                .value()
                .as_object()
                .count("version"),
            1u);
}

TEST_F(OllamaRoutes, ANameMayHaveTheTagLatest) {
  const std::string chat =
      R"("stream":false,"messages":[{"role":"user","content":"Hi"}],"options":{"num_predict":1})";
  const auto answer = post("/api/chat", R"({"model":"scripted:latest",)" + chat + "}");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(parse_body(answer.body).value().at("model").as_string(), "scripted:latest");
  const auto post_model = [&](const std::string& path, const std::string& model) {
    return post(path,
                fmt::format(R"({{"model":"{}","prompt":"a","input":"a","stream":false}})", model));
  };
  for (const char* path : {"/api/show", "/api/generate", "/api/embed", "/api/embeddings"}) {
    EXPECT_EQ(post_model(path, "scripted:latest").status, 200) << path;
    EXPECT_EQ(post_model(path, "scripted:latest:latest").status, 404) << path;
    EXPECT_EQ(post_model(path, ":latest").status, 404) << path;
    EXPECT_EQ(post_model(path, "scripted:7b").status, 404) << path;
  }
  EXPECT_EQ(Client(server_.port()).get("/v1/models/scripted:latest").status, 200);
  EXPECT_EQ(Client(server_.port()).get("/v1/models/:latest").status, 404);
  const std::string body = R"({"model":"scripted:latest"})";
  Client client(server_.port());
  client.send(fmt::format("DELETE /api/delete HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{}",
                          body.size(), body));
  const auto refused = client.receive();
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("does not serve at the moment"), std::string::npos) << refused.body;
}

TEST_F(OllamaRoutes, ADurationThatIsNoneIsRefusedByName) {
  const std::string chat = R"("stream":false,"messages":[{"role":"user","content":"Hi"}])";
  const std::pair<std::string, std::string> bodies[] = {
      {"/api/chat", chat},
      {"/api/chat", R"("messages":[])"},
      {"/api/generate", R"("prompt":"a","stream":false)"},
      {"/api/embed", R"("input":"a")"},
  };
  for (const auto& [path, members] : bodies) {
    const auto send = [&, &at = path, &more = members](const std::string& time) {
      return post(at, fmt::format(R"({{"keep_alive":{},{}}})", time, more));
    };
    for (const char* time : {"\"--5\"", "\"soon\"", "true", "[]", "\"inf\"", "\"1e3s\""}) {
      const auto refused = send(time);
      EXPECT_EQ(refused.status, 400) << path << time;
      EXPECT_TRUE(refused.body.starts_with(R"({"error":"keep_alive is )")) << refused.body;
    }
    for (const char* time : {"null", "0", "-1", "\"5m\"", "\"1h30m\""}) {
      EXPECT_EQ(send(time).status, 200) << path << time;
    }
  }
}

TEST(OllamaStore, NeedsTheScopeAdminWhereThereAreKeys) {
  ServerOptions options;
  ApiKey admin = plain_api_key("a");
  admin.scopes = kAdminScope;
  options.api_keys = {plain_api_key("k"), admin};
  RunningServer server({}, options);
  Client client(server.port());
  const std::string body = R"({"model":"http://127.0.0.1:1/a.gguf"})";
  EXPECT_EQ(client.post("/api/pull", body, "Authorization: Bearer k\r\n").status, 403);
  EXPECT_EQ(client.post("/api/pull", body, "Authorization: Bearer a\r\n").status, 400);
  EXPECT_EQ(client.post("/api/pull", body).status, 401);
}

TEST_F(OllamaRoutes, TextsBecomeVectors) {
  const auto body = [&](const std::string& path, const std::string& members) {
    const auto response = post(path, "{" + members + "}");
    EXPECT_EQ(response.status, 200) << response.body;
    return parse_body(response.body).value();
  };
  const auto two = body("/api/embed", R"("model":"scripted","input":["ab","c"],"options":{})");
  EXPECT_EQ(two.at("embeddings").as_array().size(), 2u);
  EXPECT_EQ(two.at("prompt_eval_count").as_int64(), 5);
  EXPECT_EQ(two.at("model").as_string(), "scripted");
  const auto one = body("/api/embed", R"("input":"ab")");
  EXPECT_EQ(one.at("embeddings").as_array()[0], two.at("embeddings").as_array()[0]);
  const auto cut = body("/api/embed", R"("input":"ab","dimensions":2)");
  EXPECT_EQ(cut.at("embeddings").as_array()[0].as_array().size(), 2u);
  const auto old = body("/api/embeddings", R"("prompt":"ab")");
  EXPECT_EQ(old.at("embedding").as_array().size(),
            one.at("embeddings").as_array()[0].as_array().size());
  for (const char* members :
       {R"("model":"scripted")", R"("input":[])", R"("input":[7])", R"("input":"a","dimensions":0)",
        R"("input":"a","truncate":7)", R"("input":"a","options":{"tfs_z":2})"}) {
    EXPECT_EQ(post("/api/embed", fmt::format("{{{}}}", members)).status, 400) << members;
  }
  EXPECT_EQ(post("/api/embeddings", R"({"prompt":["a"]})").status, 400);
}

TEST_F(OllamaRoutes, TheRootGreetsItsClientsAndShowsThePageToBrowsers) {
  const auto greeted = Client(server_.port()).get("/", "GET", "Accept: application/json\r\n");
  EXPECT_EQ(greeted.body, "Ollama is running");
  for (const char* accept : {"", "Accept: */*\r\n", "Accept: text/html,application/xml\r\n"}) {
    EXPECT_NE(Client(server_.port()).get("/", "GET", accept).body, greeted.body) << accept;
  }
}

// Parts as parsers make them.
class OllamaRender : public ::testing::Test {
 protected:
  const TextBundle bundle_ = test::make_bundle();
  const ModelInfo info_ = test::make_model_info();
  const std::vector<std::string> names_ = {"scripted"};
  const ServingModel model_{bundle_, info_, names_, 1000};
};

TEST_F(OllamaRender, ACallIsShownOnceItIsWhole) {
  using Kind = OutputPart::Kind;
  const auto renderer = make_ollama_renderer(model_, {"m", true, 0, false});
  const auto chunk = [&](std::vector<OutputPart> parts, Finish finish = {}) {
    std::string text = renderer->chunk({0, std::move(parts), {}, std::move(finish)}, {});
    const size_t begin = text.find("\"message\"");
    return begin == std::string::npos ? text : text.substr(begin);
  };
  EXPECT_EQ(chunk({{Kind::kReasoning, "hm", 0, {}, {}}}),
            "\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"hm\"},"
            "\"done\":false}\n");
  EXPECT_EQ(chunk({{Kind::kToolCall, "{\"a\":", 0, "id0", "f"}}), "");
  EXPECT_EQ(chunk({{Kind::kToolCall, " 1}", 0, {}, {}}}), "");
  EXPECT_EQ(chunk({{Kind::kToolCall, "{}", 1, "id1", "g"}}),
            "\"message\":{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"id0\","
            "\"function\":{\"index\":0,\"name\":\"f\",\"arguments\":{\"a\":1}}}]},"
            "\"done\":false}\n");
  EXPECT_EQ(chunk({}, {Finish::Kind::kToolCalls, {}}),
            "\"message\":{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"id1\","
            "\"function\":{\"index\":1,\"name\":\"g\",\"arguments\":{}}}]},\"done\":false}\n");
  AnswerEnd end;
  end.times = {1'000, 2'000, 5'000, 9'000};
  const std::string last = renderer->end_stream(end);
  EXPECT_NE(last.find("\"done_reason\":\"stop\",\"done\":true,\"total_duration\":8000000,"
                      "\"load_duration\":0,\"prompt_eval_count\":0,"
                      "\"prompt_eval_duration\":3000000,\"eval_count\":0,"
                      "\"eval_duration\":4000000}\n"),
            std::string::npos)
      << last;
}

}  // namespace ollama_test
}  // namespace headrace
