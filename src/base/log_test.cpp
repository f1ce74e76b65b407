// Log lines on standard error: their form, their levels, and what is lost when nobody reads.
#include "base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <regex>
#include <string>

#include "base/json.h"

namespace headrace {
namespace log_test {

// What `body` writes to standard error.
template <typename Body>
std::string captured(const Body& body) {
  ::testing::internal::CaptureStderr();
  body();
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, LevelsHaveNames) {
  struct Case {
    std::string_view name;
    LogLevel level;
  };
  constexpr Case kCases[] = {{"debug", LogLevel::kDebug},
                             {"info", LogLevel::kInfo},
                             {"warning", LogLevel::kWarning},
                             {"error", LogLevel::kError},
                             {"off", LogLevel::kOff}};
  for (const Case& c : kCases) {
    LogLevel level = LogLevel::kDebug;
    EXPECT_TRUE(parse_log_level(c.name, &level)) << c.name;
    EXPECT_EQ(level, c.level) << c.name;
  }
  LogLevel untouched = LogLevel::kError;
  for (const std::string_view name : {"", "Info", "warn", "info ", "5"}) {
    EXPECT_FALSE(parse_log_level(name, &untouched)) << name;
  }
  EXPECT_EQ(untouched, LogLevel::kError);
}

TEST(Log, ALineHasItsTimeItsLevelAndItsMessage) {
  const std::string text = captured([] { LOG(kWarning, "{} of {}", 2, 3); });
  EXPECT_TRUE(std::regex_match(
      text, std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} warning 2 of 3\n)")))
      << text;
}

TEST(Log, ControlCharactersStayInTheirLine) {
  const std::string text = captured([] { log_line(LogLevel::kError, "a\nb\x1b[31m\x7f\t\"\\"); });
  EXPECT_NE(text.find(R"(a\x0ab\x1b[31m\x7f\x09"\)"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST(Log, BracesOfAMessageAreNoFormat) {
  EXPECT_NE(captured([] { log_line(LogLevel::kInfo, "{} {0} {x"); }).find("{} {0} {x"),
            std::string::npos);
}

TEST(Log, LinesBelowTheLevelAreNotEvenFormatted) {
  int num_formatted = 0;
  const auto count = [&] { return ++num_formatted; };
  const std::string text = captured([&] {
    set_log_level(LogLevel::kWarning);
    LOG(kInfo, "quiet {}", count());
    LOG(kWarning, "heard {}", count());
    set_log_level(LogLevel::kOff);
    LOG(kError, "off {}", count());
    set_log_level(LogLevel::kInfo);
    LOG(kInfo, "again {}", count());
    LOG(kDebug, "deep {}", count());
  });
  EXPECT_EQ(num_formatted, 2);
  EXPECT_EQ(text.find("quiet"), std::string::npos) << text;
  EXPECT_NE(text.find("heard 1"), std::string::npos) << text;
  EXPECT_EQ(text.find("off"), std::string::npos) << text;
  EXPECT_NE(text.find("again 2"), std::string::npos) << text;
}

// Checks what `body` logs as JSON, and ends. For a child: JSON is for the life of a process.
template <typename Body>
[[noreturn]] void expect_in_json(const Body& body, const std::string& level,
                                 const std::string& message) {
  int ends[2];
  if (::pipe(ends) != 0) std::_Exit(2);
  ::dup2(ends[1], STDERR_FILENO);
  set_log_format(LogFormat::kJson);
  body();
  std::string text(1 << 16, 0);
  const ssize_t count = ::read(ends[0], text.data(), text.size());
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  const auto line = parse_json(text, "the line");
  const bool right = log_format() == LogFormat::kJson && text.ends_with("}\n") && line.ok() &&
                     line->at("level").as_string() == level &&
                     line->at("message").as_string() == message &&
                     line->at("time").as_string().size() == 23;
  std::_Exit(right ? 0 : 1);
}

TEST(LogDeathTest, JsonLinesAreObjectsWhateverTheMessageHolds) {
  const std::string message = "say \"hi\"\\\n\x01 {}";
  EXPECT_EXIT(expect_in_json([&] { log_line(LogLevel::kInfo, message); }, "info", message),
              ::testing::ExitedWithCode(0), "");
}

TEST(LogDeathTest, JsonLinesMayHaveMembersInPlaceOfAMessage) {
  EXPECT_EXIT(expect_in_json([] { log_members(LogLevel::kError, R"("message":"m","status":500)"); },
                             "error", "m"),
              ::testing::ExitedWithCode(0), "");
}

// Standard error becomes a pipe that is full; a line that finds no room is counted, and the next
// that finds some tells.
TEST(LogDeathTest, ALogThatNobodyReadsLosesLinesAndSaysHowMany) {
  const auto fill_and_drain = [] {
    int ends[2];
    if (::pipe2(ends, O_NONBLOCK) != 0) std::_Exit(2);
    ::dup2(ends[1], STDERR_FILENO);
    const std::string page(4096, 'x');
    while (::write(ends[1], page.data(), page.size()) > 0) {
    }
    for (int i = 0; i < 3; ++i) LOG(kInfo, "lost {}", i);
    std::string text(1 << 20, 0);
    while (::read(ends[0], text.data(), text.size()) > 0) {
    }
    LOG(kInfo, "kept");
    const ssize_t count = ::read(ends[0], text.data(), text.size());
    text.resize(count > 0 ? static_cast<size_t>(count) : 0);
    const bool told = text.find("3 log lines were lost: nobody read them\n") != std::string::npos;
    const bool kept = text.find("kept\n") != std::string::npos;
    std::_Exit(told && kept && text.find("lost 0") == std::string::npos ? 0 : 1);
  };
  EXPECT_EXIT(fill_and_drain(), ::testing::ExitedWithCode(0), "");
}

}  // namespace log_test
}  // namespace headrace
