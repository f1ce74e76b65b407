#include "model/row_orders.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace headrace {
namespace row_orders_test {

using Order = std::vector<int32_t>;

LayerConfig layer_of(int heads, int kv_heads, int head_dim) {
  LayerConfig layer;
  layer.num_attention_heads = heads;
  layer.num_key_value_heads = kv_heads;
  layer.head_dim = head_dim;
  return layer;
}

Order qkv_order(QkvOrder kind, const LayerConfig& layer) {
  Order order;
  append_qkv_order(kind, layer, &order);
  return order;
}

TEST(RowOrders, AlternatingRowsAreEvenOnesThenOddOnes) {
  Order order = {9};
  append_alternating(6, &order);
  EXPECT_EQ(order, (Order{9, 0, 2, 4, 1, 3, 5})) << "behind what was there";
  append_alternating(0, &order);
  EXPECT_EQ(order.size(), 7u);
}

TEST(RowOrders, PartsAreInTheNetworksOrderAlready) {
  EXPECT_TRUE(qkv_order(QkvOrder::kParts, layer_of(4, 2, 8)).empty());
}

TEST(RowOrders, GroupsHoldTheirQueriesThenTheirKeyAndValue) {
  // The tensor: q0 q1 k0 v0 | q2 q3 k1 v1, of one row each.
  EXPECT_EQ(qkv_order(QkvOrder::kGroups, layer_of(4, 2, 1)), (Order{0, 1, 4, 5, 2, 6, 3, 7}));
  // One head for all keys: q0 q1 k v is the network's order.
  EXPECT_EQ(qkv_order(QkvOrder::kGroups, layer_of(2, 1, 2)), (Order{0, 1, 2, 3, 4, 5, 6, 7}));
  // A key for each query: q0 k0 v0 | q1 k1 v1, of two rows each.
  EXPECT_EQ(qkv_order(QkvOrder::kGroups, layer_of(2, 2, 2)),
            (Order{0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11}));
}

TEST(RowOrders, FourBlocksHoldQueriesThenValuesThenKeys) {
  // The tensor: q v k, four times, of one head each.
  EXPECT_EQ(qkv_order(QkvOrder::kFourBlocks, layer_of(4, 4, 1)),
            (Order{0, 3, 6, 9, 2, 5, 8, 11, 1, 4, 7, 10}));
}

TEST(RowOrders, EveryRowIsTakenOnce) {
  for (const QkvOrder kind : {QkvOrder::kGroups, QkvOrder::kFourBlocks}) {
    for (const LayerConfig& layer : {layer_of(8, 4, 2), layer_of(16, 8, 6), layer_of(4, 4, 3)}) {
      Order order = qkv_order(kind, layer);
      const int heads = layer.num_attention_heads + 2 * layer.num_key_value_heads;
      ASSERT_EQ(order.size(), static_cast<size_t>(heads * layer.head_dim));
      std::sort(order.begin(), order.end());
      for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], static_cast<int32_t>(i));
    }
  }
}

}  // namespace row_orders_test
}  // namespace headrace
