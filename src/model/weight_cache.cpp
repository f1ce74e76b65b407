#include "model/weight_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/build_id.h"
#include "base/log.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".hrpack";
constexpr std::string_view kTemporary = ".hrpack.new-";
constexpr size_t kPageBytes = 4096;
constexpr size_t kPieceBytes = size_t{4} << 20;  // one checksum each
constexpr int64_t kSettledNs = 2'000'000'000;    // longer than a tick of any file system's clock

// At offset 0; the checksums of the pieces follow it, then at a page boundary the weights.
struct Header {
  char magic[8];
  uint64_t file_bytes;
  uint64_t memory_bytes;
  uint64_t piece_bytes;
  Digest key;
  Digest content;
  Checksum whole;  // of all of this before it, and of the checksums of the pieces
};
constexpr char kMagic[8] = {'h', 'r', 'p', 'a', 'c', 'k', '0', '1'};
constexpr size_t kHashedHeader = sizeof(Header) - sizeof(Checksum);

// Written again when the same checkpoint has new stamps: it has a checksum of its own.
struct StampSection {
  Digest stamps;
  Checksum check;
};
constexpr size_t kStampOffset = 256;
constexpr size_t kPiecesOffset = 512;
static_assert(sizeof(Header) <= kStampOffset);
static_assert(kStampOffset + sizeof(StampSection) <= kPiecesOffset);

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  bool ok() const { return value_ >= 0; }

 private:
  int value_;
};

Error system_error(std::string_view what, const std::string& path) {
  return make_error(ErrorCode::kIo, "cannot {} '{}': {}", what, path, std::strerror(errno));
}

Digest digest_of_stamps(std::span<const MappedFile> files) {
  std::vector<FileStamp> stamps;
  for (const MappedFile& file : files) stamps.push_back(file.stamp());
  return sha256(std::as_bytes(std::span(stamps)));
}

// Did the last change lie far enough back that another one would show in the stamp?
bool is_settled(std::span<const MappedFile> files) {
  const int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  return std::all_of(files.begin(), files.end(), [now](const MappedFile& file) {
    return now - std::max(file.stamp().modified_ns, file.stamp().changed_ns) >= kSettledNs;
  });
}

bool is_unchanged(std::span<const MappedFile> files) {
  return std::all_of(files.begin(), files.end(), [](const MappedFile& file) {
    const auto again = MappedFile::open(file.path());
    return again.ok() && again->stamp() == file.stamp();
  });
}

StampSection stamp_section(std::span<const MappedFile> files) {
  StampSection section;
  section.stamps = digest_of_stamps(files);
  section.check = checksum(section.stamps);
  return section;
}

// A file that others may have written is none of ours.
Status check_owner(const std::string& path) {
  struct stat info{};
  if (lstat(path.c_str(), &info) != 0) return system_error("read", path);
  const bool ours = S_ISREG(info.st_mode) && (info.st_uid == geteuid() || info.st_uid == 0) &&
                    (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  if (ours) return {};
  return make_error(ErrorCode::kPermission, "it is no file that only this user can write");
}

Status write_all(int descriptor, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count =
        ::write(descriptor, bytes.data(), std::min(bytes.size(), size_t{1} << 30));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return system_error("write", path);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return {};
}

// A write past this limit would be a signal, not an error.
Status check_file_limit(size_t num_bytes) {
  struct rlimit limit{};
  const bool fits = getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
                    num_bytes <= limit.rlim_cur;
  if (fits) return {};
  return make_error(ErrorCode::kExhausted, "files may have {} bytes, but {} are needed",
                    limit.rlim_cur, num_bytes);
}

// The new file, under a name of its own until it is whole.
Status write_file(const std::string& temporary, const std::string& path,
                  std::span<const std::byte> head, std::span<const std::byte> memory) {
  const Descriptor file(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.ok()) return system_error("create", temporary);
  flock(file.get(), LOCK_EX | LOCK_NB);  // says that its writer lives
  TRY(write_all(file.get(), head, temporary));
  TRY(write_all(file.get(), memory, temporary));
  if (fsync(file.get()) != 0) return system_error("write", temporary);
  if (::rename(temporary.c_str(), path.c_str()) != 0) return system_error("rename", temporary);
  const Descriptor folder(
      ::open(fs::path(path).parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.ok()) fsync(folder.get());
  return {};
}

// What a writer left behind that was killed.
void remove_if_abandoned(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (file.ok() && flock(file.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
}

struct StoredFile {
  std::string path;
  uint64_t num_bytes;
  int64_t used_ns;
};

// Our files in the folder, least recently used first. Other files are never touched.
std::vector<StoredFile> stored_files(const std::string& folder) {
  std::vector<StoredFile> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string path = at->path().string();
    struct stat info{};
    if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    if (path.find(kTemporary) != std::string::npos) remove_if_abandoned(path);
    if (!path.ends_with(kSuffix)) continue;
    files.push_back({path, static_cast<uint64_t>(info.st_size),
                     int64_t{info.st_atim.tv_sec} * 1'000'000'000 + info.st_atim.tv_nsec});
  }
  std::sort(files.begin(), files.end(),
            [](const StoredFile& a, const StoredFile& b) { return a.used_ns < b.used_ns; });
  return files;
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", std::to_integer<int>(byte));
  return text;
}

std::string canonical(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::canonical(path, error);
  return error ? path : whole.string();
}

}  // namespace

WeightCache::WeightCache(const Checkpoint& checkpoint, PackPlan plan,
                         const WeightCacheOptions& options)
    : checkpoint_(checkpoint), plan_(std::move(plan)), options_(options) {
  if (options_.directory.empty() || checkpoint_.files().empty()) return;
  const std::string binary = build_id();
  if (binary.empty()) {
    LOG(kWarning, "the weight cache is off: this binary was linked without a build id");
    return;
  }
  enabled_ = true;
  const std::string key =
      fmt::format("{}\n{}\n{}", binary, checkpoint_.fingerprint(), plan_.description);
  key_ = sha256(key);
  // Equal checkpoints at two places get a file each, so that neither replaces the other's.
  const Digest place = sha256(fmt::format("{}\n{}", canonical(checkpoint_.path()), hex(key_)));
  path_ = fmt::format("{}/{}{}", options_.directory, hex(place).substr(0, 32), kSuffix);
  num_pieces_ = (plan_.memory_bytes + kPieceBytes - 1) / kPieceBytes;
  const size_t head = kPiecesOffset + num_pieces_ * sizeof(Checksum);
  memory_offset_ = (head + kPageBytes - 1) / kPageBytes * kPageBytes;
  file_bytes_ = memory_offset_ + plan_.memory_bytes;
}

std::span<const std::byte> WeightCache::memory_of(const MappedFile& file) const {
  return file.bytes().subspan(memory_offset_, plan_.memory_bytes);
}

const Digest& WeightCache::content() {
  if (!content_) {
    settled_ = is_settled(checkpoint_.files());
    content_ = content_digest(checkpoint_.files(), plan_.num_threads);
  }
  return *content_;
}

std::optional<MappedFile> WeightCache::open() {
  if (!enabled_ || ::access(path_.c_str(), F_OK) != 0) return std::nullopt;
  Result<MappedFile> file = MappedFile::open(path_);
  Status status = file.ok() ? check(*file) : Status(file.error());
  if (!status.ok()) {
    LOG(kWarning, "the weight cache file '{}' is not used: {}", path_, status.error().message);
    return std::nullopt;
  }
  // Its time of use, for make_room(); also where reading does not set it.
  const timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  utimensat(AT_FDCWD, path_.c_str(), times, 0);
  return std::move(file).value();
}

Status WeightCache::check(const MappedFile& file) {
  TRY(check_owner(path_));
  TRY(check_header(file));
  TRY(check_checkpoint(file));
  return check_pieces(file);
}

Status WeightCache::check_header(const MappedFile& file) const {
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() != file_bytes_) {
    return make_error(ErrorCode::kCorrupt, "it has {} bytes, not {}", bytes.size(), file_bytes_);
  }
  Header header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    return make_error(ErrorCode::kCorrupt, "it is of another kind or version");
  }
  if (header.key != key_ || header.file_bytes != file_bytes_ ||
      header.memory_bytes != plan_.memory_bytes || header.piece_bytes != kPieceBytes) {
    return make_error(ErrorCode::kCorrupt, "it belongs to another model, layout or binary");
  }
  std::vector<std::byte> head(bytes.begin(), bytes.begin() + kHashedHeader);
  head.insert(head.end(), bytes.begin() + kPiecesOffset,
              bytes.begin() + static_cast<ptrdiff_t>(memory_offset_));
  if (checksum(head) != header.whole) {
    return make_error(ErrorCode::kCorrupt, "its header does not match its checksum");
  }
  return {};
}

// The stamps say that the checkpoint is the one that was packed, or its bytes do.
Status WeightCache::check_checkpoint(const MappedFile& file) {
  StampSection found;
  std::memcpy(&found, file.bytes().data() + kStampOffset, sizeof(found));
  const StampSection current = stamp_section(checkpoint_.files());
  const bool same = found.stamps == current.stamps && found.check == current.check;
  if (same && !options_.check_content) return {};
  Header header;
  std::memcpy(&header, file.bytes().data(), sizeof(header));
  if (header.content != content()) {
    return make_error(ErrorCode::kCorrupt, "the checkpoint has changed since it was written");
  }
  if (!same && settled_ && is_unchanged(checkpoint_.files())) {
    const Descriptor writable(::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
    // Best effort: without it the next start reads the checkpoint once more.
    if (writable.ok() && pwrite(writable.get(), &current, sizeof(current), kStampOffset) < 0) {
      LOG(kDebug, "cannot renew '{}': {}", path_, std::strerror(errno));
    }
  }
  return {};
}

Status WeightCache::check_pieces(const MappedFile& file) const {
  std::vector<Checksum> found(num_pieces_);
  checksum_pieces(memory_of(file), kPieceBytes, plan_.num_threads, found);
  const std::byte* expected = file.bytes().data() + kPiecesOffset;
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::memcmp(&found[i], expected + i * sizeof(Checksum), sizeof(Checksum)) == 0) continue;
    return make_error(ErrorCode::kCorrupt, "bytes {}.. do not match their checksum",
                      memory_offset_ + i * kPieceBytes);
  }
  return {};
}

void WeightCache::before_packing() { content(); }

std::vector<std::byte> WeightCache::make_head(std::span<const std::byte> memory) {
  std::vector<std::byte> head(memory_offset_);
  std::vector<Checksum> pieces(num_pieces_);
  checksum_pieces(memory, kPieceBytes, plan_.num_threads, pieces);
  std::memcpy(head.data() + kPiecesOffset, pieces.data(), pieces.size() * sizeof(Checksum));
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.file_bytes = file_bytes_;
  header.memory_bytes = plan_.memory_bytes;
  header.piece_bytes = kPieceBytes;
  header.key = key_;
  header.content = content();
  std::vector<std::byte> hashed(bytes_of(header).begin(), bytes_of(header).begin() + kHashedHeader);
  hashed.insert(hashed.end(), head.begin() + kPiecesOffset, head.end());
  header.whole = checksum(hashed);
  std::memcpy(head.data(), &header, sizeof(header));
  if (settled_) {  // else nothing vouches for the stamps, and the next start reads the content
    const StampSection section = stamp_section(checkpoint_.files());
    std::memcpy(head.data() + kStampOffset, &section, sizeof(section));
  }
  return head;
}

Status WeightCache::make_room() const {
  if (file_bytes_ > options_.max_bytes) {
    return make_error(ErrorCode::kExhausted,
                      "the weight cache may hold {} bytes, but this model needs {}",
                      options_.max_bytes, file_bytes_);
  }
  std::vector<StoredFile> files = stored_files(options_.directory);
  std::erase_if(files, [this](const StoredFile& file) { return file.path == path_; });
  uint64_t total = file_bytes_;
  for (const StoredFile& file : files) total += file.num_bytes;
  for (const StoredFile& file : files) {
    if (total <= options_.max_bytes) break;
    if (::unlink(file.path.c_str()) != 0 && errno != ENOENT) {
      return system_error("remove", file.path);
    }
    total -= file.num_bytes;
  }
  return {};
}

Status WeightCache::store(std::span<const std::byte> memory) {
  CHECK(enabled_ && content_ && memory.size() == plan_.memory_bytes, "{} bytes", memory.size());
  if (!is_unchanged(checkpoint_.files())) {
    return make_error(ErrorCode::kIo, "the checkpoint changed while it was loaded");
  }
  TRY(check_file_limit(file_bytes_));
  std::error_code error;
  const bool made = fs::create_directories(options_.directory, error);
  if (error) {
    return make_error(ErrorCode::kIo, "cannot create '{}': {}", options_.directory,
                      error.message());
  }
  if (made) fs::permissions(options_.directory, fs::perms::owner_all, error);
  TRY(make_room());
  const fs::space_info space = fs::space(options_.directory, error);
  if (!error && space.available < file_bytes_) {
    return make_error(ErrorCode::kExhausted, "'{}' has {} bytes free, but {} are needed",
                      options_.directory, space.available, file_bytes_);
  }
  const int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  const std::string stem = path_.substr(0, path_.size() - kSuffix.size());
  const std::string temporary = fmt::format("{}{}{}-{}", stem, kTemporary, getpid(), now);
  Status written = write_file(temporary, path_, make_head(memory), memory);
  if (!written.ok()) ::unlink(temporary.c_str());
  return written;
}

}  // namespace headrace
