// WeightCache: packed weights of an earlier start, as a file that is read instead of packing.
//
// One file per (checkpoint, packed layout, binary) in a folder of the user's. Nothing in it is
// trusted: its size, its key and the identity of the checkpoint must be what this start expects,
// and every byte is checked against a checksum in the memory that it is then used from. A file that
// fails is left out with one log line and written again; once read, nothing done to it matters.
// Files appear whole (temporary file, sync, rename), so any number of processes may share a folder;
// the least recently used go when the limit is reached. One object serves one load; the loading
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "backend/backend.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/digest.h"
#include "model/model_options.h"

namespace headrace {

// What decides the packed bytes, apart from the checkpoint's files.
struct PackPlan {
  std::string description;  // packed layouts, and each weight's role, parts and order of rows
  size_t memory_bytes = 0;  // all packed weights, a multiple of the page size
  int num_threads = 1;      // for digests and checksums
};

class WeightCache {
 public:
  // The checkpoint outlives the object.
  WeightCache(const Checkpoint& checkpoint, PackPlan plan, const WeightCacheOptions& options);

  // False: no folder was given, the checkpoint has no files, or the binary has no identity.
  bool enabled() const { return enabled_; }
  const std::string& path() const { return path_; }  // where this load's file is or would be

  // The packed weights of the file, checked from end to end; nothing if there is none that can be
  // used. kExhausted when memory for them is short.
  Result<std::optional<DeviceMemory>> read(Backend& backend);

  // After read() returned nothing: before_packing() takes the checkpoint's digest, store() writes
  // the file and makes room for it. kExhausted or kIo say why there will be none.
  void before_packing();
  Status store(std::span<const std::byte> memory);

 private:
  Status check_header(std::span<const std::byte> head) const;
  Status check_checkpoint(std::span<const std::byte> head, int descriptor);
  Status read_weights(std::span<const std::byte> head, int descriptor,
                      std::span<std::byte> memory) const;
  Status read_file(std::span<std::byte> memory);
  const FileDigest& content();
  std::vector<std::byte> make_head(std::span<const std::byte> memory);
  Status make_room() const;

  const Checkpoint& checkpoint_;
  const PackPlan plan_;
  const WeightCacheOptions options_;
  bool enabled_ = false;
  std::string path_;
  FileDigest key_{};
  std::optional<FileDigest> content_;  // of the checkpoint, once it was needed
  bool settled_ = false;               // the stamps vouch for content_
  size_t num_pieces_ = 0;
  size_t memory_offset_ = 0;  // of the packed weights in the file
  size_t file_bytes_ = 0;
};

}  // namespace headrace
