// Orders of the rows of published tensors that hold several parts. Each appends, for row i of the
// network's own order, the row of the tensor; nothing where the two are the same.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config/config.h"

namespace headrace {

// Every other row, then the others.
void append_alternating(int64_t count, std::vector<int32_t>* order);
// Where the rows of q, then of k, then of v are in a tensor of another order.
void append_qkv_order(QkvOrder kind, const LayerConfig& layer, std::vector<int32_t>* order);

}  // namespace headrace
