#include "checkpoint/gguf.h"

#include <fmt/format.h>

#include <utility>

#include "base/quote.h"
#include "checkpoint/gguf_part.h"
#include "checkpoint/mapped_checkpoint.h"
#include "checkpoint/split_name.h"

namespace headrace {
namespace {

constexpr int64_t kMaxParts = 65'535;  // split.count is 16 bits wide

// Number of parts of the file with these keys; 1 if it is not split.
Result<int64_t> num_parts(const Metadata& metadata, const std::string& path) {
  if (!metadata.has("split.count")) return int64_t{1};
  const auto count = metadata.integer("split.count");
  if (!count || *count < 0 || *count > kMaxParts) {
    return make_error(ErrorCode::kCorrupt, "{}: key 'split.count' is no integer from 0 to {}", path,
                      kMaxParts);
  }
  return *count == 0 ? int64_t{1} : *count;
}

Status check_part_number(const Metadata& metadata, const std::string& path, int64_t part) {
  const auto found = metadata.integer("split.no");
  if (found == part) return {};
  return make_error(ErrorCode::kCorrupt, "{}: key 'split.no' is {}, needed is {}", path,
                    found ? fmt::format("{}", *found) : "no integer", part);
}

// The path without its part suffix.
Result<std::string> split_prefix(const Metadata& metadata, const std::string& path, int64_t parts) {
  const int64_t part = metadata.integer("split.no").value_or(0);
  const std::string suffix = split_suffix(part, parts);
  const bool named = path.ends_with(suffix);
  const std::string prefix = named ? path.substr(0, path.size() - suffix.size()) : "PREFIX";
  if (part != 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: is part {} of {} of a split model, open the first part: '{}'", path,
                      part + 1, parts, prefix + split_suffix(0, parts));
  }
  if (!named) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: is the first of {} parts and must be named PREFIX{} so that the others "
                      "can be found",
                      path, parts, suffix);
  }
  return prefix;
}

Status read_later_part(const std::string& path, int64_t part, int64_t parts,
                       MappedCheckpoint* checkpoint) {
  Result<MappedFile> file = MappedFile::open(path);
  if (!file.ok()) {
    return make_error(file.error().code, "part {} of {} of the model is missing: {}", part + 1,
                      parts, file.error().message);
  }
  const auto bytes = checkpoint->add_file(std::move(file).value());
  Metadata metadata;
  TRY(read_gguf_part(bytes, path, &metadata, checkpoint));
  TRY(check_part_number(metadata, path, part));
  const int64_t found_parts = TRY(num_parts(metadata, path));
  if (found_parts != parts) {
    return make_error(ErrorCode::kCorrupt, "{}: key 'split.count' is {}, the first part says {}",
                      path, found_parts, parts);
  }
  return {};
}

Status read_later_parts(const std::string& path, int64_t parts, MappedCheckpoint* checkpoint) {
  const Metadata& metadata = checkpoint->metadata();
  const std::string prefix = TRY(split_prefix(metadata, path, parts));
  for (int64_t part = 1; part < parts; ++part) {
    TRY(read_later_part(prefix + split_suffix(part, parts), part, parts, checkpoint));
  }
  const auto total = metadata.integer("split.tensors.count");
  const auto found = static_cast<int64_t>(checkpoint->names().size());
  if (total != found) {
    return make_error(ErrorCode::kCorrupt,
                      "{}: key 'split.tensors.count' is {}, the {} parts hold {} tensors", path,
                      total ? fmt::format("{}", *total) : "no integer", parts, found);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> open_gguf(const std::string& path) {
  auto checkpoint = std::make_unique<MappedCheckpoint>(CheckpointKind::kGguf, path, "");
  const auto bytes = checkpoint->add_file(TRY(MappedFile::open(path)));
  TRY(read_gguf_part(bytes, path, &checkpoint->mutable_metadata(), checkpoint.get()));
  const int64_t parts = TRY(num_parts(checkpoint->metadata(), path));
  if (parts > 1) TRY(read_later_parts(path, parts, checkpoint.get()));
  return std::unique_ptr<Checkpoint>(std::move(checkpoint));
}

Result<std::unique_ptr<Checkpoint>> parse_gguf(std::span<const std::byte> bytes,
                                               const std::string& name) {
  auto checkpoint = std::make_unique<MappedCheckpoint>(CheckpointKind::kGguf, name, "");
  TRY(read_gguf_part(bytes, name, &checkpoint->mutable_metadata(), checkpoint.get()));
  const int64_t parts = TRY(num_parts(checkpoint->metadata(), name));
  if (parts > 1) {
    return make_error(ErrorCode::kUnsupported,
                      "{}: is one of {} parts of a split model, which cannot be read alone", name,
                      parts);
  }
  return std::unique_ptr<Checkpoint>(std::move(checkpoint));
}

}  // namespace headrace
