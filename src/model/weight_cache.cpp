#include "model/weight_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/build_id.h"
#include "base/descriptor.h"
#include "base/log.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".hrpack";
constexpr std::string_view kTemporary = ".hrpack.new-";
constexpr size_t kPageBytes = 4096;
constexpr size_t kPieceBytes = size_t{4} << 20;  // one checksum each
constexpr int64_t kSettledNs = 2'000'000'000;    // longer than a tick of any file system's clock

// At offset 0; then the stamps, the checksums of the pieces and, at a page boundary, the weights.
struct Header {
  char magic[8];
  uint64_t file_bytes;
  uint64_t memory_bytes;
  uint64_t piece_bytes;
  FileDigest key;
  FileDigest content;
  std::byte unused[144];
  Checksum whole;  // of all of this before it, and of everything from the pieces to the weights
};
constexpr char kMagic[8] = {'h', 'r', 'p', 'a', 'c', 'k', '0', '2'};
constexpr size_t kHashedHeader = sizeof(Header) - sizeof(Checksum);

// Written again when the same checkpoint has new stamps: it has a checksum of its own.
struct StampSection {
  FileDigest stamps;  // zeros: none that the content could be known by
  std::byte unused[208];
  Checksum check;  // of all of this before it
};
constexpr size_t kStampOffset = 256;
constexpr size_t kPiecesOffset = 512;
// No byte of the head lies outside of a checksum.
static_assert(sizeof(Header) == kStampOffset);
static_assert(kStampOffset + sizeof(StampSection) == kPiecesOffset);

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

template <typename T>
T read_as(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

Error system_error(std::string_view what, const std::string& path) {
  return make_error(ErrorCode::kIo, "cannot {} '{}': {}", what, path, std::strerror(errno));
}

FileDigest digest_of_stamps(std::span<const MappedFile> files) {
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

StampSection stamp_section(const FileDigest& stamps) {
  StampSection section{};
  section.stamps = stamps;
  section.check = checksum(bytes_of(section).first(offsetof(StampSection, check)));
  return section;
}

Checksum checksum_of_head(std::span<const std::byte> head) {
  std::vector<std::byte> covered(head.begin(), head.begin() + kHashedHeader);
  covered.insert(covered.end(), head.begin() + kPiecesOffset, head.end());
  return checksum(covered);
}

// A file that others may have written is none of ours.
Status check_owner(int descriptor, size_t file_bytes, const std::string& path) {
  struct stat info{};
  if (fstat(descriptor, &info) != 0) return system_error("read", path);
  const bool ours = S_ISREG(info.st_mode) && (info.st_uid == geteuid() || info.st_uid == 0) &&
                    (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  if (!ours) {
    return make_error(ErrorCode::kPermission, "it is no file that only this user can write");
  }
  if (static_cast<size_t>(info.st_size) == file_bytes) return {};
  return make_error(ErrorCode::kCorrupt, "it has {} bytes, not {}", info.st_size, file_bytes);
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
  const FileDigest place = sha256(fmt::format("{}\n{}", canonical(checkpoint_.path()), hex(key_)));
  path_ = fmt::format("{}/{}{}", options_.directory, hex(place).substr(0, 32), kSuffix);
  num_pieces_ = (plan_.memory_bytes + kPieceBytes - 1) / kPieceBytes;
  const size_t head = kPiecesOffset + num_pieces_ * sizeof(Checksum);
  memory_offset_ = (head + kPageBytes - 1) / kPageBytes * kPageBytes;
  file_bytes_ = memory_offset_ + plan_.memory_bytes;
}

const FileDigest& WeightCache::content() {
  if (!content_) {
    settled_ = is_settled(checkpoint_.files());
    content_ = content_digest(checkpoint_.files(), plan_.num_threads);
  }
  return *content_;
}

Result<std::optional<DeviceMemory>> WeightCache::read(Backend& backend) {
  struct stat info{};
  if (!enabled_ || lstat(path_.c_str(), &info) != 0) return std::optional<DeviceMemory>();
  DeviceMemory memory = TRY(backend.allocate(plan_.memory_bytes, MemoryUse::kWeights));
  const Status status = read_file(backend.write_view(memory.data(), plan_.memory_bytes));
  if (!status.ok()) {
    LOG(kWarning, "the weight cache file '{}' is not used: {}", path_, status.error().message);
    return std::optional<DeviceMemory>();
  }
  // Its time of use, for make_room(); also where reading does not set it.
  const timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  utimensat(AT_FDCWD, path_.c_str(), times, 0);
  return std::optional<DeviceMemory>(std::move(memory));
}

Status WeightCache::read_file(std::span<std::byte> memory) {
  const Descriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.ok() && errno == ELOOP) {
    return make_error(ErrorCode::kPermission, "it is no file that only this user can write");
  }
  if (!file.ok()) return system_error("open", path_);
  TRY(check_owner(file.get(), file_bytes_, path_));
  std::vector<std::byte> head(memory_offset_);
  TRY(read_at(file.get(), 0, head, path_));
  TRY(check_header(head));
  TRY(check_checkpoint(head, file.get()));
  return read_weights(head, file.get(), memory);
}

Status WeightCache::check_header(std::span<const std::byte> head) const {
  const auto header = read_as<Header>(head, 0);
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    return make_error(ErrorCode::kCorrupt, "it is of another kind or version");
  }
  if (header.key != key_ || header.file_bytes != file_bytes_ ||
      header.memory_bytes != plan_.memory_bytes || header.piece_bytes != kPieceBytes) {
    return make_error(ErrorCode::kCorrupt, "it belongs to another model, layout or binary");
  }
  if (checksum_of_head(head) != header.whole) {
    return make_error(ErrorCode::kCorrupt, "its header does not match its checksum");
  }
  const auto stamps = read_as<StampSection>(head, kStampOffset);
  if (std::memcmp(&stamps, bytes_of(stamp_section(stamps.stamps)).data(), sizeof(stamps)) != 0) {
    return make_error(ErrorCode::kCorrupt,
                      "its record of the checkpoint does not match its checksum");
  }
  return {};
}

// The stamps say that the checkpoint is the one that was packed, or its bytes do.
Status WeightCache::check_checkpoint(std::span<const std::byte> head, int descriptor) {
  const FileDigest stamps = digest_of_stamps(checkpoint_.files());
  const bool same = read_as<StampSection>(head, kStampOffset).stamps == stamps;
  if (same && !options_.check_content) return {};
  if (read_as<Header>(head, 0).content != content()) {
    return make_error(ErrorCode::kCorrupt, "the checkpoint has changed since it was written");
  }
  if (!same && settled_ && checkpoint_.check_unchanged().ok()) {
    const Descriptor writable(::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
    struct stat read{}, written{};
    const bool same_file = writable.ok() && fstat(descriptor, &read) == 0 &&
                           fstat(writable.get(), &written) == 0 && read.st_ino == written.st_ino;
    const StampSection section = stamp_section(stamps);
    // Best effort: without it the next start reads the checkpoint once more.
    if (same_file && pwrite(writable.get(), &section, sizeof(section), kStampOffset) < 0) {
      LOG(kDebug, "cannot renew '{}': {}", path_, std::strerror(errno));
    }
  }
  return {};
}

Status WeightCache::read_weights(std::span<const std::byte> head, int descriptor,
                                 std::span<std::byte> memory) const {
  std::vector<Checksum> found(num_pieces_);
  TRY(read_pieces({descriptor, memory_offset_, path_}, memory, kPieceBytes, plan_.num_threads,
                  found));
  for (size_t i = 0; i < found.size(); ++i) {
    if (read_as<Checksum>(head, kPiecesOffset + i * sizeof(Checksum)) == found[i]) continue;
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
  std::memcpy(head.data(), &header, sizeof(header));
  header.whole = checksum_of_head(head);
  std::memcpy(head.data(), &header, sizeof(header));
  // Unless settled, nothing vouches for the stamps, and the next start reads the content.
  const StampSection section =
      stamp_section(settled_ ? digest_of_stamps(checkpoint_.files()) : FileDigest{});
  std::memcpy(head.data() + kStampOffset, &section, sizeof(section));
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
  TRY(checkpoint_.check_unchanged());
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
