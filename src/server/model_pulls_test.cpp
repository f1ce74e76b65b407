// Pulls that a server does for its clients. What is fetched is tested where it is fetched
// (checkpoint/hub); here the store has the model already, or the hub cannot be reached.

#include "server/model_pulls.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>

#include "base/testing/temp_folder.h"

namespace headrace {
namespace model_pulls_test {

// Keeps the last state; waits for an end.
class Watch {
 public:
  ModelPulls::Watcher watcher() {
    return [this](const PullState& state) {
      std::lock_guard lock(mutex_);
      last_ = state;
      ++num_calls_;
      changed_.notify_all();
      return true;
    };
  }
  PullState end() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(30),
                                  [this] { return last_.kind != PullState::Kind::kRunning; }));
    return last_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  PullState last_;
  int num_calls_ = 0;
};

class ModelPullsTest : public ::testing::Test {
 protected:
  const testing::TempFolder own_;
  const std::string folder_ = own_.path();
};

TEST_F(ModelPullsTest, NamesThatAreNoneAndUrlsAreRefused) {
  ModelPulls pulls(folder_);
  for (const char* spec : {"", "../x", "http://127.0.0.1:1/a.gguf", "https://h.example/a.gguf"}) {
    const Status status = pulls.start(spec, [](const PullState&) { return true; });
    ASSERT_FALSE(status.ok()) << spec;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument) << status.error().message;
  }
}

TEST_F(ModelPullsTest, WhatFailsIsTold) {
  ModelPulls pulls(folder_);
  // Whatever path the name stands for: the error of a reachable-nowhere hub shows that it was
  // tried.
  ::setenv("HF_ENDPOINT", "ftp://nowhere", 1);
  Watch watch;
  ASSERT_TRUE(pulls.start("hf:org/repo", watch.watcher()).ok());
  const PullState end = watch.end();
  ::unsetenv("HF_ENDPOINT");
  EXPECT_EQ(end.kind, PullState::Kind::kFailed);
  EXPECT_EQ(end.error.code, ErrorCode::kInvalidArgument) << end.error.message;
}

// Nobody answers at this address, so the pull tries again with pauses until it is stopped.
TEST_F(ModelPullsTest, StoppingEndsAPullThatWaits) {
  ::setenv("HF_ENDPOINT", "http://127.0.0.1:9", 1);
  Watch watch;
  ModelPulls pulls(folder_);
  ASSERT_TRUE(pulls.start("hf:org/other", watch.watcher()).ok());
  pulls.stop();
  ::unsetenv("HF_ENDPOINT");
  EXPECT_EQ(watch.end().kind, PullState::Kind::kFailed);
  EXPECT_EQ(pulls.start("hf:org/other", watch.watcher()).error().code, ErrorCode::kUnavailable);
}

}  // namespace model_pulls_test
}  // namespace headrace
