#include "model/row_orders.h"

namespace headrace {

void append_alternating(int64_t count, std::vector<int32_t>* order) {
  for (int32_t i = 0; i < count; i += 2) order->push_back(i);
  for (int32_t i = 1; i < count; i += 2) order->push_back(i);
}

void append_qkv_order(QkvOrder kind, const LayerConfig& layer, std::vector<int32_t>* order) {
  if (kind == QkvOrder::kParts) return;
  const bool groups = kind == QkvOrder::kGroups;
  const int num_runs = groups ? layer.num_key_value_heads : 4;
  const int dim = layer.head_dim;
  const int queries = layer.num_attention_heads / num_runs * dim;
  const int keys = groups ? dim : layer.num_key_value_heads / num_runs * dim;
  const int run = queries + 2 * keys;
  const auto append = [&](int start, int count) {
    for (int i = 0; i < num_runs; ++i) {
      for (int row = 0; row < count; ++row) order->push_back(i * run + start + row);
    }
  };
  append(0, queries);
  append(groups ? queries : queries + keys, keys);
  append(groups ? queries + keys : queries, keys);
}

}  // namespace headrace
