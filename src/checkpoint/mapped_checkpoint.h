// MappedCheckpoint: the one implementation of Checkpoint. The parsers (gguf, safetensors) fill it.
//
// Owns the mapped files (or borrows memory that outlives it, for parsing from memory), the tensor
// table and the metadata. Filled by one thread, then read-only and thread-safe.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/buffer.h"
#include "checkpoint/checkpoint.h"

namespace headrace {

class MappedCheckpoint : public Checkpoint {
 public:
  // `sidecar_directory` is empty when nothing lies beside the weights.
  MappedCheckpoint(CheckpointKind kind, std::string path, std::string sidecar_directory);

  CheckpointKind kind() const override { return kind_; }
  const std::string& path() const override { return path_; }
  std::span<const std::string> names() const override { return names_; }
  const TensorView* find(std::string_view name) const override;
  size_t file_bytes() const override { return file_bytes_; }
  const Metadata& metadata() const override { return metadata_; }
  std::optional<std::string> sidecar(std::string_view file_name) const override;
  std::string fingerprint() const override { return fingerprint_; }
  std::span<const MappedFile> files() const override { return files_; }
  Status check_unchanged() const override;
  void release_pages() const override;
  void release_tensor(const TensorView& tensor) const override;

  // A file that was read and is not mapped: check_unchanged() looks at it too.
  void add_read_file(const std::string& path, const FileStamp& stamp);
  // The file stays mapped as long as this object; returns its bytes.
  std::span<const std::byte> add_file(MappedFile file);
  // False if a tensor of this name is there already.
  bool add_tensor(std::string name, const TensorView& view);
  Metadata& mutable_metadata() { return metadata_; }
  // Keeps a string alive that a metadata value views.
  std::string_view own_text(std::string text);
  // Header bytes of one file, in file order; `num_file_bytes` is that file's size. Adds to
  // file_bytes() and to the fingerprint.
  void add_header(std::span<const std::byte> header, size_t num_file_bytes);

 private:
  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  // What was found of a file beside the weights.
  struct ReadFile {
    std::string path;
    FileStamp stamp;  // all zero: there was none
    Status readable;  // an error: it is there but cannot be read
  };
  void note(ReadFile file) const;

  const CheckpointKind kind_;
  const std::string path_;
  const std::string sidecar_directory_;
  mutable std::mutex mutex_;
  mutable std::vector<ReadFile> read_files_;  // guarded
  std::vector<MappedFile> files_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, TensorView, TextHash, std::equal_to<>> tensors_;
  Metadata metadata_;
  std::deque<std::string> owned_texts_;
  size_t file_bytes_ = 0;
  std::string fingerprint_;  // hex; extended by each add_header
};

}  // namespace headrace
