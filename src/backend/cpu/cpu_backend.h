// The CPU back end: a pinned team of threads over the kernels of one instruction set.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/kernels/activation_arithmetic.h"

namespace headrace {
namespace cpu {
struct KernelSet;
}

// Threads that several back ends compute on, one at a time (Backend::begin_turn).
class CpuTeam;
// num_threads as in CpuBackendOptions. kInvalidArgument if it is out of range.
Result<std::shared_ptr<CpuTeam>> create_cpu_team(int num_threads);

struct CpuBackendOptions {
  // auto, or a unit's name: reference, avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16, amx
  std::string isa = "auto";
  int num_threads = 0;  // 0: one per core this process may use (affinity and cgroup quota)
  ActivationArithmetic activations = ActivationArithmetic::kExact;
  std::shared_ptr<CpuTeam> team = nullptr;  // null: its own, of num_threads
};

// Verifies the kernels in use first (a few milliseconds, once per process): auto passes over a unit
// that computes wrong results here, with one log line. kUnsupported if the processor lacks the
// forced instruction set (names what is missing and the units that would run) or computes wrong
// results with it; kInvalidArgument for an unknown name.
Result<std::unique_ptr<Backend>> create_cpu_backend(const CpuBackendOptions& options);

// The same with these kernels in place of a unit's, verified by nobody: for benchmarks of kernels.
// available: the instruction sets that the processor counts as having (kernels/isa.h).
Result<std::unique_ptr<Backend>> create_cpu_backend(const CpuBackendOptions& options,
                                                    const cpu::KernelSet& kernels,
                                                    uint32_t available);

// Of keys and values, where nothing else is wished, with these kernels (Backend::default_kv_type).
KvType default_kv_type(const cpu::KernelSet& kernels);

}  // namespace headrace
