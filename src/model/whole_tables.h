// WholeTables: the block tables of a sequence that keeps all it computes, for those who run a model
// without an engine. They give nothing back, so every column has a block for every position.
#pragma once

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace headrace {

class WholeTables {
 public:
  // Column c has the blocks ids[i] + c * stride; a store for it has num_columns * stride blocks.
  WholeTables(const std::vector<int32_t>& ids, int num_columns, int64_t stride) {
    for (int32_t column = 0; column < num_columns; ++column) {
      std::vector<int32_t>& blocks = columns_.emplace_back(ids);
      for (int32_t& id : blocks) id += column * static_cast<int32_t>(stride);
    }
    for (const std::vector<int32_t>& blocks : columns_) tables_.push_back(blocks.data());
  }
  // Room for num_tokens from block `first` of each column on.
  static WholeTables in_order(int64_t num_tokens, int num_columns, int64_t stride,
                              int32_t first = 0) {
    std::vector<int32_t> ids(static_cast<size_t>((num_tokens + kBlockTokens - 1) / kBlockTokens));
    std::iota(ids.begin(), ids.end(), first);
    return {ids, num_columns, stride};
  }

  WholeTables(WholeTables&&) = default;
  WholeTables& operator=(WholeTables&&) = default;

  const int32_t* const* data() const { return tables_.data(); }  // for Span::tables
  int64_t num_tokens() const { return std::ssize(columns_[0]) * kBlockTokens; }

 private:
  std::vector<std::vector<int32_t>> columns_;
  std::vector<const int32_t*> tables_;
};

}  // namespace headrace
