// For tests of the tiers: blocks with contents of their own, and a disk that fails on demand.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <vector>

#include "engine/tiers/segment_store.h"

namespace headrace::testing {

inline constexpr size_t kTestBlockBytes = 256;

struct TestBlock {
  StoredBlock block;
  std::vector<std::byte> bytes;

  explicit TestBlock(uint64_t id, size_t num_bytes = kTestBlockBytes) : bytes(num_bytes) {
    block.key = {{id * 0x9E3779B97F4A7C15u, id}, static_cast<int32_t>(id % 2)};
    for (size_t i = 0; i < block.tokens.size(); ++i) {
      block.tokens[i] = static_cast<int32_t>(id * 100 + i);
    }
    for (size_t i = 0; i < num_bytes; ++i) bytes[i] = static_cast<std::byte>(id * 31 + i * 7);
  }
  TierBlock tier() const { return {block.key.name, block.key.column, block.tokens.data()}; }
};

// Calls fail with this error while it is set; writes may be short.
class FailingDisk final : public DiskCalls {
 public:
  std::atomic<int> read_error = 0, write_error = 0;
  std::atomic<int64_t> writes_until_error = -1;  // negative: no limit
  std::atomic<bool> short_writes = false;

  ssize_t read(int file, std::span<std::byte> to, uint64_t offset) override {
    if (read_error != 0) return fail(read_error);
    return DiskCalls::read(file, to, offset);
  }
  ssize_t write(int file, std::span<const std::byte> from, uint64_t offset) override {
    if (writes_until_error >= 0 && writes_until_error-- == 0) write_error = EIO;
    if (write_error != 0) {
      // A full disk takes a part first.
      if (from.size() > 1) DiskCalls::write(file, from.first(from.size() / 2), offset);
      return fail(write_error);
    }
    const size_t count = short_writes && from.size() > 3 ? from.size() / 3 : from.size();
    return DiskCalls::write(file, from.first(count), offset);
  }

 private:
  static ssize_t fail(int error) {
    errno = error;
    return -1;
  }
};

}  // namespace headrace::testing
