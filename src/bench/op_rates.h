// What ops reach: the time of each kind of op, measured alone on random data, by which the time of
// a step is expected. Of one machine, with a number of threads; plain data.
//
// A time is that of one unit of the op's work: an operation of products and attention, a number of
// what works on rows, the whole of a join. It stands for a size (rows of x; positions that a row
// sees) and for a working set; between measured ones it follows the logarithm of the size, and the
// time of reads of that working set. Sizes at which arithmetic hides all reads are measured with
// one working set alone, which stands for any.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels/kernels.h"

namespace headrace {

enum class RatedOp : uint8_t {
  kProduct,         // rows times a weight, of a layout and a type of activations
  kAttentionRow,    // of one row of each sequence, by type and shape of the keys
  kAttentionChunk,  // of many rows of one
  kQuantise,        // a number of the rows, by type of activations
  kNorm,            // likewise
  kFinish,          // a number of the outputs of a linear layer
  kGate,            // of a gated one
  kRope,            // a cosine and a sine of a row
  kAppend,          // a number of q, k and v: rotated, keys and values stored, by their type
  kJoin,            // an op of next to no work: the team comes together
  kStart,           // what an op with a weight takes beside its products: that weight was far away
  kRead,            // a byte of memory: of that which products were measured on, or of a model
};
// Variants of kRead: memory is not everywhere equally fast.
inline constexpr std::string_view kReadByOps = "ops", kReadByModel = "model";
std::string_view rated_op_name(RatedOp op);  // "product", "attention_row"
std::optional<RatedOp> parse_rated_op(std::string_view name);

struct OpRate {
  RatedOp op = RatedOp::kJoin;
  std::string of;          // "q4_0x16 int16", "f16 64 x4": what variant; empty: there is one
  double size = 1;         // rows, or positions that a row sees
  double working_set = 0;  // bytes; 0: of no matter
  double seconds = 0;      // of a unit
};

std::string product_variant(cpu::Layout layout, cpu::ActivationType activation);
std::string_view activation_name(cpu::ActivationType activation);
// Of the measured shapes the one nearest to this.
std::string attention_variant(KvType type, int head_dim, int queries_per_key);
// The shapes that are measured.
inline constexpr std::array kRatedHeadDims = {64, 128, 256};
inline constexpr std::array kRatedGroups = {1, 4, 8};

class OpRates {
 public:
  void add(OpRate rate);
  bool empty() const { return rates_.empty(); }
  const std::vector<OpRate>& all() const { return rates_; }

  // Seconds of a unit; nothing where this variant was not measured. read_s: seconds of a byte of a
  // working set of so many.
  std::optional<double> seconds(RatedOp op, std::string_view of, double size, double working_set,
                                const std::function<double(double)>& read_s) const;
  // The same where the working set is of no matter.
  std::optional<double> seconds(RatedOp op, std::string_view of = {}, double size = 1) const;

 private:
  std::vector<OpRate> rates_;  // ascending by op, variant, working set and size
};

}  // namespace headrace
