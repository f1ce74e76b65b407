#include "bench/limits.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <span>
#include <thread>

#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/team/topology.h"
#include "base/buffer.h"
#include "base/check.h"
#include "base/clock.h"

namespace headrace::cpu {
namespace {

constexpr double kWindowSeconds = 0.003;  // shorter than a scheduler's turn
constexpr int kWindows = 24;
// Sequences take turns, so that a machine's slow second meets all alike: they are compared.
constexpr int kSequenceRounds = 8;
constexpr size_t kReadGrain = 4096;              // ReadRow's multiple
constexpr size_t kLargestSet = size_t{1} << 30;  // no cache holds a part worth naming

constexpr std::string_view kPeakKindNames[] = {"f32", "bf16", "int16", "int8", "int8_k32"};

constexpr const ProbeUnit* kUnits[] = {&kAvx2Probes, &kAvx512Probes, &kAmxProbes};

// Any processor's way to read; the compiler makes it baseline vectors.
uint64_t read_words(const void* memory, size_t num_bytes, int64_t passes) {
  uint64_t lanes[8] = {};
  for (int64_t pass = 0; pass < passes; ++pass) {
    const auto* words = static_cast<const uint64_t*>(memory);
    __asm__ volatile("" : "+r"(words)::"memory");
    for (size_t i = 0; i < num_bytes / sizeof(uint64_t); i += 8) {
      for (size_t j = 0; j < 8; ++j) lanes[j] += words[i + j];
    }
  }
  uint64_t total = 0;
  for (const uint64_t lane : lanes) total += lane;
  return total;
}

constexpr ReadRow kPlainRead = {"plain", 0, read_words};

// The rows of one kind that this processor has; tiles only where the system lets us use them.
template <typename Row>
std::vector<Row> available(const Row* ProbeUnit::* first, int ProbeUnit::* count) {
  const uint32_t isa = detect_isa();
  std::vector<Row> rows;
  for (const ProbeUnit* unit : kUnits) {
    for (const Row& row : std::span(unit->*first, static_cast<size_t>(unit->*count))) {
      if ((row.isa & ~isa) == 0) rows.push_back(row);
    }
  }
  return rows;
}

std::vector<ReadRow> available_reads() {
  std::vector<ReadRow> rows = available(&ProbeUnit::reads, &ProbeUnit::num_reads);
  if (rows.empty()) rows.push_back(kPlainRead);
  return rows;
}

int resolve_threads(int num_threads) {
  return num_threads > 0 ? num_threads : static_cast<int>(usable_cores().size());
}

// Seconds of each window in which every thread did work(thread, window) once, from the first start
// to the last end.
std::vector<double> time_windows(int num_threads, int num_windows,
                                 const std::function<void(int thread, int window)>& work) {
  struct alignas(64) Times {
    std::vector<TimeUs> begin, end;
  };
  const std::vector<int> cores = usable_cores();
  const bool pinned = num_threads > 1 && static_cast<size_t>(num_threads) <= cores.size();
  std::vector<Times> times(static_cast<size_t>(num_threads));
  std::atomic<int> arrived{0};
  const auto run = [&](int thread) {
    if (pinned) pin_to({&cores[static_cast<size_t>(thread)], 1});
    Times& own = times[static_cast<size_t>(thread)];
    for (int window = 0; window < num_windows; ++window) {
      arrived.fetch_add(1);
      while (arrived.load() < num_threads * (window + 1)) sched_yield();
      own.begin.push_back(now_us());
      work(thread, window);
      own.end.push_back(now_us());
    }
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < num_threads; ++thread) threads.emplace_back(run, thread);
  for (std::thread& thread : threads) thread.join();
  std::vector<double> seconds;
  for (size_t window = 0; window < static_cast<size_t>(num_windows); ++window) {
    TimeUs begin = times[0].begin[window], end = times[0].end[window];
    for (const Times& own : times) {
      begin = std::min(begin, own.begin[window]);
      end = std::max(end, own.end[window]);
    }
    seconds.push_back(1e-6 * static_cast<double>(std::max<TimeUs>(end - begin, 1)));
  }
  return seconds;
}

double shortest(const std::vector<double>& seconds) {
  return *std::min_element(seconds.begin(), seconds.end());
}

// A tenth of the windows were at least this short. A set that caches hold in part is now and then
// read with more luck than a model will have; a disturbed window is as untypical.
double undisturbed(std::vector<double> seconds) {
  const auto tenth = seconds.begin() + static_cast<ptrdiff_t>(seconds.size() / 10);
  std::nth_element(seconds.begin(), tenth, seconds.end());
  return *tenth;
}

// Repeats of `work(repeats)` that fill about one window.
int64_t repeats_for_window(const std::function<void(int64_t)>& work) {
  int64_t repeats = 1;
  while (true) {
    const double seconds = shortest(time_windows(1, 2, [&](int, int) { work(repeats); }));
    if (seconds >= kWindowSeconds / 4 || repeats >= int64_t{1} << 40) {
      return std::max<int64_t>(
          1, std::llround(static_cast<double>(repeats) * kWindowSeconds / seconds));
    }
    repeats *= 4;
  }
}

double peak_of(const PeakRow& row, int num_threads, int64_t iterations) {
  const auto seconds =
      time_windows(num_threads, kWindows, [&](int, int) { row.function(iterations); });
  return row.operations * static_cast<double>(iterations) * num_threads / shortest(seconds);
}

// Large enough for large pages, as activations and weights have them.
Result<Buffer> sequence_memory(int num_threads) {
  constexpr size_t kLeast = size_t{8} << 20;
  Buffer memory =
      TRY(Buffer::allocate(std::max(kLeast, static_cast<size_t>(num_threads) * kSequenceBytes)));
  std::memset(memory.data(), 0x3f, memory.size());  // 0.75 as bf16 and as float32
  return memory;
}

// Seconds of an item in the best of a few windows.
double sequence_time_of(const SequenceRow& row, int num_threads, int64_t iterations,
                        Buffer* memory) {
  const auto run = [&](int thread, int) {
    row.function(memory->data() + static_cast<size_t>(thread) * kSequenceBytes, iterations);
  };
  const auto seconds = time_windows(num_threads, kWindows / kSequenceRounds, run);
  return shortest(seconds) / (static_cast<double>(iterations) * row.num_items);
}

// Memory that threads read; holds ones, so that sums can be checked.
Result<Buffer> written_memory(size_t num_bytes) {
  Buffer memory = TRY(Buffer::allocate(num_bytes));
  const auto words = memory.as<uint64_t>();
  std::fill(words.begin(), words.end(), uint64_t{1});
  return memory;
}

// How a thread goes through its share in windows: small shares several times in each, large ones
// piece by piece, so that a window stays short and still finds what the set's size leaves cached.
struct Walk {
  size_t share;  // bytes of one thread
  size_t piece;  // bytes of one window, read `passes` times
  int64_t passes;
  size_t place(int window) const { return static_cast<size_t>(window) % (share / piece) * piece; }
};

double read_rate_of(const ReadRow& row, const Buffer& memory, size_t num_bytes, int num_threads) {
  constexpr size_t kLargestPiece = size_t{64} << 20;
  const size_t even = num_bytes / static_cast<size_t>(num_threads) / kReadGrain * kReadGrain;
  Walk walk{std::max(even, kReadGrain), 0, 1};
  const size_t num_pieces = (walk.share + kLargestPiece - 1) / kLargestPiece;
  walk.piece = walk.share / num_pieces / kReadGrain * kReadGrain;
  CHECK(walk.share * static_cast<size_t>(num_threads) <= memory.size(), "{} threads read {} bytes",
        num_threads, walk.share);
  if (num_pieces == 1) {
    walk.passes =
        repeats_for_window([&](int64_t count) { row.function(memory.data(), walk.piece, count); });
  }
  std::atomic<bool> wrong{false};
  const int windows = std::max(kWindows, static_cast<int>(num_pieces));
  const auto seconds = time_windows(num_threads, windows, [&](int thread, int window) {
    const size_t first = walk.share * static_cast<size_t>(thread) + walk.place(window);
    const uint64_t sum = row.function(memory.data() + first, walk.piece, walk.passes);
    if (sum != walk.piece / sizeof(uint64_t) * static_cast<uint64_t>(walk.passes)) wrong = true;
  });
  CHECK(!wrong, "{} did not read {} bytes", row.name, walk.piece);
  return static_cast<double>(walk.piece) * num_threads * static_cast<double>(walk.passes) /
         undisturbed(seconds);
}

double best_read_rate(const Buffer& memory, size_t num_bytes, int num_threads) {
  double best = 0;
  for (const ReadRow& row : available_reads()) {
    best = std::max(best, read_rate_of(row, memory, num_bytes, num_threads));
  }
  return best;
}

constexpr size_t kKib = 1024, kMib = 1024 * kKib;
constexpr size_t kWorkingSets[] = {16 * kKib,  64 * kKib,  256 * kKib, kMib,       2 * kMib,
                                   4 * kMib,   8 * kMib,   16 * kMib,  32 * kMib,  64 * kMib,
                                   128 * kMib, 256 * kMib, 512 * kMib, 1024 * kMib};

}  // namespace

std::string_view peak_kind_name(PeakKind kind) { return kPeakKindNames[static_cast<size_t>(kind)]; }

std::optional<PeakKind> parse_peak_kind(std::string_view name) {
  const auto* found = std::ranges::find(kPeakKindNames, name);
  if (found == std::end(kPeakKindNames)) return std::nullopt;
  return static_cast<PeakKind>(found - std::begin(kPeakKindNames));
}

std::vector<PeakRate> peak_rates(int num_threads) {
  num_threads = resolve_threads(num_threads);
  std::vector<PeakRate> rates;
  for (const PeakRow& row : available(&ProbeUnit::peaks, &ProbeUnit::num_peaks)) {
    const int64_t iterations = repeats_for_window(row.function);
    PeakRate rate{row.name, row.kind, row.isa, {}};
    rate.operations.one_thread = peak_of(row, 1, iterations);
    rate.operations.all_threads =
        num_threads == 1 ? rate.operations.one_thread : peak_of(row, num_threads, iterations);
    rates.push_back(std::move(rate));
  }
  return rates;
}

Result<std::vector<SequenceTime>> sequence_times(int num_threads) {
  num_threads = resolve_threads(num_threads);
  const auto rows = available(&ProbeUnit::sequences, &ProbeUnit::num_sequences);
  std::vector<SequenceTime> times;
  if (rows.empty()) return times;
  Buffer memory = TRY(sequence_memory(num_threads));
  std::vector<int64_t> iterations;
  for (const SequenceRow& row : rows) {
    times.push_back({row.name, row.isa, row.item, HUGE_VAL, HUGE_VAL});
    iterations.push_back(
        repeats_for_window([&](int64_t count) { row.function(memory.data(), count); }));
  }
  for (size_t i = 0; i < kSequenceRounds * rows.size(); ++i) {
    const size_t at = i % rows.size();
    SequenceTime& time = times[at];
    const auto best = [&](double so_far, int threads) {
      return std::min(so_far, sequence_time_of(rows[at], threads, iterations[at], &memory));
    };
    time.one_thread = best(time.one_thread, 1);
    time.all_threads = num_threads == 1 ? time.one_thread : best(time.all_threads, num_threads);
  }
  return times;
}

double best_peak(std::span<const PeakRate> peaks, PeakKind kind, uint32_t isa) {
  double best = 0;
  for (const PeakRate& peak : peaks) {
    if (peak.kind == kind && (peak.isa & ~isa) == 0) {
      best = std::max(best, peak.operations.all_threads);
    }
  }
  return best;
}

double operation_rate(std::span<const PeakRate> peaks, PeakKind kind, double passes, uint32_t isa) {
  const double rate = best_peak(peaks, kind, isa) / passes;
  const bool is_word = kind == PeakKind::kInt8 && passes == 2;
  return is_word ? std::max(rate, best_peak(peaks, PeakKind::kInt16, isa)) : rate;
}

std::span<const size_t> default_working_sets() { return kWorkingSets; }

Result<std::vector<ReadRate>> read_rates(std::span<const size_t> working_sets, int num_threads) {
  num_threads = resolve_threads(num_threads);
  const size_t least = kReadGrain * static_cast<size_t>(num_threads);
  size_t largest = least;
  for (const size_t size : working_sets) largest = std::max(largest, size);
  const Buffer memory = TRY(written_memory(largest));
  std::vector<ReadRate> rates;
  for (const size_t size : working_sets) {
    ReadRate rate{size, {}};
    rate.bytes.one_thread = best_read_rate(memory, size, 1);
    rate.bytes.all_threads =
        num_threads == 1 ? rate.bytes.one_thread : best_read_rate(memory, size, num_threads);
    rates.push_back(rate);
  }
  return rates;
}

Result<double> read_bandwidth(size_t num_bytes, int num_threads) {
  num_threads = resolve_threads(num_threads);
  num_bytes = std::clamp(num_bytes, kReadGrain * static_cast<size_t>(num_threads), kLargestSet);
  const Buffer memory = TRY(written_memory(num_bytes));
  return best_read_rate(memory, num_bytes, num_threads);
}

ReadRow widest_read() { return available_reads().back(); }

Result<MachineLimits> measure_machine(int num_threads) {
  MachineLimits limits;
  limits.num_threads = resolve_threads(num_threads);
  limits.peaks = peak_rates(limits.num_threads);
  limits.reads = TRY(read_rates(kWorkingSets, limits.num_threads));
  return limits;
}

}  // namespace headrace::cpu
