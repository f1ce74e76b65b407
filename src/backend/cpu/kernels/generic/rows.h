// Rows of a part: one for each layout that an algorithm takes, named after it.
//
// A maker is a class with the algorithm's rows:
//   static constexpr const char* kPrefix, *kSuffix   around the layout in a row's name
//   static constexpr bool takes(const LayoutInfo&)
//   template <Layout> static constexpr KernelRow row(const char* name)
#pragma once

#include "backend/cpu/kernels/generic/base.h"

namespace headrace::cpu {
namespace {

struct RowName {
  char text[48] = {};
};

// prefix + the layout's name up to "x16" + suffix.
constexpr RowName row_name(const char* prefix, const LayoutInfo& info, const char* suffix) {
  RowName name;
  int length = 0;
  for (const char* c = prefix; *c != '\0'; ++c) name.text[length++] = *c;
  for (const char* c = info.name; !(c[0] == 'x' && c[1] == '1' && c[2] == '6'); ++c) {
    name.text[length++] = *c;
  }
  for (const char* c = suffix; *c != '\0'; ++c) name.text[length++] = *c;
  return name;
}

template <int kCount>
struct RowTable {
  static constexpr int kNumRows = kCount;
  KernelRow rows[kCount];
};

template <typename Maker, Layout kLayout>
inline constexpr RowName kRowName = row_name(Maker::kPrefix, layout_info(kLayout), Maker::kSuffix);

template <typename Maker>
constexpr bool has_row(const LayoutInfo& info) {
  return Maker::takes(info);
}

template <typename Maker>
constexpr int count_rows() {
  int count = 0;
  for (const LayoutInfo& info : kLayouts) count += has_row<Maker>(info) ? 1 : 0;
  return count;
}

template <typename Maker>
constexpr RowTable<count_rows<Maker>()> layout_rows() {
  RowTable<count_rows<Maker>()> table{};
  int count = 0;
  unrolled<0, kNumLayouts>([&](auto i) {
    constexpr Layout kLayout = static_cast<Layout>(i.value);
    if constexpr (has_row<Maker>(layout_info(kLayout))) {
      table.rows[count++] = Maker::template row<kLayout>(kRowName<Maker, kLayout>.text);
    }
  });
  return table;
}

// The rows of several makers, one after the other.
template <typename... Makers>
struct PartRows {
  static constexpr int kCount = (count_rows<Makers>() + ...);
  static constexpr RowTable<kCount> joined() {
    RowTable<kCount> all{};
    int count = 0;
    const auto add = [&](const auto& table) {
      for (const KernelRow& row : table.rows) all.rows[count++] = row;
    };
    (add(layout_rows<Makers>()), ...);
    return all;
  }
  static constexpr RowTable<kCount> kTable = joined();
  static constexpr KernelPart kPart = {kTable.rows, kCount};
};

// Rows that belong to no layout.
constexpr KernelRow plain_row(KernelOp op, const char* name, uint32_t isa, NumericsClass numerics,
                              KernelFunction function) {
  return {op, name,           isa,      Layout::kCount, ActivationType::kF32,
          1,  {1, kPanel, 1}, numerics, function};
}
constexpr KernelRow attention_whole_row(uint32_t isa, void (*function)(const AttentionRowsArgs&)) {
  return {KernelOp::kAttention, "attention_whole",      isa,
          Layout::kCount,       ActivationType::kFixed, 1,
          {1, kPanel, 1},       NumericsClass::kFixed,  {.attention = function}};
}
constexpr KernelRow quantise_row(ActivationType type, const char* name, uint32_t isa,
                                 NumericsClass numerics, void (*function)(const QuantiseArgs&)) {
  return {KernelOp::kQuantise,      name,     isa,
          Layout::kCount,           type,     1,
          {1, 1, kActivationBlock}, numerics, {.quantise = function}};
}

}  // namespace
}  // namespace headrace::cpu
