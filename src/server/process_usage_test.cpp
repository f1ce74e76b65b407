#include "server/process_usage.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <vector>

namespace headrace {
namespace process_usage_test {

TEST(ProcessUsage, IsOfThisProcess) {
  const ProcessUsage usage = process_usage();
  EXPECT_GT(usage.resident_bytes, 1e6);
  EXPECT_GT(usage.virtual_bytes, usage.resident_bytes);
  EXPECT_GE(usage.max_descriptors, usage.open_descriptors);
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_LT(usage.start_time, now + 2);
  EXPECT_GT(usage.start_time, now - 3600);
}

TEST(ProcessUsage, CountsOpenDescriptors) {
  const double before = process_usage().open_descriptors;
  int pair[2];
  ASSERT_EQ(::pipe(pair), 0);
  EXPECT_EQ(process_usage().open_descriptors, before + 2);
  ::close(pair[0]);
  ::close(pair[1]);
  EXPECT_EQ(process_usage().open_descriptors, before);
}

TEST(ProcessUsage, CountsTimeThatWasSpent) {
  const double before = process_usage().cpu_seconds;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  double after = before;
  while (after <= before && std::chrono::steady_clock::now() < end) {
    after = process_usage().cpu_seconds;
  }
  EXPECT_GT(after, before);
}

}  // namespace process_usage_test
}  // namespace headrace
