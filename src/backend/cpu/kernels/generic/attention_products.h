// Products of a few rows by a few vectors, held in registers: scores from expanded keys, weighted
// sums from expanded values.
#pragma once

#include "backend/cpu/kernels/generic/base.h"

namespace headrace::cpu {
namespace {

// c[r] = factors[r] c[r] (or 0) + sum over k, in order, of a[r][k] b[k].
struct Product {
  const float* a;
  int64_t a_stride;
  const float* b;
  int64_t b_stride;
  int64_t count;
  float* c;
  int64_t c_stride;
  const float* factors;  // or null: from 0
};

template <typename F, int kRows, int kVectors>
void multiply(const Product& p) {
  using V = typename F::V;
  float* const c = p.c;
  const int64_t c_stride = p.c_stride;
  V sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = p.factors == nullptr
                      ? F::zero()
                      : F::mul(F::load(c + r * c_stride + v * 16), F::set(p.factors[r]));
    }
  }
  const float* b = p.b;
  for (int64_t k = 0; k < p.count; ++k, b += p.b_stride) {
    V column[kVectors];
    for (int v = 0; v < kVectors; ++v) column[v] = F::load(b + v * 16);
    for (int r = 0; r < kRows; ++r) {
      const V a = F::set(p.a[r * p.a_stride + k]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = F::fma(a, column[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) F::store(c + r * c_stride + v * 16, sum[r][v]);
  }
}

struct ProductRow {  // by vectors - 1
  void (*by_vectors[4])(const Product&);
};

template <typename F, int kRows>
constexpr ProductRow product_row() {
  static_assert(F::kAttendVectors == 1 || F::kAttendVectors == 4);
  if constexpr (F::kAttendVectors == 1) {
    return {{&multiply<F, kRows, 1>, nullptr, nullptr, nullptr}};
  } else {
    return {{&multiply<F, kRows, 1>, &multiply<F, kRows, 2>, &multiply<F, kRows, 3>,
             &multiply<F, kRows, 4>}};
  }
}

template <typename F>
struct Products {  // by rows - 1
  static_assert(F::kAttendRows == 6);
  static constexpr ProductRow kRows[F::kAttendRows] = {product_row<F, 1>(), product_row<F, 2>(),
                                                       product_row<F, 3>(), product_row<F, 4>(),
                                                       product_row<F, 5>(), product_row<F, 6>()};
};

// The product for `rows` rows and any number of vectors.
template <typename F>
void multiply_rows(int rows, int64_t vectors, Product p) {
  const ProductRow& products = Products<F>::kRows[rows - 1];
  while (vectors > 0) {
    const int64_t width = smaller(vectors, F::kAttendVectors);
    products.by_vectors[width - 1](p);
    p.b += width * 16;
    p.c += width * 16;
    vectors -= width;
  }
}

}  // namespace
}  // namespace headrace::cpu
