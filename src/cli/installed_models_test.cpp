// headrace list and headrace rm: what they print, and what they leave.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <utime.h>

#include <boost/json.hpp>

#include <sstream>

#include "base/testing/temp_folder.h"
#include "cli/command.h"

namespace headrace {
namespace installed_models_test {

using testing::TempFolder;

struct Printed {
  int status;
  std::string out, err;
};

// A store with a repository and a file of a URL.
class ListAndRemoveTest : public ::testing::Test {
 protected:
  ListAndRemoveTest() {
    store_.write("hf/org--repo@main/config.json", "{}");
    store_.write("hf/org--repo@main/model.safetensors", std::string(2046, 'x'));
    url_ = store_.write("url/0123456789abcdef/model.gguf", "0123456789");
    const utimbuf noon{0, 1'000'000'000};  // 2001-09-09, about two o'clock UTC
    utime(url_.c_str(), &noon);
  }

  Printed print(std::string_view command, OptionTexts given = {},
                std::vector<std::string> words = {}) {
    if (!given.contains("--store")) given["--store"] = store_.path();
    const Options options = Options::create(command, given, std::move(words)).value();
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const auto status = command == "list" ? run_list(options) : run_rm(options);
    std::string out = ::testing::internal::GetCapturedStdout();
    std::string err = ::testing::internal::GetCapturedStderr();
    EXPECT_TRUE(status.ok());
    return {status.ok() ? *status : -1, std::move(out), std::move(err)};
  }
  bool has(std::string_view name) const { return std::filesystem::exists(store_.file(name)); }

  const TempFolder store_;
  std::string url_;
};

TEST_F(ListAndRemoveTest, ColumnsAreAsWideAsTheLongestName) {
  const Printed printed = print("list");
  EXPECT_EQ(printed.status, 0);
  std::istringstream in(printed.out);
  std::string header, repository, url;
  std::getline(in, header);
  std::getline(in, repository);
  std::getline(in, url);
  EXPECT_TRUE(repository.starts_with("hf:org/repo ")) << printed.out;
  EXPECT_TRUE(repository.ends_with("  " + store_.file("hf/org--repo@main"))) << printed.out;
  EXPECT_NE(repository.find("2 KiB"), std::string::npos) << printed.out;
  EXPECT_TRUE(url.starts_with("url/0123456789abcdef/model.gguf  ")) << printed.out;
  EXPECT_NE(url.find("  2001-09-0"), std::string::npos) << printed.out;
  EXPECT_EQ(header.find("path"), url.find(url_)) << printed.out;
  EXPECT_EQ(header.find("path"), repository.find(store_.path())) << printed.out;
  EXPECT_EQ(in.peek(), std::istringstream::traits_type::eof());
}

// Scripts and the completion of shells read the name first.
TEST_F(ListAndRemoveTest, AsJsonEachModelIsALineThatBeginsWithItsName) {
  const Printed printed = print("list", {{"--json", "true"}});
  std::istringstream in(printed.out);
  std::vector<boost::json::object> rows;
  for (std::string line; std::getline(in, line);) {
    EXPECT_TRUE(line.starts_with("{\"name\":\"")) << line;
    rows.push_back(boost::json::parse(line).as_object());
  }
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("name"), "hf:org/repo");
  EXPECT_EQ(rows[0].at("bytes").to_number<int>(), 2048);
  EXPECT_EQ(rows[1].at("name"), "url/0123456789abcdef/model.gguf");
  EXPECT_EQ(rows[1].at("path").as_string(), url_);
  EXPECT_EQ(rows[1].at("modified").to_number<int64_t>(), 1'000'000'000);
}

TEST_F(ListAndRemoveTest, AnEmptyStoreSaysWhatToDoButNotToPrograms) {
  const Printed printed = print("list", {{"--store", store_.file("none")}});
  EXPECT_EQ(printed.status, 0);
  EXPECT_EQ(printed.out, "");
  EXPECT_EQ(printed.err, "no model has been pulled yet; headrace pull --help names some\n");
  const Printed quiet = print("list", {{"--store", store_.file("none")}, {"--json", "true"}});
  EXPECT_EQ(quiet.out + quiet.err, "");
}

TEST_F(ListAndRemoveTest, NamesOfFilesCannotPaintTheScreen) {
  store_.write("url/fedcba9876543210/a\x1b[31mred.gguf", "x");
  const Printed printed = print("list");
  EXPECT_EQ(printed.out.find('\x1b'), std::string::npos);
  EXPECT_EQ(std::count(printed.out.begin(), printed.out.end(), '\n'), 4) << printed.out;
}

TEST_F(ListAndRemoveTest, WhatCanBeRemovedIsAlsoBesideWhatCannot) {
  const Printed printed = print(
      "rm", {}, {"hf:org/none", "hf:org/repo", "../outside", "url/0123456789abcdef/model.gguf"});
  EXPECT_EQ(printed.status, 1);
  EXPECT_FALSE(has("hf/org--repo@main"));
  EXPECT_FALSE(has("url/0123456789abcdef/model.gguf"));
  EXPECT_NE(printed.err.find("headrace: 'hf:org/none' is not in the model folder"),
            std::string::npos)
      << printed.err;
  EXPECT_NE(printed.err.find("removed hf:org/repo, 2 KiB\n"), std::string::npos) << printed.err;
  EXPECT_EQ(printed.out, "");
}

TEST_F(ListAndRemoveTest, QuietlyOnlyErrorsAreTold) {
  EXPECT_EQ(print("rm", {{"--quiet", "true"}}, {"hf:org/repo"}).err, "");
  const Printed again = print("rm", {{"--quiet", "true"}}, {"hf:org/repo"});
  EXPECT_EQ(again.status, 1);
  EXPECT_TRUE(again.err.starts_with("headrace: ")) << again.err;
  EXPECT_TRUE(has("url/0123456789abcdef/model.gguf"));
}

}  // namespace installed_models_test
}  // namespace headrace
