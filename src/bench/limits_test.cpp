// The measured limits are plausible; the description of the machine reads what Linux writes.

#include "bench/limits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "backend/cpu/kernels/isa.h"
#include "base/testing/temp_folder.h"
#include "bench/machine.h"

namespace headrace::cpu {
namespace limits_test {

namespace fs = std::filesystem;

TEST(Limits, PeaksCoverWhatTheProcessorHas) {
  const std::vector<PeakRate> peaks = peak_rates(1);
  const uint32_t isa = detect_isa();
  if ((isa & kIsaAvx2) == 0) GTEST_SKIP() << "no vector unit that has a probe";
  EXPECT_FALSE(peaks.empty());
  for (const PeakRate& peak : peaks) {
    EXPECT_EQ(peak.isa & ~isa, 0u) << peak.name;
    // One core: above a plain scalar loop, below a thousand times what any core does today.
    EXPECT_GT(peak.operations.one_thread, 5e9) << peak.name;
    EXPECT_LT(peak.operations.one_thread, 1e15) << peak.name;
    EXPECT_EQ(peak.operations.one_thread, peak.operations.all_threads) << peak.name;
  }
  EXPECT_GT(best_peak(peaks, PeakKind::kF32, isa), 0);
  EXPECT_EQ(best_peak(peaks, PeakKind::kF32, 0), 0) << "no row runs without any ISA bit";
  if ((isa & kIsaAvx512Vnni) != 0) {
    EXPECT_GT(best_peak(peaks, PeakKind::kInt8, isa), best_peak(peaks, PeakKind::kF32, isa));
  }
}

TEST(Limits, TwoProductsOfBytesAreOneOfWordsWhereThatIsFaster) {
  std::vector<PeakRate> peaks = {{"bytes", PeakKind::kInt8, 0, {8e9, 8e9}}};
  EXPECT_EQ(operation_rate(peaks, PeakKind::kInt8, 2, 0), 4e9);
  peaks.push_back({"words", PeakKind::kInt16, 0, {5e9, 5e9}});
  EXPECT_EQ(operation_rate(peaks, PeakKind::kInt8, 2, 0), 5e9);
  EXPECT_EQ(operation_rate(peaks, PeakKind::kInt8, 1, 0), 8e9);
  EXPECT_EQ(operation_rate(peaks, PeakKind::kInt8, 4, 0), 2e9) << "digits of either side";
}

TEST(Limits, SequencesOfTilesAreTimedWhereThereAreTiles) {
  constexpr uint32_t kTiles = kIsaAmxTile | kIsaAmxInt8;
  const uint32_t isa = detect_isa();
  const auto times = sequence_times(2);
  ASSERT_TRUE(times.ok()) << times.error().message;
  EXPECT_EQ(times->empty(), (isa & kTiles) != kTiles);
  std::set<std::string> names;
  int num_products = 0, num_loads = 0;
  for (const SequenceTime& time : *times) {
    EXPECT_TRUE(names.insert(time.name).second) << time.name;
    EXPECT_EQ(time.isa & ~isa, 0u) << time.name;
    // A thousand cycles at the most, and no load or product in less than a tenth of one.
    EXPECT_GT(time.one_thread, 2e-11) << time.name;
    EXPECT_LT(time.one_thread, 1e-6) << time.name;
    EXPECT_GT(time.all_threads, 2e-11) << time.name;
    EXPECT_LT(time.all_threads, 1e-4) << time.name << ": beside other programs";
    ++(time.item == SequenceItem::kProduct ? num_products : num_loads);
  }
  EXPECT_EQ(num_products > 0, !times->empty());
  EXPECT_EQ(num_loads > 0, !times->empty());
}

TEST(Limits, ReadsOfEverySizeAreCounted) {
  const size_t sizes[] = {1, 16384, size_t{1} << 20};
  const auto rates = read_rates(sizes, 2);
  ASSERT_TRUE(rates.ok());
  ASSERT_EQ(rates->size(), 3u);
  for (const ReadRate& rate : *rates) {
    EXPECT_GT(rate.bytes.one_thread, 1e8) << rate.num_bytes;
    EXPECT_GT(rate.bytes.all_threads, 1e8) << rate.num_bytes;
    EXPECT_LT(rate.bytes.all_threads, 1e14) << rate.num_bytes;
  }
  const auto bandwidth = read_bandwidth(size_t{1} << 20, 1);
  ASSERT_TRUE(bandwidth.ok());
  EXPECT_GT(*bandwidth, 1e8);
}

TEST(Machine, CountsListsOfRanges) {
  EXPECT_EQ(count_listed(""), 0);
  EXPECT_EQ(count_listed("0"), 1);
  EXPECT_EQ(count_listed("0-3,8,10-11"), 7);
  EXPECT_EQ(count_listed("3-1"), 0);
}

class FakeRoot {
 public:
  void file(const std::string& path, const std::string& text) const { root_.write(path, text); }
  std::string path() const { return root_.path(); }

 private:
  const testing::TempFolder root_;
};

TEST(Machine, ReadsTheSystemsFiles) {
  const FakeRoot root;
  const std::string cpus = "sys/devices/system/cpu/";
  root.file("proc/cpuinfo", "processor\t: 0\nmodel name\t: Example 9000\n");
  root.file("proc/meminfo", "MemTotal:       2048 kB\n");
  root.file("sys/devices/system/node/online", "0-1\n");
  root.file("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  root.file("sys/fs/cgroup/cpu.max", "150000 100000\n");
  root.file(cpus + "online", "0-3\n");
  for (int i = 0; i < 4; ++i) {
    root.file(cpus + "cpu" + std::to_string(i) + "/topology/thread_siblings_list",
              i < 2 ? "0-1\n" : "2-3\n");
  }
  root.file(cpus + "cpu0/cache/index0/level", "2\n");
  root.file(cpus + "cpu0/cache/index0/type", "Unified\n");
  root.file(cpus + "cpu0/cache/index0/size", "2M\n");
  root.file(cpus + "cpu0/cache/index0/shared_cpu_list", "0-1\n");
  root.file(cpus + "cpu0/cache/index1/level", "1\n");
  root.file(cpus + "cpu0/cache/index1/type", "Data\n");
  root.file(cpus + "cpu0/cache/index1/size", "48K\n");
  root.file(cpus + "cpu0/cache/index1/shared_cpu_list", "0\n");
  const MachineInfo machine = describe_machine(root.path());
  EXPECT_EQ(machine.processor, "Example 9000");
  EXPECT_EQ(machine.num_logical_cpus, 4);
  EXPECT_EQ(machine.num_cores, 2);
  EXPECT_EQ(machine.threads_per_core, 2);
  EXPECT_EQ(machine.cgroup_cores, 2);
  EXPECT_EQ(machine.num_numa_nodes, 2);
  EXPECT_EQ(machine.memory_bytes, size_t{2} << 20);
  EXPECT_EQ(machine.large_pages, "madvise");
  ASSERT_EQ(machine.caches.size(), 2u);
  EXPECT_EQ(machine.caches[0].level, 1);
  EXPECT_EQ(machine.caches[0].num_bytes, size_t{48} << 10);
  EXPECT_EQ(machine.caches[1].num_bytes, size_t{2} << 20);
  EXPECT_EQ(machine.caches[1].num_logical_cpus, 2);
}

TEST(Machine, MissingFilesLeaveZeros) {
  const FakeRoot root;
  const MachineInfo machine = describe_machine(root.path() + "/absent");
  EXPECT_EQ(machine.num_logical_cpus, 0);
  EXPECT_EQ(machine.num_cores, 0);
  EXPECT_TRUE(machine.caches.empty());
  EXPECT_TRUE(machine.processor.empty());
}

}  // namespace limits_test
}  // namespace headrace::cpu
