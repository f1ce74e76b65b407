#include "device/faulting_backend.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "backend/device_access.h"

namespace headrace::device {
namespace {

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

void protect(std::byte* start, size_t num_bytes, int protection) {
  const auto address = reinterpret_cast<uintptr_t>(start);
  const uintptr_t first = address / page_bytes() * page_bytes();
  CHECK(mprotect(reinterpret_cast<void*>(first), address + num_bytes - first, protection) == 0,
        "mprotect of {} bytes", num_bytes);
}

}  // namespace

// Pages that end with their owner.
struct FaultingBackend::Region {
  Region(std::shared_ptr<Regions> all, std::byte* memory, size_t size)
      : regions(std::move(all)), start(memory), num_bytes(size) {
    const std::lock_guard lock(regions->mutex);
    regions->list.emplace_back(start, num_bytes);
  }
  ~Region() {
    const std::lock_guard lock(regions->mutex);
    std::erase(regions->list, std::pair(start, num_bytes));
    munmap(start, num_bytes);
  }

  std::shared_ptr<Regions> regions;
  std::byte* start;
  size_t num_bytes;
};

void FaultingBackend::Regions::protect_all(int protection) {
  const std::lock_guard lock(mutex);
  for (const auto& [start, num_bytes] : list) protect(start, num_bytes, protection);
}

void FaultingBackend::Regions::expect_inside(const std::byte* start, size_t num_bytes) {
  const std::lock_guard lock(mutex);
  const bool inside = std::any_of(list.begin(), list.end(), [&](const auto& region) {
    return start >= region.first && start + num_bytes <= region.first + region.second;
  });
  CHECK(inside, "a view of {} bytes that are no device memory", num_bytes);
}

FaultingBackend::FaultingBackend(std::unique_ptr<Backend> inner)
    : WrappedBackend(std::move(inner)), regions_(std::make_shared<Regions>()) {}

Result<DeviceMemory> FaultingBackend::allocate(size_t num_bytes, MemoryUse /*use*/) {
  if (num_bytes == 0) return DeviceMemory();
  const size_t rounded = (num_bytes + page_bytes() - 1) / page_bytes() * page_bytes();
  void* memory = mmap(nullptr, rounded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return make_error(ErrorCode::kExhausted, "no {} bytes for a test", num_bytes);
  }
  const auto region = std::make_shared<Region>(regions_, static_cast<std::byte*>(memory), rounded);
  return DeviceMemory(on_device(region->start), num_bytes, region);
}

std::span<const std::byte> FaultingBackend::read_view(DevicePtr<const std::byte> from,
                                                      size_t num_bytes) {
  if (num_bytes == 0) return {};
  regions_->expect_inside(raw(from), num_bytes);
  inner().synchronize();
  protect(const_cast<std::byte*>(raw(from)), num_bytes, PROT_READ);
  return {raw(from), num_bytes};
}

std::span<std::byte> FaultingBackend::write_view(DevicePtr<std::byte> to, size_t num_bytes) {
  if (num_bytes == 0) return {};
  regions_->expect_inside(raw(to), num_bytes);
  inner().synchronize();
  protect(raw(to), num_bytes, PROT_READ | PROT_WRITE);
  return {raw(to), num_bytes};
}

void FaultingBackend::now(const Work& work) {
  ++num_calls_;
  regions_->protect_all(PROT_READ | PROT_WRITE);
  work(inner());
  regions_->protect_all(PROT_NONE);
}

}  // namespace headrace::device
