// Rows of golden folders and of kernels.
#include <gtest/gtest.h>

#include <set>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/units.h"
#include "base/testing/temp_folder.h"
#include "verify/golden.h"
#include "verify/verify.h"

namespace headrace {
namespace report_rows_test {

using testing::TempFolder;

TEST(GoldenRow, AFolderThatCannotBeRunIsAFailedRowWithTheReason) {
  const auto backend = create_cpu_backend({.isa = "reference", .num_threads = 1}).value();
  const TempFolder folder;
  const VerifyRow empty = golden_row(folder.path(), *backend, {}, 0);
  EXPECT_FALSE(empty.passed);
  EXPECT_EQ(empty.item, folder.path());
  EXPECT_NE(empty.details.find("expect.json"), std::string::npos) << empty.details;
  folder.write("expect.json", "{\"prompts\": []}");
  EXPECT_FALSE(golden_row(folder.path(), *backend, {}, 0).passed);
  folder.write("expect.json", "nonsense");
  const VerifyRow broken = golden_row(folder.path(), *backend, {}, 1e-3);
  EXPECT_FALSE(broken.passed);
  EXPECT_NE(broken.details.find("JSON"), std::string::npos) << broken.details;
}

TEST(KernelRows, EveryRowOfAUnitIsCheckedAndNamed) {
  const cpu::KernelUnit* unit = cpu::all_units().back();
  const VerifyRows rows = kernel_rows(std::span(&unit, 1), 0, cpu::Depth::kStart);
  EXPECT_EQ(rows.size(), cpu::rows_of(*unit).size());
  std::set<std::string> items;
  for (const VerifyRow& row : rows) {
    EXPECT_TRUE(row.passed) << row.item << ": " << row.details;
    EXPECT_TRUE(row.item.ends_with("_" + std::string(unit->name))) << row.item;
    EXPECT_NE(row.details.find(" cases, largest error "), std::string::npos) << row.details;
    items.insert(row.item);
  }
  EXPECT_EQ(items.size(), rows.size()) << "two rows of one name";
}

TEST(KernelRows, WhatTheProcessorLacksIsNotRun) {
  for (const cpu::KernelUnit* unit : cpu::all_units()) {
    if (unit->isa == 0) continue;
    EXPECT_TRUE(kernel_rows(std::span(&unit, 1), 0, cpu::Depth::kStart).empty()) << unit->name;
  }
}

}  // namespace report_rows_test
}  // namespace headrace
