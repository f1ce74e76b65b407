#include "lab/artifact_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/testing/temp_folder.h"

namespace headrace::lab::artifact_files_test {

using headrace::testing::TempFolder;

class LabArtifacts : public ::testing::Test {
 protected:
  LabArtifacts() {
    folder_.write("secret.txt", "secret");
    folder_.write("artifacts/2/other.txt", "of another run");
    folder_.write("artifacts/1/stderr.txt", "hello");
    folder_.write("artifacts/1/plots/a.svg", "<svg/>");
    const std::filesystem::path run = folder_.file("artifacts/1");
    std::filesystem::create_symlink(folder_.file("secret.txt"), run / "link.txt");
    std::filesystem::create_directory_symlink(folder_.path(), run / "up");
    EXPECT_EQ(mkfifo((run / "pipe").c_str(), 0600), 0);
  }
  TempFolder folder_;
};

TEST_F(LabArtifacts, PlainFilesOfTheRunAreListedAndRead) {
  const auto found = list_artifacts(folder_.path(), 1);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, "plots/a.svg");
  EXPECT_EQ(found[1].name, "stderr.txt");
  EXPECT_EQ(found[1].num_bytes, 5);
  EXPECT_EQ(read_artifact(folder_.path(), 1, "stderr.txt").value(), "hello");
  EXPECT_EQ(read_artifact(folder_.path(), 1, "plots/a.svg").value(), "<svg/>");
  EXPECT_TRUE(list_artifacts(folder_.path(), 99).empty());
}

TEST_F(LabArtifacts, NothingElseIsReached) {
  constexpr std::string_view kOutside[] = {"../2/other.txt",
                                           "plots/../../2/other.txt",
                                           "..",
                                           ".",
                                           "",
                                           "/etc/passwd",
                                           "plots//a.svg",
                                           "./stderr.txt",
                                           "plots/",
                                           {"stderr.txt\0x", 12}};
  for (const std::string_view name : kOutside) {
    EXPECT_EQ(read_artifact(folder_.path(), 1, name).error().code, ErrorCode::kInvalidArgument)
        << name;
  }
  for (const std::string_view name :
       {"link.txt", "up/secret.txt", "pipe", "plots", "no.txt", "stderr.txt/x"}) {
    EXPECT_EQ(read_artifact(folder_.path(), 1, name).error().code, ErrorCode::kNotFound) << name;
  }
  EXPECT_FALSE(read_artifact(folder_.path(), 7, "stderr.txt").ok());
}

TEST_F(LabArtifacts, ALargeOneIsRefused) {
  std::filesystem::resize_file(folder_.file("artifacts/1/stderr.txt"), kMaxArtifactBytes + 1);
  EXPECT_NE(read_artifact(folder_.path(), 1, "stderr.txt").error().message.find("at most 32 MiB"),
            std::string::npos);
}

TEST(LabArtifactType, NothingThatABrowserRuns) {
  EXPECT_EQ(artifact_type("a.json"), "application/json");
  EXPECT_EQ(artifact_type("stderr.txt"), "text/plain; charset=utf-8");
  EXPECT_EQ(artifact_type("page.html"), "application/octet-stream");
  EXPECT_EQ(artifact_type("a.svg"), "application/octet-stream");
}

}  // namespace headrace::lab::artifact_files_test
