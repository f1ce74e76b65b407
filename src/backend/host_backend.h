// HostBackend: memory calls of a backend whose device memory is the host's own.
//
// Every call is finished when it returns, so synchronize() has nothing to wait for and a view is
// the memory itself. The ops are the derived class's.
#pragma once

#include "backend/backend.h"

namespace headrace {

class HostBackend : public Backend {
 public:
  Result<DeviceMemory> allocate(size_t num_bytes, MemoryUse use) override;
  void touch(DevicePtr<std::byte> memory, size_t num_bytes) override;
  void upload(std::span<const std::byte> from, DevicePtr<std::byte> to) override;
  void download(DevicePtr<const std::byte> from, std::span<std::byte> to) override;
  std::span<const std::byte> read_view(DevicePtr<const std::byte> from, size_t num_bytes) override;
  std::span<std::byte> write_view(DevicePtr<std::byte> to, size_t num_bytes) override;
  void copy(DevicePtr<const std::byte> from, DevicePtr<std::byte> to, size_t num_bytes) override;
  void zero(DevicePtr<std::byte> to, size_t num_bytes) override;
  void synchronize() override {}

  void gather_rows(const GatherArgs& args) override;
  void rope_rows(const RopeArgs& args) override;
  void find_finite_rows(DevicePtr<const float> x, int64_t num_rows, int64_t width,
                        bool* finite) override;
};

}  // namespace headrace
