// Every byte of the answers to a wide set of requests, as recordings in tests/http/recordings keep
// them: what clients were written against stays as it is, whatever moves behind it.
//
// A recording is a file of cases:
//   === name of the case | setting setting ...
//   POST /v1/completions
//   Header: value
//
//   body
//   ---
//   HTTP/1.1 200 OK ... (the answer)
// Ids and times in an answer are made equal. HEADRACE_RECORD=1 writes the answers anew: read the
// difference before you keep it.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "server/test_support.h"

namespace headrace {
namespace wire_test {

using test::Client;
using test::eventually;
using test::RunningServer;
using test::Script;

struct Case {
  std::string name;
  std::vector<std::string> settings;  // "fail", "context=64"
  std::string method, path, headers, body;
  std::string answer;
};

std::string next_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string line(text.substr(0, end));
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

Case parse_case(std::string_view text) {
  Case made;
  std::istringstream title(next_line(text));
  std::getline(title, made.name, '|');
  for (std::string setting; title >> setting;) made.settings.push_back(setting);
  std::istringstream request(next_line(text));
  request >> made.method >> made.path;
  for (std::string line = next_line(text); !line.empty(); line = next_line(text)) {
    made.headers += line + "\r\n";
  }
  for (std::string line = next_line(text); line != "---" && !text.empty(); line = next_line(text)) {
    made.body += made.body.empty() ? line : "\n" + line;
  }
  made.answer = text;
  return made;
}

std::vector<Case> read_cases(const std::string& file) {
  std::ifstream in(file);
  std::stringstream content;
  content << in.rdbuf();
  const std::string text = "\n" + content.str();
  std::vector<Case> cases;
  const std::string_view kMark = "\n=== ";
  for (size_t at = text.find(kMark); at != std::string::npos;) {
    const size_t next = text.find(kMark, at + 1);
    const size_t begin = at + kMark.size();
    const size_t end = next == std::string::npos ? text.size() - 1 : next;
    cases.push_back(parse_case(std::string_view(text).substr(begin, end - begin)));
    at = next;
  }
  return cases;
}

std::string text_of(const Case& each) {
  std::string settings;
  for (const std::string& setting : each.settings) settings += " " + setting;
  const std::string headers = std::regex_replace(each.headers, std::regex("\r"), "");
  return fmt::format("=== {}{}\n{} {}\n{}\n{}\n---\n{}\n", each.name,
                     settings.empty() ? "" : "|" + settings, each.method, each.path, headers,
                     each.body, each.answer);
}

// The server that a case asks for; one for all cases that ask for the same.
class Servers {
 public:
  RunningServer& of(const Case& each) {
    std::string key;
    for (const std::string& setting : each.settings) {
      if (!setting.starts_with("choices=")) key += setting + " ";
    }
    auto& server = servers_[key];
    if (server == nullptr) server = make(each.settings);
    return *server;
  }

 private:
  static std::unique_ptr<RunningServer> make(const std::vector<std::string>& settings) {
    Script script;
    ServerOptions options;
    bool with_template = true;
    for (const std::string& setting : settings) {
      const std::string value = setting.substr(std::min(setting.find('=') + 1, setting.size()));
      if (setting == "fail") script.fail = true;
      if (setting == "no-template") with_template = false;
      if (setting == "odd-reply") script.reply = "Gr\u00FC\u00DFe \"\\\t\n\xFF\xE2\x82 \U0001F600.";
      if (setting.starts_with("context=")) script.max_context = std::stoi(value);
      if (setting.starts_with("waiting=")) script.max_waiting = std::stoi(value);
      if (setting.starts_with("key=")) options.api_keys = {plain_api_key(value)};
      if (setting.starts_with("body=")) options.max_body_bytes = std::stoul(value);
      if (setting.starts_with("cors=")) options.cors_origins = {value};
    }
    return std::make_unique<RunningServer>(script, options, with_template,
                                           std::span<const RouteRow>(),
                                           std::vector<std::string>{"alias"});
  }

  std::map<std::string, std::unique_ptr<RunningServer>> servers_;
};

// What differs from run to run becomes the same.
std::string made_equal(std::string text) {
  const std::pair<const char*, const char*> kChanges[] = {
      {"Date: [^\r]*\r\n", ""},
      {"\r\n", "\n"},
      {"x-request-id: [0-9a-f]{32}\n", "x-request-id: FRESH\n"},
      {"\"(chatcmpl|cmpl)-[0-9a-f]{24}\"", "\"$1-ID\""},
      {"\"created\":[0-9]+", "\"created\":0"},
      {"\"msg_[0-9a-f]{24}\"", "\"msg_ID\""},
      {"\"(created_at|modified_at|expires_at)\":\"[^\"]*\"", "\"$1\":\"\""},
      {"\"([a-z_]+_duration)\":[0-9]+", "\"$1\":0"},
      {"\"timings\":\\{[^}]*\\}", "\"timings\":{}"},
  };
  for (const auto& [pattern, with] : kChanges) {
    text = std::regex_replace(text, std::regex(pattern), with);
  }
  // Where times are written, they make the length.
  const bool has_times = text.find("_duration\"") != std::string::npos ||
                         text.find("\"timings\"") != std::string::npos;
  if (has_times) text = std::regex_replace(text, std::regex("Content-Length: [0-9]+\n"), "");
  return text;
}

// The choices of a request start together, so that their order on the wire is always the same.
std::string answer_to(const Case& each, RunningServer& server) {
  uint64_t num_choices = 0;
  for (const std::string& setting : each.settings) {
    if (setting.starts_with("choices=")) num_choices = std::stoul(setting.substr(8));
  }
  auto& engine = server.engine();
  const uint64_t expected = engine.num_submitted() + num_choices;
  engine.hold(num_choices > 0);
  Client client(server.port());
  client.send(fmt::format("{} {} HTTP/1.1\r\nHost: test\r\nx-request-id: wire\r\n{}", each.method,
                          each.path, each.headers));
  client.send(each.body.empty()
                  ? "\r\n"
                  : fmt::format("Content-Length: {}\r\n\r\n{}", each.body.size(), each.body));
  EXPECT_TRUE(eventually([&] { return engine.num_submitted() >= expected; })) << each.name;
  engine.hold(false);
  const auto response = client.receive(each.method == "HEAD");
  EXPECT_TRUE(response.complete) << each.name;
  return made_equal(response.head + response.body);
}

class WireTest : public ::testing::TestWithParam<const char*> {};

TEST_P(WireTest, AnswersAreAsRecorded) {
  const std::string file =
      fmt::format("{}/tests/http/recordings/{}", HEADRACE_SOURCE_DIR, GetParam());
  std::vector<Case> cases = read_cases(file);
  ASSERT_FALSE(cases.empty()) << file;
  Servers servers;
  std::string all;
  for (Case& each : cases) {
    const std::string answer = answer_to(each, servers.of(each));
    if (std::getenv("HEADRACE_RECORD") == nullptr) {
      EXPECT_EQ(answer, each.answer) << each.name;
    }
    each.answer = answer;
    all += text_of(each);
  }
  if (std::getenv("HEADRACE_RECORD") != nullptr) std::ofstream(file) << all;
}

INSTANTIATE_TEST_SUITE_P(Dialects, WireTest,
                         ::testing::Values("openai_chat.txt", "openai_completions.txt",
                                           "openai_errors.txt", "other_routes.txt", "anthropic.txt",
                                           "ollama.txt", "llamacpp.txt"),
                         [](const auto& row) {
                           std::string name(row.param);
                           name.resize(name.find('.'));
                           return name;
                         });

}  // namespace wire_test
}  // namespace headrace
