#include "server/http/http_server.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "server/http/parser.h"
#include "server/http/test_support.h"

namespace headrace {
namespace http_test {

using test::Client;
using test::eventually;
using namespace std::chrono_literals;

using Handle = decltype(HttpService::handle);

const StreamHead kStream{"text/event-stream", {}, ": still here\n\n"};

// Keeps the last writer, so that a test decides what happens to it.
struct Kept {
  std::mutex mutex;
  std::shared_ptr<ResponseWriter> writer;
  std::shared_ptr<ResponseWriter> get() {
    std::lock_guard lock(mutex);
    return writer;
  }
  void drop() {
    std::lock_guard lock(mutex);
    writer = nullptr;
  }
  Handle handler() {
    return [this](HttpRequest&&, std::shared_ptr<ResponseWriter> given) {
      std::lock_guard lock(mutex);
      writer = std::move(given);
    };
  }
};

// A running server. Kept writers go before it does, as its contract asks.
class Http {
 public:
  explicit Http(HttpOptions options = {}, Handle handler = echo)
      : Http(std::move(options), HttpService{.handle = std::move(handler)}) {}
  Http(HttpOptions options, HttpService service) {
    options.port = 0;
    auto server = HttpServer::listen(options, std::move(service));
    CHECK(server.ok(), "{}", server.error().message);
    server_ = std::move(server).value();
    server_->start();
  }
  Http(HttpOptions options, Kept& kept) : Http(options, kept.handler()) { kept_ = &kept; }
  ~Http() {
    server_->stop(0ms);
    if (kept_ != nullptr) kept_->drop();
  }
  int port() const { return server_->port(); }
  HttpServer& server() { return *server_; }

  static void echo(HttpRequest&& request, std::shared_ptr<ResponseWriter> writer) {
    writer->send(HttpResponse{200, request.method + " " + request.path + " " + request.body});
  }

 private:
  std::unique_ptr<HttpServer> server_;
  Kept* kept_ = nullptr;
};

struct Vector {
  std::string_view name, bytes;
  bool accepted;
};

TEST(ParseRequest, AcceptsAndRefusesAsTheStandardSays) {
  const Vector vectors[] = {
      {"plain", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", true},
      {"body", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", true},
      {"chunked",
       "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
       true},
      {"version 1.0 without host", "GET / HTTP/1.0\r\n\r\n", true},
      {"escape", "GET /a%2Fb HTTP/1.1\r\nHost: a\r\n\r\n", true},
      {"no host", "GET / HTTP/1.1\r\n\r\n", false},
      {"two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", false},
      {"incomplete", "GET / HTTP/1.1\r\nHost: a\r\n", false},
      {"short body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nhi", false},
      {"absolute form", "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", true},
      {"bare line feed", "GET / HTTP/1.1\nHost: a\n\n", false},
      {"space before colon", "GET / HTTP/1.1\r\nHost : a\r\n\r\n", false},
      {"both lengths",
       "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: "
       "chunked\r\n\r\n0\r\n\r\n",
       false},
      {"both lengths, other order",
       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: "
       "2\r\n\r\n0\r\n\r\n",
       false},
      {"two lengths",
       "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi", false},
      {"negative length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -2\r\n\r\nhi", false},
      {"plus length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +2\r\n\r\nhi", false},
      {"hex length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x2\r\n\r\nhi", false},
      {"huge length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
       false},
      {"negative chunk",
       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nhi\r\n0\r\n\r\n",
       false},
      {"prefixed chunk",
       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nhi\r\n0\r\n\r\n",
       false},
      {"overflowing chunk",
       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
       "chunked\r\n\r\nfffffffffffffffff\r\nhi\r\n",
       false},
      {"broken escape", "GET /a%2 HTTP/1.1\r\nHost: a\r\n\r\n", false},
      {"escaped zero", "GET /a%00 HTTP/1.1\r\nHost: a\r\n\r\n", false},
      {"wrong version", "GET / HTTP/3.1\r\nHost: a\r\n\r\n", false},
      {"nonsense", "\x16\x03\x01\x02", false},
      {"zero in a header", std::string_view("GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", 29), false},
  };
  for (const Vector& vector : vectors) {
    const auto request = parse_request(vector.bytes, {});
    EXPECT_EQ(request.ok(), vector.accepted)
        << vector.name << ": " << (request.ok() ? "accepted" : request.error().message);
  }
}

TEST(ParseRequest, TakesTheRequestApart) {
  const auto request = parse_request(
      "POST /v1/a%20b?x=1&y HTTP/1.1\r\nHost: h\r\nX-Request-ID: abc-1\r\nContent-Length: "
      "2\r\n\r\nhi",
      {});
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->method, "POST");
  EXPECT_EQ(request->path, "/v1/a b");
  EXPECT_EQ(request->query, "x=1&y");
  EXPECT_EQ(request->body, "hi");
  EXPECT_EQ(request->header("host"), "h");
  EXPECT_EQ(request->request_id, "abc-1");
  const auto hostile =
      parse_request("GET / HTTP/1.1\r\nHost: h\r\nX-Request-ID: a\"b c\r\n\r\n", {});
  ASSERT_TRUE(hostile.ok());
  EXPECT_EQ(hostile->request_id.size(), 32u);
}

TEST(HttpServer, AnswersManyRequestsOnOneConnection) {
  Http http;
  Client client(http.port());
  for (int i = 0; i < 20; ++i) {
    const auto response = client.post("/x", std::to_string(i));
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "POST /x " + std::to_string(i));
  }
  EXPECT_NE(client.get("/y").head.find("x-request-id: "), std::string::npos);
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  Http http;
  Client client(http.port());
  std::string requests;
  for (int i = 0; i < 50; ++i) {
    requests += fmt::format("POST /{} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", i);
  }
  ASSERT_TRUE(client.send(requests));
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(client.receive().body, fmt::format("POST /{} abc", i));
  }
}

TEST(HttpServer, ReadsARequestByteByByte) {
  Http http;
  Client client(http.port());
  for (const char c :
       std::string("POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok")) {
    ASSERT_TRUE(client.send(std::string(1, c)));
  }
  EXPECT_EQ(client.receive().body, "POST /slow ok");
}

TEST(HttpServer, HeadHasLengthButNoBody) {
  Http http;
  Client client(http.port());
  const auto head = client.get("/h", "HEAD");
  EXPECT_EQ(head.status, 200);
  EXPECT_NE(head.head.find("Content-Length: 8\r\n"), std::string::npos);
  EXPECT_EQ(client.get("/next").body, "GET /next ");
}

TEST(HttpServer, ClosesWhenTheClientAsksForIt) {
  Http http;
  Client client(http.port());
  const auto response = client.get("/", "GET", "Connection: close\r\n");
  EXPECT_NE(response.head.find("Connection: close"), std::string::npos);
  EXPECT_TRUE(client.at_end());
  Client old(http.port());
  old.send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.receive().status, 200);
  EXPECT_TRUE(old.at_end());
}

TEST(HttpServer, AnswersExpectContinue) {
  Http http;
  Client client(http.port());
  client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  ASSERT_TRUE(client.receive_until("HTTP/1.1 100 Continue\r\n\r\n"));
  client.receive();
  client.send("ok");
  EXPECT_EQ(client.receive().body, "POST / ok");
}

TEST(HttpServer, RefusesWhatIsOverALimitAtTheLimit) {
  HttpOptions options;
  options.max_body_bytes = 1000;
  options.max_head_bytes = 2000;
  options.max_target_bytes = 100;
  options.max_headers = 10;
  Http http(options);
  EXPECT_EQ(Client(http.port()).post("/", std::string(1000, 'x')).status, 200);
  const auto too_long = Client(http.port()).post("/", std::string(1001, 'x'));
  EXPECT_EQ(too_long.status, 413);
  EXPECT_EQ(too_long.body, "the body is longer than 1000 bytes\n");
  Client chunked(http.port());
  chunked.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 3; ++i) chunked.send("190\r\n" + std::string(400, 'x') + "\r\n");
  EXPECT_EQ(chunked.receive().status, 413);
  EXPECT_EQ(Client(http.port()).get("/" + std::string(99, 'a')).status, 200);
  EXPECT_EQ(Client(http.port()).get("/" + std::string(100, 'a')).status, 414);
  EXPECT_EQ(Client(http.port()).get("/", "GET", "X: " + std::string(3000, 'a') + "\r\n").status,
            431);
  std::string headers;
  for (int i = 0; i < 9; ++i) headers += fmt::format("X{}: a\r\n", i);
  EXPECT_EQ(Client(http.port()).get("/", "GET", headers).status, 200);
  EXPECT_EQ(Client(http.port()).get("/", "GET", headers + "Y: a\r\n").status, 431);
}

TEST(HttpServer, ALargeBodyThatIsRefusedStillGetsItsAnswer) {
  HttpOptions options;
  options.max_body_bytes = 1000;
  Http http(options);
  const auto response = Client(http.port()).post("/", std::string(8'000'000, 'x'));
  EXPECT_EQ(response.status, 413);
}

TEST(HttpServer, RefusesNonsenseAndCloses) {
  Http http;
  Client client(http.port());
  client.send("GET / HTTP/1.1\r\nHost : a\r\n\r\nGET /second HTTP/1.1\r\nHost: a\r\n\r\n");
  const auto response = client.receive();
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("this is not a valid HTTP/1.1 request"), std::string::npos);
  EXPECT_TRUE(client.at_end());
}

TEST(HttpServer, EndsSlowHeadsAndBodiesAtAnAbsoluteDeadline) {
  HttpOptions options;
  options.header_deadline = 200ms;
  options.body_grace = 200ms;
  options.idle_timeout = 300ms;
  Http http(options);
  const auto begin = std::chrono::steady_clock::now();
  Client drip(http.port());
  // A byte now and then does not move the deadline.
  for (int i = 0; i < 30; ++i) {
    if (!drip.send("G")) break;
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_EQ(drip.receive().status, 408);
  Client body(http.port());
  body.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nx");
  EXPECT_EQ(body.receive().status, 408);
  Client idle(http.port());
  EXPECT_TRUE(idle.at_end());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 8s);
}

TEST(HttpServer, AStreamArrivesChunkByChunkAndTheConnectionGoesOn) {
  Kept kept;
  Http http({}, kept);
  Client client(http.port());
  client.send("GET /s HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return kept.get() != nullptr; }));
  kept.get()->start_stream(kStream);
  kept.get()->write("data: 1\n\n");
  ASSERT_TRUE(client.receive_until("data: 1\n\n"));
  kept.get()->write("data: 2\n\n");
  kept.get()->end_stream();
  kept.get()->write("never");
  const auto response = client.receive();
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.body, "data: 1\n\ndata: 2\n\n");
  const auto first = kept.get();
  client.send("GET /t HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return kept.get() != first; }));
  kept.get()->send(HttpResponse{200, "second"});
  EXPECT_EQ(client.receive().body, "second");
}

TEST(HttpServer, ASilentStreamCarriesComments) {
  Kept kept;
  HttpOptions options;
  options.heartbeat = 30ms;
  Http http(options, kept);
  Client client(http.port());
  client.send("GET /s HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return kept.get() != nullptr; }));
  kept.get()->start_stream(kStream);
  EXPECT_TRUE(client.receive_until(": still here\n\n"));
}

TEST(HttpServer, NoticesAClientThatLeaves) {
  for (const bool streaming : {false, true}) {
    Kept kept;
    HttpOptions options;
    options.probe_after = 50ms;
    Http http(options, kept);
    std::atomic<int> num_calls = 0;
    {
      Client client(http.port());
      client.send("GET /s HTTP/1.1\r\nHost: a\r\n\r\n");
      ASSERT_TRUE(eventually([&] { return kept.get() != nullptr; }));
      kept.get()->on_disconnect([&] { ++num_calls; });
      if (streaming) {
        kept.get()->start_stream(kStream);
        kept.get()->write("data: 1\n\n");
        ASSERT_TRUE(client.receive_until("data: 1"));
      }
      EXPECT_EQ(num_calls, 0);
    }
    EXPECT_TRUE(eventually([&] { return num_calls == 1; }));
    EXPECT_TRUE(kept.get()->disconnected());
    // Registered too late: called all the same.
    kept.get()->on_disconnect([&] { ++num_calls; });
    EXPECT_TRUE(eventually([&] { return num_calls == 2; }));
  }
}

TEST(HttpServer, DropsAClientThatDoesNotRead) {
  Kept kept;
  HttpOptions options;
  options.write_timeout = 300ms;
  Http http(options, kept);
  Client client(http.port());
  client.limit_receive_buffer(4096);
  client.send("GET /s HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return kept.get() != nullptr; }));
  std::atomic<bool> gone = false;
  kept.get()->on_disconnect([&] { gone = true; });
  kept.get()->start_stream(kStream);
  const std::string data(1 << 20, 'x');
  for (int i = 0; i < 16; ++i) kept.get()->write(data);
  EXPECT_GT(kept.get()->queued_bytes(), 0u);
  EXPECT_TRUE(eventually([&] { return gone.load(); }));
  EXPECT_EQ(kept.get()->queued_bytes(), 0u);
}

TEST(HttpServer, ADroppedRequestGetsAnAnswer) {
  Http http({}, [](HttpRequest&&, std::shared_ptr<ResponseWriter>) {});
  EXPECT_EQ(Client(http.port()).get("/").status, 500);
  Http broken({}, [](HttpRequest&&, std::shared_ptr<ResponseWriter> writer) {
    writer->start_stream(kStream);
    writer->write("data: 1\n\n");
  });
  Client client(broken.port());
  const auto response = client.get("/");
  EXPECT_FALSE(response.complete);  // no end of the stream that could be taken for success
}

// Failures of the transport, at each place where one arises, in the form that the service gives.
TEST(HttpServer, TheServiceGivesFailuresTheirForm) {
  static const int row = 0;  // stands for a row: the transport never looks into one
  const auto* const route = reinterpret_cast<const RouteRow*>(&row);
  HttpService service;
  service.handle = [](HttpRequest&& request, std::shared_ptr<ResponseWriter>) {
    if (request.path == "/throws") throw std::runtime_error("secret detail");
  };
  service.admit = [route](HttpRequest& request) {
    if (request.path != "/none") request.route = route;
    return Admission{};
  };
  service.fail = [route](const RouteRow* given, int status, std::string_view message) {
    return HttpResponse{status, fmt::format("[{}] {}", given == route ? "row" : "none", message)};
  };
  HttpOptions options;
  options.max_body_bytes = 10;
  Http http(options, std::move(service));
  struct Case {
    std::string_view bytes;
    int status;
    std::string_view body;
  };
  const Case cases[] = {
      {"nonsense\r\n\r\n", 400,
       "[none] this is not a valid HTTP/1.1 request: the request line must be METHOD TARGET "
       "HTTP/1.1"},
      {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 500, "[row] the server dropped this request"},
      {"GET /none HTTP/1.1\r\nHost: a\r\n\r\n", 500, "[none] the server dropped this request"},
      {"GET /throws HTTP/1.1\r\nHost: a\r\n\r\n", 500,
       "[row] the server failed to handle this request"},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
       "b\r\n01234567890\r\n0\r\n\r\n",
       413, "[row] the body is longer than 10 bytes"},
  };
  for (const Case& each : cases) {
    Client client(http.port());
    client.send(each.bytes);
    const auto response = client.receive();
    EXPECT_EQ(response.status, each.status) << each.bytes;
    EXPECT_EQ(response.body, each.body) << each.bytes;
  }
}

TEST(HttpServer, AHandlerThatThrowsIsA500) {
  Http http({}, [](HttpRequest&&, std::shared_ptr<ResponseWriter>) -> void {
    throw std::runtime_error("secret detail");
  });
  const auto response = Client(http.port()).post("/", "x");
  EXPECT_EQ(response.status, 500);
  EXPECT_EQ(response.body.find("secret"), std::string::npos);
}

TEST(HttpServer, AHandlerWithoutMemoryIsA503) {
  Http http({}, [](HttpRequest&&, std::shared_ptr<ResponseWriter>) { throw std::bad_alloc(); });
  const auto response = Client(http.port()).post("/", "x");
  EXPECT_EQ(response.status, 503);
  EXPECT_NE(response.head.find("Retry-After: 1\r\n"), std::string::npos);
  EXPECT_NE(response.body.find("the server has no memory for this request now"), std::string::npos);
}

TEST(HttpServer, CountsConnectionsOfAnAddress) {
  HttpOptions options;
  options.max_connections_per_address = 2;
  Http exempt(options);
  options.count_loopback = true;
  Http http(options);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Client>(exempt.port()));
    EXPECT_EQ(clients.back()->get("/").status, 200);
  }
  clients.clear();
  for (int i = 0; i < 2; ++i) {
    clients.push_back(std::make_unique<Client>(http.port()));
    EXPECT_EQ(clients.back()->get("/").status, 200);
  }
  const auto refused = Client(http.port()).receive();
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.body.find("too many connections from this address"), std::string::npos);
  clients.pop_back();
  EXPECT_TRUE(eventually([&] { return Client(http.port()).get("/").status == 200; }));
}

TEST(HttpServer, AClientThatSendsNoMoreIsProbedAndAnswered) {
  Kept kept;
  HttpOptions options;
  options.probe_after = 50ms;
  Http http(options, kept);
  Client client(http.port());
  client.send("GET /s HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return kept.get() != nullptr; }));
  client.send_no_more();
  ASSERT_TRUE(client.receive_until("HTTP/1.1 100 Continue\r\n\r\n"));
  EXPECT_FALSE(kept.get()->disconnected());
  client.receive();
  kept.get()->send(HttpResponse{200, "late"});
  EXPECT_EQ(client.receive().body, "late");
}

TEST(HttpServer, AReaderThatIsSlowButSteadyOutlastsTheWriteTimeout) {
  HttpOptions options;
  options.write_timeout = 400ms;
  const std::string body(12'000'000, 'x');
  Http http(options, [&](HttpRequest&&, std::shared_ptr<ResponseWriter> writer) {
    writer->send(HttpResponse{200, body});
  });
  Client client(http.port());
  client.limit_receive_buffer(64 * 1024);
  client.send("GET /s HTTP/1.1\r\nHost: a\r\n\r\n");
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < 1500ms) {
    ASSERT_TRUE(client.receive_more());
    std::this_thread::sleep_for(10ms);
  }
  const auto response = client.receive();
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.body.size(), body.size());
}

TEST(HttpServer, AnAnswerThatIsCutCannotBeTakenForWhole) {
  HttpOptions options;
  options.write_timeout = 200ms;
  for (const std::string version : {"1.1", "1.0"}) {
    Kept kept;
    Http http(options, kept);
    Client client(http.port());
    client.limit_receive_buffer(4096);
    client.send("GET /s HTTP/" + version + "\r\nHost: a\r\n\r\n");
    ASSERT_TRUE(eventually([&] { return kept.get() != nullptr; }));
    kept.get()->start_stream(kStream);
    kept.get()->write(std::string(16 << 20, 'x'));
    ASSERT_TRUE(eventually([&] { return kept.get()->disconnected(); }));
    while (client.receive_more()) continue;
    EXPECT_TRUE(client.was_reset()) << version;
  }
}

TEST(HttpServer, BodiesLeaseMemoryAsTheyArriveAndGiveItBack) {
  ByteBudget budget(1 << 20);
  HttpCounters counters;
  std::atomic<size_t> held = 0;
  HttpService service;
  service.memory = &budget;
  service.counters = &counters;
  service.handle = [&](HttpRequest&& request, std::shared_ptr<ResponseWriter> writer) {
    held = request.memory.bytes();
    writer->send(HttpResponse{200, std::to_string(request.body.size())});
  };
  {
    auto server = HttpServer::listen({}, service);
    ASSERT_TRUE(server.ok());
    (*server)->start();
    const int port = (*server)->port();
    EXPECT_EQ(Client(port).post("/", std::string(300'000, 'x')).body, "300000");
    EXPECT_GE(held, 300'000u);
    EXPECT_TRUE(eventually([&] { return budget.used() == 0; }));
    // Two unfinished ones: the first holds what has arrived of it, not what it announces.
    Client first(port), second(port);
    const std::string head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\n";
    first.send(head);
    first.send(std::string(250'000, 'x'));
    EXPECT_TRUE(eventually([&] { return budget.used() >= 250'000; }));
    EXPECT_LE(budget.used(), 524'288u);
    second.send(head);
    second.send(std::string(400'000, 'x'));
    EXPECT_EQ(second.receive().status, 503);
    EXPECT_EQ(counters.refused_memory.value(), 1u);
    // A small one still gets in.
    EXPECT_EQ(Client(port).post("/", std::string(60'000, 'x')).body, "60000");
  }
  EXPECT_EQ(budget.used(), 0u);
}

TEST(HttpServer, ABodyThatStallsIsDroppedHoweverFastItBegan) {
  HttpOptions options;
  options.body_grace = 200ms;
  Http http(options);
  Client client(http.port());
  client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000000\r\n\r\n" +
              std::string(10'000'000, 'x'));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(client.receive().status, 408);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
}

TEST(HttpServer, ARequestKnowsWhenItsFirstByteCame) {
  std::atomic<TimeUs> arrived = 0;
  Http http({}, [&](HttpRequest&& request, std::shared_ptr<ResponseWriter> writer) {
    arrived = request.arrived_us;
    writer->send(HttpResponse{200, ""});
  });
  Client client(http.port());
  const TimeUs before = now_us();
  client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n");
  std::this_thread::sleep_for(100ms);
  const TimeUs later = now_us();
  client.send("x");
  EXPECT_EQ(client.receive().status, 200);
  EXPECT_GE(arrived, before);
  EXPECT_LE(arrived, later - 50'000);
}

TEST(HttpServer, RefusesMoreConnectionsThanItsLimit) {
  HttpOptions options;
  options.max_connections = 3;
  Http http(options);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Client>(http.port()));
    EXPECT_EQ(clients.back()->get("/").status, 200);
  }
  Client extra(http.port());
  EXPECT_EQ(extra.receive().status, 503);
  clients.clear();
  ASSERT_TRUE(eventually([&] { return http.server().num_connections() < 3; }));
  EXPECT_EQ(Client(http.port()).get("/").status, 200);
}

TEST(HttpServer, StopLetsAnAnswerFinishAndClosesIdleConnections) {
  Kept kept;
  Http http({}, kept);
  Client idle(http.port());
  Client busy(http.port());
  busy.send("GET /s HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return kept.get() != nullptr; }));
  ASSERT_TRUE(eventually([&] { return http.server().num_connections() == 2; }));
  std::thread stopper([&] { http.server().stop(5s); });
  EXPECT_TRUE(idle.at_end());
  kept.get()->send(HttpResponse{200, "late"});
  EXPECT_EQ(busy.receive().body, "late");
  stopper.join();
  EXPECT_EQ(http.server().num_connections(), 0);
  EXPECT_FALSE(Client(http.port()).connected());
}

// As of a signal to a process that has only just said where it listens.
TEST(HttpServer, AStopMayComeBeforeTheStartOrBesideIt) {
  const auto listen = [] {
    HttpOptions options;
    options.port = 0;
    return HttpServer::listen(options, {Http::echo}).value();
  };
  const auto stopped = listen();
  stopped->stop(0ms);
  stopped->start();
  for (int i = 0; i < 50; ++i) {
    const auto server = listen();
    std::thread stopper([&] { server->stop(0ms); });
    server->start();
    stopper.join();
  }
}

TEST(HttpServer, SaysWhyItCannotListen) {
  Http http;
  HttpOptions options;
  options.port = http.port();
  const auto second = HttpServer::listen(options, {Http::echo});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kIo);
  EXPECT_EQ(second.error().message,
            fmt::format("cannot listen on 127.0.0.1 port {}: Address already in use", http.port()));
  options.host = "not an address";
  const auto third = HttpServer::listen(options, {Http::echo});
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.error().message,
            "host is 'not an address', but it must be an IP address or localhost");
}

}  // namespace http_test
}  // namespace headrace
