#include "lab/machine_view.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "base/testing/temp_folder.h"

namespace headrace::lab::machine_view_test {

using headrace::testing::TempFolder;

TEST(LabMachineView, ReadsWhatThereIs) {
  TempFolder root;
  root.write("proc/stat",
             "cpu 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\nintr 1\n");
  root.write("proc/cpuinfo", "model name\t: Some CPU\ncpu MHz\t\t: 1000.5\n\ncpu MHz\t\t: 2000\n");
  root.write("proc/meminfo", "MemTotal:  1000 kB\nMemAvailable: 400 kB\nSwapTotal: 0 kB\n");
  root.write("proc/loadavg", "0.50 0.25 0.10 1/100 4242\n");
  root.write("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "3100000\n");
  root.write("sys/class/thermal/thermal_zone0/type", "x86_pkg_temp\n");
  root.write("sys/class/thermal/thermal_zone0/temp", "45500\n");
  root.write("sys/class/hwmon/hwmon0/name", "nvme\n");
  root.write("sys/class/hwmon/hwmon0/temp1_input", "30000\n");
  root.write("sys/class/hwmon/hwmon0/temp1_label", "Composite\n");
  root.write("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t A Card\n");
  MachineView machine(root.path());
  root.write("proc/stat",
             "cpu 50 0 0 100 50 0 0 0\ncpu0 0 0 0 50 50 0 0 0\ncpu1 50 0 0 50 0 0 0 0\nintr 1\n");
  const auto view = machine.at(1'000'000);
  EXPECT_EQ(view.at("processor").as_string(), "Some CPU");
  EXPECT_EQ(view.at("busy").as_double(), 0.25);
  ASSERT_EQ(view.at("cores").as_array().size(), 2u);
  EXPECT_EQ(view.at("cores").at(0).at("busy").as_double(), 0);
  EXPECT_EQ(view.at("cores").at(0).at("mhz").as_double(), 1000.5);
  EXPECT_EQ(view.at("cores").at(1).at("busy").as_double(), 0.5);
  EXPECT_EQ(view.at("cores").at(1).at("mhz").as_double(), 3100);
  EXPECT_EQ(view.at("memory").at("available_bytes").as_int64(), 400 * 1024);
  EXPECT_TRUE(view.at("memory").at("swap_free_bytes").is_null());
  EXPECT_EQ(view.at("load").at(0).as_double(), 0.5);
  EXPECT_EQ(boost::json::serialize(view.at("devices")),
            R"([{"name":"A Card","kind":"graphics processor","state":"not used"}])");
  EXPECT_EQ(view.at("temperatures").at(0).at("celsius").as_double(), 45.5);
  EXPECT_EQ(view.at("temperatures").at(1).at("name").as_string(), "nvme Composite");
}

TEST(LabMachineView, IsKeptForASecondAndKnowsNothingOfAnEmptyMachine) {
  TempFolder root;
  MachineView machine(root.path());
  EXPECT_TRUE(machine.at(5).at("cores").as_array().empty());
  EXPECT_TRUE(machine.at(5).at("busy").is_null());
  EXPECT_TRUE(machine.at(5).at("memory").at("total_bytes").is_null());
  root.write("proc/loadavg", "1 2 3 1/1 1\n");
  EXPECT_TRUE(machine.at(500'000).at("load").as_array().empty());
  EXPECT_EQ(machine.at(1'500'000).at("load").as_array().size(), 3u);
}

TEST(LabMachineView, TheReadRateIsThatOfTheLargestWorkingSetMeasured) {
  TempFolder folder;
  EXPECT_TRUE(measured_read_rate(folder.path()).is_null());
  folder.write("machine.json",
               "{\"kind\":\"machine\"}\nno JSON\n"
               "{\"kind\":\"read\",\"working_set_bytes\":1024,\"all_threads_byte_s\":9e10}\n"
               "{\"kind\":\"read\",\"working_set_bytes\":1048576,\"all_threads_byte_s\":2e10}\n");
  EXPECT_EQ(measured_read_rate(folder.path()).as_double(), 2e10);
}

TEST(LabMachineView, OfThisMachineHasCores) {
  MachineView machine;
  const auto view = machine.at(1);
  EXPECT_FALSE(view.at("cores").as_array().empty());
  EXPECT_GT(view.at("memory").at("total_bytes").as_int64(), 0);
}

}  // namespace headrace::lab::machine_view_test
