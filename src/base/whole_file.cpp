#include "base/whole_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace headrace {
namespace {

namespace fs = std::filesystem;

// Which of our standard streams this is, -1: neither. Opened anew, one that goes to a file would be
// written from its first byte on, over what it has.
int standard_stream(const struct stat& found) {
  for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat own{};
    if (fstat(descriptor, &own) != 0) continue;
    if (own.st_dev == found.st_dev && own.st_ino == found.st_ino) return descriptor;
  }
  return -1;
}

bool is_stream(const struct stat& found) {
  if (S_ISDIR(found.st_mode)) return false;
  return !S_ISREG(found.st_mode) || standard_stream(found) >= 0;
}

FILE* open_stream(const std::string& path, const struct stat& found) {
  const int standard = standard_stream(found);
  if (standard < 0) return std::fopen(path.c_str(), "wb");
  std::fflush(stdout);  // what was printed before comes before
  const int descriptor = dup(standard);
  return descriptor < 0 ? nullptr : fdopen(descriptor, "wb");
}

// Where the links of a path lead, also if nothing is there yet.
std::string target_of(fs::path path) {
  constexpr int kMaxLinks = 40;  // as many as the system follows
  std::error_code error;
  for (int i = 0; i < kMaxLinks && fs::is_symlink(fs::symlink_status(path, error)); ++i) {
    path = path.parent_path() / fs::read_symlink(path, error);
  }
  return path.string();
}

Error write_error(std::string_view what, const std::string& path, int reason) {
  return make_error(ErrorCode::kIo, "cannot {} '{}': {}", what, path, std::strerror(reason));
}

}  // namespace

bool is_stream(const std::string& path) {
  struct stat found{};
  return stat(path.c_str(), &found) == 0 && is_stream(found);
}

Result<std::unique_ptr<WholeFile>> WholeFile::create(const std::string& path) {
  struct stat found{};
  const bool exists = stat(path.c_str(), &found) == 0;
  if (!exists && errno != ENOENT) return write_error("write", path, errno);
  if (exists && S_ISDIR(found.st_mode)) return write_error("write", path, EISDIR);
  const bool streams = exists && is_stream(found);
  const std::string target = streams ? path : target_of(path);
  const std::string partial = streams ? "" : fmt::format("{}.partial-{}", target, getpid());
  FILE* const stream = streams ? open_stream(path, found) : std::fopen(partial.c_str(), "wb");
  if (stream == nullptr) return write_error("write", path, errno);
  return std::unique_ptr<WholeFile>(new WholeFile(path, target, partial, stream));
}

WholeFile::~WholeFile() {
  if (stream_ != nullptr) std::fclose(stream_);
  if (!partial_.empty()) std::remove(partial_.c_str());
}

Status WholeFile::write(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  if (std::fwrite(bytes.data(), 1, bytes.size(), stream_) == bytes.size()) return {};
  return failed("write");
}

Status WholeFile::publish() {
  FILE* const stream = std::exchange(stream_, nullptr);
  const bool flushed = std::fflush(stream) == 0 && (partial_.empty() || fsync(fileno(stream)) == 0);
  const int reason = errno;
  if (std::fclose(stream) != 0) return failed("write");
  if (!flushed) return write_error("write", path_, reason);
  if (partial_.empty()) return {};
  if (std::rename(partial_.c_str(), target_.c_str()) != 0) return failed("rename to");
  partial_.clear();
  return {};
}

Error WholeFile::failed(const char* what) const { return write_error(what, path_, errno); }

}  // namespace headrace
