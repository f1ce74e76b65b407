// headrace doctor: what it finds where something is wrong.
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include <map>
#include <sstream>

#include "base/testing/temp_folder.h"
#include "cli/command.h"
#include "cli/testing/scripted_server.h"

namespace headrace {
namespace doctor_test {

using testing::ScriptedServer;
using testing::TempFolder;

struct Examined {
  int status = -1;
  std::vector<std::string> subjects;
  std::map<std::string, boost::json::object> findings;
};

Examined examine(OptionTexts given) {
  given["--json"] = "true";
  const Options options = Options::create("doctor", given, {}).value();
  ::testing::internal::CaptureStdout();
  const auto status = run_doctor(options);
  std::istringstream in(::testing::internal::GetCapturedStdout());
  Examined examined;
  if (status.ok()) examined.status = *status;
  for (std::string line; std::getline(in, line);) {
    boost::json::object row = boost::json::parse(line).as_object();
    examined.subjects.emplace_back(row.at("subject").as_string());
    examined.findings[examined.subjects.back()] = std::move(row);
  }
  return examined;
}

TEST(Doctor, EveryFindingHasAVerdictAndWhatWasFound) {
  const TempFolder store;
  store.write("url/0123456789abcdef/model.gguf", "x");
  const Examined examined = examine({{"--store", store.path()}, {"--port", "0"}});
  EXPECT_EQ(examined.status, 0);
  EXPECT_EQ(examined.subjects,
            (std::vector<std::string>{"processor", "kernels", "cores", "memory", "large pages",
                                      "open files", "model folder", "port"}));
  for (const auto& [subject, finding] : examined.findings) {
    const std::string verdict(finding.at("verdict").as_string());
    EXPECT_TRUE(verdict == "good" || verdict == "limits") << subject << verdict;
    EXPECT_FALSE(finding.at("found").as_string().empty()) << subject;
    // What limits comes with what can be done.
    EXPECT_FALSE(verdict == "limits" && finding.at("advice").as_string().empty()) << subject;
  }
  const std::string folder(examined.findings.at("model folder").at("found").as_string());
  EXPECT_TRUE(folder.starts_with(store.path() + ": 1 model, ")) << folder;
  EXPECT_TRUE(folder.ends_with(" free")) << folder;
}

TEST(Doctor, AnEmptyStoreIsGoodAndSaysHowToFillIt) {
  const TempFolder parent;
  if (std::filesystem::space(parent.path()).available < uintmax_t{4} << 30) {
    GTEST_SKIP() << "the disk is nearly full here, which limits";
  }
  const Examined examined = examine({{"--store", parent.file("a/b/none-yet")}, {"--port", "0"}});
  EXPECT_EQ(examined.status, 0);
  const auto& finding = examined.findings.at("model folder");
  EXPECT_EQ(finding.at("verdict"), "good");
  EXPECT_EQ(finding.at("advice"), "headrace pull smollm2:135m gets a small model");
  EXPECT_NE(std::string(finding.at("found").as_string()).find(": 0 models, "), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(parent.file("a")));  // it looks and makes nothing
}

TEST(Doctor, AStoreThatCannotBeWrittenIsMissing) {
  const TempFolder parent;
  const std::string file = parent.write("file", "no folder");
  for (const std::string& store : {file + "/store", file}) {
    const Examined examined = examine({{"--store", store}, {"--port", "0"}});
    EXPECT_EQ(examined.status, 1) << store;
    const auto& finding = examined.findings.at("model folder");
    EXPECT_EQ(finding.at("verdict"), "missing") << store;
    const std::string advice(finding.at("advice").as_string());
    EXPECT_TRUE(advice.ends_with("name another with --store or HEADRACE_HOME")) << advice;
  }
}

// A file system that has no room, for whoever may write there at all.
TEST(Doctor, AFullDiskIsNotGood) {
  const Examined examined = examine({{"--store", "/proc/headrace-store"}, {"--port", "0"}});
  const auto& finding = examined.findings.at("model folder");
  EXPECT_NE(finding.at("verdict"), "good") << finding;
  EXPECT_NE(std::string(finding.at("advice").as_string()).find("name another with --store"),
            std::string::npos)
      << finding;
}

TEST(Doctor, APortInUseLimitsAndDoesNotFail) {
  const TempFolder store;
  const ScriptedServer other("");
  const std::string port = std::to_string(other.port());
  const Examined examined = examine({{"--store", store.path()}, {"--port", port}});
  EXPECT_EQ(examined.status, 0);
  const auto& finding = examined.findings.at("port");
  EXPECT_EQ(finding.at("verdict"), "limits");
  EXPECT_EQ(finding.at("found").as_string(), port + " is in use");
  EXPECT_TRUE(other.seen().empty());  // it asks the system, not the other server
}

TEST(Doctor, ForPeopleEachVerdictBeginsALine) {
  const TempFolder store;
  const Options options =
      Options::create("doctor", {{"--store", store.path()}, {"--port", "0"}}, {}).value();
  ::testing::internal::CaptureStdout();
  ASSERT_TRUE(run_doctor(options).ok());
  const std::string text = ::testing::internal::GetCapturedStdout();
  for (const char* subject : {"processor", "kernels", "cores", "memory", "large pages",
                              "open files", "model folder", "port"}) {
    const bool stands = text.find(fmt::format("  good     {} ", subject)) != std::string::npos ||
                        text.find(fmt::format("  limits   {} ", subject)) != std::string::npos;
    EXPECT_TRUE(stands) << subject << " in\n" << text;
  }
}

}  // namespace doctor_test
}  // namespace headrace
