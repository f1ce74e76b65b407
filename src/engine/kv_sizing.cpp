#include "engine/kv_sizing.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "base/log.h"
#include "engine/kv_cache.h"

namespace headrace {
namespace {

constexpr int64_t kDefaultContexts = 4;    // full contexts that fit by default
constexpr int64_t kUnknownContext = 4096;  // when neither the options nor the model say
constexpr int64_t kMaxBlocks = INT32_MAX / kBlockTokens;

// A control group file with one number; nothing for "max" or when it is absent.
bool read_number(const std::string& path, size_t* value) {
  std::ifstream file(path);
  return static_cast<bool>(file >> *value);
}

}  // namespace

Result<KvSize> size_kv(const EngineOptions& options, int64_t model_context, size_t block_bytes,
                       size_t available_bytes) {
  CHECK(block_bytes > 0);
  int64_t wanted = options.max_context;
  if (wanted <= 0) wanted = model_context > 0 ? model_context : kUnknownContext;
  if (model_context > 0 && wanted > model_context) {
    LOG(kWarning, "a context of {} tokens goes beyond the {} that the model was made for", wanted,
        model_context);
  }
  KvSize size;
  size_t limit_bytes = options.kv_memory_bytes;
  size.num_blocks = options.num_kv_blocks;
  if (size.num_blocks <= 0 && limit_bytes > 0) {
    size.num_blocks = static_cast<int64_t>(limit_bytes / block_bytes);
  } else if (size.num_blocks <= 0) {
    limit_bytes = available_bytes / 4;
    size.num_blocks = std::min<int64_t>(kDefaultContexts * blocks_for(wanted),
                                        static_cast<int64_t>(limit_bytes / block_bytes));
  }
  if (size.num_blocks <= 0) {
    Error error = make_error(ErrorCode::kExhausted,
                             "keys and values may use {} bytes, one block of {} tokens needs {}",
                             limit_bytes, kBlockTokens, block_bytes);
    error.hint = "give more memory to keys and values";
    return error;
  }
  size.num_blocks = std::min(size.num_blocks, kMaxBlocks);
  size.max_context = std::min(wanted, size.num_blocks * kBlockTokens);
  return size;
}

size_t available_memory_bytes() {
  size_t available = 0;
  std::ifstream file("/proc/meminfo");
  std::string key;
  size_t kilobytes = 0;
  while (file >> key >> kilobytes) {
    if (key == "MemAvailable:") available = kilobytes * 1024;
    file.ignore(64, '\n');
  }
  size_t group_limit = 0;
  size_t group_used = 0;
  if (read_number("/sys/fs/cgroup/memory.max", &group_limit) &&
      read_number("/sys/fs/cgroup/memory.current", &group_used)) {
    const size_t group_left = group_limit > group_used ? group_limit - group_used : 0;
    available = available == 0 ? group_left : std::min(available, group_left);
  }
  return available;
}

}  // namespace headrace
