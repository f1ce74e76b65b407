// bench_stand_ins
//
// The sequences of tile instructions of `headrace bench machine`, with those that
// bench_beside_tiles
// --tiles stand-ins takes in their place (stand_in_tiles.h): ns for each product or load on one
// thread, the fastest of many. Beside what a processor with tiles takes they say how near these
// are.

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "bench/probe/probe.h"
#include "stand_in_tiles.h"

namespace headrace::cpu {
namespace {

constexpr int64_t kIterations = 300;
constexpr int kRuns = 40;

double fastest_ns(const SequenceRow& row, void* memory) {
  using Clock = std::chrono::steady_clock;
  auto fastest = Clock::duration::max();
  for (int run = 0; run < kRuns; ++run) {
    const auto start = Clock::now();
    row.function(memory, kIterations);
    fastest = std::min(fastest, Clock::now() - start);
  }
  return std::chrono::duration<double, std::nano>(fastest).count() /
         static_cast<double>(kIterations * row.num_items);
}

void run() {
  StandInTiles::round_denormals();
  struct alignas(64) Line {
    uint8_t bytes[64] = {};
  };
  std::vector<Line> memory(kSequenceBytes / sizeof(Line));
  for (size_t i = 0; i < memory.size(); ++i) memory[i].bytes[i % 64] = static_cast<uint8_t>(i);
  for (int i = 0; i < kAmxProbes.num_sequences; ++i) {
    const SequenceRow& row = kAmxProbes.sequences[i];
    fmt::print("{:<48} {:6.1f} ns\n", row.name, fastest_ns(row, memory.data()));
  }
}

}  // namespace
}  // namespace headrace::cpu

int main() {
  if (__builtin_cpu_supports("avx512vl") == 0) {
    fmt::print(stderr, "bench_stand_ins: this processor lacks AVX-512\n");
    return 1;
  }
  headrace::cpu::run();
  return 0;
}
