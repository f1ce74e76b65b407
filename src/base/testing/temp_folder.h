// For tests: a folder of the test's own, gone with the object, and its files. Tests run as
// processes side by side: whatever one writes lies in such a folder, never below a name that
// another may use.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace headrace::testing {

class TempFolder {
 public:
  TempFolder() {
    std::string made = ::testing::TempDir() + "headrace_XXXXXX";
    if (mkdtemp(made.data()) == nullptr) {
      ADD_FAILURE() << "no folder " << made << ": " << std::strerror(errno);
    }
    path_ = made;
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
