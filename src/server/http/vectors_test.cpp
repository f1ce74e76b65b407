// What RFC 9112 says of messages, as vectors: every one is read whole and byte by byte, and what
// can be read in two ways is refused. Sources: RFC 9112 sections 2.2, 3, 5, 6, 7 and 11; RFC 9110
// sections 5, 7.2 and 8.6; published cases of request smuggling.

#include <gtest/gtest.h>

#include "server/http/parser.h"

namespace headrace {
namespace http_vectors_test {

constexpr int kTaken = 0;
constexpr int kRefused = -1;  // with some status of 400 or more

struct Vector {
  std::string name, bytes;
  int status = kRefused;  // or kTaken, or the one status that it must be
  std::string body = {};  // of what is taken
};

struct Outcome {
  bool done = false;
  int status = 0;
  std::string body;
  size_t used = 0;
  bool operator==(const Outcome&) const = default;
};

Outcome read(std::string_view bytes, size_t piece) {
  const HttpOptions options;
  RequestParser parser(options);
  Outcome outcome;
  while (!bytes.empty() && !parser.done() && !parser.refusal()) {
    const size_t used = parser.put(bytes.substr(0, piece));
    bytes.remove_prefix(used);
    outcome.used += used;
  }
  outcome.done = parser.done();
  outcome.status = parser.refusal() ? parser.refusal()->status : 0;
  outcome.body = parser.request().body;
  return outcome;
}

void check(const Vector& vector) {
  const Outcome whole = read(vector.bytes, vector.bytes.size());
  Outcome pieces = read(vector.bytes, 1);
  pieces.used = whole.used;  // a refusal comes as soon as it is sure
  EXPECT_EQ(whole, pieces) << vector.name;
  if (vector.status == kTaken) {
    EXPECT_TRUE(whole.done && whole.status == 0) << vector.name << ": " << whole.status;
    EXPECT_EQ(whole.body, vector.body) << vector.name;
    EXPECT_EQ(whole.used, vector.bytes.size()) << vector.name << ": its end is elsewhere";
  } else {
    EXPECT_FALSE(whole.done) << vector.name;
    EXPECT_GE(whole.status, 400) << vector.name << ": neither taken nor refused";
    if (vector.status != kRefused) {
      EXPECT_EQ(whole.status, vector.status) << vector.name;
    }
  }
}

std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte > 0x20 && byte < 0x7F ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return out;
}

std::string get(std::string_view lines) {
  return fmt::format("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", lines);
}
std::string post(std::string_view lines, std::string_view body) {
  return fmt::format("POST / HTTP/1.1\r\nHost: a\r\n{}\r\n{}", lines, body);
}
std::string chunked(std::string_view body) { return post("Transfer-Encoding: chunked\r\n", body); }

// All vectors of a list of texts put into one place.
template <typename Place>
void add(std::vector<Vector>& vectors, std::string_view name, int status,
         const std::vector<std::string>& texts, Place place, const std::string& body = {}) {
  for (const std::string& text : texts) {
    vectors.push_back({fmt::format("{} {}", name, shown(text)), place(text), status, body});
  }
}

std::vector<std::string> control_characters() {
  std::vector<std::string> all;
  for (char c = 0; c < 0x20; ++c) all.emplace_back(1, c);
  all.emplace_back(1, '\x7F');
  return all;
}

std::vector<Vector> control_vectors() {
  std::vector<Vector> vectors;
  for (const std::string& c : control_characters()) {
    const int in_value = c == "\t" ? kTaken : 400;
    const auto one = [&](std::string_view name, int status, const std::string& bytes) {
      vectors.push_back({fmt::format("{} with {}", name, shown(c)), bytes, status, {}});
    };
    one("a method", 400, "GE" + c + "T / HTTP/1.1\r\nHost: a\r\n\r\n");
    one("a target", 400, "GET /a" + c + "b HTTP/1.1\r\nHost: a\r\n\r\n");
    one("a version", 400, "GET / HTTP/1" + c + ".1\r\nHost: a\r\n\r\n");
    one("a name", 400, get("A" + c + "b: c\r\n"));
    one("a value", in_value, get("A: b" + c + "c\r\n"));
    one("a chunk's line", 400, chunked("2" + c + "2\r\nhi\r\n0\r\n\r\n"));
  }
  return vectors;
}

// clang-format off
std::vector<Vector> line_vectors() {
  std::vector<Vector> vectors;
  const auto line = [](const std::string& text) { return text + "\r\nHost: a\r\n\r\n"; };
  add(vectors, "request line", kRefused,
      {"", " ", "GET", "GET /", "GET  / HTTP/1.1", "GET /  HTTP/1.1", "GET / HTTP/1.1 ",
       " GET / HTTP/1.1", "GET / HTTP/1.1 x", "GET / x HTTP/1.1", "GET HTTP/1.1", "/ HTTP/1.1",
       "GET / http/1.1", "GET / HTTP/1", "GET / HTTP/1.", "GET / HTTP/.1", "GET / HTTP/1.1.1",
       "GET / HTTP/01.1", "GET / HTTP/1.10", "GET / HTTP/11", "GET / HTTPS/1.1", "GET / HTTP 1.1",
       "GET / HTTP/-1.1", "GET / HTTP/1,1", "G(T / HTTP/1.1", "G@T / HTTP/1.1", "G\"T / HTTP/1.1",
       "G{}T / HTTP/1.1", "G\xC3\xA9T / HTTP/1.1", "GET/ HTTP/1.1", "GET /HTTP/1.1",
       "PRI * HTTP/2.0"},
      line);
  add(vectors, "version", 505,
      {"GET / HTTP/0.9", "GET / HTTP/1.2", "GET / HTTP/2.0", "GET / HTTP/3.0", "GET / HTTP/9.9"},
      line);
  add(vectors, "target", 400,
      {"GET a HTTP/1.1", "GET host/a HTTP/1.1", "GET host:80 HTTP/1.1", "GET ?a HTTP/1.1",
       "GET #a HTTP/1.1", "GET /a#b HTTP/1.1", "GET /% HTTP/1.1", "GET /%1 HTTP/1.1",
       "GET /%gg HTTP/1.1", "GET /%00 HTTP/1.1", "GET /a%00b HTTP/1.1", "GET ftp://a/ HTTP/1.1",
       "GET file:///etc HTTP/1.1", "GET http:/a HTTP/1.1", "GET http:// HTTP/1.1",
       "GET http:///a HTTP/1.1", "GET http://a@b/ HTTP/1.1", "GET http://a:b/ HTTP/1.1",
       "GET http://a:1:2/ HTTP/1.1", "GET http://[::1/ HTTP/1.1", "GET http://a b/ HTTP/1.1",
       "GET http://a,b/{} HTTP/1.1x", "CONNECT a:80 HTTP/1.1", "GET *a HTTP/1.1",
       "GET javascript:0 HTTP/1.1"},
      line);
  add(vectors, "target", kTaken,
      {"GET / HTTP/1.1", "GET // HTTP/1.1", "GET /a%20b HTTP/1.1", "GET /%2e%2e/ HTTP/1.1",
       "GET /?a?b HTTP/1.1", "GET /a;b HTTP/1.1", "GET http://a HTTP/1.1",
       "GET http://a/b?c HTTP/1.1", "GET HTTPS://A:1/ HTTP/1.1", "OPTIONS * HTTP/1.1",
       "GET / HTTP/1.0", "BREW / HTTP/1.1", "a / HTTP/1.1", "GET /\xFF HTTP/1.1"},
      line);
  return vectors;
}

std::vector<Vector> field_vectors() {
  std::vector<Vector> vectors;
  const auto field = [](const std::string& text) { return get(text + "\r\n"); };
  for (const char c : std::string_view("()<>@,;\\\"/[]?={} ")) {
    vectors.push_back(
        {fmt::format("a name with '{}'", c), get(fmt::format("A{}b: c\r\n", c)), 400});
    vectors.push_back({fmt::format("a name that ends in '{}'", c),
                       post(fmt::format("Content-Length{}: 2\r\n", c), "hi"), 400});
  }
  add(vectors, "field", 400,
      {": a", " : a", "A", "A b", "A : b", "A\t: b", "\xC3\xA9: b", " A: b", "\tA: b", "A b: c",
       "A: b\r\n c", "A: b\r\n\tc", "A:\r\n b", "A: b\nC: d", "A: b\rC: d", "A: b\r\r\nC: d",
       "A: b\n\r\nC: d", "A: b\r\n\nC: d", "A: b\x0B", "A: b\x0C"},
      field);
  add(vectors, "field", kTaken,
      {"A:", "A: ", "A:b", "A:\tb", "A: b \t", "A: b\tc", "A: \xC3\xA9", "A: \xFF", "A: b: c",
       "!#$%&'*+-.^_`|~1a: b", "A_b: c", "A: b,, c", "A: b\r\nA: c", "A: \"a\\\"b\""},
      field);
  const auto host = [](const std::string& text) { return "GET / HTTP/1.1\r\n" + text + "\r\n"; };
  add(vectors, "host", 400,
      {"", "Host:\r\n", "Host: \r\n", "Host: a\r\nHost: a\r\n", "Host: a\r\nHost: b\r\n",
       "Host: a b\r\n", "Host: a, b\r\n", "Host: a:b\r\n", "Host: a:1:2\r\n", "Host: a:123456\r\n",
       "Host: :80\r\n", "Host: a/b\r\n", "Host: a?b\r\n", "Host: a#b\r\n", "Host: a@b\r\n",
       "Host: http://a\r\n", "Host: [::1\r\n", "Host: ::1\r\n", "Host: [a]\r\n", "Host: []\r\n",
       "Host: [::1]x\r\n", "Host: a\"b\r\n", "Host: a%2\r\n", "Host: a:-1\r\n", "Host: a\\b\r\n",
       "Host: a\xC3\xA9\r\n", "host : a\r\n", "Host: a\r\nhOST: b\r\n"},
      host);
  add(vectors, "host", kTaken,
      {"Host: a\r\n", "HOST: A\r\n", "Host:a:80\r\n", "Host: [::1]:80\r\n", "Host: a.b.\r\n",
       "Host: a_b\r\n", "Host: 1.2.3.4\r\n", "Host: a:\r\n"},
      host);
  return vectors;
}

std::vector<Vector> framing_vectors() {
  std::vector<Vector> vectors;
  const auto length = [](const std::string& text) {
    return post("Content-Length:" + text + "\r\n", "hi");
  };
  add(vectors, "length", 400,
      {"", " ", " +2", " -2", " 0x2", " 2,2", " 2, 2", " 2 2", " 2;", " 2.0", " 2e0", " 0b10",
       " '2'", " \"2\"", " two", " 2\t2", " \xEF\xBC\x92", " 2a", " a2", " 2_0", " --2", " 2-",
       " ,2", " 2,", " 02 3", " 2\r\n 0", " 2\r\nContent-Length: 2", " 2\r\nContent-Length: 3",
       " 2\r\ncontent-length: 2", " 2\r\nTransfer-Encoding: chunked",
       " 2\r\nTransfer-Encoding: identity", " 2\r\nTransfer-Encoding:", " 0\r\nContent-Length: 2"},
      length);
  add(vectors, "length", 413,
      {" 99999999999999999999", " 18446744073709551616", " 18446744073709551618", " 33554433",
       " 9223372036854775808"},
      length);
  add(vectors, "length", kTaken, {" 2", "2", " 2 ", "\t2\t", " 02", " 0000000000000000000000002"},
      length, "hi");
  const auto coding = [](const std::string& text) {
    return post("Transfer-Encoding:" + text + "\r\n", "2\r\nhi\r\n0\r\n\r\n");
  };
  add(vectors, "coding", kRefused,
      {"", " ", " identity", " gzip", " deflate", " compress", " xchunked", " chunkedx", " chunk",
       " \"chunked\"", " 'chunked'", " chunked;", " chunked;q=1", " chunked;a=b", " chunked,",
       " ,chunked", " chunked, chunked", " chunked chunked", " chunked, identity", " chunked, gzip",
       " gzip, chunked", " identity, chunked", " trailers", " cow", " chunked\x0B",
       " \x0B"
       "chunked", " chunked\xC2\xA0", " chun\tked", "\r\n chunked",
       " chunked\r\nTransfer-Encoding: chunked", " chunked\r\nTransfer-Encoding: identity",
       " identity\r\nTransfer-Encoding: chunked", " chunked\r\nContent-Length: 2",
       " chunked\r\ntransfer-encoding: x", " nothing, , chunked"},
      coding);
  add(vectors, "coding", kTaken, {" chunked", "chunked", " Chunked", " CHUNKED", " chunked \t"},
      coding, "hi");
  vectors.push_back({"chunks in HTTP/1.0",
                     "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                     400});
  vectors.push_back(
      {"a compressed body", post("Content-Encoding: gzip\r\nContent-Length: 2\r\n", "hi"), 415});
  vectors.push_back({"an expectation", post("Expect: magic\r\nContent-Length: 2\r\n", "hi"), 417});
  return vectors;
}

std::vector<Vector> chunk_vectors() {
  std::vector<Vector> vectors;
  const auto size = [](const std::string& text) { return chunked(text + "\r\nhi\r\n0\r\n\r\n"); };
  add(vectors, "chunk size", 400,
      {"", " ", " 2", "\t2", "+2", "-2", "-0", "0x2", "0X2", "2h", "g", "2g", "x", "2 2", "2 x",
       "2,", "2:", "2\"", "'2'", "2.0", "2_0", "00000000000000002", "fffffffffffffffff",
       "10000000000000002", "\xEF\xBC\x92", ";a", "=2", "2=a"},
      size);
  add(vectors, "chunk size", 413,
      {"ffffffffffffffff", "fffffffffffffff0", "7fffffffffffffff", "8000000000000000", "2000001"},
      size);
  add(vectors, "chunk size", kTaken,
      {"2", "02", "0000000000000002", "2;a", "2;a=b", "2;a=\"b c\"", "2 ;a", "2\t", "2 ", "2;",
       "2;;", "2;a;b=c"},
      size, "hi");
  add(vectors, "chunks", 400,
      {"2\nhi\r\n0\r\n\r\n", "2\rhi\r\n0\r\n\r\n", "2\r\nhi\n0\r\n\r\n", "2\r\nhi\r0\r\n\r\n",
       "2\r\nhi0\r\n\r\n", "2\r\nhix\r\n0\r\n\r\n", "1\r\nhi\r\n0\r\n\r\n", "2\r\nhi\r\n0\n\n",
       "2\r\nhi\r\n0\r\n\n", "2\r\nhi\r\n0\n\r\n", "2\r\nhi\r\n\r\n0\r\n\r\n",
       "2\r\nhi\r\n0\r\nA\r\n\r\n", "2\r\nhi\r\n0\r\nA : b\r\n\r\n",
       "2\r\nhi\r\n0\r\nA: b\r\n c\r\n\r\n", "2\r\nhi\r\n0\r\n A: b\r\n\r\n",
       "2\r\nhi\r\n0\r\nA: b\nB: c\r\n\r\n", "2\r\nhi\r\n0\r\n: b\r\n\r\n",
       "2\r\nhi\r\n0\r\nA: b\rB: c\r\n\r\n", "2;a\rb\r\nhi\r\n0\r\n\r\n",
       "2;a\nb\r\nhi\r\n0\r\n\r\n"},
      [](const std::string& text) { return chunked(text); });
  add(
      vectors, "chunks", kTaken,
      {"2\r\nhi\r\n0\r\n\r\n", "1\r\nh\r\n1\r\ni\r\n0\r\n\r\n", "2\r\nhi\r\n00\r\n\r\n",
       "2\r\nhi\r\n0;a=b\r\n\r\n", "2\r\nhi\r\n0\r\nA: b\r\n\r\n",
       "2\r\nhi\r\n0\r\nContent-Length: 9\r\n\r\n", "2\r\nhi\r\n0\r\nTransfer-Encoding: x\r\n\r\n"},
      [](const std::string& text) { return chunked(text); }, "hi");
  return vectors;
}
// clang-format on

void check_all(const std::vector<Vector>& vectors) {
  for (const Vector& vector : vectors) check(vector);
}

TEST(HttpVectors, ControlCharactersEndNoLineAndHideNowhere) { check_all(control_vectors()); }
TEST(HttpVectors, RequestLinesHaveOneReading) { check_all(line_vectors()); }
TEST(HttpVectors, FieldsHaveOneReading) { check_all(field_vectors()); }
TEST(HttpVectors, BodiesEndAtOnePlace) { check_all(framing_vectors()); }
TEST(HttpVectors, ChunksAreAsLongAsTheySay) { check_all(chunk_vectors()); }

TEST(HttpVectors, AreMany) {
  const size_t count = control_vectors().size() + line_vectors().size() + field_vectors().size() +
                       framing_vectors().size() + chunk_vectors().size();
  EXPECT_GE(count, 450u);
}

// What follows a request is the next one's: no vector moves the border.
TEST(HttpVectors, WhatFollowsIsNotUsed) {
  const std::string next = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n";
  for (const auto& vectors : {framing_vectors(), chunk_vectors(), line_vectors()}) {
    for (const Vector& vector : vectors) {
      if (vector.status != kTaken) continue;
      const Outcome outcome = read(vector.bytes + next, vector.bytes.size() + next.size());
      EXPECT_TRUE(outcome.done) << vector.name;
      size_t used = 0;
      const HttpOptions options;
      RequestParser parser(options);
      const std::string bytes = vector.bytes + next;
      while (!parser.done()) used += parser.put(std::string_view(bytes).substr(used));
      EXPECT_EQ(used, vector.bytes.size()) << vector.name;
    }
  }
}

}  // namespace http_vectors_test
}  // namespace headrace
