#include "server/access.h"

#include <gtest/gtest.h>

namespace headrace {
namespace access_test {

HttpRequest request_with(std::string method, HttpHeaders headers) {
  HttpRequest request;
  request.method = std::move(method);
  request.headers = std::move(headers);
  return request;
}

std::string code_of(const std::optional<Problem>& problem) {
  return problem ? fmt::format("{} {}", problem->status, problem->code) : "ok";
}

std::string header_of(const HttpHeaders& headers, std::string_view name) {
  for (const auto& [each, value] : headers) {
    if (each == name) return value;
  }
  return {};
}

TEST(Access, OnLoopbackAHostIsANameThatNobodyElseCanOwn) {
  struct Case {
    std::string host;
    bool allowed;
  };
  const Case cases[] = {
      {"", true},
      {"localhost:8080", true},
      {"127.0.0.1", true},
      {"[::1]:80", true},
      {"10.1.2.3", true},
      {"my-machine", true},
      {"a.localhost", true},
      {"LOCALHOST", true},
      {"evil.example", false},
      {"localhost.evil.example", false},
      {"127.0.0.1.example", false},
      {"a b", false},
      {"host:port", false},
  };
  const Access access{ServerOptions{}};
  for (const Case& each : cases) {
    const auto problem = access.check_source(request_with("GET", {{"host", each.host}}));
    EXPECT_EQ(code_of(problem), each.allowed ? "ok" : "403 host_not_allowed") << each.host;
  }
  const auto problem = access.check_source(request_with("GET", {{"host", "evil.example"}}));
  EXPECT_EQ(problem->message,
            "this server is not known as 'evil.example'; start it with --allowed-hosts "
            "evil.example to serve that name");
}

TEST(Access, AListOfHostsHoldsOnEveryAddress) {
  ServerOptions options;
  options.host = "0.0.0.0";
  const HttpRequest named = request_with("GET", {{"host", "llm.example"}});
  const HttpRequest other = request_with("GET", {{"host", "evil.example"}});
  EXPECT_EQ(code_of(Access(options).check_source(other)), "ok");  // no list, not loopback
  options.allowed_hosts = {"LLM.example"};
  EXPECT_EQ(code_of(Access(options).check_source(named)), "ok");
  EXPECT_EQ(code_of(Access(options).check_source(other)), "403 host_not_allowed");
  options.allowed_hosts = {"*"};
  EXPECT_EQ(code_of(Access(options).check_source(other)), "ok");
}

TEST(Access, PagesOfOtherOriginsAreRefused) {
  struct Case {
    std::string method;
    HttpHeaders headers;
    bool allowed;
  };
  const Case cases[] = {
      {"POST", {{"host", "localhost:8080"}, {"origin", "http://localhost:8080"}}, true},
      {"POST", {{"host", "localhost"}, {"origin", "http://localhost:80"}}, true},
      {"POST", {{"host", "localhost:443"}, {"origin", "https://localhost"}}, true},
      {"POST", {{"host", "localhost:8080"}, {"origin", "http://localhost:8081"}}, false},
      {"POST", {{"host", "localhost"}, {"origin", "null"}}, false},
      {"GET", {{"host", "localhost"}, {"origin", "http://evil.example"}}, false},
      {"POST", {{"host", "localhost"}, {"origin", "HTTPS://Chat.example"}}, true},
      {"POST", {{"host", "localhost"}, {"sec-fetch-site", "cross-site"}}, false},
      {"POST", {{"host", "localhost"}, {"sec-fetch-site", "same-site"}}, false},
      {"POST", {{"host", "localhost"}, {"sec-fetch-site", "same-origin"}}, true},
      {"POST", {{"host", "localhost"}, {"sec-fetch-site", "none"}}, true},
      {"GET", {{"host", "localhost"}, {"sec-fetch-site", "cross-site"}}, true},
      {"HEAD", {{"host", "localhost"}, {"sec-fetch-site", "cross-site"}}, true},
  };
  ServerOptions options;
  options.cors_origins = {"https://chat.example"};
  const Access access(options);
  for (size_t i = 0; i < std::size(cases); ++i) {
    const Case& each = cases[i];
    EXPECT_EQ(code_of(access.check_source(request_with(each.method, each.headers))),
              each.allowed ? "ok" : "403 origin_not_allowed")
        << i;
  }
}

TEST(Access, AKeyIsGivenInEitherHeader) {
  ServerOptions options;
  options.api_keys = {plain_api_key("one"), plain_api_key("two")};
  const Access access(options);
  struct Case {
    HttpHeaders headers;
    bool good;
  };
  const Case cases[] = {
      {{{"authorization", "Bearer one"}}, true},
      {{{"authorization", "bearer  two "}}, true},
      {{{"x-api-key", "two"}}, true},
      {{{"authorization", "Basic one"}}, false},
      {{{"authorization", "Bearer"}}, false},
      {{{"authorization", "Bearer on"}}, false},
      {{{"authorization", "Bearer One"}}, false},
      {{{"x-api-key", ""}}, false},
      {{}, false},
  };
  for (size_t i = 0; i < std::size(cases); ++i) {
    HttpRequest request = request_with("POST", cases[i].headers);
    const auto problem = access.check_key(request, kInferenceScope);
    EXPECT_EQ(code_of(problem), cases[i].good ? "ok" : "401 invalid_api_key") << i;
    if (problem) {
      EXPECT_EQ(header_of(problem->headers, "WWW-Authenticate"), "Bearer");
    }
  }
  HttpRequest open = request_with("POST", {});
  EXPECT_EQ(code_of(Access(ServerOptions{}).check_key(open, kInferenceScope)), "ok");
}

TEST(Access, EachKeyIsAClientOfItsOwn) {
  ServerOptions options;
  options.api_keys = {plain_api_key("one"), plain_api_key("two")};
  const Access access(options);
  const auto client_of = [](const Access& asked, const std::string& key) {
    HttpRequest request = request_with("POST", {{"x-api-key", key}});
    EXPECT_FALSE(asked.check_key(request, kInferenceScope).has_value());
    return request.client;
  };
  EXPECT_EQ(client_of(access, "one"), client_of(access, "one"));
  EXPECT_NE(client_of(access, "one"), client_of(access, "two"));
  EXPECT_NE(client_of(access, "one"), client_of(Access(options), "one"));  // of this process only
  options.client_secret = "16 bytes of them";
  EXPECT_EQ(client_of(Access(options), "one"), client_of(Access(options), "one"));
  EXPECT_NE(client_of(Access(options), "one"), client_of(Access(options), "two"));
}

TEST(Access, ABodyIsJsonOrWhatCurlSends) {
  struct Case {
    HttpHeaders headers;
    bool taken;
  };
  const std::string form = "application/x-www-form-urlencoded";
  const Case cases[] = {
      {{}, true},
      {{{"content-type", "application/json"}}, true},
      {{{"content-type", "Application/JSON ; charset=utf-8"}}, true},
      {{{"content-type", form}}, true},
      {{{"content-type", form}, {"origin", "http://a"}}, false},
      {{{"content-type", form}, {"sec-fetch-site", "none"}}, false},
      {{{"content-type", "text/plain"}}, false},
      {{{"content-type", "multipart/form-data; boundary=x"}}, false},
  };
  const Access access{ServerOptions{}};
  for (size_t i = 0; i < std::size(cases); ++i) {
    const auto problem = access.check_content(request_with("POST", cases[i].headers));
    EXPECT_EQ(code_of(problem), cases[i].taken ? "ok" : "415 ") << i;
  }
  EXPECT_EQ(access.check_content(request_with("POST", {{"content-type", "text/plain"}}))->message,
            "Content-Type is 'text/plain', but it must be application/json");
}

TEST(Access, CorsHeadersAreForListedOriginsOnly) {
  ServerOptions options;
  const HttpRequest asked = request_with("GET", {{"origin", "https://a.example"}});
  EXPECT_TRUE(Access(options).cors_headers(asked).empty());
  options.cors_origins = {"https://a.example"};
  const HttpHeaders listed = Access(options).cors_headers(asked);
  EXPECT_EQ(header_of(listed, "Access-Control-Allow-Origin"), "https://a.example");
  EXPECT_EQ(header_of(listed, "Access-Control-Expose-Headers"),
            "x-request-id, request-id, retry-after, x-headrace-ignored");
  EXPECT_EQ(header_of(listed, "Vary"), "Origin");
  const HttpHeaders other =
      Access(options).cors_headers(request_with("GET", {{"origin", "https://b.example"}}));
  EXPECT_EQ(other.size(), 1u);
  EXPECT_EQ(header_of(other, "Vary"), "Origin");
  options.cors_origins = {"*"};
  const HttpHeaders any = Access(options).cors_headers(asked);
  EXPECT_EQ(header_of(any, "Access-Control-Allow-Origin"), "*");
  EXPECT_EQ(header_of(any, "Vary"), "");
}

TEST(Access, OriginsThatNoBrowserSendsAreRefused) {
  for (const char* origin :
       {"*", "null", "https://chat.example", "HTTP://localhost:3000", "http://[::1]:8080",
        "app://obsidian.md", "chrome-extension://abcdefgh", "tauri://localhost"}) {
    const Status status = check_origins({origin});
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
  for (const char* origin : {"chat.example", "https://chat.example/", "https://chat.example/page",
                             "https://", "://a", "https:/a", "https://*.example",
                             "http://localhost:*", "http://a:", "http://a b", "localhost:3000"}) {
    const Status status = check_origins({"https://fine.example", origin});
    ASSERT_FALSE(status.ok()) << origin;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(status.error().message,
              fmt::format("--cors-origins holds '{}', but must hold * or origins as browsers send "
                          "them: scheme://host or scheme://host:port, with no path behind it",
                          origin));
  }
}

TEST(Access, APreflightIsToldWhatItMaySend) {
  ServerOptions options;
  options.cors_origins = {"https://a.example"};
  const Access access(options);
  const HttpHeaders headers = access.preflight_headers(
      request_with("OPTIONS", {{"origin", "https://a.example"},
                               {"access-control-request-headers", "x-a, authorization, b\x01"},
                               {"access-control-request-private-network", "true"}}),
      "POST");
  EXPECT_EQ(header_of(headers, "Access-Control-Allow-Methods"), "POST");
  EXPECT_EQ(header_of(headers, "Access-Control-Allow-Headers"), "x-a, authorization");
  EXPECT_EQ(header_of(headers, "Access-Control-Allow-Private-Network"), "true");
  EXPECT_TRUE(access.preflight_headers(request_with("OPTIONS", {}), "POST").empty());
}

TEST(Access, AKeyAsksForItsScopesOnly) {
  ServerOptions options;
  options.api_keys = {{"ann", kInferenceScope, digest_of_key("a")},
                      {"prom", kMetricsScope, digest_of_key("p")},
                      {"ops", kAdminScope, digest_of_key("o")}};
  const Access access(options);
  const auto ask = [&](const std::string& key, KeyScopes scopes) {
    HttpRequest request = request_with("GET", {{"authorization", "Bearer " + key}});
    const auto problem = access.check_key(request, scopes);
    return fmt::format("{} {}", code_of(problem), request.key_name);
  };
  EXPECT_EQ(ask("a", kInferenceScope), "ok ann");
  EXPECT_EQ(ask("a", kInferenceScope | kAdminScope), "ok ann");
  EXPECT_EQ(ask("a", kMetricsScope | kAdminScope), "403 insufficient_scope ann");
  EXPECT_EQ(ask("p", kMetricsScope | kAdminScope), "ok prom");
  EXPECT_EQ(ask("p", kInferenceScope), "403 insufficient_scope prom");
  EXPECT_EQ(ask("o", kAdminScope), "ok ops");
  EXPECT_EQ(ask("o", kInferenceScope), "403 insufficient_scope ops");
  EXPECT_EQ(ask("x", kInferenceScope), "401 invalid_api_key ");
}

TEST(Access, WithoutKeysNobodyAdministers) {
  const Access access{ServerOptions{}};
  HttpRequest request = request_with("POST", {});
  EXPECT_EQ(code_of(access.check_key(request, kAdminScope)), "403 insufficient_scope");
  EXPECT_EQ(code_of(access.check_key(request, kInferenceScope | kAdminScope)), "ok");
}

TEST(Access, NewKeysHoldAtOnceAndOfOneNameAreOneClient) {
  ServerOptions options;
  options.api_keys = {{"ann", kInferenceScope, digest_of_key("old")}, plain_api_key("bob")};
  Access access(options);
  const auto ask = [&](const std::string& key) {
    HttpRequest request = request_with("GET", {{"x-api-key", key}});
    const auto problem = access.check_key(request, kInferenceScope);
    return problem ? uint64_t{0} : request.client;
  };
  const uint64_t ann = ask("old"), bob = ask("bob");
  EXPECT_NE(ann, bob);
  access.set_keys({{"ann", kInferenceScope, digest_of_key("new")}, plain_api_key("bob")});
  EXPECT_EQ(ask("old"), 0u);
  EXPECT_EQ(ask("new"), ann);
  EXPECT_EQ(ask("bob"), bob);
}

TEST(Access, LoopbackIsThisMachine) {
  for (const char* host : {"localhost", "::1", "127.0.0.1", "127.8.9.1"}) {
    EXPECT_TRUE(is_loopback_host(host)) << host;
  }
  for (const char* host : {"0.0.0.0", "10.0.0.1", "127.evil.example", "::"}) {
    EXPECT_FALSE(is_loopback_host(host)) << host;
  }
}

}  // namespace access_test
}  // namespace headrace
