// Limits of this machine, measured now: how fast memory is read, how fast each instruction set
// multiplies, and what sequences of tile instructions take. Every benchmark prints its figures as
// shares of these, from the same run.
//
// Windows are short, and other processes can only slow one down: a peak is the best of many,
// a read rate that of the best tenth. Each thread is pinned to a core of its own when there are
// several. Memory is written before it is read (an untouched page is the one zero page) and comes
// from Buffer, so its pages are as large as those of weights. Blocks the caller; not to be run
// beside a working team.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "bench/probe/probe.h"

namespace headrace::cpu {

// Per second: operations or bytes. One thread, and as many as were asked for.
struct Rate {
  double one_thread = 0;
  double all_threads = 0;
};

// "f32", "int8": as reports name an arithmetic.
std::string_view peak_kind_name(PeakKind kind);
std::optional<PeakKind> parse_peak_kind(std::string_view name);

struct PeakRate {
  std::string name;  // "avx512 vpdpbusd"
  PeakKind kind = PeakKind::kF32;
  uint32_t isa = 0;
  Rate operations;
};

struct ReadRate {
  size_t num_bytes = 0;  // of all threads together: each reads its own part
  Rate bytes;
};

// Seconds that a thread needs for one of a sequence's items.
struct SequenceTime {
  std::string name;  // "amx zero, tdpbssd, store"
  uint32_t isa = 0;
  SequenceItem item = SequenceItem::kProduct;
  double one_thread = 0;   // alone
  double all_threads = 0;  // beside all the others
};

struct MachineLimits {
  int num_threads = 0;
  std::vector<PeakRate> peaks;
  std::vector<ReadRate> reads;  // ascending by size
};

// Every peak row that this processor has. num_threads 0: all usable cores.
std::vector<PeakRate> peak_rates(int num_threads = 0);
// Operations per second of the fastest row of a kind that needs no more than the ISA bits given; 0
// if there is none.
double best_peak(std::span<const PeakRate> peaks, PeakKind kind, uint32_t isa);
// The same of operations that take `passes` of a kind. Two of bytes for a value of 16 bits are one
// of words where these are faster.
double operation_rate(std::span<const PeakRate> peaks, PeakKind kind, double passes, uint32_t isa);

// Every sequence row that this processor has: with tiles some five seconds, else nothing.
// kExhausted when its memory is not to be had.
Result<std::vector<SequenceTime>> sequence_times(int num_threads = 0);

// Working sets of the report: 16 KiB to 1 GiB.
std::span<const size_t> default_working_sets();
// kExhausted when the largest set does not fit in memory.
Result<std::vector<ReadRate>> read_rates(std::span<const size_t> working_sets, int num_threads = 0);
// Bytes per second with num_threads (0: all usable cores) over a working set of num_bytes; above
// 1 GiB as for 1 GiB.
Result<double> read_bandwidth(size_t num_bytes, int num_threads = 0);

// The widest loads that this processor has.
ReadRow widest_read();

// peak_rates and read_rates over the default sets: about six seconds.
Result<MachineLimits> measure_machine(int num_threads = 0);

}  // namespace headrace::cpu
