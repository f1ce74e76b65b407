#include "server/http/parser.h"

#include <gtest/gtest.h>

#include "server/http/syntax.h"

namespace headrace {
namespace parser_test {

// The parser fed with pieces of one size; what it says at the end.
struct Outcome {
  std::string body, path;
  int status = 0;  // of a refusal
  bool done = false;
  bool operator==(const Outcome&) const = default;
};

Outcome read_in_pieces(std::string_view bytes, size_t piece, const HttpOptions& options = {}) {
  RequestParser parser(options);
  while (!bytes.empty() && !parser.done() && !parser.refusal()) {
    bytes.remove_prefix(parser.put(bytes.substr(0, piece)));
  }
  const int status = parser.refusal() ? parser.refusal()->status : 0;
  return {parser.request().body, parser.request().path, status, parser.done()};
}

TEST(RequestParser, EveryCutGivesTheSame) {
  const std::string heads = "POST /a%20b HTTP/1.1\r\nHost: a\r\n";
  const std::string requests[] = {
      heads + "Content-Length: 4\r\n\r\nbody",
      heads + "Transfer-Encoding: chunked\r\n\r\n2;x=\"y\"\r\nbo\r\n02\r\ndy\r\n0\r\nA: b\r\n\r\n",
      heads + "A: b\rc\r\n\r\n",
      heads + "A: b\nc\r\n\r\n",
      heads + " folded\r\n\r\n",
      heads + "Transfer-Encoding: chunked\r\n\r\n2\r\nbody\r\n0\r\n\r\n",
      heads + "Transfer-Encoding: chunked\r\n\r\n2\nbo\n0\n\n",
  };
  for (const std::string& request : requests) {
    const Outcome whole = read_in_pieces(request, request.size());
    EXPECT_TRUE(whole.done || whole.status > 0);
    for (size_t piece = 1; piece < request.size(); ++piece) {
      EXPECT_EQ(read_in_pieces(request, piece), whole) << piece << ": " << request;
    }
  }
  EXPECT_EQ(read_in_pieces(requests[1], 1).body, "body");
}

TEST(RequestParser, TakesWhatIsAtALimitAndRefusesWhatIsOver) {
  HttpOptions options;
  options.max_head_bytes = 200;
  options.max_body_bytes = 10;
  const auto status_of = [&](const std::string& bytes) {
    return read_in_pieces(bytes, bytes.size(), options).status;
  };
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\n";
  const std::string chunked = head + "Transfer-Encoding: chunked\r\n\r\n";
  const std::string filler(200 - head.size() - std::string("A: \r\n\r\n").size(), 'x');
  EXPECT_EQ(status_of(head + "A: " + filler + "\r\n\r\n"), 0);
  EXPECT_EQ(status_of(head + "A: " + filler + "x\r\n\r\n"), 431);
  EXPECT_EQ(status_of(chunked + "a\r\n0123456789\r\n0\r\n\r\n"), 0);
  EXPECT_EQ(status_of(chunked + "a\r\n0123456789\r\n1\r\n"), 413);
  EXPECT_EQ(status_of(head + "Content-Length: 11\r\n\r\n"), 413);
  EXPECT_EQ(status_of(head + "Content-Length: 99999999999999999999\r\n\r\n"), 413);
  EXPECT_EQ(status_of(chunked + "0;" + std::string(252, 'x') + "\r\n\r\n"), 0);
  EXPECT_EQ(status_of(chunked + "0;" + std::string(253, 'x') + "\r\n\r\n"), 413);
  EXPECT_EQ(status_of(chunked + "0\r\nA: " + std::string(200, 'x') + "\r\n\r\n"), 431);
}

TEST(RequestParser, TinyChunksAreBounded) {
  std::string bytes = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  const size_t head = bytes.size();
  for (int i = 0; i < 100'000; ++i) bytes += "1\r\na\r\n";
  const HttpOptions options;
  RequestParser bounded(options);
  std::string_view rest = bytes;
  while (!rest.empty() && !bounded.refusal()) rest.remove_prefix(bounded.put(rest.substr(0, 4096)));
  ASSERT_TRUE(bounded.refusal());
  EXPECT_EQ(bounded.refusal()->status, 413);
  EXPECT_LT(bytes.size() - rest.size() - head, 2 * kFramingBytes);
}

TEST(RequestParser, TheBufferOfABodyStaysWithinItsLease) {
  ByteBudget memory(1 << 20), uploads(1 << 20);
  const HttpOptions options;
  RequestParser parser(options, &memory, &uploads);
  std::string_view head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n";
  parser.put(head);
  EXPECT_EQ(memory.used(), 0u);
  const std::string piece(7'000, 'x');
  while (!parser.done()) {
    parser.put(piece);
    ASSERT_FALSE(parser.refusal());
    ASSERT_LE(parser.request().body.capacity(), std::max<size_t>(memory.used(), 15));
    ASSERT_LE(memory.used(), std::max<size_t>(14'000, 2 * parser.body_bytes()));
  }
  EXPECT_EQ(memory.used(), 500'000u);
  EXPECT_EQ(uploads.used(), 500'000u);
}

TEST(HttpSyntax, ReadsHostsAsTheStandardSays) {
  for (const std::string_view good : {"a", "a:80", "a:", "1.2.3.4:8080", "[::1]", "[::1]:80",
                                      "a_b.c", "x%20y", "a.b.", "LOCALHOST"}) {
    EXPECT_TRUE(parse_host(good)) << good;
  }
  for (const std::string_view bad :
       {"", ":80", "a:b", "a:1:2", "[::1", "::1", "a b", "a/b", "a@b", "[a]", "[]", "a:123456",
        "x%2", "a,b\"", "a?b", "a#b", "[::1]x"}) {
    EXPECT_FALSE(parse_host(bad)) << bad;
  }
}

TEST(HttpSyntax, ReadsTargets) {
  EXPECT_EQ(parse_target("http://a")->path, "/");
  EXPECT_EQ(parse_target("http://a?b=c")->query, "b=c");
  EXPECT_EQ(parse_target("HTTPS://a:1/p?q")->authority, "a:1");
  EXPECT_EQ(parse_target("//evil/x")->path, "//evil/x");
  for (const std::string_view bad : {"", "a", "http://", "http:///a", "http://u@a/", "ftp://a/",
                                     "/a%", "/a%0", "/%00", "/a#b"}) {
    EXPECT_FALSE(parse_target(bad)) << bad;
  }
}

}  // namespace parser_test
}  // namespace headrace
