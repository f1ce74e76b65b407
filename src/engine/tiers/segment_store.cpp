#include "engine/tiers/segment_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/log.h"
#include "engine/tiers/store_folder.h"

namespace headrace {
namespace {

constexpr uint64_t kSegmentsPerStore = 16;  // what one drop takes away is as much of the store
constexpr uint64_t kLargestSegment = uint64_t{1} << 30;

std::string segment_name(uint32_t number) { return fmt::format("{:010}.kv", number); }

// The number in a name that segment_name() makes, 0: it is none.
uint32_t number_of(const std::string& name) {
  uint32_t number = 0;
  std::from_chars(name.data(), name.data() + name.size(), number);
  return name == segment_name(number) ? number : 0;
}

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

ssize_t DiskCalls::read(int file, std::span<std::byte> to, uint64_t offset) {
  return pread(file, to.data(), to.size(), static_cast<off_t>(offset));
}
ssize_t DiskCalls::write(int file, std::span<const std::byte> from, uint64_t offset) {
  return pwrite(file, from.data(), from.size(), static_cast<off_t>(offset));
}
int DiskCalls::truncate(int file, uint64_t size) {
  return ftruncate(file, static_cast<off_t>(size));
}
DiskCalls& system_disk() {
  static DiskCalls calls;
  return calls;
}

uint64_t SegmentStore::least_bytes(uint64_t block_bytes) {
  return 2 * (sizeof(SegmentHeader) + sizeof(RecordHeader) + block_bytes);
}

std::string SegmentStore::path_of(uint32_t number) const {
  return options_.path + "/" + segment_name(number);
}

Status SegmentStore::write_all(int file, std::span<const std::byte> bytes, uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t count = calls_->write(file, bytes, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      return make_error(ErrorCode::kIo, "cannot write to '{}': {}", options_.path,
                        count < 0 ? std::strerror(errno) : "nothing was taken");
    }
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  return {};
}

Status SegmentStore::read_all(int file, std::span<std::byte> bytes, uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t count = calls_->read(file, bytes, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return make_error(ErrorCode::kIo, "cannot read from '{}': {}", options_.path,
                        std::strerror(errno));
    }
    if (count == 0) {
      return make_error(ErrorCode::kCorrupt, "a file in '{}' ends early", options_.path);
    }
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  return {};
}

SegmentStore SegmentStore::open(const SegmentStoreOptions& options, DiskCalls& calls,
                                std::vector<Found>* found) {
  CHECK(options.max_bytes >= least_bytes(options.rules.block_bytes), "a store of {} bytes",
        options.max_bytes);
  SegmentStore store(options, calls);
  for (const std::string& name : names_in(options.folder)) {
    if (number_of(name) != 0) store.adopt(name, found);
  }
  while (store.num_bytes_ > options.max_bytes) store.drop_oldest();
  store.is_open_ = !store.segments_.empty();
  return store;
}

// A file of the folder, with what is sound of it.
void SegmentStore::adopt(const std::string& name, std::vector<Found>* found) {
  const uint32_t number = number_of(name);
  last_number_ = std::max(last_number_, number);
  Descriptor file(
      openat(options_.folder, name.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status{};
  if (!file.ok() || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    LOG(kWarning, "'{}' is no file that can be used: it is left alone", path_of(number));
    return;
  }
  const auto file_bytes = static_cast<uint64_t>(status.st_size);
  const uint64_t size = scan(number, file.get(), file_bytes, found);
  if (size == 0) {
    LOG(kWarning, "'{}' is not a sound file of this store: it is removed", path_of(number));
    unlinkat(options_.folder, name.c_str(), 0);
    return;
  }
  if (size < file_bytes) {
    LOG(kInfo, "'{}' is cut from {} to {} bytes: what follows was not written whole",
        path_of(number), file_bytes, size);
    if (calls_->truncate(file.get(), size) != 0) return;  // the next open tries again
  }
  num_bytes_ += size;
  segments_.push_back({number, std::move(file), size});
}

// Bytes up to the end of the last sound record; 0: it is no segment of this store.
uint64_t SegmentStore::scan(uint32_t number, int file, uint64_t file_bytes,
                            std::vector<Found>* found) {
  const SegmentRules& rules = options_.rules;
  SegmentHeader head;
  if (!read_all(file, std::as_writable_bytes(std::span(&head, 1)), 0).ok() ||
      !is_sound(head, rules, number)) {
    return 0;
  }
  uint64_t end = sizeof(SegmentHeader);
  for (; end + rules.record_bytes() <= file_bytes; end += rules.record_bytes()) {
    RecordHeader record;
    if (!read_all(file, std::as_writable_bytes(std::span(&record, 1)), end).ok()) break;
    const std::optional<StoredBlock> block = read_record(record, rules, number);
    if (!block) break;
    if (record.state == kLiveRecord) found->push_back({*block, {number, end}});
  }
  return end;
}

Status SegmentStore::begin_segment() {
  is_open_ = false;
  const uint32_t number = ++last_number_;
  const std::string name = segment_name(number);
  Descriptor file(openat(options_.folder, name.c_str(),
                         O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.ok()) {
    return make_error(ErrorCode::kIo, "cannot make '{}': {}", path_of(number),
                      std::strerror(errno));
  }
  const Status written =
      write_all(file.get(), bytes_of(make_segment_header(options_.rules, number)), 0);
  if (!written.ok()) {
    unlinkat(options_.folder, name.c_str(), 0);
    return written;
  }
  num_bytes_ += sizeof(SegmentHeader);
  segments_.push_back({number, std::move(file), sizeof(SegmentHeader)});
  is_open_ = true;
  return {};
}

void SegmentStore::drop_oldest() {
  const Segment& oldest = segments_.front();
  unlinkat(options_.folder, segment_name(oldest.number).c_str(), 0);
  num_bytes_ -= oldest.size;
  dropped_.push_back(oldest.number);
  segments_.pop_front();
}

Result<BlockPlace> SegmentStore::append(const StoredBlock& block,
                                        std::span<const std::byte> bytes) {
  const uint64_t record_bytes = options_.rules.record_bytes();
  const uint64_t most = std::max(std::min(options_.max_bytes / kSegmentsPerStore, kLargestSegment),
                                 sizeof(SegmentHeader) + record_bytes);
  const bool fits = is_open_ && segments_.back().size + record_bytes <= most;
  const uint64_t needed = record_bytes + (fits ? 0 : sizeof(SegmentHeader));
  while (num_bytes_ + needed > options_.max_bytes && !segments_.empty()) drop_oldest();
  if (!fits || segments_.empty()) TRY(begin_segment());
  Segment& segment = segments_.back();
  const uint64_t offset = segment.size;
  const RecordHeader header = make_record_header(options_.rules, segment.number, block, bytes);
  // The header last: a record that has one has its bytes.
  Status written = write_all(segment.file.get(), bytes, offset + sizeof(header));
  if (written.ok()) written = write_all(segment.file.get(), bytes_of(header), offset);
  if (!written.ok()) {
    is_open_ = false;
    if (calls_->truncate(segment.file.get(), offset) != 0) {
      LOG(kWarning, "'{}' keeps a torn end", path_of(segment.number));
    }
    return written.error();
  }
  segment.size += record_bytes;
  num_bytes_ += record_bytes;
  return BlockPlace{segment.number, offset};
}

SegmentStore::Segment* SegmentStore::find(uint32_t number) {
  const auto found = std::find_if(segments_.begin(), segments_.end(),
                                  [number](const Segment& s) { return s.number == number; });
  return found == segments_.end() ? nullptr : &*found;
}

Status SegmentStore::read(const BlockPlace& place, const StoredBlock& block,
                          std::span<std::byte> bytes) {
  const Segment* segment = find(place.segment);
  if (segment == nullptr) return make_error(ErrorCode::kNotFound, "its file was dropped");
  RecordHeader header;
  const int file = segment->file.get();
  TRY(read_all(file, std::as_writable_bytes(std::span(&header, 1)), place.offset));
  const std::optional<StoredBlock> stored = read_record(header, options_.rules, place.segment);
  if (stored && header.state == kDeadRecord) {
    return make_error(ErrorCode::kNotFound, "it is marked dead");
  }
  TRY(read_all(file, bytes, place.offset + sizeof(header)));
  if (stored == block && checksum(bytes) == header.payload) return {};
  return make_error(ErrorCode::kCorrupt, "the record at {} of '{}' is not what was written",
                    place.offset, path_of(place.segment));
}

void SegmentStore::kill(const BlockPlace& place) {
  const Segment* segment = find(place.segment);
  if (segment == nullptr) return;
  const Status marked = write_all(segment->file.get(), bytes_of(kDeadRecord), place.offset);
  if (!marked.ok()) LOG(kWarning, "a record stays: {}", marked.error().message);
}

void SegmentStore::clear() {
  while (!segments_.empty()) drop_oldest();
  is_open_ = false;
}

}  // namespace headrace
