#include "lab/process.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>

#include "base/testing/temp_folder.h"

namespace headrace::lab::process_test {

using headrace::testing::TempFolder;

class LabProcess : public ::testing::Test {
 protected:
  Result<ProcessResult> shell(const std::string& script, const Limits& limits = {}) {
    return run_process({"sh", "-c", script}, folder_.path(), {{"GIVEN", "a value"}},
                       folder_.file("errors.txt"), limits);
  }
  TempFolder folder_;
};

TEST_F(LabProcess, GivesWhatItPrintsInItsFolderAndEnvironment) {
  const auto result = shell("echo \"$GIVEN\"; pwd; echo oh >&2").value();
  EXPECT_EQ(result.problem, "");
  EXPECT_EQ(result.output, "a value\n" + folder_.path() + "\n");
  EXPECT_EQ(folder_.read("errors.txt"), "oh\n");
}

TEST_F(LabProcess, SaysHowItEnded) {
  EXPECT_EQ(shell("exit 3").value().problem, "it ended with status 3");
  EXPECT_EQ(shell("kill -9 $$").value().problem, "it was ended by signal 9");
}

TEST_F(LabProcess, AProgramThatIsNotThereIsAnError) {
  const auto result = run_process({"no-such-program"}, folder_.path(), {}, folder_.file("e"), {});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message, "cannot start 'no-such-program': No such file or directory");
}

TEST_F(LabProcess, EndsWhenItIsStopped) {
  int num_asked = 0;
  const auto result =
      run_process({"sleep", "1000"}, folder_.path(), {}, folder_.file("e"), {}, [&] {
        return ++num_asked > 2;
      }).value();
  EXPECT_TRUE(result.was_stopped);
  EXPECT_EQ(result.problem, "it was stopped");
  EXPECT_LT(result.seconds, 100);
  EXPECT_FALSE(shell("exit 3").value().was_stopped);
}

// What it started goes with it.
TEST_F(LabProcess, EndsAtItsTimeWithAllThatItStarted) {
  Limits limits;
  limits.seconds = 0.5;
  const auto result = shell("sleep 1000 & echo $!; wait", limits).value();
  EXPECT_EQ(result.problem, "it ran longer than 0.5 s, its limit");
  const pid_t child = static_cast<pid_t>(std::atoi(result.output.c_str()));
  ASSERT_GT(child, 0);
  // A killed process may be on record until somebody waits for it.
  const std::string stat = "/proc/" + std::to_string(child) + "/stat";
  std::string state;
  for (int i = 0; i < 200; ++i) {
    std::ifstream in(stat);
    std::getline(in, state);
    if (state.empty() || state.find(") Z") != std::string::npos) break;
    usleep(50000);
  }
  EXPECT_TRUE(state.empty() || state.find(") Z") != std::string::npos) << state;
}

TEST_F(LabProcess, EndsWhenItPrintsTooMuch) {
  Limits limits;
  limits.output_bytes = 1000;
  const auto result = shell("yes", limits).value();
  EXPECT_EQ(result.problem, "it printed more than 1000 bytes, its limit");
  EXPECT_EQ(result.output.size(), 1000u);
}

TEST_F(LabProcess, EndsWhenItFillsItsErrors) {
  Limits limits;
  limits.output_bytes = 100000;
  const auto result = shell("echo out; head -c 1000000000 /dev/zero >&2", limits).value();
  EXPECT_EQ(result.problem, "it printed more than 97.7 KiB to standard error, its limit");
  EXPECT_EQ(result.output, "out\n");
  EXPECT_EQ(folder_.read("errors.txt").size(), 100000u);
}

TEST_F(LabProcess, EndsWhenItsProcessesTakeTooMuch) {
  Limits limits;
  limits.memory_bytes = 30 << 20;
  const auto result =
      shell("python3 -c 'import time; x = b\"x\" * (100 << 20); time.sleep(1000)' & wait", limits)
          .value();
  EXPECT_TRUE(result.problem.starts_with("it took ")) << result.problem;
  EXPECT_TRUE(result.problem.ends_with(", and may take 30 MiB")) << result.problem;
}

}  // namespace headrace::lab::process_test
