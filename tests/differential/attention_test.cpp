// Attention and the KV append: against float64, and independence of chunks, neighbours and threads.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/numeric.h"
#include "kernel_cases.h"

namespace headrace {
namespace {

struct Case {
  int num_heads = 3;
  int num_kv_heads = 1;
  int head_dim = 64;
  KvType type = KvType::kF32;
  float softcap = 0;
  int64_t window = 0;
  bool sinks = false;
  int64_t num_tokens = 150;
};

// One sequence with its KV blocks in a scrambled order, memory poisoned with NaN.
class Sequence {
 public:
  Sequence(Backend& backend, const Case& setup) : backend_(backend), setup_(setup) {
    shape_ = {setup.type, setup.num_kv_heads, setup.head_dim};
    const size_t block_bytes = backend.kv_layer_bytes(shape_);
    num_blocks_ = (setup.num_tokens + kBlockTokens - 1) / kBlockTokens;
    stride_ = block_bytes + 192;  // other layers lie between
    memory_.assign(stride_ * static_cast<size_t>(num_blocks_ + 1), std::byte{0xFF});
    for (int64_t b = 0; b < num_blocks_; ++b) {
      table_.push_back(static_cast<int32_t>(num_blocks_ - b));
    }
  }

  KvLayer layer() { return {shape_, memory_.data(), stride_}; }
  const int32_t* table() const { return table_.data(); }

  // Runs tokens [first, end) of qkv [num_tokens, width] as one span; out [num_tokens, q width].
  void run(const std::vector<float>& qkv, int64_t first, int64_t end, const float* sinks,
           std::vector<float>* out) {
    const int64_t q_width = int64_t{setup_.num_heads} * setup_.head_dim;
    const int64_t width = q_width + int64_t{2} * setup_.num_kv_heads * setup_.head_dim;
    const int64_t count = end - first;
    std::vector<float> q(static_cast<size_t>(count * q_width));
    const SequenceSpan span{0, static_cast<int32_t>(count), first, table_.data()};
    QkvArgs append;
    append.qkv = qkv.data() + first * width;
    append.q_out = q.data();
    append.num_rows = count;
    append.num_heads = setup_.num_heads;
    append.kv = layer();
    append.spans = {&span, 1};
    backend_.finish_qkv(append);
    AttentionArgs args;
    args.q = q.data();
    args.out = out->data() + first * q_width;
    args.num_heads = setup_.num_heads;
    args.kv = layer();
    args.spans = {&span, 1};
    args.scale = 0.7f / std::sqrt(static_cast<float>(setup_.head_dim));
    args.softcap = setup_.softcap;
    args.window = setup_.window;
    args.sinks = sinks;
    backend_.attention(args);
  }

 private:
  Backend& backend_;
  Case setup_;
  KvShape shape_;
  int64_t num_blocks_;
  size_t stride_;
  std::vector<std::byte> memory_;
  std::vector<int32_t> table_;
};

float stored(const Case& setup, float value) {
  return setup.type == KvType::kF32 ? value : bf16_to_float(float_to_bf16(value));
}

// Largest error of a run against float64.
double worst_error(const Case& setup, const std::vector<float>& qkv,
                   const std::vector<float>& sinks, const std::vector<float>& out) {
  const int64_t dim = setup.head_dim;
  const int64_t q_width = setup.num_heads * dim;
  const int64_t width = q_width + 2 * setup.num_kv_heads * dim;
  const double scale = double{0.7f / std::sqrt(static_cast<float>(setup.head_dim))};
  double worst = 0;
  for (int64_t i = 0; i < setup.num_tokens; ++i) {
    const int64_t lowest = setup.window > 0 ? std::max<int64_t>(0, i + 1 - setup.window) : 0;
    for (int h = 0; h < setup.num_heads; ++h) {
      const int64_t kv_head = h / (setup.num_heads / setup.num_kv_heads);
      std::vector<double> weights;
      double total = setup.sinks ? std::exp(double{sinks[static_cast<size_t>(h)]}) : 0;
      for (int64_t j = lowest; j <= i; ++j) {
        double dot = 0;
        for (int64_t d = 0; d < dim; ++d) {
          const float k = qkv[static_cast<size_t>(j * width + q_width + kv_head * dim + d)];
          dot +=
              double{qkv[static_cast<size_t>(i * width + h * dim + d)]} * double{stored(setup, k)};
        }
        double score = dot * scale;
        if (setup.softcap > 0)
          score = double{setup.softcap} * std::tanh(score / double{setup.softcap});
        weights.push_back(std::exp(score));
        total += weights.back();
      }
      for (int64_t d = 0; d < dim; ++d) {
        double value = 0;
        for (int64_t j = lowest; j <= i; ++j) {
          const int64_t at = j * width + q_width + (setup.num_kv_heads + kv_head) * dim + d;
          value += weights[static_cast<size_t>(j - lowest)] *
                   double{stored(setup, qkv[static_cast<size_t>(at)])};
        }
        const double error =
            std::fabs(value / total - double{out[static_cast<size_t>(i * q_width + h * dim + d)]});
        worst = std::isnan(error) ? 1e30 : std::max(worst, error);
      }
    }
  }
  return worst;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const int dim : {16, 24, 32, 64, 80, 96, 112, 128, 192, 256}) {
    cases.push_back({4, 2, dim, KvType::kF32, 0, 0, false, 81});
    cases.push_back({2, 2, dim, KvType::kBF16, 0, 0, false, 70});
  }
  for (const KvType type : {KvType::kF32, KvType::kBF16}) {
    cases.push_back({9, 3, 64, type, 0, 0, false, 150});
    cases.push_back({6, 1, 32, type, 20.0f, 0, false, 140});
    cases.push_back({4, 4, 64, type, 0, 17, false, 140});
    cases.push_back({4, 2, 64, type, 0, 64, true, 200});
    cases.push_back({5, 1, 40, type, 30.0f, 1, true, 66});
    cases.push_back({3, 1, 64, type, 0, 100, false, 197});
  }
  return cases;
}

size_t qkv_size(const Case& c) {
  return static_cast<size_t>(c.num_tokens * (c.num_heads + 2 * c.num_kv_heads) * c.head_dim);
}
size_t out_size(const Case& c) {
  return static_cast<size_t>(c.num_tokens * c.num_heads * c.head_dim);
}

TEST(Attention, MatchesFloat64) {
  int num_cases = 0;
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    for (const Case& setup : all_cases()) {
      Random random(20);
      const auto qkv = random_floats(qkv_size(setup), random);
      const auto sinks = random_floats(static_cast<size_t>(setup.num_heads), random);
      std::vector<float> out(out_size(setup), NAN);
      Sequence sequence(*backend, setup);
      sequence.run(qkv, 0, setup.num_tokens, setup.sinks ? sinks.data() : nullptr, &out);
      EXPECT_LT(worst_error(setup, qkv, sinks, out), 4e-6)
          << isa << " heads " << setup.num_heads << "/" << setup.num_kv_heads << " dim "
          << setup.head_dim << " window " << setup.window << " softcap " << setup.softcap;
      ++num_cases;
    }
  }
  EXPECT_GE(num_cases, 30);
}

// Whole, in chunks of several sizes and token by token, on 1, 2 and 3 threads, on every unit of a
// class: one result.
TEST(Attention, ChunksAndThreadsDoNotChangeBits) {
  int num_cases = 0;
  for (const Case& setup : all_cases()) {
    Random random(21);
    const auto qkv = random_floats(qkv_size(setup), random);
    const auto sinks = random_floats(static_cast<size_t>(setup.num_heads), random);
    std::vector<float> expected_fma;
    for (const std::string& isa : available_isas()) {
      std::vector<float> expected;
      if (isa != "reference") expected = expected_fma;
      for (const int num_threads : {2, 1, 3}) {
        const auto backend = make_backend(isa, num_threads);
        for (const int64_t chunk : {int64_t{1000}, int64_t{1}, int64_t{7}, int64_t{64}}) {
          if (isa == "reference" && chunk == 1 && num_threads != 1) continue;
          std::vector<float> out(out_size(setup), NAN);
          Sequence sequence(*backend, setup);
          for (int64_t first = 0; first < setup.num_tokens; first += chunk) {
            sequence.run(qkv, first, std::min(first + chunk, setup.num_tokens),
                         setup.sinks ? sinks.data() : nullptr, &out);
          }
          if (expected.empty()) expected = out;
          ASSERT_TRUE(same_bits(expected, out))
              << isa << " threads " << num_threads << " chunk " << chunk << " dim "
              << setup.head_dim << " window " << setup.window;
          ++num_cases;
        }
      }
      if (isa != "reference") expected_fma = expected;
    }
  }
  EXPECT_GE(num_cases, 100);
}

// Several sequences in one batch give what each gives alone.
TEST(Attention, NeighboursDoNotChangeBits) {
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    Case setup{6, 2, 48, KvType::kF32, 0, 0, false, 100};
    Random random(22);
    const auto first = random_floats(qkv_size(setup), random);
    const auto second = random_floats(qkv_size(setup), random);
    std::vector<float> out_first(out_size(setup)), out_second(out_size(setup));
    Sequence a(*backend, setup), b(*backend, setup);
    a.run(first, 0, 100, nullptr, &out_first);
    b.run(second, 0, 100, nullptr, &out_second);
    // Both sequences in one slab: block ids of the second come after those of the first.
    const KvShape shape{setup.type, setup.num_kv_heads, setup.head_dim};
    const size_t stride = backend->kv_layer_bytes(shape);
    std::vector<std::byte> slab(stride * 14, std::byte{0xFF});
    const int32_t tables[2][7] = {{0, 2, 4, 6, 8, 10, 12}, {1, 3, 5, 7, 9, 11, 13}};
    const SequenceSpan spans[] = {{0, 100, 0, tables[0]}, {100, 100, 0, tables[1]}};
    std::vector<float> both = first;
    both.insert(both.end(), second.begin(), second.end());
    std::vector<float> q(2 * out_size(setup)), out(2 * out_size(setup));
    QkvArgs append;
    append.qkv = both.data();
    append.q_out = q.data();
    append.num_rows = 200;
    append.num_heads = setup.num_heads;
    append.kv = {shape, slab.data(), stride};
    append.spans = spans;
    backend->finish_qkv(append);
    AttentionArgs args;
    args.q = q.data();
    args.out = out.data();
    args.num_heads = setup.num_heads;
    args.kv = append.kv;
    args.spans = spans;
    args.scale = 0.7f / std::sqrt(48.0f);
    backend->attention(args);
    EXPECT_TRUE(same_bits(std::span(out).first(out_size(setup)), out_first)) << isa;
    EXPECT_TRUE(same_bits(std::span(out).last(out_size(setup)), out_second)) << isa;
  }
}

struct QkvCase {
  QkNorm norm;
  RopePairing pairing;
  int rope_dims;
  bool scaled;
  int head_dim;
};

// Norm of queries at head h of one row, in float64.
std::vector<double> expected_heads(const QkvCase& setup, const float* x, int count,
                                   const float* weight, const float* cos, const float* sin) {
  const int dim = setup.head_dim;
  std::vector<double> out(x, x + count * dim);
  if (setup.norm != QkNorm::kNone) {
    const int group = setup.norm == QkNorm::kWhole ? count * dim : dim;
    for (int first = 0; first < count * dim; first += group) {
      double squares = 0;
      for (int i = 0; i < group; ++i)
        squares += out[static_cast<size_t>(first + i)] * out[static_cast<size_t>(first + i)];
      const double factor = 1 / std::sqrt(squares / group + 1e-6);
      for (int i = 0; i < group; ++i) {
        out[static_cast<size_t>(first + i)] *= factor * double{weight[i]};
      }
    }
  }
  const int half = setup.rope_dims / 2;
  for (int h = 0; h < count; ++h) {
    for (int i = 0; i < half; ++i) {
      const bool interleaved = setup.pairing == RopePairing::kInterleaved;
      double& a = out[static_cast<size_t>(h * dim + (interleaved ? 2 * i : i))];
      double& b = out[static_cast<size_t>(h * dim + (interleaved ? 2 * i + 1 : i + half))];
      const double x0 = a, x1 = b, c = cos[i], s = sin[i];
      a = x0 * c - x1 * s;
      b = x1 * c + x0 * s;
    }
  }
  return out;
}

// Random inputs of one finish_qkv call over 9 rows from position 11.
struct QkvInputs {
  static constexpr int kHeads = 4, kKvHeads = 2, kRows = 9, kFirst = 11;
  std::vector<float> qkv, q_weight, k_weight, cos, sin, row_scale;

  QkvInputs(int dim, Random& random)
      : qkv(random_floats(static_cast<size_t>(kRows * (kHeads + 2 * kKvHeads) * dim), random)),
        q_weight(random_floats(static_cast<size_t>(kHeads * dim), random)),
        k_weight(random_floats(static_cast<size_t>(kKvHeads * dim), random)),
        cos(random_floats(kRows * 64, random)),
        sin(random_floats(kRows * 64, random)),
        row_scale(random_floats(kRows, random)) {}

  QkvArgs args(const QkvCase& setup) const {
    QkvArgs args;
    args.qkv = qkv.data();
    args.num_rows = kRows;
    args.num_heads = kHeads;
    args.qk_norm = setup.norm;
    args.q_norm_weight = q_weight.data();
    args.k_norm_weight = k_weight.data();
    args.pairing = setup.pairing;
    args.rope_dims = setup.rope_dims;
    args.rope_cos = cos.data();
    args.rope_sin = sin.data();
    args.q_row_scale = setup.scaled ? row_scale.data() : nullptr;
    return args;
  }
};

// Attention of unit queries e_0 on one position, with a sink of 0: out = v / (1 + exp(-k[0])).
std::vector<float> read_back(Backend& backend, const QkvArgs& append, int position,
                             const int32_t* table) {
  const int dim = append.kv.shape.head_dim;
  std::vector<float> unit(static_cast<size_t>(append.num_heads * dim)), out(unit.size());
  for (int h = 0; h < append.num_heads; ++h) unit[static_cast<size_t>(h * dim)] = 1.0f;
  const std::vector<float> sinks(static_cast<size_t>(append.num_heads), 0.0f);
  const SequenceSpan one{0, 1, position, table};
  AttentionArgs attend;
  attend.q = unit.data();
  attend.out = out.data();
  attend.num_heads = append.num_heads;
  attend.kv = append.kv;
  attend.spans = {&one, 1};
  attend.window = 1;
  attend.sinks = sinks.data();
  backend.attention(attend);
  return out;
}

void check_qkv_row(Backend& backend, const QkvCase& setup, const QkvInputs& in, const QkvArgs& args,
                   int m) {
  const int dim = setup.head_dim, half = setup.rope_dims / 2;
  const float* row = in.qkv.data() + m * (QkvInputs::kHeads + 2 * QkvInputs::kKvHeads) * dim;
  const float* cos = in.cos.data() + m * half;
  const float* sin = in.sin.data() + m * half;
  const auto q = expected_heads(setup, row, QkvInputs::kHeads, in.q_weight.data(), cos, sin);
  const double scale = setup.scaled ? double{in.row_scale[static_cast<size_t>(m)]} : 1.0;
  const float* found_q = args.q_out + m * QkvInputs::kHeads * dim;
  for (size_t i = 0; i < q.size(); ++i) ASSERT_NEAR(double{found_q[i]}, scale * q[i], 1e-5) << i;
  const float* k_row = row + QkvInputs::kHeads * dim;
  const auto k = expected_heads(setup, k_row, QkvInputs::kKvHeads, in.k_weight.data(), cos, sin);
  const auto out = read_back(backend, args, QkvInputs::kFirst + m, args.spans[0].block_table);
  for (int h = 0; h < QkvInputs::kKvHeads; ++h) {
    const double weight = 1 / (1 + std::exp(-k[static_cast<size_t>(h * dim)]));
    const float* v = k_row + (QkvInputs::kKvHeads + h) * dim;
    for (int d = 0; d < dim; ++d) {
      ASSERT_NEAR(double{out[static_cast<size_t>(2 * h * dim + d)]}, weight * double{v[d]}, 1e-5);
    }
  }
}

TEST(FinishQkv, MatchesFloat64) {
  const QkvCase cases[] = {
      {QkNorm::kNone, RopePairing::kHalf, 0, false, 64},
      {QkNorm::kNone, RopePairing::kHalf, 64, true, 64},
      {QkNorm::kPerHead, RopePairing::kHalf, 24, false, 24},
      {QkNorm::kPerHead, RopePairing::kInterleaved, 32, true, 80},
      {QkNorm::kWhole, RopePairing::kHalf, 20, false, 40},
  };
  int num_cases = 0;
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    for (const QkvCase& setup : cases) {
      SCOPED_TRACE(isa + " case " + std::to_string(&setup - cases));
      Random random(23);
      const QkvInputs inputs(setup.head_dim, random);
      const KvShape shape{KvType::kF32, QkvInputs::kKvHeads, setup.head_dim};
      std::vector<std::byte> memory(backend->kv_layer_bytes(shape) * 2, std::byte{0xFF});
      const int32_t table[] = {1, 0};
      const SequenceSpan span{0, QkvInputs::kRows, QkvInputs::kFirst, table};
      GuardedFloats q(static_cast<size_t>(QkvInputs::kRows * QkvInputs::kHeads * setup.head_dim));
      QkvArgs args = inputs.args(setup);
      args.q_out = q.data();
      args.kv = {shape, memory.data(), backend->kv_layer_bytes(shape)};
      args.spans = {&span, 1};
      backend->finish_qkv(args);
      ASSERT_TRUE(q.intact());
      for (int m = 0; m < QkvInputs::kRows; ++m) check_qkv_row(*backend, setup, inputs, args, m);
      ++num_cases;
    }
  }
  EXPECT_GE(num_cases, 5);
}

}  // namespace
}  // namespace headrace
