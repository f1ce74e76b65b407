#include "tile_traps.h"

#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "tile_model.h"

extern "C" int __real_sigaction(int signal, const struct sigaction* action, struct sigaction* old);

namespace headrace::cpu {
namespace {

std::atomic<bool> are_on{false};
std::atomic<int64_t> num_done{0};
struct sigaction next_action;  // for what is no tile instruction

enum Prefix : int { kNone = 0, k66 = 1, kF3 = 2, kF2 = 3 };  // as VEX's field pp encodes them

// The fields of an instruction of VEX's second map, and where it ends.
struct Instruction {
  uint8_t opcode;
  int prefix, mod, reg, rm, vvvv;
  uint64_t base = 0,
           index = 0;  // of an operand in memory: its address, and the index times its scale
  const uint8_t* end;
};

uint64_t register_of(const ucontext_t& context, int number) {
  static constexpr int kPlace[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                   REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                   REG_R12, REG_R13, REG_R14, REG_R15};
  return static_cast<uint64_t>(context.uc_mcontext.gregs[kPlace[number]]);
}

template <typename T>
int64_t read_signed(const uint8_t*& at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  at += sizeof(T);
  return value;
}

// The operand in memory of an instruction whose ModRM byte was read; `high_base` and `high_index`
// are bit 3 of the registers' numbers.
void read_address(const ucontext_t& context, int high_base, int high_index, Instruction* to) {
  const uint8_t*& at = to->end;
  int base = to->rm;
  if (to->rm == 4) {
    const uint8_t sib = *at++;
    const int index = ((sib >> 3) & 7) | high_index;
    if (index != 4) to->index = register_of(context, index) << (sib >> 6);
    base = sib & 7;
  }
  const bool has_no_base = to->mod == 0 && base == 5;
  int64_t displacement = 0;
  if (to->mod == 1) displacement = read_signed<int8_t>(at);
  if (to->mod == 2 || has_no_base) displacement = read_signed<int32_t>(at);
  if (!has_no_base) {
    to->base = register_of(context, base | high_base);
  } else if (to->rm != 4) {
    to->base = reinterpret_cast<uint64_t>(at);  // relative to the next instruction
  }
  to->base += static_cast<uint64_t>(displacement);
}

// False if there is no VEX instruction of the second map without further bits (W0, 128) here.
bool read_instruction(const ucontext_t& context, const uint8_t* at, Instruction* to) {
  if (at[0] != 0xC4 || (at[1] & 0x1F) != 2 || (at[2] & 0x84) != 0) return false;
  to->prefix = at[2] & 3;
  to->vvvv = (~at[2] >> 3) & 15;
  to->opcode = at[3];
  to->mod = at[4] >> 6;
  to->reg = ((at[4] >> 3) & 7) | ((at[1] & 0x80) != 0 ? 0 : 8);
  to->rm = at[4] & 7;
  to->end = at + 5;
  const int high_base = (at[1] & 0x20) != 0 ? 0 : 8, high_index = (at[1] & 0x40) != 0 ? 0 : 8;
  if (to->mod != 3) read_address(context, high_base, high_index, to);
  return true;
}

bool do_shape(const Instruction& i, TileMachine* machine) {
  if (i.prefix == kF2 && i.mod == 3 && i.rm == 0) {
    machine->zero(i.reg);
  } else if (i.prefix == kNone && i.reg == 0 && i.mod == 3 && i.rm == 0) {
    machine->release();
  } else if (i.prefix == kNone && i.reg == 0 && i.mod != 3) {
    TileConfig config;
    std::memcpy(&config, reinterpret_cast<const void*>(i.base + i.index), sizeof(config));
    machine->configure(config);
  } else {
    return false;
  }
  return true;
}

bool do_move(const Instruction& i, TileMachine* machine) {
  if (i.mod == 3 || i.rm != 4 || i.prefix == kNone) return false;
  const auto stride = static_cast<int64_t>(i.index);
  if (i.prefix == kF3) {
    machine->store(i.reg, reinterpret_cast<void*>(i.base), stride);
  } else {
    machine->load(i.reg, reinterpret_cast<const void*>(i.base), stride);
  }
  return true;
}

bool do_product(const Instruction& i, TileMachine* machine) {
  if (i.mod != 3) return false;
  if (i.opcode == 0x5E) {
    const bool a_signed = i.prefix == kF2 || i.prefix == kF3;
    const bool b_signed = i.prefix == kF2 || i.prefix == k66;
    machine->product_bytes(i.reg, i.rm, i.vvvv, a_signed, b_signed);
    return true;
  }
  if (i.prefix != kF3) return false;
  machine->product_bf16(i.reg, i.rm, i.vvvv);
  return true;
}

// False if it is no tile instruction.
bool execute(const Instruction& i, TileMachine* machine) {
  switch (i.opcode) {
    case 0x49:
      return do_shape(i, machine);
    case 0x4B:
      return do_move(i, machine);
    case 0x5C:
    case 0x5E:
      return do_product(i, machine);
    default:
      return false;
  }
}

void end_with(const std::string& fault) {
  const std::string text = "tile instruction: " + fault + "\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  std::abort();
}

void hand_on(int signal, siginfo_t* info, void* context) {
  if ((next_action.sa_flags & SA_SIGINFO) != 0) {
    next_action.sa_sigaction(signal, info, context);
  } else {
    __real_sigaction(signal, &next_action, nullptr);  // the instruction runs again and meets it
  }
}

void on_illegal_instruction(int signal, siginfo_t* info, void* opaque) {
  auto& context = *static_cast<ucontext_t*>(opaque);
  auto& place = context.uc_mcontext.gregs[REG_RIP];
  Instruction instruction{};
  if (!read_instruction(context, reinterpret_cast<const uint8_t*>(place), &instruction) ||
      !execute(instruction, &tile_machine())) {
    hand_on(signal, info, opaque);
    return;
  }
  if (!tile_machine().fault().empty()) end_with(tile_machine().fault());
  place = reinterpret_cast<greg_t>(instruction.end);
  num_done.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

TileTraps::TileTraps() {
  CHECK(!are_on, "tile traps are on already");
  num_done = 0;
  struct sigaction action{};
  action.sa_sigaction = &on_illegal_instruction;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  CHECK(__real_sigaction(SIGILL, &action, &next_action) == 0, "sigaction of SIGILL");
  are_on = true;
}

TileTraps::~TileTraps() {
  are_on = false;
  __real_sigaction(SIGILL, &next_action, nullptr);
}

int64_t TileTraps::num_instructions() const { return num_done; }

}  // namespace headrace::cpu

extern "C" int __wrap_sigaction(int signal, const struct sigaction* action, struct sigaction* old) {
  using namespace headrace::cpu;
  if (signal != SIGILL || !are_on) return __real_sigaction(signal, action, old);
  if (old != nullptr) *old = next_action;
  if (action != nullptr) next_action = *action;
  return 0;
}
