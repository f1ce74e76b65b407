#include "engine/pool.h"

#include "base/check.h"

namespace headrace {

PromptRange pooled_range(Pooling pooling, int64_t num_prompt) {
  switch (pooling) {
    case Pooling::kNone:
      return {};
    case Pooling::kMean:
      return {0, num_prompt};
    case Pooling::kFirst:
      return {0, 1};
    case Pooling::kLast:
      return {num_prompt - 1, num_prompt};
  }
  return {};
}

void Pool::add(std::span<const float> rows, int64_t num_rows) {
  if (num_rows == 0) return;
  const size_t width = rows.size() / static_cast<size_t>(num_rows);
  if (sum_.empty()) sum_.resize(width);
  CHECK(width == sum_.size() && rows.size() == width * static_cast<size_t>(num_rows),
        "{} values in {} rows, after rows of {}", rows.size(), num_rows, sum_.size());
  for (size_t begin = 0; begin < rows.size(); begin += width) {
    for (size_t i = 0; i < width; ++i) sum_[i] += static_cast<double>(rows[begin + i]);
  }
  num_rows_ += num_rows;
}

std::vector<float> Pool::mean() const {
  std::vector<float> mean;
  mean.reserve(sum_.size());
  for (const double sum : sum_) {
    mean.push_back(static_cast<float>(sum / static_cast<double>(num_rows_)));
  }
  return mean;
}

}  // namespace headrace
