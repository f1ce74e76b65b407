#include "checkpoint/mapped_checkpoint.h"

#include <fmt/format.h>
#include <openssl/sha.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <utility>

#include "base/strings.h"
#include "checkpoint/text_file.h"

namespace headrace {
namespace {

constexpr size_t kMaxSidecarBytes = size_t{256} << 20;  // tokenizer.json reaches tens of MiB

std::string hex_sha256(std::string_view data) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(data.data()), data.size(), digest.data());
  std::string hex;
  for (const unsigned char byte : digest) append_format(hex, "{:02x}", byte);
  return hex;
}

// A stamp of zeros stands for an absent file.
Status check_stamp(const std::string& path, const FileStamp& expected) {
  const Result<FileStamp> found = FileStamp::of(path);
  const bool absent = !found.ok() && found.error().code == ErrorCode::kNotFound;
  if (found.ok() ? *found == expected : absent && expected == FileStamp{}) return {};
  const bool removed = absent && expected.num_bytes > 0;
  Error error = make_error(ErrorCode::kIo, "'{}' was {} while the model was loaded", path,
                           removed ? "removed" : "changed");
  error.hint = "wait until whatever writes it has finished, then start again";
  return error;
}

}  // namespace

MappedCheckpoint::MappedCheckpoint(CheckpointKind kind, std::string path,
                                   std::string sidecar_directory)
    : kind_(kind), path_(std::move(path)), sidecar_directory_(std::move(sidecar_directory)) {}

const TensorView* MappedCheckpoint::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::optional<std::string> MappedCheckpoint::sidecar(std::string_view file_name) const {
  const size_t slash = file_name.find('/');
  const std::string_view last = file_name.substr(slash == file_name.npos ? 0 : slash + 1);
  const bool is_plain = is_plain_file_name(last) &&
                        (slash == file_name.npos || is_plain_file_name(file_name.substr(0, slash)));
  if (sidecar_directory_.empty() || !is_plain) return std::nullopt;
  const std::string path = fmt::format("{}/{}", sidecar_directory_, file_name);
  ReadFile file{path, {}, {}};
  Result<std::string> text = read_text_file(path, kMaxSidecarBytes, &file.stamp);
  const bool absent = !text.ok() && text.error().code == ErrorCode::kNotFound;
  if (!text.ok() && !absent) file.readable = text.error();
  note(std::move(file));
  if (!text.ok()) return std::nullopt;
  return std::move(text).value();
}

void MappedCheckpoint::add_read_file(const std::string& path, const FileStamp& stamp) {
  note({path, stamp, {}});
}

void MappedCheckpoint::note(ReadFile file) const {
  const std::lock_guard lock(mutex_);
  read_files_.push_back(std::move(file));
}

Status MappedCheckpoint::check_unchanged() const {
  for (const MappedFile& file : files_) TRY(check_stamp(file.path(), file.stamp()));
  const std::lock_guard lock(mutex_);
  for (const ReadFile& file : read_files_) {
    TRY(Status(file.readable));
    TRY(check_stamp(file.path, file.stamp));
  }
  return {};
}

void MappedCheckpoint::release_pages() const {
  for (const MappedFile& file : files_) file.release_pages(0, file.bytes().size());
}

void MappedCheckpoint::release_tensor(const TensorView& tensor) const {
  const std::less_equal<const std::byte*> not_after;
  for (const MappedFile& file : files_) {
    const std::byte* const begin = file.bytes().data();
    const std::byte* const end = begin + file.bytes().size();
    if (!not_after(begin, tensor.data) || !not_after(tensor.data + tensor.num_bytes, end)) continue;
    file.release_pages(static_cast<size_t>(tensor.data - begin), tensor.num_bytes);
  }
}

std::span<const std::byte> MappedCheckpoint::add_file(MappedFile file) {
  files_.push_back(std::move(file));
  return files_.back().bytes();
}

bool MappedCheckpoint::add_tensor(std::string name, const TensorView& view) {
  if (!tensors_.try_emplace(name, view).second) return false;
  names_.push_back(std::move(name));
  return true;
}

std::string_view MappedCheckpoint::own_text(std::string text) {
  return owned_texts_.emplace_back(std::move(text));
}

void MappedCheckpoint::add_header(std::span<const std::byte> header, size_t num_file_bytes) {
  file_bytes_ += num_file_bytes;
  const std::string_view text(reinterpret_cast<const char*>(header.data()), header.size());
  fingerprint_ =
      hex_sha256(fmt::format("{} {} {}", fingerprint_, hex_sha256(text), num_file_bytes));
}

}  // namespace headrace
