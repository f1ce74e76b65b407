// 8,000 mutated checkpoint files are opened, and those accepted are read to the last byte: no
// crash, no memory beyond the file's size plus 64 MiB for opening it, no file above one second of
// CPU. HEADRACE_FUZZ_CASES and HEADRACE_FUZZ_SEED ask for another number of cases or other
// mutations.
#include "mutate_checkpoints.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>

#include "base/result.h"
#include "checkpoint/gguf.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/testing/file_builders.h"
#include "counting_allocator.h"
#include "read_checkpoint.h"

namespace headrace::fuzz {
namespace {

constexpr size_t kMaxExtraBytes = size_t{64} << 20;
constexpr double kMaxCpuSeconds = HEADRACE_MAX_CPU_SECONDS;
constexpr int kFileEvery = 16;  // one in so many cases goes through a file and Checkpoint::open

using Parse = Result<std::unique_ptr<Checkpoint>> (*)(std::span<const std::byte>,
                                                      const std::string&);

struct Counts {
  int num_cases = 0;
  int num_accepted = 0;
  int num_rejected = 0;
  int num_linear_weights = 0;
  int64_t num_values = 0;
  size_t max_extra_bytes = 0;
  double max_cpu_seconds = 0;
};

uint64_t number_from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// What every accepted file must survive.
void on_accepted(const Checkpoint& checkpoint, Counts* counts) {
  const ReadCounts read = read_everything(checkpoint);
  counts->num_values += read.num_values;
  counts->num_linear_weights += read.num_linear_weights;
}

class MutateCheckpoints : public ::testing::Test {
 protected:
  void TearDown() override { std::remove(path_.c_str()); }

  void run(const std::vector<Seed>& seeds, Parse parse, int num_cases) {
    num_cases = static_cast<int>(
        number_from_environment("HEADRACE_FUZZ_CASES", static_cast<uint64_t>(num_cases)));
    std::mt19937_64 random(number_from_environment("HEADRACE_FUZZ_SEED", 1));
    for (int i = 0; i < num_cases; ++i) {
      const Bytes bytes = mutate(seeds, random);
      run_case(bytes, parse, i % kFileEvery == 0);
      if (HasFailure()) {
        FAIL() << "case " << i << " of seed " << number_from_environment("HEADRACE_FUZZ_SEED", 1);
      }
    }
    std::printf(
        "%d cases: %d accepted, %d rejected; %lld values and %d linear weights read; at "
        "most %zu bytes beyond the file's size, %.3f s\n",
        counts_.num_cases, counts_.num_accepted, counts_.num_rejected,
        static_cast<long long>(counts_.num_values), counts_.num_linear_weights,
        counts_.max_extra_bytes, counts_.max_cpu_seconds);
    EXPECT_EQ(counts_.num_cases, num_cases);
    EXPECT_GT(counts_.num_accepted, num_cases / 20);
    EXPECT_GT(counts_.num_rejected, num_cases / 4);
    EXPECT_GT(counts_.num_linear_weights, num_cases / 20);
  }

  std::string path_ = ::testing::TempDir() + "mutated_" + std::to_string(getpid());
  Counts counts_;

  void check_memory(size_t peak_bytes, size_t num_file_bytes) {
    const size_t extra = peak_bytes > num_file_bytes ? peak_bytes - num_file_bytes : 0;
    counts_.max_extra_bytes = std::max(counts_.max_extra_bytes, extra);
    EXPECT_LE(extra, kMaxExtraBytes);
  }

  void run_case(const Bytes& bytes, Parse parse, bool through_file) {
    // An allocation of exactly this size, so that a sanitizer sees the first byte read beyond it.
    const auto exact = std::make_unique<std::byte[]>(bytes.size());
    std::copy(bytes.begin(), bytes.end(), exact.get());
    if (through_file) testing::write_file(path_, bytes);
    const double start = cpu_seconds();
    const size_t held_before = reset_allocation_peak();
    {
      const auto checkpoint =
          through_file ? Checkpoint::open(path_)
                       : parse(std::span<const std::byte>(exact.get(), bytes.size()), "mutated");
      // What opening took. Reading copies out of the checkpoint, as its caller asks for.
      check_memory(allocation_peak() - held_before, bytes.size());
      ++(checkpoint.ok() ? counts_.num_accepted : counts_.num_rejected);
      if (checkpoint.ok()) {
        on_accepted(**checkpoint, &counts_);
      } else {
        EXPECT_FALSE(checkpoint.error().message.empty());
        EXPECT_NE(checkpoint.error().code, ErrorCode::kInternal);
      }
    }
    const double seconds = cpu_seconds() - start;
    counts_.max_cpu_seconds = std::max(counts_.max_cpu_seconds, seconds);
    ++counts_.num_cases;
    EXPECT_LE(seconds, kMaxCpuSeconds);
  }
};

TEST_F(MutateCheckpoints, SeedsAreValid) {
  for (const Seed& seed : gguf_seeds()) {
    const auto checkpoint = parse_gguf(seed.bytes, seed.name);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    read_everything(**checkpoint);
  }
  int num_linear_weights = 0;
  for (const Seed& seed : safetensors_seeds()) {
    const auto checkpoint = parse_safetensors(seed.bytes, seed.name);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    num_linear_weights += read_everything(**checkpoint).num_linear_weights;
  }
  // Three methods each for plain a and b, packed, i, f, g, m, n and expert 1; one for gptq, awq.
  EXPECT_EQ(num_linear_weights, 3 * 9 + 2);
}

// The largest tables that the limits allow, in files that are otherwise empty.
TEST_F(MutateCheckpoints, LargestTablesStayWithinTheLimits) {
  testing::GgufBuilder tables;
  tables.array_key<uint8_t>("bytes", testing::kU8, std::vector<uint8_t>(4 << 20));
  std::string header = "{";
  for (int i = 0; i < 65'536; ++i) {
    tables.raw_tensor(fmt::format("blk.0.tensor.{:06}.weight", i), {0}, 0, 0);
  }
  for (int i = 0; i < 98'304; ++i) {
    if (i > 0) header += ',';
    header += testing::safetensors_entry(fmt::format("tensor.{:06}.weight", i), "U8", "[0]", 0, 0);
  }
  header += '}';
  testing::ByteWriter texts;  // 4 Mi empty strings
  texts.raw("GGUF").put(uint32_t{3}).put(uint64_t{0}).put(uint64_t{1}).text("texts");
  texts.put(uint32_t{testing::kArray}).put(uint32_t{testing::kString}).put(uint64_t{4 << 20});
  texts.zeros(size_t{32} << 20);
  run_case(tables.build(), parse_gguf, false);
  run_case(texts.bytes(), parse_gguf, false);
  run_case(testing::safetensors_file(header, 0), parse_safetensors, false);
  EXPECT_EQ(counts_.num_accepted, 3);
  std::printf("at most %zu bytes beyond the file's size, %.3f s\n", counts_.max_extra_bytes,
              counts_.max_cpu_seconds);
}

TEST_F(MutateCheckpoints, CountsWhatIsAllocated) {
  const size_t before = reset_allocation_peak();
  {
    std::vector<char> large(1 << 20);
    asm volatile("" : : "g"(large.data()) : "memory");  // clang leaves out what nobody can see
  }
  EXPECT_GE(allocation_peak() - before, size_t{1} << 20);
}

TEST_F(MutateCheckpoints, Gguf) {
  path_ += ".gguf";
  run(gguf_seeds(), parse_gguf, 4'000);
}

TEST_F(MutateCheckpoints, Safetensors) {
  path_ += ".safetensors";
  run(safetensors_seeds(), parse_safetensors, 4'000);
}

}  // namespace
}  // namespace headrace::fuzz
