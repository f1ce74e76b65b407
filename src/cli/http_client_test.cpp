// What reaches a server, and what is made of its answers, whole or broken.
#include "cli/http_client.h"

#include <gtest/gtest.h>

#include "cli/testing/scripted_server.h"

namespace headrace {
namespace http_client_test {

using testing::http_answer;
using testing::http_stream;
using testing::ScriptedServer;
using testing::SeenRequest;
using Pieces = std::vector<std::string>;

TEST(ServerAddress, IsMadeOfWhatPeopleType) {
  struct Case {
    std::string_view typed, address;
  };
  const Case cases[] = {
      {"localhost:8080", "http://localhost:8080"},
      {"127.0.0.1", "http://127.0.0.1"},
      {"http://box:1", "http://box:1"},
      {"https://box", "https://box"},
      {"https://box/", "https://box"},
      {"box:1/v1", "http://box:1"},
      {"http://box:1/v1/", "http://box:1"},
      {"http://box:1//v1//v1//", "http://box:1"},
      {"https://box/api/v1", "https://box/api"},
      {"http://box/v10", "http://box/v10"},
      {"[::1]:8080", "http://[::1]:8080"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(server_address(std::string(c.typed)), c.address) << c.typed;
  }
}

TEST(CallServer, WithoutABodyItGetsAndWithOneItPosts) {
  ScriptedServer server(http_answer(200, "fine"));
  HttpCall call;
  call.url = server.url() + "/a?b=c";
  const auto got = call_server(call);
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_EQ(got->status, 200);
  EXPECT_EQ(got->body, "fine");
  call.key = "hr-1";
  call.body = std::string("{\"zero\":\"\0\"}", 12);
  ASSERT_TRUE(call_server(call).ok());

  const auto seen = server.seen();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].line, "GET /a?b=c HTTP/1.1");
  EXPECT_EQ(seen[0].head.find("Authorization"), std::string::npos) << seen[0].head;
  EXPECT_EQ(seen[0].body, "");
  EXPECT_EQ(seen[1].line, "POST /a?b=c HTTP/1.1");
  EXPECT_NE(seen[1].head.find("Content-Type: application/json\r\n"), std::string::npos);
  EXPECT_NE(seen[1].head.find("Authorization: Bearer hr-1\r\n"), std::string::npos);
  EXPECT_EQ(seen[1].body, call.body);  // also beyond a zero byte
}

TEST(CallServer, AStatusThatIsNotGoodIsAnAnswer) {
  for (const int status : {301, 400, 404, 429, 500, 503}) {
    ScriptedServer server(http_answer(status, "why"));
    size_t num_pieces = 0;
    HttpCall call;
    call.url = server.url();
    call.piece = [&](std::string_view) { return ++num_pieces > 0; };
    const auto answer = call_server(call);
    ASSERT_TRUE(answer.ok()) << status << answer.error().message;
    EXPECT_EQ(answer->status, status);
    EXPECT_EQ(answer->body, "why") << status;  // errors are whole, never in pieces
    EXPECT_EQ(num_pieces, 0u) << status;
  }
}

// A server that could send its clients anywhere would get their keys there.
TEST(CallServer, NoRedirectIsFollowed) {
  ScriptedServer elsewhere(http_answer(200, "stolen"));
  ScriptedServer server(
      fmt::format("HTTP/1.1 307 Away\r\nLocation: {}\r\nContent-Length: 0\r\nConnection: close"
                  "\r\n\r\n",
                  elsewhere.url()));
  HttpCall call;
  call.url = server.url();
  call.key = "secret";
  const auto answer = call_server(call);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->status, 307);
  EXPECT_TRUE(elsewhere.seen().empty());
}

TEST(CallServer, PiecesComeInOrderAndTheBodyStaysEmpty) {
  ScriptedServer server(
      [](const SeenRequest&) { return Pieces{http_stream(), "one ", "two ", "three"}; });
  std::string text;
  HttpCall call;
  call.url = server.url();
  call.piece = [&](std::string_view piece) {
    text += piece;
    return true;
  };
  const auto answer = call_server(call);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(text, "one two three");
  EXPECT_EQ(answer->body, "");
  EXPECT_EQ(answer->status, 200);
}

TEST(CallServer, WhoHasEnoughLeavesBeforeTheEnd) {
  ScriptedServer server([](const SeenRequest&) {
    return Pieces{http_stream(), "enough", std::string(ScriptedServer::kSilence)};
  });
  std::string text;
  HttpCall call;
  call.url = server.url();
  call.piece = [&](std::string_view piece) {
    text += piece;
    return false;
  };
  const auto answer = call_server(call);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(text, "enough");
}

TEST(CallServer, AnInterruptEndsTheWaitForASilentServer) {
  std::atomic<bool> interrupted = false;
  ScriptedServer server([&](const SeenRequest&) {
    interrupted = true;
    return Pieces{std::string(ScriptedServer::kSilence)};
  });
  HttpCall call;
  call.url = server.url();
  call.interrupted = &interrupted;
  const auto answer = call_server(call);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 0);
  EXPECT_EQ(answer->body, "");
}

TEST(CallServer, ABrokenAnswerIsNone) {
  struct Case {
    std::string_view what, bytes;
  };
  const Case cases[] = {
      {"nothing at all", ""},
      {"a body that ends early", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"},
      {"chunks without an end", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello"},
      {"chunks without a length", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"},
  };
  for (const Case& c : cases) {
    ScriptedServer server{std::string(c.bytes)};
    HttpCall call;
    call.url = server.url();
    const auto answer = call_server(call);
    ASSERT_FALSE(answer.ok()) << c.what;
    EXPECT_EQ(answer.error().code, ErrorCode::kUnavailable) << c.what;
    EXPECT_TRUE(answer.error().message.starts_with("cannot reach " + server.url() + ": "))
        << c.what << ": " << answer.error().message;
  }
}

TEST(CallServer, AnotherProtocolIsNoAnswer) {
  ScriptedServer server(std::string("SSH-2.0-OpenSSH_9.6\r\n"));
  HttpCall call;
  call.url = server.url();
  const auto answer = call_server(call);
  ASSERT_FALSE(answer.ok());
  EXPECT_TRUE(answer.error().message.starts_with("cannot reach " + server.url() + ": "));
}

TEST(CallServer, WhereNobodyAnswersItSaysHowToStartOne) {
  int port = 0;
  {
    ScriptedServer gone(http_answer(200, ""));
    port = gone.port();
  }
  HttpCall call;
  call.url = fmt::format("http://127.0.0.1:{}", port);
  call.connect_seconds = 2;
  const auto answer = call_server(call);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(answer.error().hint,
            "start one with headrace serve, or name another with --server URL");
}

TEST(CallServer, AnUnreadableAuthorityIsNamed) {
  ScriptedServer server(http_answer(200, "plain"));
  HttpCall call;
  call.url = fmt::format("https://127.0.0.1:{}", server.port());
  call.ca = "/nowhere/ca.pem";
  const auto answer = call_server(call);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().hint, "--ca names a file with certificates in PEM form");
}

TEST(CallOf, TakesTheKeyAndTheAuthorityFromTheOptions) {
  const Options options =
      Options::create("ps", {{"--api-key", "k"}, {"--ca", "/a.pem"}}, {}).value();
  const HttpCall call = call_of(options, "https://box", "/api/ps");
  EXPECT_EQ(call.url, "https://box/api/ps");
  EXPECT_EQ(call.key, "k");
  EXPECT_EQ(call.ca, "/a.pem");
  EXPECT_EQ(call.body, "");
}

TEST(CallServer, AnAddressThatCannotBeIsTheCallersFault) {
  for (const std::string url : {"ftp://127.0.0.1/x", "file:///etc/hostname", "http://",
                                "http://127.0.0.1:99999/", "gopher://127.0.0.1:1/"}) {
    HttpCall call;
    call.url = url;
    const auto answer = call_server(call);
    ASSERT_FALSE(answer.ok()) << url;
    EXPECT_EQ(answer.error().code, ErrorCode::kInvalidArgument) << url << answer.error().message;
  }
}

}  // namespace http_client_test
}  // namespace headrace
