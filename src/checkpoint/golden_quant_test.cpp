// Every quantised layout of the golden data: each recorded weight must be dequantised bit for bit.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/numeric.h"
#include "base/testing/golden.h"
#include "checkpoint/quantisation.h"
#include "checkpoint/weight_rows.h"

namespace headrace {
namespace golden_quant_test {

namespace fs = std::filesystem;

std::vector<float> expected_values(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.num_elements()));
  std::memcpy(values.data(), view.data, view.num_bytes);
  return values;
}

void expect_same_bits(const std::vector<float>& expected, const std::vector<float>& found,
                      const std::string& name) {
  ASSERT_EQ(expected.size(), found.size()) << name;
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(float_to_bits(expected[i]), float_to_bits(found[i]))
        << name << " element " << i << ": expected " << expected[i] << ", found " << found[i];
  }
}

// All rows at once, and again by single rows in reverse order through a slice.
void check_weight(const WeightView& weight, const std::vector<float>& expected) {
  const auto num_inputs = static_cast<size_t>(weight.num_inputs);
  std::vector<float> found(static_cast<size_t>(weight.num_outputs) * num_inputs, -1.0f);
  dequantise_rows(weight, 0, weight.num_outputs, found.data());
  expect_same_bits(expected, found, weight.name);
  for (int64_t row = weight.num_outputs - 1; row >= 0; row -= 7) {
    const WeightView slice = slice_rows(weight, row, 1);
    ASSERT_TRUE(validate_weight(slice).ok()) << validate_weight(slice).error().message;
    std::vector<float> one(num_inputs, -1.0f);
    dequantise_rows(slice, 0, 1, one.data());
    const auto begin = expected.begin() + static_cast<ptrdiff_t>(row * weight.num_inputs);
    expect_same_bits({begin, begin + static_cast<ptrdiff_t>(weight.num_inputs)}, one, weight.name);
  }
}

int check_layout(const fs::path& folder) {
  const auto checkpoint = Checkpoint::open(folder.string());
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const auto expect = Checkpoint::open((folder / "expect.safetensors").string());
  EXPECT_TRUE(expect.ok()) << expect.error().message;
  if (!checkpoint.ok() || !expect.ok()) return 0;
  const auto quantisation = read_quantisation(**checkpoint);
  EXPECT_TRUE(quantisation.ok()) << quantisation.error().message;
  if (!quantisation.ok()) return 0;
  int num_checked = 0;
  for (const std::string& name : (*expect)->names()) {
    constexpr std::string_view kPrefix = "dequantised.";
    if (!name.starts_with(kPrefix)) continue;
    const TensorView& view = *(*expect)->find(name);
    const std::string base_name = name.substr(kPrefix.size());
    const int64_t num_experts = view.rank == 3 ? view.dim(0) : 1;
    for (int64_t expert = 0; expert < num_experts; ++expert) {
      const auto weight = view.rank == 3
                              ? find_expert_weight(**checkpoint, *quantisation, base_name, expert)
                              : find_weight(**checkpoint, *quantisation, base_name);
      EXPECT_TRUE(weight.ok()) << weight.error().message;
      if (!weight.ok()) return num_checked;
      check_weight(*weight, expected_values(view.rank == 3 ? view.slice(expert) : view));
      ++num_checked;
    }
  }
  return num_checked;
}

TEST(GoldenQuant, EveryLayoutDequantisesBitForBit) {
  int num_layouts = 0;
  for (const auto& entry : fs::directory_iterator(test::golden_root() / "quant")) {
    SCOPED_TRACE(entry.path().filename().string());
    const int num_checked = check_layout(entry.path());
    EXPECT_GE(num_checked, 7);
    std::printf("%-24s %d weights\n", entry.path().filename().c_str(), num_checked);
    ++num_layouts;
  }
  EXPECT_EQ(num_layouts, 14);
}

TEST(GoldenQuant, TinyCheckpointsOpenAndUnquantisedWeightsAreDense) {
  int num_opened = 0;
  for (const auto& entry : fs::directory_iterator(test::golden_root() / "tiny")) {
    const auto checkpoint = Checkpoint::open(entry.path().string());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_FALSE((*checkpoint)->names().empty());
    EXPECT_TRUE((*checkpoint)->sidecar("config.json").has_value());
    const auto quantisation = read_quantisation(**checkpoint);
    ASSERT_TRUE(quantisation.ok()) << quantisation.error().message;
    EXPECT_EQ(quantisation->method, QuantMethod::kNone);
    ++num_opened;
  }
  EXPECT_GE(num_opened, 49);
}

}  // namespace golden_quant_test
}  // namespace headrace
