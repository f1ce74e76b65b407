// Packed weights kept for the next start: the same bits as a fresh pack, and never anything else,
// whatever happened to the file or to the checkpoint in between.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/log.h"
#include "golden/golden_data.h"
#include "verify/sequence_runner.h"

namespace headrace::golden {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kNoLimit = uint64_t{1} << 40;

struct Loaded {
  std::vector<float> logits;
  bool packed = false;  // the load packed weights: there was no file that it could use
};

Loaded load(const std::string& path, const WeightCacheOptions& cache,
            const std::string& isa = "reference") {
  const auto backend = backend_for(isa, 2);
  const auto checkpoint = Checkpoint::open(path);
  EXPECT_TRUE(checkpoint.ok()) << path;
  Loaded loaded;
  ModelOptions options{.max_batch_tokens = 16, .max_logit_rows = 16};
  options.weight_cache = cache;
  const auto model =
      Model::load(**checkpoint, *backend, options, [&](size_t, size_t) { loaded.packed = true; });
  EXPECT_TRUE(model.ok()) << path;
  auto runner = SequenceRunner::create(**model, *backend, 16);
  const std::vector<int32_t> ids = {1, 5, 3, 2, 7, 4};
  runner->append(ids, 0, [&](int64_t, std::span<const float> logits) {
    loaded.logits.insert(loaded.logits.end(), logits.begin(), logits.end());
  });
  return loaded;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
}

std::vector<fs::path> files_in(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::string fresh_folder(const std::string& name) {
  const std::string path = temporary_folder("cache") + "/" + name;
  fs::remove_all(path);
  return path;
}

class WeightCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    models_ = entries(test::archive_root(), "gguf");
    for (const std::string& path : folders_run(test::archive_root(), "tiny")) {
      models_.push_back(path);
    }
    ASSERT_GE(models_.size(), 20u);
    folder_ = fresh_folder(testing::UnitTest::GetInstance()->current_test_info()->name());
    cache_ = {folder_, kNoLimit, false};
  }

  fs::path only_file() const {
    const auto files = files_in(folder_);
    EXPECT_EQ(files.size(), 1u);
    return files.empty() ? fs::path() : files[0];
  }

  // The file as it is now is refused, gives the right bits all the same, and is written again.
  void expect_refused(const std::string& model, const std::vector<float>& expected) {
    const Loaded refused = load(model, cache_);
    EXPECT_TRUE(refused.packed);
    EXPECT_TRUE(same_bits(refused.logits, expected));
    const Loaded again = load(model, cache_);
    EXPECT_FALSE(again.packed);
    EXPECT_TRUE(same_bits(again.logits, expected));
  }

  std::vector<std::string> models_;
  std::string folder_;
  WeightCacheOptions cache_;
};

TEST_F(WeightCacheTest, AHitGivesTheBitsOfAFreshPack) {
  int num_cases = 0;
  for (const std::string& model : models_) {
    SCOPED_TRACE(model);
    const Loaded fresh = load(model, {});
    const Loaded miss = load(model, cache_);
    const Loaded hit = load(model, cache_);
    EXPECT_TRUE(fresh.packed && miss.packed);
    EXPECT_FALSE(hit.packed);
    EXPECT_TRUE(same_bits(fresh.logits, miss.logits));
    EXPECT_TRUE(same_bits(fresh.logits, hit.logits));
    // Every unit reads the same panels.
    const Loaded auto_fresh = load(model, {}, "auto"), auto_hit = load(model, cache_, "auto");
    EXPECT_FALSE(auto_hit.packed);
    EXPECT_TRUE(same_bits(auto_fresh.logits, auto_hit.logits));
    ++num_cases;
  }
  EXPECT_GE(num_cases, 20);
  EXPECT_EQ(files_in(folder_).size(), models_.size());
}

TEST_F(WeightCacheTest, DamageInEveryRegionIsRefused) {
  const std::string model = models_[0];
  const Loaded fresh = load(model, cache_);
  const fs::path file = only_file();
  const std::string whole = read_bytes(file);
  ASSERT_GT(whole.size(), 8192u);
  // Magic, sizes, key, content, checksum of the header; checksums of the pieces; weights.
  std::vector<size_t> offsets = {0, 8, 16, 24, 32, 63, 64, 95, 96, 111, 512, 527, 4096, 4097};
  for (size_t at = 5000; at < whole.size(); at += whole.size() / 7) offsets.push_back(at);
  offsets.push_back(whole.size() - 1);
  int num_cases = 0;
  for (const size_t offset : offsets) {
    SCOPED_TRACE(offset);
    std::string damaged = whole;
    damaged[offset] = static_cast<char>(damaged[offset] ^ (1 << (offset % 8)));
    write_bytes(file, damaged);
    expect_refused(model, fresh.logits);
    ++num_cases;
  }
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{100}, size_t{4096}, whole.size() / 2, whole.size() - 1}) {
    SCOPED_TRACE(size);
    write_bytes(file, whole.substr(0, size));
    expect_refused(model, fresh.logits);
    ++num_cases;
  }
  write_bytes(file, whole + "x");
  expect_refused(model, fresh.logits);
  write_bytes(file, std::string(whole.size(), '\xFF'));
  expect_refused(model, fresh.logits);
  EXPECT_GE(num_cases, 25);
}

// Every byte lies in a checksum: also those that hold nothing.
TEST_F(WeightCacheTest, AFlipOfAnyByteOfTheHeadIsRefused) {
  const std::string model = models_[0];
  const Loaded fresh = load(model, cache_);
  const fs::path file = only_file();
  const std::string whole = read_bytes(file);
  int num_cases = 0;
  for (size_t offset = 0; offset < 4096; offset += offset < 640 ? 5 : 101) {
    SCOPED_TRACE(offset);
    std::string damaged = whole;
    damaged[offset] = static_cast<char>(~damaged[offset]);
    write_bytes(file, damaged);
    const Loaded loaded = load(model, cache_);
    EXPECT_TRUE(loaded.packed);
    EXPECT_TRUE(same_bits(loaded.logits, fresh.logits));
    EXPECT_EQ(read_bytes(file).size(), whole.size());  // and written again
    ++num_cases;
  }
  EXPECT_GE(num_cases, 128 + 34);
}

// What was read is what is used, whatever becomes of the file.
TEST_F(WeightCacheTest, AFileThatChangesAfterItWasReadChangesNothing) {
  const std::string model = models_[0];
  const Loaded fresh = load(model, cache_);
  const auto backend = backend_for("reference", 2);
  const auto checkpoint = Checkpoint::open(model).value();
  ModelOptions options{.max_batch_tokens = 16, .max_logit_rows = 16};
  options.weight_cache = cache_;
  bool packed = false;
  const auto loaded =
      Model::load(*checkpoint, *backend, options, [&](size_t, size_t) { packed = true; }).value();
  EXPECT_FALSE(packed);
  const fs::path file = only_file();
  {
    std::fstream writer(file, std::ios::binary | std::ios::in | std::ios::out);
    writer << std::string(fs::file_size(file), '\x5A');
  }
  auto runner = SequenceRunner::create(*loaded, *backend, 16).value();
  const std::vector<int32_t> ids = {1, 5, 3, 2, 7, 4};
  std::vector<float> logits;
  const auto take = [&](int64_t, std::span<const float> row) {
    logits.insert(logits.end(), row.begin(), row.end());
  };
  runner.append(std::span(ids).first(3), 0, take);
  fs::resize_file(file, 0);
  runner.append(std::span(ids).subspan(3), 0, take);
  EXPECT_TRUE(same_bits(logits, fresh.logits));
}

TEST_F(WeightCacheTest, AForeignFileIsRefused) {
  const Loaded first = load(models_[0], cache_);
  const fs::path file = only_file();
  const std::string other_folder = fresh_folder("foreign");
  load(models_[1], {other_folder, kNoLimit, false});
  write_bytes(file, read_bytes(files_in(other_folder)[0]));
  expect_refused(models_[0], first.logits);
}

TEST_F(WeightCacheTest, AFileThatOthersCanWriteIsRefused) {
  const Loaded first = load(models_[0], cache_);
  const fs::path file = only_file();
  fs::permissions(file, fs::perms::others_write, fs::perm_options::add);
  expect_refused(models_[0], first.logits);
  fs::rename(file, folder_ + "/moved");
  fs::create_symlink(folder_ + "/moved", file);
  expect_refused(models_[0], first.logits);
}

// A copy of a model whose stamps the cache may trust: a little older than the clock's ticks.
std::string settled_copy(const std::string& model, const std::string& name) {
  const std::string copy = temporary_folder("models") + "/" + name;
  fs::remove_all(copy);
  fs::copy(model, copy, fs::copy_options::recursive);
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  return copy;
}

TEST_F(WeightCacheTest, AnEditedCheckpointIsPackedAgainEvenWithItsOldTimes) {
  const std::string model = settled_copy(models_[0], "edited.gguf");
  const Loaded before = load(model, cache_);
  EXPECT_FALSE(load(model, cache_).packed);
  struct stat info{};
  ASSERT_EQ(stat(model.c_str(), &info), 0);
  std::string bytes = read_bytes(model);
  for (size_t at = bytes.size() / 2; at < bytes.size(); at += 64) bytes[at] ^= 1;
  {
    std::fstream file(model, std::ios::binary | std::ios::in | std::ios::out);
    file << bytes;
  }
  const timespec times[2] = {info.st_atim, info.st_mtim};
  ASSERT_EQ(utimensat(AT_FDCWD, model.c_str(), times, 0), 0);
  const Loaded fresh = load(model, {});
  EXPECT_FALSE(same_bits(before.logits, fresh.logits));
  expect_refused(model, fresh.logits);
}

TEST_F(WeightCacheTest, NewTimesOfTheSameBytesAreNoMiss) {
  const std::string model = settled_copy(models_[0], "touched.gguf");
  const Loaded before = load(model, cache_);
  const timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(utimensat(AT_FDCWD, model.c_str(), times, 0), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(i == 0 ? 0 : 2100));
    const Loaded after = load(model, cache_);
    EXPECT_FALSE(after.packed);
    EXPECT_TRUE(same_bits(before.logits, after.logits));
  }
  cache_.check_content = true;
  EXPECT_FALSE(load(model, cache_).packed);
}

// Runs in a child process; the exit status is 0 when it said so.
template <typename F>
pid_t start_child(const F& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work() ? 0 : 1);
  return child;
}

int wait_for(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST_F(WeightCacheTest, WritersAtOnceLeaveOneWholeFile) {
  const Loaded fresh = load(models_[0], {});
  int num_cases = 0;
  for (int round = 0; round < 3; ++round) {
    fs::remove_all(folder_);
    std::vector<pid_t> children;
    for (int i = 0; i < 4; ++i) {
      children.push_back(
          start_child([&] { return same_bits(load(models_[0], cache_).logits, fresh.logits); }));
    }
    for (const pid_t child : children) {
      EXPECT_EQ(wait_for(child), 0);
      ++num_cases;
    }
    EXPECT_EQ(only_file().extension(), ".hrpack");
    const Loaded hit = load(models_[0], cache_);
    EXPECT_FALSE(hit.packed);
    EXPECT_TRUE(same_bits(hit.logits, fresh.logits));
  }
  EXPECT_EQ(num_cases, 12);
}

TEST_F(WeightCacheTest, AKilledWriterLeavesNothingThatCounts) {
  const Loaded fresh = load(models_[0], {});
  int num_killed = 0;
  for (int i = 0; i < 30; ++i) {
    fs::remove_all(folder_);
    const pid_t child = start_child([&] {
      while (true) {
        fs::remove_all(folder_);
        load(models_[0], cache_);
      }
      return true;
    });
    std::this_thread::sleep_for(std::chrono::microseconds(15'000 + 1'700 * i));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    num_killed += WIFSIGNALED(wait_for(child)) ? 1 : 0;
    EXPECT_TRUE(same_bits(load(models_[0], cache_).logits, fresh.logits));
    const Loaded hit = load(models_[0], cache_);
    EXPECT_FALSE(hit.packed);
    EXPECT_TRUE(same_bits(hit.logits, fresh.logits));
  }
  EXPECT_EQ(num_killed, 30);
}

TEST_F(WeightCacheTest, HalfWrittenFilesAreIgnoredAndRemoved) {
  const Loaded fresh = load(models_[0], cache_);
  const fs::path file = only_file();
  const std::string whole = read_bytes(file);
  const std::string stem = file.string().substr(0, file.string().size() - 7);
  const fs::path abandoned = stem + ".hrpack.new-1-1", living = stem + ".hrpack.new-1-2";
  write_bytes(abandoned, whole.substr(0, whole.size() / 2));
  write_bytes(living, whole.substr(0, whole.size() / 3));
  const int writer = open(living.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(writer, LOCK_EX), 0);
  fs::remove(file);
  const Loaded miss = load(models_[0], cache_);
  EXPECT_TRUE(miss.packed);
  EXPECT_TRUE(same_bits(miss.logits, fresh.logits));
  EXPECT_FALSE(fs::exists(abandoned));
  EXPECT_TRUE(fs::exists(living));
  close(writer);
}

TEST_F(WeightCacheTest, TheLeastRecentlyUsedGoWhenTheLimitIsReached) {
  load(models_[0], cache_);
  const fs::path first = only_file();
  const uint64_t size = fs::file_size(first);
  write_bytes(folder_ + "/notes.txt", std::string(4 * size, 'x'));  // not ours: counts for nothing
  load(models_[1], cache_);
  const timespec old[2] = {{1'000'000'000, 0}, {0, UTIME_OMIT}};
  for (const fs::path& path : files_in(folder_)) {
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), old, 0), 0);
  }
  EXPECT_FALSE(load(models_[0], cache_).packed);  // now the second is the older one
  uint64_t stored = 0;
  for (const fs::path& path : files_in(folder_)) {
    if (path.extension() == ".hrpack") stored += fs::file_size(path);
  }
  cache_.max_bytes = stored;
  load(models_[2], cache_);
  EXPECT_TRUE(fs::exists(first));
  EXPECT_TRUE(fs::exists(folder_ + "/notes.txt"));
  uint64_t total = 0;
  for (const fs::path& path : files_in(folder_)) {
    if (path.extension() == ".hrpack") total += fs::file_size(path);
  }
  EXPECT_LE(total, cache_.max_bytes);
  EXPECT_FALSE(load(models_[0], cache_).packed);
  EXPECT_TRUE(load(models_[1], cache_).packed);
}

TEST_F(WeightCacheTest, AModelBeyondTheLimitIsNotKept) {
  cache_.max_bytes = 100;
  EXPECT_TRUE(load(models_[0], cache_).packed);
  EXPECT_TRUE(load(models_[0], cache_).packed);
  EXPECT_TRUE(files_in(folder_).empty());
}

TEST_F(WeightCacheTest, FoldersThatCannotBeWrittenOnlyCostTheFile) {
  const Loaded fresh = load(models_[0], {});
  write_bytes(temporary_folder("cache") + "/a-file", "x");
  int num_cases = 0;
  for (const std::string& folder :
       {temporary_folder("cache") + "/a-file", temporary_folder("cache") + "/a-file/below",
        std::string("/proc/no-such-folder"), std::string("/proc/self")}) {
    const Loaded loaded = load(models_[0], {folder, kNoLimit, false});
    EXPECT_TRUE(loaded.packed) << folder;
    EXPECT_TRUE(same_bits(loaded.logits, fresh.logits)) << folder;
    ++num_cases;
  }
  EXPECT_EQ(num_cases, 4);
}

TEST_F(WeightCacheTest, AFullDiskOnlyCostsTheFile) {
  const Loaded fresh = load(models_[0], {});
  fs::create_directories(folder_);
  const pid_t child = start_child([&] {
    set_log_level(LogLevel::kOff);  // standard error may be a file, which the limit holds for too
    const struct rlimit limit = {1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    return same_bits(load(models_[0], cache_).logits, fresh.logits);
  });
  EXPECT_EQ(wait_for(child), 0);
  EXPECT_TRUE(files_in(folder_).empty());
}

}  // namespace
}  // namespace headrace::golden
