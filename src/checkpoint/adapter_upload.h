// AdapterUpload: the files of an adapter that a client has sent, kept so that they can be read
// again: the weights in a file that has no name, so that no other process finds it by a path and
// nothing is left behind, whenever and however this one ends.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/descriptor.h"
#include "checkpoint/adapter_files.h"

namespace headrace {

// Immutable; thread-safe.
class AdapterUpload {
 public:
  // `folder`: where the system keeps the bytes (TMPDIR or /tmp, usually). kInvalidArgument: more
  // than an adapter may have; kIo or kExhausted with the system's reason.
  static Result<std::shared_ptr<const AdapterUpload>> keep(const std::string& folder,
                                                           std::string config,
                                                           std::span<const std::byte> weights);
  Result<AdapterFolder> read() const;

 private:
  AdapterUpload(std::string config, Descriptor file, size_t num_bytes)
      : config_(std::move(config)), file_(std::move(file)), num_bytes_(num_bytes) {}

  const std::string config_;
  const Descriptor file_;
  const size_t num_bytes_;
};

}  // namespace headrace
