// What the machine is, read from a tree of files like those of Linux.
#include "bench/machine.h"

#include <gtest/gtest.h>

#include "base/testing/temp_folder.h"

namespace headrace::cpu {
namespace machine_test {

using headrace::testing::TempFolder;

TEST(CountListed, CountsRangesAndSingles) {
  struct Case {
    std::string list;
    int count;
  };
  for (const Case& c : std::initializer_list<Case>{{"", 0},
                                                   {"0", 1},
                                                   {"0-3", 4},
                                                   {"0-3,8", 5},
                                                   {"1,2,5-6", 4},
                                                   {"7-3", 0},
                                                   {"x", 0},
                                                   {"3,x,5", 2},
                                                   {"0-0", 1}}) {
    EXPECT_EQ(count_listed(c.list), c.count) << c.list;
  }
}

class MachineTest : public ::testing::Test {
 protected:
  void cpu_file(const std::string& name, const std::string& text) {
    root_.write("sys/devices/system/cpu/" + name, text + "\n");
  }
  void cache(int index, int level, const std::string& type, const std::string& size) {
    const std::string folder = "cpu0/cache/index" + std::to_string(index);
    cpu_file(folder + "/level", std::to_string(level));
    cpu_file(folder + "/type", type);
    cpu_file(folder + "/size", size);
    cpu_file(folder + "/shared_cpu_list", "0-1");
  }

  TempFolder root_;
};

TEST_F(MachineTest, IsReadFromTheFilesOfTheSystem) {
  root_.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: A Processor (R) 9\nflags\t: x\n");
  root_.write("proc/meminfo", "MemTotal:       1048576 kB\nMemFree: 1 kB\n");
  root_.write("sys/devices/system/node/online", "0-1\n");
  root_.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  cpu_file("online", "0-3");
  for (int i = 0; i < 4; ++i) {
    cpu_file("cpu" + std::to_string(i) + "/topology/thread_siblings_list", i < 2 ? "0-1" : "2-3");
  }
  cache(0, 3, "Unified", "32768K");
  cache(1, 1, "Data", "48K");
  cache(2, 2, "Unified", "2M");
  const MachineInfo machine = describe_machine(root_.path());
  EXPECT_EQ(machine.processor, "A Processor (R) 9");
  EXPECT_EQ(machine.num_logical_cpus, 4);
  EXPECT_EQ(machine.num_cores, 2);
  EXPECT_EQ(machine.threads_per_core, 2);
  EXPECT_EQ(machine.num_numa_nodes, 2);
  EXPECT_EQ(machine.memory_bytes, size_t{1} << 30);
  EXPECT_EQ(machine.large_pages, "madvise");
  ASSERT_EQ(machine.caches.size(), 3u);
  EXPECT_EQ(machine.caches[0].level, 1);
  EXPECT_EQ(machine.caches[0].num_bytes, 48u << 10);
  EXPECT_EQ(machine.caches[1].num_bytes, 2u << 20);
  EXPECT_EQ(machine.caches[2].num_bytes, 32u << 20);
  EXPECT_EQ(machine.caches[2].num_logical_cpus, 2);
}

TEST_F(MachineTest, WhatTheSystemDoesNotTellIsEmpty) {
  const MachineInfo machine = describe_machine(root_.path());
  EXPECT_EQ(machine.processor, "");
  EXPECT_EQ(machine.num_logical_cpus, 0);
  EXPECT_EQ(machine.num_cores, 0);
  EXPECT_EQ(machine.memory_bytes, 0u);
  EXPECT_EQ(machine.large_pages, "");
  EXPECT_TRUE(machine.caches.empty());
  EXPECT_GT(machine.num_usable, 0) << "this process runs somewhere";
}

TEST_F(MachineTest, OddFilesAreNoFigures) {
  root_.write("proc/cpuinfo", "model name without a colon\n");
  root_.write("sys/kernel/mm/transparent_hugepage/enabled", "always ]madvise[ never\n");
  cache(0, 1, "Data", "many");
  const MachineInfo machine = describe_machine(root_.path());
  EXPECT_EQ(machine.processor, "");
  EXPECT_EQ(machine.large_pages, "");
  ASSERT_EQ(machine.caches.size(), 1u);
  EXPECT_EQ(machine.caches[0].num_bytes, 0u);
}

TEST(ResidentBytes, AreSomeMegabytes) {
  EXPECT_GT(resident_bytes(), size_t{1} << 20);
  EXPECT_LT(resident_bytes(), size_t{1} << 40);
}

}  // namespace machine_test
}  // namespace headrace::cpu
