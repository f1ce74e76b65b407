// For tests: a folder of the test's own, gone with the object, and its files.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace headrace::testing {

class TempFolder {
 public:
  TempFolder() {
    static std::atomic<int> num_made = 0;
    path_ = std::filesystem::path(::testing::TempDir()) /
            ("headrace_" + std::to_string(getpid()) + "_" + std::to_string(num_made++));
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string file(std::string_view name) const { return (path_ / name).string(); }

  // Writes a file, with the folders it lies in; returns its path.
  std::string write(std::string_view name, std::string_view contents) const {
    const std::filesystem::path target = path_ / name;
    std::filesystem::create_directories(target.parent_path());
    std::ofstream(target, std::ios::binary) << contents;
    return target.string();
  }
  std::string read(std::string_view name) const {
    std::ifstream in(path_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  std::filesystem::path path_;
};

}  // namespace headrace::testing
