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

// A text may spell a special token: only those that are one are told so.
TEST(Render, TellsSpecialTokensFromTextThatSpellsThem) {
  RunningServer server;
  const std::string body =
      render(server, R"({"prompt":[256,60,115,62,195,169],"return_token_strs":true})");
  const auto json = parse_json(body, "body").value();
  const boost::json::object& prompt = json.at("prompts").at(0).as_object();
  EXPECT_EQ(boost::json::serialize(prompt.at("parts")),
            R"([{"text":"<s>","special":true,"count":1},)"
            R"({"text":"<s>é","special":false,"count":5}])");
  const boost::json::array& strings = prompt.at("token_strs").as_array();
  ASSERT_EQ(strings.size(), 6u);
  EXPECT_EQ(strings[0], "<s>");
  EXPECT_EQ(strings[1], "<");
  EXPECT_EQ(strings[5], "\xEF\xBF\xBD");  // half a character
}

TEST(Render, ItsOwnFieldIsNoOtherRoutes) {
  RunningServer server;
  EXPECT_NE(render(server, R"({"prompt":"a","return_token_strs":1})")
                .find("\"param\":\"return_token_strs\""),
            std::string::npos);
  const auto response =
      Client(server.port()).post("/render", R"({"prompt":"a","return_token_strs":true})");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.head.find("x-headrace-ignored"), std::string::npos) << response.head;
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
