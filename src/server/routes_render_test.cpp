#include <gtest/gtest.h>

#include "server/api/json.h"
#include "server/test_support.h"

namespace headrace {
namespace routes_render_test {

using test::Client;
using test::RunningServer;

std::string render(RunningServer& server, const std::string& body) {
  return Client(server.port()).post("/render", body).body;
}

TEST(Render, ShowsPromptsAsTheModelSeesThem) {
  RunningServer server;
  EXPECT_EQ(render(server, R"({"prompt":["a","b"]})"),
            R"({"object":"prompts","model":"scripted","max_model_len":4096,"prompts":[)"
            R"({"text":"<s>a","count":2,"tokens":[256,97]},)"
            R"({"text":"<s>b","count":2,"tokens":[256,98]}]})");
  const std::string chat = render(server, R"({"messages":[{"role":"user","content":"Hi"}]})");
  EXPECT_NE(chat.find(R"("text":"<s>[user]Hi\n[assistant]")"), std::string::npos) << chat;
  EXPECT_EQ(render(server, R"({"input":"Hi"})"), chat);
  EXPECT_EQ(server.engine().num_submitted(), 0u);
}

TEST(Render, RefusesWhatWouldBeRefused) {
  RunningServer server;
  EXPECT_NE(render(server, R"({"messages":[]})").find("\"param\":\"messages\""), std::string::npos);
  EXPECT_NE(render(server, R"({"prompt":"a","temperature":-1})").find("\"param\":\"temperature\""),
            std::string::npos);
  EXPECT_NE(render(server, "{}").find("\"param\":\"prompt\""), std::string::npos);
}

TEST(Render, TakesTheMemoryOfItsAnswer) {
  ServerOptions options;
  options.request_memory_bytes = 16 * 1024;
  RunningServer server({}, options);
  const auto response =
      Client(server.port())
          .post("/render", fmt::format(R"({{"prompt":"{}"}})", std::string(900, 'a')));
  EXPECT_EQ(response.status, 429) << response.body;
}

}  // namespace routes_render_test
}  // namespace headrace
