// Memory of a real model, loaded afresh and from the weight cache: what the plan says, and no more.
//
// Each case runs in a child process, so that nothing of another test is resident.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "backend/cpu/cpu_backend.h"
#include "checkpoint/checkpoint.h"
#include "model/model.h"
#include "verify/sequence_runner.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr int kTokens = 512;

std::string model_file() {
  const char* folder = std::getenv("HEADRACE_TEST_MODELS");
  if (folder == nullptr) return "";
  const fs::path path = fs::path(folder) / "smollm2-135m.gguf";
  return fs::exists(path) ? path.string() : "";
}

// A field of /proc/self/status in bytes.
double status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field + ":", 0) == 0) return 1024 * std::stod(line.substr(field.size() + 1));
  }
  return 0;
}

struct Figures {
  double planned = 0;  // weights, KV and workspace
  double running = 0;  // resident, over what was before the load
  double peak = 0;     // the same at its highest
  bool packed = false;
};

Figures load_and_run(const std::string& path, const std::string& cache) {
  ModelOptions options{.max_batch_tokens = 64, .max_logit_rows = 1};
  options.weight_cache = {cache, uint64_t{1} << 40, false};
  const auto checkpoint = Checkpoint::open(path).value();
  const auto backend = create_cpu_backend({}).value();
  const MemoryPlan plan = Model::memory_plan(*checkpoint, *backend, options).value();
  checkpoint->release_pages();
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak counts from here, not from opening
  const double before = status_bytes("VmRSS");
  Figures figures;
  const auto model = Model::load(*checkpoint, *backend, options, [&](size_t, size_t) {
                       figures.packed = true;
                     }).value();
  auto runner = SequenceRunner::create(*model, *backend, kTokens).value();
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < kTokens; ++i) ids.push_back(i * 7 % 1000);
  runner.append(ids, kTokens - 1, [](int64_t, std::span<const float>) {});
  figures.planned =
      static_cast<double>(plan.weights + plan.workspace + plan.kv.bytes_for(kTokens, kTokens));
  figures.running = status_bytes("VmRSS") - before;
  figures.peak = status_bytes("VmHWM") - before;
  return figures;
}

// The largest tensor is the embedding: while it is packed, its source is resident too.
bool within_limits(const Figures& figures) {
  constexpr double kLargestTensor = 49152.0 * 576 * 34 / 32;
  std::printf("%s: planned %.1f MB, running %.1f MB, peak %.1f MB\n",
              figures.packed ? "packed" : "read", figures.planned / 1e6, figures.running / 1e6,
              figures.peak / 1e6);
  std::fflush(stdout);
  const double peak_limit = figures.packed ? figures.planned + kLargestTensor : figures.planned;
  return figures.running > 0.9 * figures.planned && figures.running <= 1.05 * figures.planned &&
         figures.peak <= 1.05 * peak_limit;
}

bool in_child(const std::string& path, const std::string& cache, bool packed) {
  const pid_t child = fork();
  if (child == 0) {
    const Figures figures = load_and_run(path, cache);
    _exit(figures.packed == packed && within_limits(figures) ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status == 0;
}

// Written at once, a file lies in the page cache in large folios, and each touch maps a whole one.
std::string copy_in_one_piece(const fs::path& path, const fs::path& folder) {
  fs::create_directories(folder);
  const fs::path copy = folder / path.filename();
  std::ifstream in(path, std::ios::binary);
  std::string bytes(fs::file_size(path), 0);
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const int file = ::open(copy.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  EXPECT_EQ(::write(file, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  ::close(file);
  return copy;
}

TEST(LoadMemory, IsWhatThePlanSays) {
  const std::string path = model_file();
  if (path.empty()) GTEST_SKIP() << "set HEADRACE_TEST_MODELS to a folder with smollm2-135m.gguf";
  const fs::path folder = fs::temp_directory_path() / ("headrace-load-" + std::to_string(getpid()));
  const std::string copy = copy_in_one_piece(path, folder);
  const std::string cache = folder / "cache";
  EXPECT_TRUE(in_child(copy, "", true));
  EXPECT_TRUE(in_child(copy, cache, true));
  EXPECT_TRUE(in_child(copy, cache, false));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace headrace
