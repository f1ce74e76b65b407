// Problem: one call of a kernel with all its operands, and what must come out, in float64.
//
// A problem knows operands and expectations; how they are laid in memory, poisoned, protected and
// compared is the same for every op (verify.cpp). Makers, one per op, run through shapes and values
// from fixed seeds, so that a failure can be repeated.
#pragma once

#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/verify/samples.h"

namespace headrace::cpu {

enum class Depth : uint8_t {
  kStart,  // each row once or twice, microseconds each: every start of the program
  kQuick,  // every kind of shape and value: the tests
  kFull,   // all shapes times all values, and real layers
};

// kInt16Bytes: a byte, as the high one of a number whose low one lies 64 bytes on.
enum class Element : uint8_t { kF32, kBF16, kF16, kFp8, kInt8, kInt16Bytes, kByte };
size_t element_bytes(Element element);
double read_element(Element element, const uint8_t* at);

// What one element of an output must be. tolerance < 0: must stay as it was before the call;
// infinite: any value. With tolerance 0 the value must be equal; a NaN needs a NaN.
struct Expected {
  double value = 0;
  double tolerance = -1;
};

struct Operand {
  std::string_view name;
  std::vector<uint8_t> bytes;  // before the call
  size_t alignment = 4;
  size_t scratch_bytes = 0;  // instead of bytes: writable, poisoned, of no further interest
  bool is_output = false;
  Element element = Element::kF32;
  std::vector<Expected> expected;  // of an output: one per element
};

// Where the operands of a call lie, in the order of Problem::operands.
using Places = std::span<uint8_t* const>;

struct Problem {
  std::string name;  // shape and values
  std::vector<Operand> operands;
  // Calls the row's function on the operands. in_parts: as several calls that together do the same
  // work (rows, panels or heads apart); the bits must not differ.
  std::function<void(const KernelRow& row, Places at, bool in_parts)> call;
};

// Problems are made when they are run: not those that come after a failure that is enough.
using MakeProblem = std::function<Problem()>;
using Visit = std::function<void(const MakeProblem&)>;

// Problems of a row's op, layout and activation type; the same for all rows that share these.
void visit_matmul_problems(const KernelRow& row, Depth depth, const Visit& visit);
void visit_quantise_problems(const KernelRow& row, Depth depth, const Visit& visit);
void visit_unpack_problems(const KernelRow& row, Depth depth, const Visit& visit);
void visit_finish_problems(const KernelRow& row, Depth depth, const Visit& visit);
void visit_gate_problems(const KernelRow& row, Depth depth, const Visit& visit);
void visit_norm_problems(const KernelRow& row, Depth depth, const Visit& visit);
void visit_qkv_problems(const KernelRow& row, Depth depth, const Visit& visit);
void visit_attention_problems(const KernelRow& row, Depth depth, const Visit& visit);
void visit_conv_problems(const KernelRow& row, Depth depth, const Visit& visit);
void visit_scan_problems(const KernelRow& row, Depth depth, const Visit& visit);
void visit_delta_inputs_problems(const KernelRow& row, Depth depth, const Visit& visit);
void visit_delta_problems(const KernelRow& row, Depth depth, const Visit& visit);
void visit_store_problems(const KernelRow& row, Depth depth, const Visit& visit);
void visit_latent_problems(const KernelRow& row, Depth depth, const Visit& visit);
void visit_index_problems(const KernelRow& row, Depth depth, const Visit& visit);
void visit_shrink_problems(const KernelRow& row, Depth depth, const Visit& visit);
void visit_expand_problems(const KernelRow& row, Depth depth, const Visit& visit);

// Building blocks of the makers.

inline constexpr double kAnyValue = std::numeric_limits<double>::infinity();
inline constexpr double kRound = 0x1p-24;  // largest relative error of one float32 operation
inline constexpr double kTiny = 0x1p-149;  // and its absolute error among the subnormals

Operand input_of(std::string_view name, std::span<const float> values);
Operand input_of(std::string_view name, std::span<const int32_t> values);
Operand input_of(std::string_view name, std::span<const uint8_t> bytes, size_t alignment);
// [rows, width] spread to rows of `stride`, NaN between them; the last row ends with its width.
Operand strided_input(std::string_view name, std::span<const float> values, int64_t width,
                      int64_t stride);
// [rows, stride] floats of NaN, all to stay so until expectations are set.
Operand poisoned_output(std::string_view name, int64_t rows, int64_t width, int64_t stride);
Operand scratch_of(int64_t num_floats);

inline float* floats(uint8_t* at) { return reinterpret_cast<float*>(at); }

}  // namespace headrace::cpu
