// What ends the process with one line: a mapped file cut short, memory or threads refused at start.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <latch>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "base/file_fault.h"
#include "base/memory_shortage.h"
#include "base/testing/temp_folder.h"

namespace headrace {
namespace process_end_test {

using testing::TempFolder;

// Reads every page.
void touch(std::span<const std::byte> bytes) {
  volatile std::byte last{};
  for (size_t i = 0; i < bytes.size(); i += 512) last = bytes[i];
  (void)last;
}

TEST(FileFaultDeathTest, AFileCutShortWhileItIsReadEndsWithALineThatNamesIt) {
  const TempFolder folder;
  const std::string path = folder.write("model.gguf", std::string(1 << 16, 'x'));
  const auto cut_and_read = [&] {
    const MappedFile file = MappedFile::open(path).value();
    std::filesystem::resize_file(path, 100);
    touch(file.bytes());
    std::exit(0);
  };
  EXPECT_EXIT(cut_and_read(), ::testing::ExitedWithCode(1),
              "headrace: '.*model.gguf' was cut short while it was read, or its disk failed "
              "\\(wait until whatever writes it has finished, then start again\\)");
}

TEST(FileFaultDeathTest, ThreadsThatMeetItTogetherTellOfItOnce) {
  constexpr int kThreads = 8, kTimes = 20;
  const TempFolder folder;
  const auto cut_and_read = [&](const std::string& path) {
    const MappedFile file = MappedFile::open(path).value();
    std::filesystem::resize_file(path, 0);
    std::latch all_here(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        all_here.arrive_and_wait();
        touch(file.bytes());
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::exit(0);
  };
  for (int i = 0; i < kTimes; ++i) {
    const std::string path = folder.write("model.gguf", std::string(1 << 16, 'x'));
    EXPECT_EXIT(cut_and_read(path), ::testing::ExitedWithCode(1), "^headrace: '[^\n]*\n$");
  }
}

TEST(FileFaultDeathTest, TheEndOfALongPathIsShown) {
  const TempFolder folder;
  std::string deep;
  for (int i = 0; i < 4; ++i) deep += std::string(200, static_cast<char>('a' + i)) + "/";
  const std::string path = folder.write(deep + "end.gguf", std::string(1 << 16, 'x'));
  const auto cut_and_read = [&] {
    const MappedFile file = MappedFile::open(path).value();
    std::filesystem::resize_file(path, 0);
    touch(file.bytes());
    std::exit(0);
  };
  EXPECT_EXIT(cut_and_read(), ::testing::ExitedWithCode(1), "headrace: 'b*/?c*/d*/end.gguf' was");
}

TEST(FileFaultDeathTest, AMappingThatWasForgottenIsNotBlamed) {
  const TempFolder folder;
  const std::string path = folder.write("model.gguf", std::string(1 << 16, 'x'));
  const auto fault = [&] {
    {
      const MappedFile closed = MappedFile::open(path).value();
    }
    const MappedFile other = MappedFile::open(folder.write("other", std::string(100, 'y'))).value();
    forget_mapping(other.bytes().data());
    std::filesystem::resize_file(other.path(), 0);
    touch(other.bytes());
    std::exit(0);
  };
  const auto died = [](int status) { return !WIFEXITED(status) || WEXITSTATUS(status) != 0; };
  EXPECT_EXIT(fault(), died, "");
}

TEST(FileFault, PlacesAreUsedAgainByLaterMappings) {
  std::vector<char> memory(4096);
  for (int i = 0; i < 1000; ++i) {
    watch_mapping(memory.data() + i % 7, 16, "file " + std::to_string(i));
    forget_mapping(memory.data() + i % 7);
  }
  forget_mapping(memory.data());  // of none: nothing happens
}

// A death test would catch what leaves it.
void nobody_catches(const std::function<void()>& body) noexcept { body(); }

TEST(MemoryShortageDeathTest, AnAllocationThatFailsAtStartSaysWhatWasNeeded) {
  const auto allocate = [](size_t needed) {
    exit_on_memory_shortage();
    note_memory_needed(needed);
    std::get_new_handler()();  // as operator new calls it
  };
  EXPECT_EXIT(allocate(size_t{300} << 20), ::testing::ExitedWithCode(1),
              "headrace: not enough memory to start: about 300 MiB are needed.*\\(raise the limit, "
              "end other programs, or take a smaller model\\)");
  EXPECT_EXIT(allocate(0), ::testing::ExitedWithCode(1),
              "headrace: not enough memory to start[^:]*\\(raise the limit");
}

TEST(MemoryShortageDeathTest, ALimitOfTheProcessIsNamed) {
  const auto allocate = [] {
    exit_on_memory_shortage();
    const rlimit data{size_t{64} << 40, size_t{64} << 40};
    setrlimit(RLIMIT_DATA, &data);
    nobody_catches([] { throw std::bad_alloc(); });
  };
  EXPECT_EXIT(allocate(), ::testing::ExitedWithCode(1), "; data is limited to 67108864 MiB");
}

TEST(MemoryShortageDeathTest, AThreadThatIsRefusedSaysWhy) {
  const auto refuse = [] {
    exit_on_memory_shortage();
    nobody_catches([] {
      throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    });
  };
  EXPECT_EXIT(refuse(), ::testing::ExitedWithCode(1),
              "headrace: the system refused a thread: Resource temporarily unavailable.*smaller "
              "--threads\\)");
}

TEST(MemoryShortageDeathTest, AfterTheStartShortageIsAnExceptionAgain) {
  const auto allocate = [] {
    exit_on_memory_shortage();
    end_of_start();
    std::exit(std::get_new_handler() == nullptr ? 0 : 1);
  };
  EXPECT_EXIT(allocate(), ::testing::ExitedWithCode(0), "");
}

TEST(MemoryShortageDeathTest, OtherExceptionsAreBugsAsAlways) {
  const auto fail = [] {
    exit_on_memory_shortage();
    nobody_catches([] { throw 5; });
  };
  EXPECT_EXIT(fail(), ::testing::KilledBySignal(SIGABRT), "");
}

}  // namespace process_end_test
}  // namespace headrace
