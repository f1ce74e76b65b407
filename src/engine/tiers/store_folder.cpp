#include "engine/tiers/store_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "base/log.h"

namespace headrace {
namespace {

constexpr const char* kKeyFile = "key";
constexpr const char* kAboutFile = "about";
constexpr const char* kLockFile = "lock";
constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
constexpr size_t kMaxAbout = 4096;

Error system_error_of(const std::string& what, const std::string& path) {
  return make_error(ErrorCode::kIo, "cannot {} '{}': {}", what, path, std::strerror(errno));
}

// The operator's folder, made if it is not there.
Result<Descriptor> open_root(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return system_error_of("make", path);
  Descriptor root(::open(path.c_str(), kFolderFlags));
  if (!root.ok()) return system_error_of("open the folder", path);
  struct stat status{};
  if (fstat(root.get(), &status) != 0) return system_error_of("look at", path);
  if (status.st_uid != geteuid() || (status.st_mode & 022) != 0) {
    Error error = make_error(
        ErrorCode::kPermission,
        "the folder '{}' of --kv-disk has owner {} and mode {:o}, but must belong to user {}, and "
        "nobody else may write to it",
        path, status.st_uid, status.st_mode & 0777, geteuid());
    error.hint = "take a folder of your own, or chmod go-w it";
    return error;
  }
  return root;
}

// Whole, or not at all: written under another name first.
Status make_key(int root, const std::string& path) {
  std::array<std::byte, sizeof(HashKey)> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return system_error_of("get random bytes for the key of", path);
  }
  const std::string temporary = fmt::format("key.{}", gettid());
  unlinkat(root, temporary.c_str(), 0);
  const Descriptor file(
      openat(root, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  const bool written = file.ok() && ::write(file.get(), bytes.data(), bytes.size()) ==
                                        static_cast<ssize_t>(bytes.size());
  const bool linked = written && (linkat(root, temporary.c_str(), root, kKeyFile, 0) == 0 ||
                                  errno == EEXIST);  // another was faster
  const Error error = system_error_of("write the key of", path);
  unlinkat(root, temporary.c_str(), 0);
  if (!linked) return error;
  return {};
}

Result<HashKey> load_key(int root, const std::string& path) {
  if (faccessat(root, kKeyFile, F_OK, AT_SYMLINK_NOFOLLOW) != 0) TRY(make_key(root, path));
  const Descriptor file(openat(root, kKeyFile, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.ok()) return system_error_of("open the key of", path);
  struct stat status{};
  HashKey key;
  const auto bytes = std::as_writable_bytes(std::span(&key, 1));
  const bool sound = fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) &&
                     status.st_size == std::ssize(bytes) && (status.st_mode & 077) == 0 &&
                     pread(file.get(), bytes.data(), bytes.size(), 0) == std::ssize(bytes);
  if (sound) return key;
  Error error = make_error(
      ErrorCode::kCorrupt,
      "the key of the store '{}' has {} bytes and mode {:o}, but must be a file of 16 bytes that "
      "nobody else may read",
      path, status.st_size, status.st_mode & 0777);
  error.hint = "remove the store: it is a cache";
  return error;
}

std::string text_of(const StoreIdentity& identity) {
  std::string text;
  for (const StoreFact& fact : identity) text += fmt::format("{}: {}\n", fact.label, fact.value);
  return text;
}

std::string read_about(int folder) {
  const Descriptor file(openat(folder, kAboutFile, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  std::string text(kMaxAbout, '\0');
  const ssize_t count = file.ok() ? pread(file.get(), text.data(), text.size(), 0) : -1;
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, count)));
  return text;
}

// "numerics hr-1, here hr-2" for each fact of which the other text has another value.
std::string differences(const StoreIdentity& identity, const std::string& other) {
  std::string found;
  for (const StoreFact& fact : identity) {
    const std::string start = fact.label + ": ";
    const size_t begin = ("\n" + other).find("\n" + start);
    if (begin == std::string::npos) continue;
    const size_t first = begin + start.size();
    const std::string value = other.substr(first, other.find('\n', first) - first);
    if (value == fact.value) continue;
    found +=
        fmt::format("{}{} {}, here {}", found.empty() ? "" : "; ", fact.label, value, fact.value);
  }
  return found.empty() ? "another format" : found;
}

bool is_identity_name(const std::string& name) {
  return name.size() == 16 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

Descriptor open_below(int root, const std::string& name) {
  return Descriptor(openat(root, name.c_str(), kFolderFlags | O_NOFOLLOW));
}

Descriptor open_lock(int folder) {
  return Descriptor(openat(folder, kLockFile, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
}

struct OtherFile {
  std::string folder, name;
  uint64_t num_bytes = 0;
  int64_t changed_ns = 0;
  bool may_go = false;
};

void list_files(int root, const std::string& name, std::vector<OtherFile>* files) {
  const Descriptor folder = open_below(root, name);
  if (!folder.ok()) return;
  const Descriptor lock = open_lock(folder.get());
  const bool is_free = lock.ok() && flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
  for (const std::string& file : names_in(folder.get())) {
    struct stat status{};
    if (fstatat(folder.get(), file.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(status.st_mode) || !file.ends_with(".kv")) continue;
    files->push_back({name, file, static_cast<uint64_t>(status.st_size),
                      int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec,
                      is_free});
  }
}

// Bytes that other identities keep after those over the limit went, oldest first.
uint64_t trim_others(int root, const std::string& own, uint64_t max_bytes) {
  std::vector<OtherFile> files;
  for (const std::string& name : names_in(root)) {
    if (is_identity_name(name) && name != own) list_files(root, name, &files);
  }
  std::sort(files.begin(), files.end(), [](const OtherFile& a, const OtherFile& b) {
    return std::tie(a.changed_ns, a.folder, a.name) < std::tie(b.changed_ns, b.folder, b.name);
  });
  uint64_t total = 0;
  for (const OtherFile& file : files) total += file.num_bytes;
  for (const OtherFile& file : files) {
    if (total <= max_bytes) break;
    const Descriptor folder = open_below(root, file.folder);
    if (file.may_go && unlinkat(folder.get(), file.name.c_str(), 0) == 0) total -= file.num_bytes;
  }
  return std::min(total, max_bytes);
}

// Why what others left is not used.
void tell_others(int root, const std::string& path, const std::string& own,
                 const StoreIdentity& identity) {
  for (const std::string& name : names_in(root)) {
    if (!is_identity_name(name) || name == own) continue;
    const Descriptor folder = open_below(root, name);
    if (!folder.ok()) continue;
    LOG(kInfo, "what '{}/{}' keeps is not used and left alone: {}", path, name,
        differences(identity, read_about(folder.get())));
  }
}

Status write_about(int folder, const std::string& path, const std::string& text) {
  const Descriptor file(
      openat(folder, kAboutFile, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.ok() || ::write(file.get(), text.data(), text.size()) != std::ssize(text)) {
    return system_error_of("write to", path);
  }
  return {};
}

}  // namespace

std::vector<std::string> names_in(int folder) {
  std::vector<std::string> names;
  DIR* stream = fdopendir(openat(folder, ".", kFolderFlags));
  if (stream == nullptr) return names;
  while (const dirent* entry = readdir(stream)) names.emplace_back(entry->d_name);
  closedir(stream);
  std::sort(names.begin(), names.end());
  return names;
}

Result<HashKey> StoreFolder::key_of(const std::string& path) {
  return load_key(TRY(open_root(path)).get(), path);
}

Result<StoreFolder> StoreFolder::open(const std::string& path, const StoreIdentity& identity,
                                      uint64_t max_bytes) {
  const Descriptor root = TRY(open_root(path));
  const HashKey key = TRY(load_key(root.get(), path));
  const std::string text = text_of(identity);
  KeyedDigest digest(key);
  digest.add_text(text);
  const Digest id = digest.finish();
  const std::string name = fmt::format("{:016x}", id.first);
  const std::string own_path = path + "/" + name;
  const bool is_new = mkdirat(root.get(), name.c_str(), 0700) == 0;
  if (!is_new && errno != EEXIST) return system_error_of("make", own_path);
  Descriptor folder = open_below(root.get(), name);
  if (!folder.ok()) return system_error_of("open the folder", own_path);
  Descriptor lock = open_lock(folder.get());
  if (!lock.ok()) return system_error_of("lock", own_path);
  StoreFolder store(own_path, std::move(folder), std::move(lock));
  store.key_ = key;
  store.identity_ = id;
  store.is_writer_ = flock(store.lock_.get(), LOCK_EX | LOCK_NB) == 0;
  if (!store.is_writer_) return store;
  TRY(write_about(store.descriptor(), own_path, text));
  if (is_new) tell_others(root.get(), path, name, identity);
  store.max_bytes_ = max_bytes - trim_others(root.get(), name, max_bytes / 2);
  return store;
}

}  // namespace headrace
