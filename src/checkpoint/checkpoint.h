// Checkpoint: files on disk as named tensors and metadata; no meaning attached.
//
// Accepts a GGUF file (v2, v3, also the first part of a split file), a .safetensors file, or a
// directory with config.json and safetensors (single or sharded with an index). Files are mapped
// read-only and every length, offset and product in them is checked before use, so that tensors
// handed out are in bounds. One owner; const calls are thread-safe; views live as long as it does,
// which is the load: a model keeps copies, so that nothing done to the files later reaches it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/result.h"
#include "base/tensor.h"
#include "checkpoint/metadata.h"

namespace headrace {

enum class CheckpointKind : uint8_t { kGguf, kSafetensors };

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  // Maps and checks the files. kNotFound, kCorrupt (names tensor or key, offset, found, needed),
  // kUnsupported (for instance GGUF v1 or a removed type id).
  static Result<std::unique_ptr<Checkpoint>> open(const std::string& path);

  virtual CheckpointKind kind() const = 0;
  virtual const std::string& path() const = 0;
  virtual std::span<const std::string> names() const = 0;           // in file order
  virtual const TensorView* find(std::string_view name) const = 0;  // null if absent
  virtual size_t file_bytes() const = 0;                            // of all files

  // GGUF: the key-value table. Safetensors: the __metadata__ strings.
  virtual const Metadata& metadata() const = 0;
  // Text of a file beside the weights ("config.json", "tokenizer.json", "tokenizer_config.json",
  // "generation_config.json", "chat_template.jinja"), or in a folder there
  // ("1_Pooling/config.json"); nothing if absent or unreadable, which
  // check_unchanged() tells apart. GGUF: always nothing.
  virtual std::optional<std::string> sidecar(std::string_view file_name) const = 0;
  // SHA-256 over headers and sizes (not the data): identifies the checkpoint cheaply.
  virtual std::string fingerprint() const = 0;
  // The mapped files that hold the tensors; none if they come from elsewhere.
  virtual std::span<const MappedFile> files() const { return {}; }
  // After a load: every file that was opened, looked up again under its name, is what it was when
  // it was opened. kIo names the one that was written, cut, replaced or removed meanwhile, or that
  // could not be read: what was loaded is then a mixture and must not be used.
  virtual Status check_unchanged() const { return {}; }
  // Advises the system that the mapped bytes will not be read again soon.
  virtual void release_pages() const = 0;
  // The same for one tensor's bytes; a tensor of another checkpoint is left alone.
  virtual void release_tensor(const TensorView& /*tensor*/) const {}
};

}  // namespace headrace
