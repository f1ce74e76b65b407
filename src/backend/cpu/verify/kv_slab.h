// A slab of KV blocks as verification sees it: the order of kernels.h written down a second time,
// code by code, so that a kernel's own arithmetic of places is checked and not shared.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "backend/cpu/verify/problem.h"

namespace headrace::cpu {

std::string_view kv_type_name(KvDtype type);

// One number and how far it may lie from the exact one.
struct Approximate {
  double value = 0;
  double tolerance = 0;
};

class KvSlab {
 public:
  // Poisoned blocks for positions [0, num_positions) of one sequence: scattered, the first and the
  // last block of the slab among them, one of somebody else in between.
  KvSlab(KvDtype type, int num_kv_heads, int head_dim, int64_t num_positions);

  KvDtype type() const { return type_; }
  bool is_scaled() const { return kv_is_scaled(type_); }
  size_t block_stride() const { return block_stride_; }
  std::span<const int32_t> table() const { return table_; }

  enum class Plane : uint8_t { kKey, kValue };
  struct Place {
    Plane plane;
    int64_t position;
    int head;
  };

  // Stores a head vector, padded with zeros, as the type keeps it; returns what it then stands for.
  std::vector<double> store(const Place& place, std::span<const float> x);
  // Expects a head vector, padded with zeros, as the type keeps it.
  void expect(const Place& place, std::span<const Approximate> x);

  // The slab as the input of a call; or as its output, seen as codes or, of scaled types, as
  // scales.
  Operand input() const;
  Operand codes_output() const;
  Operand scales_output() const;

 private:
  Element element() const;
  double largest_code() const;
  size_t plane_at(const Place& place) const;            // in bytes
  size_t code_at(const Place& place, int64_t d) const;  // in elements; of int16 its high byte
  size_t scale_at(const Place& place) const;            // in floats
  void put(size_t code_index, double code);
  void expect_scaled(const Place& place, std::span<const Approximate> x);

  KvDtype type_;
  int head_dim_;
  size_t block_stride_;  // more than a block: other layers lie between
  std::vector<int32_t> table_;
  std::vector<uint8_t> bytes_;
  std::vector<Expected> codes_;
  std::vector<Expected> scales_;
};

}  // namespace headrace::cpu
