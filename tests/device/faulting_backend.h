// FaultingBackend: a backend whose device memory cannot be touched between its calls. A host read
// or write of it ends the process, as it would with memory of another device.
//
// Every piece of memory has pages of its own, without access but while a call of the inner backend
// works (on all threads); a view opens its own pages until the next call, as backend.h says.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "device/wrapped_backend.h"

namespace headrace::device {

class FaultingBackend final : public WrappedBackend {
 public:
  explicit FaultingBackend(std::unique_ptr<Backend> inner);

  Result<DeviceMemory> allocate(size_t num_bytes, MemoryUse use) override;
  std::span<const std::byte> read_view(DevicePtr<const std::byte> from, size_t num_bytes) override;
  std::span<std::byte> write_view(DevicePtr<std::byte> to, size_t num_bytes) override;

  int64_t num_calls() const { return num_calls_; }  // that opened the memory

 private:
  // The memory that there is; it may outlive the backend.
  struct Regions {
    std::mutex mutex;
    std::vector<std::pair<std::byte*, size_t>> list;
    void protect_all(int protection);
    void expect_inside(const std::byte* start, size_t num_bytes);
  };
  struct Region;

  void later(Work work) override { now(work); }
  void now(const Work& work) override;

  std::shared_ptr<Regions> regions_;
  int64_t num_calls_ = 0;
};

}  // namespace headrace::device
