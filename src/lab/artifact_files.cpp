#include "lab/artifact_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/descriptor.h"
#include "base/quote.h"
#include "base/strings.h"

namespace headrace::lab {
namespace {

constexpr int kMaxDepth = 4;  // of folders in a run's folder

std::filesystem::path folder_of_run(const std::string& folder, int64_t run_id) {
  return std::filesystem::path(folder) / "artifacts" / std::to_string(run_id);
}

bool is_plain_part(std::string_view part) {
  return !part.empty() && part != "." && part != ".." && part.find('\0') == part.npos;
}

// The parts between slashes. Empty: the name leads outside, or nowhere.
std::vector<std::string> parts_of(std::string_view name) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (!is_plain_part(part)) return {};
    parts.emplace_back(part);
    begin = end + 1;
  }
  return parts;
}

Error no_such_file(int64_t run_id, std::string_view name) {
  return make_error(ErrorCode::kNotFound, "run {} has no artifact {}", run_id, quote(name));
}

// One part after the other, and no link is followed.
Result<int> open_below(const std::filesystem::path& folder, const std::vector<std::string>& parts) {
  int place = open(folder.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  for (size_t i = 0; i < parts.size() && place >= 0; ++i) {
    const Descriptor parent(place);
    const int how = i + 1 < parts.size() ? O_PATH | O_DIRECTORY : O_RDONLY | O_NONBLOCK;
    place = openat(parent.get(), parts[i].c_str(), how | O_NOFOLLOW | O_CLOEXEC);
  }
  if (place < 0) return open_error(folder.string());
  return place;
}

}  // namespace

std::vector<ArtifactFile> list_artifacts(const std::string& folder, int64_t run_id) {
  namespace fs = std::filesystem;
  const fs::path top = folder_of_run(folder, run_id);
  std::vector<ArtifactFile> found;
  std::error_code failed;
  fs::recursive_directory_iterator each(top, fs::directory_options::skip_permission_denied, failed);
  for (; !failed && each != fs::recursive_directory_iterator(); each.increment(failed)) {
    if (each.depth() >= kMaxDepth) each.disable_recursion_pending();
    std::error_code ignored;
    const bool is_file = fs::is_regular_file(each->symlink_status(ignored));
    if (!is_file || found.size() == kMaxListedArtifacts) continue;
    const auto num_bytes = static_cast<int64_t>(each->file_size(ignored));
    found.push_back({each->path().lexically_relative(top).generic_string(), num_bytes});
  }
  std::ranges::sort(found, {}, &ArtifactFile::name);
  return found;
}

Result<std::string> read_artifact(const std::string& folder, int64_t run_id,
                                  std::string_view name) {
  const std::vector<std::string> parts = parts_of(name);
  if (parts.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} is no name of an artifact: it must lie in the run's folder", quote(name));
  }
  const Result<int> opened = open_below(folder_of_run(folder, run_id), parts);
  if (!opened.ok()) return no_such_file(run_id, name);
  const Descriptor file(*opened);
  struct stat status{};
  if (fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return no_such_file(run_id, name);
  }
  const auto num_bytes = static_cast<size_t>(status.st_size);
  if (num_bytes > kMaxArtifactBytes) {
    return make_error(ErrorCode::kInvalidArgument, "{} has {}, and at most {} are sent",
                      quote(name), format_bytes(num_bytes), format_bytes(kMaxArtifactBytes));
  }
  std::string bytes(num_bytes, '\0');
  TRY(read_at(file.get(), 0, std::as_writable_bytes(std::span(bytes)), std::string(name)));
  return bytes;
}

std::string_view artifact_type(std::string_view name) {
  struct Type {
    std::string_view ending, type;
  };
  static constexpr Type kTypes[] = {
      {".json", "application/json"},         {".txt", "text/plain; charset=utf-8"},
      {".log", "text/plain; charset=utf-8"}, {".md", "text/plain; charset=utf-8"},
      {".csv", "text/plain; charset=utf-8"}, {".jsonl", "text/plain; charset=utf-8"}};
  for (const Type& each : kTypes) {
    if (name.ends_with(each.ending)) return each.type;
  }
  return "application/octet-stream";
}

}  // namespace headrace::lab
