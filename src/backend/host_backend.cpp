#include "backend/host_backend.h"

#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "backend/device_access.h"
#include "base/buffer.h"
#include "base/check.h"
#include "base/numeric.h"

namespace headrace {
namespace {

constexpr std::string_view kUseNames[] = {"weights", "keys and values", "activations", "results"};

bool overlap(const std::byte* a, const std::byte* b, size_t num_bytes) {
  return a < b + num_bytes && b < a + num_bytes;
}

bool all_finite(const float* values, int64_t count) {
  constexpr uint32_t kExponent = 0x7F800000u;
  uint32_t bad = 0;
  for (int64_t i = 0; i < count; ++i) {
    bad |= (float_to_bits(values[i]) & kExponent) == kExponent ? 1u : 0u;
  }
  return bad == 0;
}

}  // namespace

Result<DeviceMemory> HostBackend::allocate(size_t num_bytes, MemoryUse use) {
  Result<Buffer> buffer = Buffer::allocate(num_bytes);
  if (!buffer.ok()) {
    Error error = std::move(buffer).error();
    error.message = fmt::format("{}: {}", kUseNames[static_cast<size_t>(use)], error.message);
    return error;
  }
  const auto owner = std::make_shared<Buffer>(std::move(buffer).value());
  return DeviceMemory(on_device(owner->data()), owner->size(), owner);
}

void HostBackend::touch(DevicePtr<std::byte> memory, size_t num_bytes) {
  touch_pages({raw(memory), num_bytes});
}

void HostBackend::upload(std::span<const std::byte> from, DevicePtr<std::byte> to) {
  if (!from.empty()) std::memcpy(raw(to), from.data(), from.size());
}

void HostBackend::download(DevicePtr<const std::byte> from, std::span<std::byte> to) {
  if (!to.empty()) std::memcpy(to.data(), raw(from), to.size());
}

std::span<const std::byte> HostBackend::read_view(DevicePtr<const std::byte> from,
                                                  size_t num_bytes) {
  return {raw(from), num_bytes};
}

std::span<std::byte> HostBackend::write_view(DevicePtr<std::byte> to, size_t num_bytes) {
  return {raw(to), num_bytes};
}

void HostBackend::copy(DevicePtr<const std::byte> from, DevicePtr<std::byte> to, size_t num_bytes) {
  if (num_bytes == 0) return;
  CHECK(!overlap(raw(from), raw(to), num_bytes), "a copy of {} bytes onto itself", num_bytes);
  std::memcpy(raw(to), raw(from), num_bytes);
}

void HostBackend::zero(DevicePtr<std::byte> to, size_t num_bytes) {
  if (num_bytes > 0) std::memset(raw(to), 0, num_bytes);
}

void HostBackend::gather_rows(const GatherArgs& args) {
  const auto width = static_cast<size_t>(args.width);
  float* out = raw(args.out);
  for (const int32_t row : args.rows) {
    CHECK(row >= 0 && row < args.num_rows, "row {} of {}", row, args.num_rows);
    std::memcpy(out, raw(args.x) + static_cast<size_t>(row) * width, width * sizeof(float));
    out += width;
  }
}

void HostBackend::rope_rows(const RopeArgs& args) {
  float* cos = raw(args.cos);
  float* sin = raw(args.sin);
  for (const int64_t position : args.positions) {
    for (const float frequency : args.frequencies) {
      const float angle = static_cast<float>(position) * frequency;
      *cos++ = std::cos(angle) * args.factor;
      *sin++ = std::sin(angle) * args.factor;
    }
  }
}

void HostBackend::find_finite_rows(DevicePtr<const float> x, int64_t num_rows, int64_t width,
                                   bool* finite) {
  for (int64_t row = 0; row < num_rows; ++row) {
    finite[row] = all_finite(raw(x) + row * width, width);
  }
}

}  // namespace headrace
