// OpRecord: when an op ran, and what it had to do at the least. A plain value.
#pragma once

#include <cstdint>
#include <iterator>
#include <string_view>

namespace headrace {

enum class OpKind : uint8_t {
  kEmbed,
  kNorm,
  kLinear,
  kGatedLinear,
  kActivatedLinear,
  kExperts,
  kQkvLinear,
  kFinishQkv,
  kAttention,
  kCausalConv,
  kScan,
  kDelta,
  kAppendRow,
  kHeadLinear,
  kSelectKeys,
  kLatentAttention,
  kMixStreams,
  kSparseGate,
  kHead,
  kGatherRows,
  kRopeRows,
  kFindFiniteRows,
};
inline constexpr std::string_view kOpNames[] = {"embed",
                                                "norm",
                                                "linear",
                                                "gated_linear",
                                                "activated_linear",
                                                "experts",
                                                "qkv_linear",
                                                "finish_qkv",
                                                "attention",
                                                "causal_conv",
                                                "scan",
                                                "delta",
                                                "append_row",
                                                "head_linear",
                                                "select_keys",
                                                "latent_attention",
                                                "mix_streams",
                                                "sparse_gate",
                                                "head",
                                                "gather_rows",
                                                "rope_rows",
                                                "find_finite_rows"};
static_assert(std::size(kOpNames) == static_cast<size_t>(OpKind::kFindFiniteRows) + 1);

inline constexpr int32_t kNoOpLayer = -1;  // an op of the network itself

struct OpRecord {
  OpKind kind = OpKind::kNorm;
  int32_t layer = kNoOpLayer;
  int32_t num_rows = 0;
  // Of the weight that it multiplies with; 0 and empty: it has none. With experts: of one.
  int64_t num_outputs = 0;
  int64_t num_inputs = 0;
  std::string_view layout = {};  // constant data: a name of the layout table
  // std::chrono::steady_clock, nanoseconds.
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  // Read and written at the least: weights as packed (of experts those that were met), rows in and
  // out, the keys and values that are seen, a state once in and once out.
  double bytes = 0;
  // Of products: 2 N K a row; of attention 4 a number of each position seen. Others count none.
  double operations = 0;
};

}  // namespace headrace
