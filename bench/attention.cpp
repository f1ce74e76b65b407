// bench_attention [--isa NAME] [--types A,B,...] [--dims N,...] [--groups N,...] [--threads N]
// [--repeats N]
//
// Attention over each type of keys and values, in turns: one token, its keys and values from the
// caches and from memory, and chunks of a prompt. Medians in microseconds, the speed of every type
// beside the first, and how fast what lies in memory was read (headrace bench machine says how fast
// that can be).

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "backend/cpu/cpu_backend.h"
#include "backend/device_access.h"
#include "op_support.h"

namespace headrace {
namespace {

constexpr int kKvHeads = 2;
constexpr int64_t kLayers = 16;  // whose blocks lie in turn, as a model's do
constexpr size_t kFarBytes = size_t{256} << 20;
constexpr int64_t kMostRows = 512;

struct Work {
  const char* name;
  int64_t rows, position;
  bool far;  // from memory: every call has a place of its own
};
constexpr Work kWorks[] = {
    {"1 row, 1024 deep, cached", 1, 1023, false}, {"1 row, 1024 deep, memory", 1, 1023, true},
    {"1 row, 4096 deep, memory", 1, 4095, true},  {"4 rows, 1024 deep, cached", 4, 1020, false},
    {"128 rows, the first", 128, 0, false},       {"512 rows, the first", 512, 0, false},
    {"128 rows, 1920 deep", 128, 1920, false},
};

// Keys and values of one type in kFarBytes, attended to at places that change from call to call.
class Context {
 public:
  Context(Backend& backend, KvType type, int head_dim, int group)
      : backend_(backend),
        num_heads_(kKvHeads * group),
        q_(random_floats(kMostRows * num_heads_ * head_dim)),
        out_(q_.size()) {
    layer_.shape = {type, kKvHeads, head_dim};
    layer_.block_stride = kLayers * backend.kv_layer_bytes(layer_.shape);
    num_blocks_ = static_cast<int64_t>(kFarBytes / layer_.block_stride);
    memory_ =
        backend.allocate(static_cast<size_t>(num_blocks_) * layer_.block_stride, MemoryUse::kKv)
            .value();
    layer_.base = memory_.data();
    tables_.resize(static_cast<size_t>(num_blocks_));
    std::iota(tables_.begin(), tables_.end(), 0);
    fill();
  }

  double seconds(const Work& work) {
    const int64_t depth = work.position + work.rows;
    const int64_t each = (depth + kBlockTokens - 1) / kBlockTokens;
    const int64_t places = work.far ? num_blocks_ / each * kLayers : 1;
    const int64_t place = next_++ % places;
    AttentionArgs args;
    args.q = on_device(q_.data());
    args.out = on_device(out_.data());
    args.num_heads = num_heads_;
    args.kv = layer_;
    args.kv.base = layer_at(place % kLayers);
    args.scale = 1 / std::sqrt(static_cast<float>(layer_.shape.head_dim));
    const int32_t* const table = tables_.data() + place / kLayers * each;
    const Span span{0, static_cast<int32_t>(work.rows), work.position, &table};
    args.step = backend_.begin_step({&span, 1});
    const double start = op_seconds(backend_.num_threads());
    backend_.attention(args);
    return op_seconds(backend_.num_threads()) - start;
  }

  // What a call reads.
  double num_bytes(const Work& work) const {
    const auto depth = static_cast<double>(work.position + work.rows);
    return depth / kBlockTokens * static_cast<double>(backend_.kv_layer_bytes(layer_.shape));
  }

 private:
  DevicePtr<std::byte> layer_at(int64_t layer) const {
    return layer_.base + layer * static_cast<int64_t>(layer_.block_stride) / kLayers;
  }

  // Every layer of every block with keys and values, at most kMostRows positions at a time.
  void fill() {
    const int64_t width = (num_heads_ + 2 * kKvHeads) * layer_.shape.head_dim;
    std::vector<float> qkv = random_floats(kMostRows * width);
    for (int64_t block = 0; block < num_blocks_; block += kMostRows / kBlockTokens) {
      const int64_t count = std::min(kMostRows / kBlockTokens, num_blocks_ - block);
      const int32_t* const table = tables_.data() + block;
      const Span span{0, static_cast<int32_t>(count * kBlockTokens), 0, &table};
      for (int64_t layer = 0; layer < kLayers; ++layer) {
        QkvArgs args;
        args.qkv = on_device(qkv.data());
        args.q_out = on_device(out_.data());
        args.num_rows = count * kBlockTokens;
        args.num_heads = num_heads_;
        args.kv = layer_;
        args.kv.base = layer_at(layer);
        args.step = backend_.begin_step({&span, 1});
        backend_.finish_qkv(args);
      }
    }
  }

  Backend& backend_;
  const int num_heads_;
  std::vector<float> q_, out_;
  KvLayer layer_;
  DeviceMemory memory_;
  int64_t num_blocks_ = 0;
  std::vector<int32_t> tables_;
  int64_t next_ = 0;
};

void run_shape(Backend& backend, std::span<const KvType> types, int head_dim, int group,
               int repeats) {
  std::vector<std::unique_ptr<Context>> contexts;
  for (const KvType type : types) {
    contexts.push_back(std::make_unique<Context>(backend, type, head_dim, group));
  }
  for (const Work& work : kWorks) {
    const int calls = work.rows == 1 ? 16 * repeats : repeats;
    std::vector<std::vector<double>> times(types.size());
    for (int i = 0; i < calls; ++i) {
      for (size_t t = 0; t < types.size(); ++t) {
        if (!work.far) contexts[t]->seconds(work);  // what it reads comes into the caches
        times[t].push_back(contexts[t]->seconds(work));
      }
    }
    fmt::print("{:>3} x{:<2} {:<26}", head_dim, group, work.name);
    for (size_t t = 0; t < types.size(); ++t) {
      const double seconds = median(times[t]);
      fmt::print("  {} {:>8.1f} us {:.2f}", kv_type_name(types[t]), 1e6 * seconds,
                 median(times[0]) / seconds);
      if (work.far) fmt::print(" {:.1f} GB/s", 1e-9 * contexts[t]->num_bytes(work) / seconds);
    }
    fmt::print("\n");
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  using namespace headrace;
  std::string isa = "auto";
  std::vector<std::string> names = {"f16", "int16"};
  std::vector<int> dims = {64, 128}, groups = {1, 4, 8};
  int num_threads = 2, repeats = 15;
  CLI::App app{"Attention over types of keys and values, in turns."};
  app.add_option("--isa", isa);
  app.add_option("--types", names)->delimiter(',');
  app.add_option("--dims", dims)->delimiter(',')->check(CLI::Range(16, 256));
  app.add_option("--groups", groups)->delimiter(',')->check(CLI::Range(1, 16));
  app.add_option("--threads", num_threads);
  app.add_option("--repeats", repeats)->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  const auto backend = backend_or_message("bench_attention", isa, num_threads);
  if (backend == nullptr) return 1;
  std::vector<KvType> types;
  for (const std::string& name : names) {
    const std::optional<KvType> type = kv_type_of(name);
    if (!type.has_value()) {
      fmt::print(stderr, "bench_attention: no type of keys and values is called '{}'\n", name);
      return 1;
    }
    types.push_back(*type);
  }
  CHECK(backend->reserve(kMostRows).ok());
  for (const int dim : dims) {
    for (const int group : groups) run_shape(*backend, types, dim, group, repeats);
  }
  return 0;
}
