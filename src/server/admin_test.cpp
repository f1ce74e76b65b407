// The Unix socket of the machine's own user: what it shows and does, and what it refuses.
#include "server/admin.h"

#include <gtest/gtest.h>
#include <sys/un.h>

#include "base/log.h"
#include "base/testing/temp_folder.h"
#include "server/api/json.h"
#include "server/test_support.h"

namespace headrace {
namespace admin_test {

using headrace::testing::TempFolder;
using test::Client;
using test::eventually;
using test::RunningServer;

struct AdminAnswer {
  int status = 0;
  std::string body;

  boost::json::value json() const { return parse_json(body, "body").value(); }
  std::string error() const { return json().at("error").at("message").as_string().c_str(); }
};

// A server over a scripted engine with its socket in a folder of its own.
class AdminTest : public ::testing::Test {
 protected:
  static ServerOptions options_with(const std::string& path) {
    ServerOptions options;
    options.admin_socket = path;
    return options;
  }

  AdminAnswer ask(std::string_view method, std::string_view path, std::string_view body = "") {
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    folder_.file("socket").copy(address.sun_path, sizeof(address.sun_path) - 1);
    const auto connects = [&] {
      return ::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    };
    EXPECT_TRUE(eventually(connects));
    const std::string request = fmt::format(
        "{} {} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}", method,
        path, body.size(), body);
    ::send(socket, request.data(), request.size(), MSG_NOSIGNAL);
    std::string bytes;
    char chunk[4096];
    for (ssize_t count = 0; (count = ::recv(socket, chunk, sizeof chunk, 0)) > 0;) {
      bytes.append(chunk, static_cast<size_t>(count));
    }
    ::close(socket);
    if (bytes.size() < 12) return {};
    return {std::atoi(bytes.c_str() + 9), bytes.substr(bytes.find("\r\n\r\n") + 4)};
  }

  const TempFolder folder_;
  RunningServer server_{{}, options_with(folder_.file("socket"))};
};

TEST_F(AdminTest, ItsRoutesAreItsAlone) {
  Client network(server_.port());
  for (const RouteRow& row : admin_rows()) {
    const int none = row.path == "/profile" ? 405 : 404;  // a page has that name
    EXPECT_EQ(network.post(std::string(row.path), "{}").status, none) << row.path;
    EXPECT_FALSE(row.help.empty()) << row.path;
  }
  for (const char* path : {"/v1/models", "/metrics", "/health", "/", "/requests/"}) {
    EXPECT_EQ(ask("GET", path).status, 404) << path;
  }
  EXPECT_EQ(ask("GET", "/absent").error(), "there is no GET /absent here");
  EXPECT_EQ(ask("DELETE", "/requests").error(), "there is no DELETE /requests here");
}

TEST_F(AdminTest, AnAnswerInProgressIsShownAndEnded) {
  EXPECT_TRUE(ask("GET", "/requests").json().at("requests").as_array().empty());
  server_.engine().hold(true);
  std::thread client([&] {
    Client(server_.port())
        .post("/v1/completions", R"({"prompt":"a","n":1})", "X-Request-Id: mine\r\n");
  });
  const auto listed = [&] { return ask("GET", "/requests").json().at("requests").as_array(); };
  ASSERT_TRUE(eventually([&] { return listed().size() == 1; }));
  const boost::json::object row = listed()[0].as_object();
  EXPECT_EQ(row.at("request_id"), "mine");
  EXPECT_EQ(row.at("model"), "scripted");
  EXPECT_GE(row.at("seconds").to_number<double>(), 0);
  EXPECT_LT(row.at("seconds").to_number<double>(), 60);
  const AdminAnswer absent = ask("POST", "/requests/abort", R"({"id":"other"})");
  EXPECT_EQ(absent.status, 404);
  EXPECT_EQ(absent.error(), "no request in progress has the id 'other'");
  EXPECT_EQ(server_.engine().num_cancelled(), 0u);
  const AdminAnswer aborted = ask("POST", "/requests/abort", R"({"id":"mine"})");
  EXPECT_EQ(aborted.status, 200);
  EXPECT_EQ(aborted.json(), (boost::json::object{{"aborted", 1}}));
  client.join();
  EXPECT_EQ(server_.engine().num_cancelled(), 1u);
  EXPECT_TRUE(eventually([&] { return listed().empty(); }));
  EXPECT_EQ(ask("POST", "/requests/abort", R"({"id":"mine"})").status, 404);
}

TEST_F(AdminTest, AFieldThatIsMissingOrOfAnotherKindIsNamed) {
  struct Case {
    std::string_view path, field;
  };
  const Case cases[] = {
      {"/requests/abort", "id"}, {"/sleep", "model"}, {"/wake", "model"}, {"/log_level", "level"}};
  for (const Case& c : cases) {
    for (const std::string& body :
         {std::string("{}"), fmt::format(R"({{"{}":null}})", c.field),
          fmt::format(R"({{"{}":7}})", c.field), fmt::format(R"({{"{}":["a"]}})", c.field)}) {
      const AdminAnswer answer = ask("POST", c.path, body);
      EXPECT_EQ(answer.status, 400) << c.path << body;
      EXPECT_NE(answer.error().find(c.field), std::string::npos) << c.path << answer.body;
    }
    for (const char* body : {"", "no JSON", "[]", R"({"id":)"}) {
      EXPECT_EQ(ask("POST", c.path, body).status, 400) << c.path << body;
    }
  }
}

TEST_F(AdminTest, AModelOfTheStartStaysAwake) {
  const auto models = ask("GET", "/models").json().at("models").as_array();
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0].at("model"), "scripted");
  EXPECT_EQ(models[0].at("state"), "awake");
  EXPECT_TRUE(models[0].at("stays").as_bool());
  EXPECT_FALSE(models[0].at("failed").as_bool());
  EXPECT_EQ(models[0].at("waiting").to_number<int>(), 0);
  EXPECT_EQ(ask("POST", "/wake", R"({"model":"scripted"})").status, 204);
  const AdminAnswer sleep = ask("POST", "/sleep", R"({"model":"scripted"})");
  EXPECT_EQ(sleep.status, 400);
  EXPECT_EQ(sleep.error(), "scripted was named at the start and stays awake");
  for (const char* path : {"/wake", "/sleep"}) {
    EXPECT_EQ(ask("POST", path, R"({"model":"other"})").status, 404) << path;
  }
}

TEST_F(AdminTest, TheLevelOfTheLogChangesAtOnceOrNotAtAll) {
  EXPECT_EQ(ask("POST", "/log_level", R"({"level":"error"})").status, 204);
  EXPECT_FALSE(log_enabled(LogLevel::kWarning));
  EXPECT_TRUE(log_enabled(LogLevel::kError));
  for (const char* level : {"loud", "", "ERROR"}) {
    const AdminAnswer wrong = ask("POST", "/log_level", fmt::format(R"({{"level":"{}"}})", level));
    EXPECT_EQ(wrong.status, 400) << level;
    EXPECT_NE(wrong.error().find("debug, info, warning, error or off"), std::string::npos)
        << wrong.body;
  }
  EXPECT_FALSE(log_enabled(LogLevel::kWarning));
  EXPECT_EQ(ask("POST", "/log_level", R"({"level":"info"})").status, 204);
  EXPECT_TRUE(log_enabled(LogLevel::kInfo));
}

TEST_F(AdminTest, CachesAndProfilesAreOfEveryModel) {
  EXPECT_EQ(ask("POST", "/cache/reset").json(), (boost::json::object{{"models", 1}}));
  for (const char* path : {"/profile", "/profile?steps=1", "/profile?steps=x", "/profile?a=b",
                           "/profile?steps=99999999999999999999999"}) {
    const AdminAnswer answer = ask("GET", path);
    ASSERT_EQ(answer.status, 200) << path;
    const auto models = answer.json().at("models").as_array();
    ASSERT_EQ(models.size(), 1u) << path;
    EXPECT_EQ(models[0].at("model"), "scripted");
    EXPECT_TRUE(models[0].at("steps").as_array().empty());  // the scripted engine records none
  }
}

// Whoever asks for work there would go around the scopes of keys.
TEST_F(AdminTest, NoModelAnswersThere) {
  EXPECT_EQ(ask("POST", "/v1/completions", R"({"prompt":"a"})").status, 404);
  EXPECT_EQ(ask("POST", "/v1/chat/completions", "{}").status, 404);
  EXPECT_EQ(server_.engine().num_submitted(), 0u);
}

}  // namespace admin_test
}  // namespace headrace
