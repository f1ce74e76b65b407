// The delta rule: inputs made ready, and the recurrence over a head's state, panel by panel.
//
// Each row goes over the state once: while a state vector is at hand, it is decayed and corrected
// for this row, gives its part of this row's output and its part of the next row's p.
#pragma once

#include "backend/cpu/kernels/generic/elementwise.h"

namespace headrace::cpu {
namespace {

// x / sqrt(sum x^2 + eps) * scale, in place.
template <typename F>
void unit_length(float* x, int64_t dims, float scale) {
  using V = typename F::V;
  V sum = F::zero();
  for_columns<F>(dims, [&](auto load, auto) __attribute__((always_inline)) {
    const V v = load(x);
    sum = F::fma(v, v, sum);
  });
  const V factor = F::set(1.0f / F::root(F::fold_sum(sum) + kDeltaNormEps));
  for_columns<F>(dims, [&](auto load, auto store) __attribute__((always_inline)) {
    store(x, F::mul(F::mul(load(x), factor), F::set(scale)));
  });
}

// Decays of one row: a number per head, or key_dim of each.
template <typename F>
void make_decays(const DeltaInputsArgs& args, float* decay) {
  using V = typename F::V;
  if (args.decay_dims == 1) {
    for_columns<F>(args.value_heads, [&](auto load, auto store) __attribute__((always_inline)) {
      const V plus = softplus_lanes<F>(F::add(load(decay), load(args.decay_bias)));
      store(decay, exp_lanes<F>(F::mul(load(args.decay_rate), plus)));
    });
    return;
  }
  for (int64_t h = 0; h < args.value_heads; ++h) {
    const V rate = F::set(args.decay_rate[h]);
    const float* bias = args.decay_bias + h * args.decay_dims;
    float* of_head = decay + h * args.decay_dims;
    for_columns<F>(args.decay_dims, [&](auto load, auto store) __attribute__((always_inline)) {
      const V plus = softplus_lanes<F>(F::add(load(of_head), load(bias)));
      store(of_head, exp_lanes<F>(F::mul(rate, plus)));
    });
  }
}

template <typename F>
void delta_inputs(const DeltaInputsArgs& args) {
  const float scale = 1.0f / F::root(static_cast<float>(args.key_dim));
  for (int64_t m = 0; m < args.num_rows; ++m) {
    float* q = args.qkv + m * args.qkv_stride;
    float* k = q + args.key_heads * args.key_dim;
    for (int64_t h = 0; h < args.key_heads; ++h) {
      unit_length<F>(q + h * args.key_dim, args.key_dim, scale);
      unit_length<F>(k + h * args.key_dim, args.key_dim, 1.0f);
    }
    float* beta = args.beta + m * args.beta_stride;
    for_columns<F>(args.value_heads, [&](auto load, auto store) __attribute__((always_inline)) {
      store(beta, sigmoid_lanes<F>(load(beta)));
    });
    make_decays<F>(args, args.decay + m * args.decay_stride);
  }
}

// A row's k and q, and what the next row reads the state with.
struct DeltaRow {
  const float* k;
  const float* q;
  const float* decay;
  const float* next;  // decayed key of the next row, or null
};

template <typename F>
void decay_keys(const DeltaRowsArgs& args, int64_t row, float* keys) {
  using V = typename F::V;
  const float* k = args.k + row * args.qkv_stride;
  const float* decay = args.decay + row * args.decay_stride;
  const V all = F::set(decay[0]);
  const bool is_one = args.decay_dims == 1;
  for_columns<F>(args.key_dim, [&](auto load, auto store) __attribute__((always_inline)) {
    store(keys, F::mul(is_one ? all : load(decay), load(k)));
  });
}

// p of the first row: the state has not been touched yet.
template <typename F, int kCount>
[[gnu::always_inline]] inline void read_state(const float* state, const float* keys,
                                              int64_t key_dim, typename F::V* p) {
  const int64_t panel = delta_panel_floats(key_dim);
  unrolled<0, kCount>([&](auto n) __attribute__((always_inline)) { p[n.value] = F::zero(); });
  for (int64_t i = 0; i < key_dim; ++i) {
    const auto key = F::set(keys[i]);
    unrolled<0, kCount>([&](auto n) __attribute__((always_inline)) {
      p[n.value] = F::fma(F::load(state + n.value * panel + i * kPanel), key, p[n.value]);
    });
  }
}

// One row's pass over kCount panels: e in, out and, with kNext, the next row's p out.
template <typename F, int kCount, bool kChannels, bool kNext>
[[gnu::always_inline]] inline void pass_state(const DeltaRow& row, int64_t key_dim,
                                              const float* from, float* to,
                                              const typename F::V* e_in, typename F::V* o_out,
                                              typename F::V* p_out) {
  using V = typename F::V;
  const int64_t panel = delta_panel_floats(key_dim);
  V e[kCount], o[kCount], p[kCount];
  unrolled<0, kCount>([&](auto n) __attribute__((always_inline)) {
    e[n.value] = e_in[n.value];
    o[n.value] = p[n.value] = F::zero();
  });
  V decay = F::set(row.decay[0]);
  for (int64_t i = 0; i < key_dim; ++i) {
    if constexpr (kChannels) decay = F::set(row.decay[i]);
    const V k = F::set(row.k[i]);
    const V q = F::set(row.q[i]);
    V next = F::zero();
    if constexpr (kNext) next = F::set(row.next[i]);
    unrolled<0, kCount>([&](auto n) __attribute__((always_inline)) {
      const int64_t at = n.value * panel + i * kPanel;
      const V s = F::fma(k, e[n.value], F::mul(decay, F::load(from + at)));
      F::store(to + at, s);
      o[n.value] = F::fma(s, q, o[n.value]);
      if constexpr (kNext) p[n.value] = F::fma(s, next, p[n.value]);
    });
  }
  unrolled<0, kCount>([&](auto n) __attribute__((always_inline)) {
    o_out[n.value] = o[n.value];
    p_out[n.value] = p[n.value];
  });
}

// All rows over kCount panels from `first`.
template <typename F, int kCount, bool kChannels>
void delta_panels(const DeltaRowsArgs& args, int64_t first) {
  using V = typename F::V;
  const int64_t offset = first * delta_panel_floats(args.key_dim);
  const auto columns = [&](int64_t n) {
    return smaller(args.value_dim - (first + n) * kPanel, 16);
  };
  float* to = args.to + offset;
  if (args.from == nullptr) {
    for (int64_t i = 0; i < kCount * args.key_dim; ++i) F::store(to + i * kPanel, F::zero());
  }
  const float* from = args.from == nullptr ? to : args.from + offset;
  alignas(64) float keys[kMaxDeltaDim];
  V p[kCount], e[kCount], o[kCount];
  decay_keys<F>(args, 0, keys);
  read_state<F, kCount>(from, keys, args.key_dim, p);
  for (int64_t m = 0; m < args.num_rows; ++m) {
    const float* v = args.v + m * args.qkv_stride + first * kPanel;
    const V beta = F::set(args.beta[m * args.beta_stride]);
    unrolled<0, kCount>([&](auto n) __attribute__((always_inline)) {
      const V value = F::load_part(v + n.value * kPanel, columns(n.value));
      e[n.value] = F::mul(beta, F::sub(value, p[n.value]));
    });
    const DeltaRow row{args.k + m * args.qkv_stride, args.q + m * args.qkv_stride,
                       args.decay + m * args.decay_stride, keys};
    if (m + 1 < args.num_rows) {
      decay_keys<F>(args, m + 1, keys);
      pass_state<F, kCount, kChannels, true>(row, args.key_dim, from, to, e, o, p);
    } else {
      pass_state<F, kCount, kChannels, false>(row, args.key_dim, from, to, e, o, p);
    }
    from = to;
    float* out = args.out + m * args.out_stride + first * kPanel;
    unrolled<0, kCount>([&](auto n) __attribute__((always_inline)) {
      F::store_part(out + n.value * kPanel, o[n.value], columns(n.value));
    });
  }
}

template <typename F, bool kChannels>
void delta_of(const DeltaRowsArgs& args) {
  const int64_t end = args.first_panel + args.num_panels;
  int64_t panel = args.first_panel;
  for (; panel + F::kDeltaVectors <= end; panel += F::kDeltaVectors) {
    delta_panels<F, F::kDeltaVectors, kChannels>(args, panel);
  }
  for (; panel < end; ++panel) delta_panels<F, 1, kChannels>(args, panel);
}

template <typename F>
void delta(const DeltaRowsArgs& args) {
  if (args.decay_dims == 1) return delta_of<F, false>(args);
  delta_of<F, true>(args);
}

}  // namespace
}  // namespace headrace::cpu
