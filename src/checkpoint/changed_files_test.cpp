// Files that change between being opened and being believed.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/buffer.h"
#include "base/testing/temp_folder.h"
#include "checkpoint/checkpoint.h"

namespace headrace {
namespace changed_files_test {

namespace fs = std::filesystem;

constexpr std::string_view kHeader = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

class ChangedFilesTest : public ::testing::Test {
 protected:
  void SetUp() override { write_model(folder_); }

  static void write_model(const fs::path& folder) {
    fs::create_directories(folder);
    std::string bytes(8, 0);
    bytes[0] = static_cast<char>(kHeader.size());
    bytes += kHeader;
    bytes += "12345678";
    std::ofstream(folder / "model.safetensors", std::ios::binary) << bytes;
    std::ofstream(folder / "config.json") << "{}";
  }

  const testing::TempFolder own_;
  const fs::path folder_ = own_.path();
};

TEST_F(ChangedFilesTest, UntouchedFilesPass) {
  const auto checkpoint = Checkpoint::open(folder_).value();
  EXPECT_TRUE(checkpoint->sidecar("config.json").has_value());
  EXPECT_FALSE(checkpoint->sidecar("tokenizer.json").has_value());
  EXPECT_TRUE(checkpoint->check_unchanged().ok());
}

TEST_F(ChangedFilesTest, EveryKindOfChangeIsSeenAndNamed) {
  const auto in_place = [](const fs::path& path, std::string_view text) {
    std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(-2, std::ios::end)
        << text;
  };
  struct Case {
    std::string name;
    std::function<void(const fs::path& folder)> change;
  };
  const Case cases[] = {
      {"model.safetensors", [&](const fs::path& at) { in_place(at / "model.safetensors", "xy"); }},
      {"model.safetensors",  // with its old times
       [&](const fs::path& at) {
         const auto time = fs::last_write_time(at / "model.safetensors");
         in_place(at / "model.safetensors", "zz");
         fs::last_write_time(at / "model.safetensors", time);
       }},
      {"model.safetensors",
       [](const fs::path& at) { fs::resize_file(at / "model.safetensors", 9); }},
      {"model.safetensors",
       [](const fs::path& at) {
         fs::copy_file(at / "model.safetensors", at / "copy");
         fs::rename(at / "copy", at / "model.safetensors");
       }},
      {"model.safetensors", [](const fs::path& at) { fs::remove(at / "model.safetensors"); }},
      {"config.json", [](const fs::path& at) { std::ofstream(at / "config.json") << "[]"; }},
      {"tokenizer.json", [](const fs::path& at) { std::ofstream(at / "tokenizer.json") << "{}"; }},
      {"tokenizer.json", [](const fs::path& at) { fs::create_directory(at / "tokenizer.json"); }},
  };
  int num_cases = 0;
  for (const Case& row : cases) {
    SCOPED_TRACE(num_cases);
    fs::remove_all(folder_);
    write_model(folder_);
    const auto checkpoint = Checkpoint::open(folder_).value();
    checkpoint->sidecar("config.json");
    checkpoint->sidecar("tokenizer.json");  // absent
    row.change(folder_);
    const Status status = checkpoint->check_unchanged();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kIo);
    EXPECT_NE(status.error().message.find(row.name), std::string::npos) << status.error().message;
    ++num_cases;
  }
  EXPECT_EQ(num_cases, 8);
}

// The path stands for another folder than the one that was opened.
TEST_F(ChangedFilesTest, ASwappedLinkIsSeen) {
  const fs::path other = folder_ / "other", link = folder_ / "link";
  write_model(other);
  fs::create_directory_symlink(".", link);
  const auto checkpoint = Checkpoint::open(link).value();
  EXPECT_TRUE(checkpoint->check_unchanged().ok());
  fs::remove(link);
  fs::create_directory_symlink("other", link);
  EXPECT_FALSE(checkpoint->check_unchanged().ok());
}

// A second write within a tick of the clock would not show: a stamp is taken after the tick.
TEST_F(ChangedFilesTest, AWriteRightAfterTheStampShows) {
  const fs::path path = folder_ / "file";
  int num_seen = 0;
  for (int i = 0; i < 20; ++i) {
    std::ofstream(path) << "before";
    const auto file = MappedFile::open(path).value();
    std::ofstream(path) << "behind";
    num_seen += FileStamp::of(path).value() == file.stamp() ? 0 : 1;
  }
  EXPECT_EQ(num_seen, 20);
}

struct Ended {
  int status = -1;
  std::string errors;
};

// What a child process says on standard error, and how it ends.
Ended in_child(const std::function<void()>& work) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    work();
    _exit(0);
  }
  close(ends[1]);
  Ended ended;
  char buffer[512];
  for (ssize_t count = 0; (count = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    ended.errors.append(buffer, static_cast<size_t>(count));
  }
  close(ends[0]);
  waitpid(child, &ended.status, 0);
  return ended;
}

uint8_t read_byte(const MappedFile& file, size_t offset) {
  return std::to_integer<uint8_t>(*static_cast<const volatile std::byte*>(&file.bytes()[offset]));
}

TEST_F(ChangedFilesTest, ReadingPastACutEndsWithTheFilesName) {
  const fs::path path = folder_ / "long name, with spaces.gguf";
  std::ofstream(path) << std::string(100'000, 'x');
  const Ended ended = in_child([&] {
    const auto other = MappedFile::open(folder_ / "config.json").value();
    const auto file = MappedFile::open(path).value();
    fs::resize_file(path, 10);
    if (read_byte(other, 0) == '{') read_byte(file, 90'000);
  });
  ASSERT_TRUE(WIFEXITED(ended.status));
  EXPECT_EQ(WEXITSTATUS(ended.status), 1);
  EXPECT_TRUE(ended.errors.starts_with("headrace: '" + path.string() + "' was cut short"))
      << ended.errors;
  EXPECT_EQ(std::count(ended.errors.begin(), ended.errors.end(), '\n'), 1);
}

TEST_F(ChangedFilesTest, AFaultElsewhereIsStillAFault) {
  const Ended ended = in_child([&] {
    {
      const auto watched = MappedFile::open(folder_ / "config.json").value();
    }
    raise(SIGBUS);
    raise(SIGBUS);
  });
  EXPECT_NE(ended.status, 0);
  EXPECT_EQ(ended.errors.find("headrace: "), std::string::npos) << ended.errors;
}

}  // namespace changed_files_test
}  // namespace headrace
