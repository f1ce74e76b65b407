// Who may ask a server: keys, files of TLS, and the addresses beyond this machine.
#include "cli/serve_operation.h"

#include <gtest/gtest.h>

#include "base/testing/temp_folder.h"
#include "cli/command.h"

namespace headrace {
namespace serve_operation_test {

using testing::TempFolder;

Options of_serve(const OptionTexts& given) { return Options::create("serve", given, {}).value(); }

std::string warning_of(const ServerOptions& serve) {
  ::testing::internal::CaptureStderr();
  warn_if_open(serve, 8080);
  return ::testing::internal::GetCapturedStderr();
}

TEST(ReadApiKeys, OfTheOptionAndTheFileTogether) {
  const TempFolder folder;
  const std::string line =
      "ann admin sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  const std::string file = folder.write("keys", "# of the house\n" + line + "\r\n\nplain");
  EXPECT_TRUE(read_api_keys(of_serve({}))->empty());
  EXPECT_EQ(read_api_keys(of_serve({{"--api-key", "one\ntwo"}}))->size(), 2u);
  const auto both = read_api_keys(of_serve({{"--api-key", "typed"}, {"--api-key-file", file}}));
  ASSERT_TRUE(both.ok()) << both.error().message;
  ASSERT_EQ(both->size(), 3u);
  EXPECT_TRUE(same_digest((*both)[0].digest, digest_of_key("typed")));
  EXPECT_EQ((*both)[1].name, "ann");
  EXPECT_TRUE(same_digest((*both)[1].digest, digest_of_key("abc")));
  EXPECT_TRUE(same_digest((*both)[2].digest, digest_of_key("plain")));
}

// A server that began without the keys it was to ask for would be open.
TEST(ReadApiKeys, AFaultAnywhereGivesNoKeysAtAll) {
  const TempFolder folder;
  struct Case {
    std::string option, file, error;
  };
  const Case cases[] = {
      {"good", folder.file("none"), "cannot read the API keys in '" + folder.file("none") + "'"},
      {"good", folder.path(), "cannot read the API keys in '" + folder.path() + "'"},
      {"good", folder.write("empty", ""), folder.file("empty") + " holds no API key"},
      {"good", folder.write("bad", "k\nmy secret words"), folder.file("bad") + " holds in line 2"},
      {"two words", folder.write("fine", "k"), "--api-key holds in line 1 what is no API key"},
      {"# hidden", folder.file("fine"), "--api-key holds no API key"},
  };
  for (const Case& c : cases) {
    const auto keys =
        read_api_keys(of_serve({{"--api-key", c.option}, {"--api-key-file", c.file}}));
    ASSERT_FALSE(keys.ok()) << c.error;
    EXPECT_TRUE(keys.error().message.starts_with(c.error)) << keys.error().message;
    EXPECT_EQ(keys.error().message.find("secret"), std::string::npos);
  }
}

TEST(FilesOfTls, AreGivenTogetherOrNotAtAll) {
  EXPECT_FALSE(tls_files(of_serve({}))->given());
  const auto both = tls_files(of_serve({{"--tls-cert", "c.pem"}, {"--tls-key", "k.pem"}}));
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->certificate, "c.pem");
  EXPECT_EQ(both->key, "k.pem");
  EXPECT_EQ(tls_files(of_serve({{"--tls-cert", "c.pem"}})).error().message,
            "--tls-cert is given, but it needs --tls-key beside it");
  EXPECT_EQ(tls_files(of_serve({{"--tls-key", "k.pem"}})).error().message,
            "--tls-key is given, but it needs --tls-cert beside it");
}

TEST(Exposure, BeyondThisMachineAServerNeedsKeysOrAPlainWord) {
  for (const char* host :
       {"127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "192.168.1.5", "box"}) {
    const bool is_local =
        std::string_view("127.0.0.1 ::1 localhost").find(host) != std::string_view::npos &&
        std::string_view(host) != "::";
    ServerOptions serve;
    serve.host = host;
    const Status open = check_exposure(serve, of_serve({}));
    EXPECT_EQ(open.ok(), is_local) << host;
    if (!open.ok()) {
      EXPECT_EQ(open.error().code, ErrorCode::kInvalidArgument);
      EXPECT_EQ(open.error().message,
                fmt::format("--host is {}, which others reach, and there are no API keys", host));
      EXPECT_NE(open.error().hint.find("--insecure-no-keys"), std::string::npos);
    }
    EXPECT_TRUE(check_exposure(serve, of_serve({{"--insecure-no-keys", "true"}})).ok()) << host;
    serve.api_keys = {plain_api_key("k")};
    EXPECT_TRUE(check_exposure(serve, of_serve({})).ok()) << host;
  }
}

TEST(Exposure, AWarningSaysWhatIsOpen) {
  ServerOptions serve;
  EXPECT_EQ(warning_of(serve), "");  // of this machine alone
  serve.host = "0.0.0.0";
  EXPECT_NE(warning_of(serve).find("anyone who reaches 0.0.0.0 port 8080 may use this server"),
            std::string::npos);
  serve.api_keys = {plain_api_key("k")};
  EXPECT_NE(warning_of(serve).find("cross the network in the clear: there is no --tls-cert"),
            std::string::npos);
  serve.tls = {"c.pem", "k.pem"};
  EXPECT_EQ(warning_of(serve), "");
}

TEST(OpenTelemetry, TellsOnlyWhoWasNamed) {
  const auto none = open_telemetry(of_serve({}));
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->kv_events, nullptr);
  EXPECT_EQ(none->traces, nullptr);
  const std::string endpoint = fmt::format("ipc://@headrace-telemetry-{}", ::getpid());
  const auto both = open_telemetry(of_serve({{"--kv-events", endpoint},
                                             {"--kv-events-form", "arrays"},
                                             {"--otlp-endpoint", "http://127.0.0.1:1"}}));
  ASSERT_TRUE(both.ok()) << both.error().message;
  EXPECT_NE(both->kv_events, nullptr);
  EXPECT_NE(both->traces, nullptr);
  // What cannot be told ends the start of the server.
  EXPECT_FALSE(open_telemetry(of_serve({{"--kv-events", "nonsense"}})).ok());
  EXPECT_FALSE(open_telemetry(of_serve({{"--kv-events", endpoint}})).ok());  // it is taken
  EXPECT_EQ(open_telemetry(of_serve({{"--otlp-endpoint", "box:4318"}})).error().code,
            ErrorCode::kInvalidArgument);
}

// Its standard output may go straight into the file of keys.
TEST(KeyCommand, PrintsALineForTheFileAndTheKeyBesideIt) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const auto status =
      run_key(Options::create("key", {{"--scopes", "metrics,admin"}}, {"ops@box"}).value());
  const std::string line = ::testing::internal::GetCapturedStdout();
  const std::string told = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(status.ok()) << status.error().message;
  EXPECT_EQ(*status, 0);
  ASSERT_TRUE(told.starts_with("key: hr-") && told.ends_with("\n")) << told;
  const std::string key = told.substr(5, told.size() - 6);
  EXPECT_EQ(line.find(key), std::string::npos);
  const TempFolder folder;
  const auto keys = read_api_keys(of_serve({{"--api-key-file", folder.write("keys", line)}}));
  ASSERT_TRUE(keys.ok()) << keys.error().message;
  ASSERT_EQ(keys->size(), 1u);
  EXPECT_EQ(keys->front().name, "ops@box");
  EXPECT_EQ(keys->front().scopes, kAdminScope | kMetricsScope);
  EXPECT_TRUE(same_digest(keys->front().digest, digest_of_key(key)));
}

TEST(KeyCommand, RefusesBeforeAKeyIsMade) {
  ::testing::internal::CaptureStdout();
  const auto scopes = run_key(Options::create("key", {{"--scopes", "root"}}, {"ann"}).value());
  const auto name = run_key(Options::create("key", {}, {"ann smith"}).value());
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  ASSERT_FALSE(scopes.ok());
  EXPECT_TRUE(scopes.error().message.starts_with("the scopes are 'root', but"));
  ASSERT_FALSE(name.ok());
  EXPECT_TRUE(name.error().message.starts_with("the name is 'ann smith', but"));
}

}  // namespace serve_operation_test
}  // namespace headrace
