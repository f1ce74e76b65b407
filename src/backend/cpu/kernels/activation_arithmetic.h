// The arithmetic that a person chooses; which rows serve it, a unit's table says (registry.h).
#pragma once

#include <cstdint>

namespace headrace {

// How activations meet coded and bf16 weights. Prefill, decode and batches of one back end share
// it.
enum class ActivationArithmetic : uint8_t {
  kExact,  // 16 bits per activation (two int8 terms): closer to float32 than bf16
  kFast,   // 8 bits; with AMX 16 bits in coarser units; bf16 for bf16 weights where the processor
           // multiplies that faster: faster where arithmetic is the limit, less accurate
};

}  // namespace headrace
