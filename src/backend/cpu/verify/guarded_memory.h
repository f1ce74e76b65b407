// Guarded memory: operands of a kernel between pages that no access survives.
//
// A region is a run of pages with unreadable pages on both sides. An operand is put at one end of
// it, so an access past that end faults; the band of bytes on its other side holds a pattern (NaN
// as float32, bfloat16 and float16) that a kernel must neither use nor change. Read-only operands
// are protected while the kernel runs. Owner: one verification run, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace headrace::cpu {

inline constexpr uint8_t kPoison = 0xFF;

enum class Side : uint8_t { kBegin, kEnd };  // the end of the region that the operand touches

class GuardedRegion {
 public:
  GuardedRegion() = default;
  ~GuardedRegion();
  GuardedRegion(GuardedRegion&& other) noexcept;
  GuardedRegion& operator=(GuardedRegion&& other) noexcept;
  GuardedRegion(const GuardedRegion&) = delete;
  GuardedRegion& operator=(const GuardedRegion&) = delete;

  // Room for num_bytes, writable, at a multiple of `alignment` (a power of two up to 64), with its
  // band poisoned. Ends what was placed before. CHECKs that the system has the memory.
  uint8_t* place(size_t num_bytes, size_t alignment, Side side);
  void set_writable(bool writable);

  // Is the band around the operand as place() left it?
  bool band_intact() const;
  // Where `address` lies relative to the operand, "12 bytes past its end"; nothing if it lies
  // outside the region and its guards.
  std::optional<std::string> locate(const void* address) const;

 private:
  static constexpr size_t kGuardBytes = size_t{64} << 10;
  static constexpr size_t kBandBytes = 256;

  void reserve(size_t num_bytes);

  uint8_t* base_ = nullptr;  // first page between the guards
  size_t capacity_ = 0;
  uint8_t* operand_ = nullptr;
  size_t num_bytes_ = 0;
  bool writable_ = true;
};

struct Fault {
  int signal = 0;
  const void* address = nullptr;
};

// While one lives, faults inside trap_faults come back as a Fault; all others go where they went
// before. Handlers belong to the process: at most one trap at a time.
class FaultTrap {
 public:
  FaultTrap();
  ~FaultTrap();
  FaultTrap(const FaultTrap&) = delete;
  FaultTrap& operator=(const FaultTrap&) = delete;
};

// Calls function(context); on SIGSEGV, SIGBUS, SIGILL or SIGFPE leaves it where it stands. Only for
// code that owns nothing, as kernels do.
std::optional<Fault> trap_faults(void (*function)(void*), void* context);

}  // namespace headrace::cpu
