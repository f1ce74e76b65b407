#include "backend/cpu/verify/guarded_memory.h"

#include <fmt/format.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/check.h"

namespace headrace::cpu {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
constexpr size_t kNumSignals = std::size(kSignals);

struct sigaction previous_actions[kNumSignals];
thread_local sigjmp_buf* way_back = nullptr;
thread_local Fault last_fault;

void on_fault(int signal, siginfo_t* info, void*) {
  if (way_back != nullptr) {
    last_fault = {signal, info->si_addr};
    siglongjmp(*way_back, 1);
  }
  // Not ours: the instruction runs again and meets the handler that was there before.
  for (size_t i = 0; i < kNumSignals; ++i) {
    if (kSignals[i] == signal) sigaction(signal, &previous_actions[i], nullptr);
  }
}

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

GuardedRegion::~GuardedRegion() {
  if (base_ != nullptr) munmap(base_ - kGuardBytes, capacity_ + 2 * kGuardBytes);
}

GuardedRegion::GuardedRegion(GuardedRegion&& other) noexcept { *this = std::move(other); }

GuardedRegion& GuardedRegion::operator=(GuardedRegion&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(capacity_, other.capacity_);
  std::swap(operand_, other.operand_);
  std::swap(num_bytes_, other.num_bytes_);
  std::swap(writable_, other.writable_);
  return *this;
}

void GuardedRegion::reserve(size_t num_bytes) {
  const size_t page = page_bytes();
  const size_t needed = (num_bytes + kBandBytes + 64 + page - 1) / page * page;
  if (needed <= capacity_) return;
  if (base_ != nullptr) munmap(base_ - kGuardBytes, capacity_ + 2 * kGuardBytes);
  base_ = nullptr;
  capacity_ = 0;
  // Under a limit of memory either may be refused; who ends the program for want of memory says so.
  void* pages = mmap(nullptr, needed + 2 * kGuardBytes, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  capacity_ = needed;
  base_ = static_cast<uint8_t*>(pages) + kGuardBytes;
  if (mprotect(base_, capacity_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  writable_ = true;
}

uint8_t* GuardedRegion::place(size_t num_bytes, size_t alignment, Side side) {
  if (base_ != nullptr) set_writable(true);
  reserve(num_bytes);
  num_bytes_ = num_bytes;
  operand_ = side == Side::kBegin ? base_ : base_ + (capacity_ - num_bytes) / alignment * alignment;
  uint8_t* low = std::max(base_, operand_ - std::min<ptrdiff_t>(operand_ - base_, kBandBytes));
  std::memset(low, kPoison, static_cast<size_t>(operand_ - low));
  uint8_t* end = operand_ + num_bytes;
  std::memset(end, kPoison,
              std::min<size_t>(static_cast<size_t>(base_ + capacity_ - end), kBandBytes));
  return operand_;
}

void GuardedRegion::set_writable(bool writable) {
  if (writable_ == writable) return;
  // Only the operand's own pages: a region that once grew large stays cheap for small operands.
  const size_t page = page_bytes();
  const size_t first = static_cast<size_t>(operand_ - base_) / page * page;
  const size_t end = static_cast<size_t>(operand_ - base_) + num_bytes_;
  const size_t length = std::min(capacity_, (end + page - 1) / page * page) - first;
  const int access = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  CHECK(mprotect(base_ + first, length, access) == 0, "mprotect: {}", std::strerror(errno));
  writable_ = writable;
}

bool GuardedRegion::band_intact() const {
  const auto poisoned = [](const uint8_t* first, const uint8_t* last) {
    return std::all_of(first, last, [](uint8_t byte) { return byte == kPoison; });
  };
  const uint8_t* end = operand_ + num_bytes_;
  return poisoned(operand_ - std::min<ptrdiff_t>(operand_ - base_, kBandBytes), operand_) &&
         poisoned(end, end + std::min<ptrdiff_t>(base_ + capacity_ - end, kBandBytes));
}

std::optional<std::string> GuardedRegion::locate(const void* address) const {
  const auto* at = static_cast<const uint8_t*>(address);
  if (base_ == nullptr || at < base_ - kGuardBytes || at >= base_ + capacity_ + kGuardBytes) {
    return std::nullopt;
  }
  if (at < operand_) return fmt::format("{} bytes before it", operand_ - at);
  if (at >= operand_ + num_bytes_) {
    return fmt::format("{} bytes past its end", at - (operand_ + num_bytes_));
  }
  return fmt::format("byte {}, which is read-only", at - operand_);
}

FaultTrap::FaultTrap() {
  struct sigaction action{};
  action.sa_sigaction = &on_fault;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kNumSignals; ++i) sigaction(kSignals[i], &action, &previous_actions[i]);
}

FaultTrap::~FaultTrap() {
  for (size_t i = 0; i < kNumSignals; ++i) sigaction(kSignals[i], &previous_actions[i], nullptr);
}

std::optional<Fault> trap_faults(void (*function)(void*), void* context) {
  sigjmp_buf here;
  if (sigsetjmp(here, 1) != 0) {
    way_back = nullptr;
    return last_fault;
  }
  way_back = &here;
  function(context);
  way_back = nullptr;
  return std::nullopt;
}

}  // namespace headrace::cpu
