#include "golden/golden_data.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "backend/cpu/cpu_backend.h"

namespace headrace::golden {
namespace {

namespace fs = std::filesystem;

constexpr size_t kTarBlock = 512;

class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(fs::temp_directory_path() / ("headrace-golden-" + std::to_string(getpid()))) {
    fs::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

const TemporaryFolder& temporary() {
  static const TemporaryFolder folder;
  return folder;
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  CHECK(file.good(), "cannot read {}", path.string());
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string decompress(const std::string& packed) {
  const unsigned long long size = ZSTD_getFrameContentSize(packed.data(), packed.size());
  CHECK(size != ZSTD_CONTENTSIZE_UNKNOWN && size != ZSTD_CONTENTSIZE_ERROR && size < (1u << 30));
  std::string data(size, '\0');
  const size_t written = ZSTD_decompress(data.data(), data.size(), packed.data(), packed.size());
  CHECK(written == data.size(), "{} bytes decompressed of {}", written, data.size());
  return data;
}

// Plain files of a ustar archive: name at 0, octal size at 124, data in blocks of 512 bytes.
int unpack_tar(const std::string& tar, const fs::path& root) {
  int num_files = 0;
  for (size_t at = 0; at + kTarBlock <= tar.size() && tar[at] != '\0'; ++num_files) {
    const std::string name(tar.data() + at, strnlen(tar.data() + at, 100));
    const size_t size = std::stoul(tar.substr(at + 124, 11), nullptr, 8);
    CHECK(at + kTarBlock + size <= tar.size(), "{} is cut off", name);
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name, std::ios::binary)
        .write(tar.data() + at + kTarBlock, static_cast<std::streamsize>(size));
    at += kTarBlock + (size + kTarBlock - 1) / kTarBlock * kTarBlock;
  }
  return num_files;
}

}  // namespace

const std::string& packed_root() {
  static const std::string root = [] {
    const fs::path folder = temporary_folder("packed");
    const fs::path archive = fs::path(HEADRACE_SOURCE_DIR) / "tests/data/golden/dense.tar.zst";
    const int num_files = unpack_tar(decompress(read_file(archive)), folder);
    CHECK(num_files > 100, "{} files in the archive", num_files);
    return folder.string();
  }();
  return root;
}

std::optional<std::string> shared_root() {
  const char* given = std::getenv("HEADRACE_GOLDEN");
  if (given != nullptr && *given != '\0') return given;
  const fs::path beside = fs::path(HEADRACE_SOURCE_DIR) / "../shared/golden";
  if (fs::exists(beside)) return beside.string();
  return std::nullopt;
}

std::vector<std::string> entries(const std::string& root, const std::string& kind) {
  std::vector<std::string> paths;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(fs::path(root) / kind, ignored)) {
    paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string file_name(const std::string& path) { return fs::path(path).filename().string(); }

std::string temporary_folder(const std::string& name) {
  const fs::path path = temporary().path() / name;
  fs::create_directories(path);
  return path.string();
}

std::vector<std::string> instruction_sets() {
  return {"reference", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx"};
}

std::unique_ptr<Backend> backend_for(const std::string& isa, int num_threads) {
  auto backend = create_cpu_backend({.isa = isa, .num_threads = num_threads});
  if (backend.ok()) return std::move(backend).value();
  EXPECT_EQ(backend.error().code, ErrorCode::kUnsupported) << backend.error().message;
  return nullptr;
}

}  // namespace headrace::golden
