#include "checkpoint/adapter_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <vector>

#include "base/descriptor.h"

namespace headrace {
namespace {

constexpr size_t kLongestPath = 4095;
constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kWeights = "adapter_model.safetensors";
constexpr const char* kPickle = "adapter_model.bin";

Result<Descriptor> open_folder_at(int parent, const std::string& name, const std::string& shown) {
  Descriptor folder(openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.ok()) return folder;
  if (errno == ELOOP || errno == ENOTDIR) {
    return make_error(ErrorCode::kInvalidArgument, "{} is no folder (links are not followed)",
                      shown);
  }
  return open_error(shown);
}

// A regular file of the folder that has no other name; O_NONBLOCK so that a FIFO does not wait.
Result<Descriptor> open_regular(int folder, const char* name, const std::string& shown,
                                size_t most_bytes, size_t* num_bytes) {
  Descriptor file(openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file.ok() && errno != ELOOP) return open_error(shown);
  struct stat status{};
  if (!file.ok() || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_nlink > 1) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} is no regular file with one name (links are not followed)", shown);
  }
  *num_bytes = static_cast<size_t>(status.st_size);
  if (*num_bytes <= most_bytes) return file;
  return make_error(ErrorCode::kInvalidArgument, "{} has {} bytes, but at most {} are read", shown,
                    *num_bytes, most_bytes);
}

Result<AdapterFolder> read_folder(int folder, const std::string& shown) {
  AdapterFolder files;
  size_t num_bytes = 0;
  const std::string config_path = shown + "/" + kConfig, weights_path = shown + "/" + kWeights;
  {
    const Descriptor file =
        TRY(open_regular(folder, kConfig, config_path, kMaxAdapterConfigBytes, &num_bytes));
    files.config.resize(num_bytes);
    TRY(read_at(file.get(), 0, std::as_writable_bytes(std::span(files.config)), config_path));
  }
  auto opened = open_regular(folder, kWeights, weights_path, kMaxAdapterBytes, &num_bytes);
  if (!opened.ok()) {
    if (faccessat(folder, kPickle, F_OK, AT_SYMLINK_NOFOLLOW) != 0) return opened.error();
    return make_error(ErrorCode::kUnsupported,
                      "{} has its weights in {}, which can run code; {} is needed", shown, kPickle,
                      kWeights);
  }
  files.weights = TRY(Buffer::allocate(std::max<size_t>(num_bytes, 1)));
  files.num_bytes = num_bytes;
  TRY(read_at(opened->get(), 0, {files.weights.data(), num_bytes}, weights_path));
  return files;
}

Error leads_out(std::string_view path) {
  return make_error(ErrorCode::kInvalidArgument,
                    "the path '{}' of an adapter must be one below the adapters' root, without "
                    "'.', '..' and empty parts",
                    path.substr(0, 200));
}

// The parts of a path below the root.
Result<std::vector<std::string>> parts_of(const std::string& root, std::string_view path) {
  if (path.size() > kLongestPath || path.find('\0') != path.npos) return leads_out(path);
  std::string_view rest = path, base = root;
  while (base.ends_with('/')) base.remove_suffix(1);
  if (rest.starts_with('/')) {
    if (base.empty() || !rest.starts_with(base) || !rest.substr(base.size()).starts_with('/')) {
      return leads_out(path);
    }
    rest.remove_prefix(base.size() + 1);
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  std::vector<std::string> parts;
  for (size_t at = 0; at <= rest.size();) {
    const size_t end = std::min(rest.find('/', at), rest.size());
    const std::string_view part = rest.substr(at, end - at);
    if (part.empty() || part == "." || part == "..") return leads_out(path);
    parts.emplace_back(part);
    at = end + 1;
  }
  return parts;
}

}  // namespace

Result<AdapterFolder> read_adapter_folder(const std::string& folder) {
  const Descriptor opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.ok()) return open_error(folder);
  return read_folder(opened.get(), folder);
}

Result<AdapterFolder> read_adapter_folder_under(const std::string& root, std::string_view path) {
  const std::vector<std::string> parts = TRY(parts_of(root, path));
  const Descriptor base(open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!base.ok()) return open_error(root);
  std::vector<Descriptor> opened;
  std::string shown;
  for (const std::string& part : parts) {
    shown += (shown.empty() ? "" : "/") + part;
    const int parent = opened.empty() ? base.get() : opened.back().get();
    opened.push_back(TRY(open_folder_at(parent, part, shown)));
  }
  return read_folder(opened.back().get(), shown);
}

}  // namespace headrace
