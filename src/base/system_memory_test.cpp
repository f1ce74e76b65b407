// Memory that is left, told by made-up systems: control groups of both versions, whole chains of
// them, containers, and limits of the process.

#include "base/system_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/cgroup.h"
#include "base/testing/temp_folder.h"

namespace headrace {
namespace system_memory_test {

namespace fs = std::filesystem;

constexpr size_t kMib = size_t{1} << 20;
const char* const kNoLimit1 = "9223372036854771712\n";

class SystemMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    file("proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable:    4194304 kB\n");
  }

  void file(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void mount_version_2(const std::string& top = "/") const {
    file("proc/self/mountinfo",
         "30 23 0:26 " + top + " /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
  }
  size_t available_mib() const { return available_memory_bytes(root_.string()) / kMib; }
  MemorySupply supply() const { return memory_supply(root_.string()); }

  const testing::TempFolder folder_;
  const fs::path root_ = folder_.path();
};

TEST_F(SystemMemoryTest, WithoutLimitsItIsWhatTheSystemCallsAvailable) {
  EXPECT_EQ(available_mib(), 4096u);
  EXPECT_NE(supply().bound_by.find("free memory"), std::string::npos);
}

TEST_F(SystemMemoryTest, NothingKnownIsNoLimit) {
  fs::remove(root_ / "proc/meminfo");
  EXPECT_EQ(available_memory_bytes(root_.string()), SIZE_MAX);
}

TEST_F(SystemMemoryTest, AGroupOfVersion2LimitsWithItsCacheCountedAsFree) {
  mount_version_2();
  file("proc/self/cgroup", "0::/app.slice/run.scope\n");
  const std::string group = "sys/fs/cgroup/app.slice/run.scope/";
  file(group + "memory.max", "629145600\n");  // 600 MiB
  file(group + "memory.current", std::to_string(300 * kMib));
  EXPECT_EQ(available_mib(), 300u);
  file(group + "memory.stat",
       "anon 1\ninactive_file 83886080\nactive_file 41943040\n"
       "file_dirty 10485760\nfile_writeback 10485760\n");
  EXPECT_EQ(available_mib(), 400u);
  EXPECT_NE(supply().bound_by.find("600 MiB"), std::string::npos) << supply().bound_by;
  EXPECT_NE(supply().bound_by.find("/app.slice/run.scope"), std::string::npos);
}

TEST_F(SystemMemoryTest, MemoryHighLimitsToo) {
  mount_version_2();
  file("proc/self/cgroup", "0::/a\n");
  file("sys/fs/cgroup/a/memory.max", "max\n");
  file("sys/fs/cgroup/a/memory.high", std::to_string(200 * kMib));
  file("sys/fs/cgroup/a/memory.current", std::to_string(50 * kMib));
  EXPECT_EQ(available_mib(), 150u);
}

TEST_F(SystemMemoryTest, EveryGroupAboveLimitsWithWhatAllBelowItUse) {
  mount_version_2();
  file("proc/self/cgroup", "0::/a/b/c\n");
  file("sys/fs/cgroup/a/b/c/memory.max", "max\n");
  file("sys/fs/cgroup/a/b/c/memory.current", "0\n");
  file("sys/fs/cgroup/a/b/memory.max", std::to_string(1000 * kMib));
  file("sys/fs/cgroup/a/b/memory.current", std::to_string(100 * kMib));
  file("sys/fs/cgroup/a/memory.max", std::to_string(2000 * kMib));
  file("sys/fs/cgroup/a/memory.current", std::to_string(1900 * kMib));
  EXPECT_EQ(available_mib(), 100u);
  EXPECT_NE(supply().bound_by.find("'/sys/fs/cgroup/a'"), std::string::npos) << supply().bound_by;
}

TEST_F(SystemMemoryTest, AGroupThatIsOverItsLimitLeavesNothing) {
  mount_version_2();
  file("proc/self/cgroup", "0::/a\n");
  file("sys/fs/cgroup/a/memory.high", std::to_string(100 * kMib));
  file("sys/fs/cgroup/a/memory.current", std::to_string(150 * kMib));
  EXPECT_EQ(available_memory_bytes(root_.string()), 0u);
}

TEST_F(SystemMemoryTest, InAContainerTheMountStandsForTheGroup) {
  // With a namespace of its own, the container's group is the top of what it sees.
  mount_version_2();
  file("proc/self/cgroup", "0::/\n");
  file("sys/fs/cgroup/memory.max", std::to_string(256 * kMib));
  file("sys/fs/cgroup/memory.current", "0\n");
  EXPECT_EQ(available_mib(), 256u);
  // Without one, path and mount both name the host's group.
  mount_version_2("/docker/0123");
  file("proc/self/cgroup", "0::/docker/0123/inner\n");
  file("sys/fs/cgroup/inner/memory.max", std::to_string(128 * kMib));
  EXPECT_EQ(available_mib(), 128u);
  // A process that was moved to a group outside its namespace.
  mount_version_2();
  file("proc/self/cgroup", "0::/../elsewhere\n");
  EXPECT_EQ(available_mib(), 256u);
}

TEST_F(SystemMemoryTest, AGroupOfVersion1LimitsAndSoDoesWhatItSaysOfGroupsAbove) {
  file("proc/self/cgroup", "4:cpu,cpuacct:/other\n3:memory:/jobs/one\n0::/\n");
  file("proc/self/mountinfo",
       "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:7 - cgroup cgroup rw,memory\n");
  const std::string group = "sys/fs/cgroup/memory/jobs/one/";
  file("sys/fs/cgroup/memory/memory.limit_in_bytes", kNoLimit1);
  file(group + "memory.limit_in_bytes", std::to_string(600 * kMib));
  file(group + "memory.usage_in_bytes", std::to_string(500 * kMib));
  file(group + "memory.stat",
       "inactive_file 1\ntotal_inactive_file 209715200\n"
       "hierarchical_memory_limit 9223372036854771712\n");
  EXPECT_EQ(available_mib(), 300u);
  file(group + "memory.stat",
       "total_inactive_file 209715200\n"
       "hierarchical_memory_limit 419430400\n");
  EXPECT_EQ(available_mib(), 100u);
  file("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", std::to_string(50 * kMib));
  EXPECT_EQ(available_mib(), 50u);
}

TEST_F(SystemMemoryTest, HierarchiesMayBeMountedAnywhere) {
  file("proc/self/cgroup", "3:hugetlb,memory:/x\n");
  file("proc/self/mountinfo", "1 2 0:1 / /mnt/my\\040groups rw - cgroup none rw,hugetlb,memory\n");
  file("mnt/my groups/x/memory.limit_in_bytes", std::to_string(70 * kMib));
  EXPECT_EQ(available_mib(), 70u);
}

TEST_F(SystemMemoryTest, LimitsOfTheProcessCountWhatIsMapped) {
  file("proc/self/status", "VmSize:\t  102400 kB\nVmData:\t   51200 kB\n");
  file("proc/self/limits",
       "Limit  Soft Limit  Hard Limit  Units\n"
       "Max data size             unlimited            unlimited   bytes\n"
       "Max address space         1073741824           unlimited   bytes\n");
  EXPECT_EQ(available_mib(), 1024u - 100 - 160);
  EXPECT_NE(supply().bound_by.find("ulimit -v"), std::string::npos);
  file("proc/self/limits", "Max data size             104857600            unlimited   bytes\n");
  EXPECT_EQ(available_mib(), 50u);
  EXPECT_NE(supply().bound_by.find("ulimit -d"), std::string::npos);
}

// The real files have the form that is read: a limit set here is seen.
TEST(SystemMemory, ALimitSetOnThisProcessIsSeen) {
  const pid_t child = fork();
  if (child == 0) {
    const size_t before = available_memory_bytes();
    size_t num_pages = 0;  // of address space, terabytes under a sanitizer
    std::ifstream("/proc/self/statm") >> num_pages;
    const size_t left = size_t{1} << 30;
    const rlim_t most = num_pages * static_cast<size_t>(getpagesize()) + left;
    const struct rlimit limit = {most, most};
    setrlimit(RLIMIT_AS, &limit);
    const size_t after = available_memory_bytes();
    _exit(num_pages > 0 && before > 0 && after < left ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Cgroup, FoldersGoFromTheOwnGroupUpwards) {
  const testing::TempFolder folder;
  const fs::path root = folder.path();
  fs::create_directories(root / "proc/self");
  std::ofstream(root / "proc/self/cgroup") << "0::/a/b\nnonsense\n";
  const std::string base = root.string() + "/sys/fs/cgroup";
  const std::vector<CgroupFolder> expected = {
      {base + "/a/b", true}, {base + "/a", true}, {base, true}, {base + "/cpu", false}};
  EXPECT_EQ(cgroup_folders("cpu", root.string()), expected);
}

}  // namespace system_memory_test
}  // namespace headrace
