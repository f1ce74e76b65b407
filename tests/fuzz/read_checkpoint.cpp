#include "read_checkpoint.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "checkpoint/quantisation.h"
#include "checkpoint/weight_rows.h"

namespace headrace::fuzz {
namespace {

constexpr int64_t kMaxChunk = 1 << 16;
// Of a file's tensors so many are tried as weights, more than any seed holds. Each is tried in six
// ways, of which at least five end in an error that names what was looked for: for the largest
// tables that were 590,000 messages, which took four times as long as opening the file.
constexpr size_t kMaxTriedTensors = 4'096;

// A value that the optimiser cannot drop: every byte is really read.
volatile float float_sink;
volatile size_t size_sink;

int64_t read_tensor(const TensorView& view) {
  const DTypeRow& row = dtype_row(view.dtype);
  CHECK(view.num_elements() / row.block_elements * row.block_bytes ==
            static_cast<int64_t>(view.num_bytes),
        "{}", view.shape_string());
  for (size_t i = 0; i < view.num_bytes; i += 64) size_sink = static_cast<size_t>(view.data[i]);
  if (row.dequantise == nullptr) return 0;
  const int64_t num_blocks = view.num_elements() / row.block_elements;
  const int64_t chunk_blocks = std::max<int64_t>(1, kMaxChunk / row.block_elements);
  std::vector<float> values(static_cast<size_t>(std::min(chunk_blocks, num_blocks)) *
                            row.block_elements);
  for (int64_t first = 0; first < num_blocks; first += chunk_blocks) {
    const int64_t count = std::min(chunk_blocks, num_blocks - first);
    row.dequantise(view.data + first * row.block_bytes, count, values.data());
    float_sink = values[0];
  }
  return view.num_elements();
}

int64_t read_weight(const WeightView& weight) {
  const int64_t chunk_rows = std::clamp<int64_t>(kMaxChunk / weight.num_inputs, 1, 64);
  std::vector<float> values(static_cast<size_t>(chunk_rows * weight.num_inputs));
  for (int64_t first = 0; first < weight.num_outputs; first += chunk_rows) {
    const int64_t count = std::min(chunk_rows, weight.num_outputs - first);
    dequantise_rows(weight, first, count, values.data());
    float_sink = values[0];
  }
  size_sink = weight.stored_bytes();
  return weight.num_outputs * weight.num_inputs;
}

// Tries the tensor's name as the leading part of a linear weight and of stacked experts.
void read_as_weight(const Checkpoint& checkpoint, const std::string& name, ReadCounts* counts) {
  constexpr std::array<std::string_view, 4> kSuffixes = {".weight", ".qweight", ".weight_packed",
                                                         "_blocks"};
  for (const std::string_view suffix : kSuffixes) {
    if (!name.ends_with(suffix)) continue;
    const std::string base_name = name.substr(0, name.size() - suffix.size());
    for (const QuantMethod method : {QuantMethod::kNone, QuantMethod::kGptq, QuantMethod::kAwq}) {
      const Quantisation quantisation{.method = method};
      for (const auto& weight : {find_weight(checkpoint, quantisation, base_name),
                                 find_expert_weight(checkpoint, quantisation, base_name, 1)}) {
        if (!weight.ok()) continue;
        counts->num_values += read_weight(*weight);
        ++counts->num_linear_weights;
      }
    }
  }
}

}  // namespace

ReadCounts read_everything(const Checkpoint& checkpoint) {
  ReadCounts counts;
  for (const auto& [key, value] : checkpoint.metadata().entries()) {
    if (const auto text = checkpoint.metadata().text(key)) size_sink = text->size();
    if (const auto* texts = checkpoint.metadata().texts(key)) {
      for (const std::string_view text : *texts) {
        for (const char c : text) size_sink = static_cast<size_t>(c);
      }
    }
    size_sink = checkpoint.metadata().integers(key).has_value();
    size_sink = checkpoint.metadata().numbers(key).has_value();
  }
  size_t num_tried = 0;
  for (const std::string& name : checkpoint.names()) {
    const TensorView* view = checkpoint.find(name);
    CHECK(view != nullptr, "{}", name);
    counts.num_values += read_tensor(*view);
    if (num_tried++ < kMaxTriedTensors) read_as_weight(checkpoint, name, &counts);
  }
  return counts;
}

}  // namespace headrace::fuzz
