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

size_t default_bytes(size_t one_context, size_t available_bytes) {
  const size_t quarter = available_bytes / 4;
  if (quarter < one_context) return std::min(one_context, available_bytes / 2);
  return std::min(kDefaultContexts * one_context, quarter);
}

// The longest context, at most `wanted`, for which a sequence alone has blocks.
int64_t longest_context(int64_t wanted, const CacheLayout& layout, int64_t max_chunk,
                        int64_t num_blocks) {
  int64_t fits = 0;
  for (int64_t past = wanted + 1; past - fits > 1;) {
    const int64_t middle = fits + (past - fits) / 2;
    (most_blocks(layout.rules, middle, max_chunk) <= num_blocks ? fits : past) = middle;
  }
  return fits;
}

Error too_small(size_t limit_bytes, size_t needed_bytes) {
  Error error = make_error(ErrorCode::kExhausted,
                           "keys and values may use {} bytes, one block of {} tokens needs {}",
                           limit_bytes, kBlockTokens, needed_bytes);
  error.hint = "give more memory to keys and values";
  return error;
}

}  // namespace

Result<KvSize> size_kv(const EngineOptions& options, int64_t model_context,
                       const CacheLayout& layout, int64_t max_chunk, size_t available_bytes) {
  CHECK(layout.block_bytes > 0);
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
    const size_t one_context = layout.bytes_for(wanted, max_chunk);
    if (limit_bytes == 0) limit_bytes = default_bytes(one_context, available_bytes);
    size.num_blocks = static_cast<int64_t>(limit_bytes / layout.block_bytes);
  }
  size.num_blocks = std::min(size.num_blocks, kMaxBlocks);
  size.max_context = longest_context(wanted, layout, max_chunk, size.num_blocks);
  if (size.max_context <= 0) return too_small(limit_bytes, layout.bytes_for(1, max_chunk));
  const size_t needed = static_cast<size_t>(size.num_blocks) * layout.block_bytes;
  if (needed > available_bytes) {
    Error error = make_error(ErrorCode::kExhausted,
                             "not enough memory: keys and values shall have {}, but {} are left",
                             format_bytes(needed), format_bytes(available_bytes));
    error.hint = "lower --kv-memory, or leave it out for what fits";
    return error;
  }
  return size;
}

}  // namespace headrace
