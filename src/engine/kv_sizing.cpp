#include "engine/kv_sizing.h"

#include <algorithm>

#include "base/log.h"
#include "base/strings.h"
#include "engine/kv_cache.h"

namespace headrace {
namespace {

constexpr size_t kDefaultContexts = 4;     // full contexts that fit by default
constexpr int64_t kUnknownContext = 4096;  // when neither the options nor the model say
constexpr int64_t kMaxBlocks = INT32_MAX / kBlockTokens;

size_t default_bytes(int64_t context, size_t block_bytes, size_t available_bytes) {
  const size_t one = static_cast<size_t>(blocks_for(context)) * block_bytes;
  const size_t quarter = available_bytes / 4;
  if (quarter < one) return std::min(one, available_bytes / 2);
  return std::min(kDefaultContexts * one, quarter);
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
  if (size.num_blocks <= 0) {
    if (limit_bytes == 0) limit_bytes = default_bytes(wanted, block_bytes, available_bytes);
    size.num_blocks = static_cast<int64_t>(limit_bytes / block_bytes);
  }
  if (size.num_blocks <= 0) {
    Error error = make_error(ErrorCode::kExhausted,
                             "keys and values may use {} bytes, one block of {} tokens needs {}",
                             limit_bytes, kBlockTokens, block_bytes);
    error.hint = "give more memory to keys and values";
    return error;
  }
  size.num_blocks = std::min(size.num_blocks, kMaxBlocks);
  const size_t needed = static_cast<size_t>(size.num_blocks) * block_bytes;
  if (needed > available_bytes) {
    Error error = make_error(ErrorCode::kExhausted,
                             "not enough memory: keys and values shall have {}, but {} are left",
                             format_bytes(needed), format_bytes(available_bytes));
    error.hint = "lower --kv-memory, or leave it out for what fits";
    return error;
  }
  size.max_context = std::min(wanted, size.num_blocks * kBlockTokens);
  return size;
}

}  // namespace headrace
