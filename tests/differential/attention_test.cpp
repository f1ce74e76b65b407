// Attention and the KV append: against float64, and independence of chunks, neighbours and threads.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>

#include "base/numeric.h"
#include "base/sanitizers.h"
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

  KvLayer layer() { return {shape_, on_device(memory_.data()), stride_}; }
  const int32_t* table() const { return table_.data(); }

  // Runs tokens [first, end) of qkv [num_tokens, width] as one span; out [num_tokens, q width].
  void run(const std::vector<float>& qkv, int64_t first, int64_t end, const float* sinks,
           std::vector<float>* out) {
    const int64_t q_width = int64_t{setup_.num_heads} * setup_.head_dim;
    const int64_t width = q_width + int64_t{2} * setup_.num_kv_heads * setup_.head_dim;
    const int64_t count = end - first;
    std::vector<float> q(static_cast<size_t>(count * q_width));
    // What no row sees is given back: its entry must not be looked at.
    const int64_t lowest = setup_.window > 0 ? std::max<int64_t>(0, first - setup_.window + 1) : 0;
    std::fill_n(table_.begin(), lowest / kBlockTokens, -1);
    const int32_t* const table = table_.data();
    const Span span{0, static_cast<int32_t>(count), first, &table};
    QkvArgs append;
    append.qkv = on_device(qkv.data() + first * width);
    append.q_out = on_device(q.data());
    append.num_rows = count;
    append.num_heads = setup_.num_heads;
    append.kv = layer();
    append.step = backend_.begin_step({&span, 1});
    backend_.finish_qkv(append);
    AttentionArgs args;
    args.q = on_device(q.data());
    args.out = on_device(out->data() + first * q_width);
    args.num_heads = setup_.num_heads;
    args.kv = layer();
    args.step = append.step;
    args.scale = 0.7f / std::sqrt(static_cast<float>(setup_.head_dim));
    args.softcap = setup_.softcap;
    args.window = setup_.window;
    args.sinks = on_device(sinks);
    args.gate = on_device(gate_);
    args.gate_stride = gate_stride_;
    backend_.attention(args);
  }
  // Of tokens from 0 on.
  void set_gate(const float* gate, int64_t stride) {
    gate_ = gate;
    gate_stride_ = stride;
  }

 private:
  const float* gate_ = nullptr;
  int64_t gate_stride_ = 0;
  Backend& backend_;
  Case setup_;
  KvShape shape_;
  int64_t num_blocks_;
  size_t stride_;
  std::vector<std::byte> memory_;
  std::vector<int32_t> table_;
};

// Head x as a KV type keeps it.
std::vector<double> stored_head(KvType type, const float* x, int64_t dim) {
  float largest = 0;
  for (int64_t d = 0; d < dim; ++d) largest = std::max(largest, std::fabs(x[d]));
  std::vector<double> out;
  for (int64_t d = 0; d < dim; ++d) {
    float value = x[d];
    if (type == KvType::kBF16) value = bf16_to_float(float_to_bf16(value));
    if (type == KvType::kF16) value = f16_to_float(float_to_f16(value));
    if (type == KvType::kInt8 || type == KvType::kInt16) {
      const float end = type == KvType::kInt8 ? 127.0f : 32512.0f;
      value = std::nearbyint(value * (end / largest)) * (largest / end);
    }
    if (type == KvType::kFp8) {
      const float code = std::fabs(value * (448.0f / largest));
      float best = 0;
      for (int bits = 1; bits < 0x7F; ++bits) {
        const float candidate = e4m3_to_float(static_cast<uint8_t>(bits));
        const float distance = std::fabs(candidate - code) - std::fabs(best - code);
        if (distance < 0 || (distance == 0 && bits % 2 == 0)) best = candidate;
      }
      value = std::copysign(best * (largest / 448.0f), value);
    }
    out.push_back(double{value});
  }
  return out;
}

// keys[token * num_kv_heads + head], values behind them by num_tokens * num_kv_heads.
std::vector<std::vector<double>> stored_heads(const Case& setup, const std::vector<float>& qkv) {
  const int64_t dim = setup.head_dim;
  const int64_t width = (setup.num_heads + 2 * setup.num_kv_heads) * dim;
  std::vector<std::vector<double>> heads;
  for (const int first : {setup.num_heads, setup.num_heads + setup.num_kv_heads}) {
    for (int64_t i = 0; i < setup.num_tokens; ++i) {
      for (int h = 0; h < setup.num_kv_heads; ++h) {
        heads.push_back(stored_head(setup.type, qkv.data() + i * width + (first + h) * dim, dim));
      }
    }
  }
  return heads;
}

// Output of query head h of token i in float64.
std::vector<double> exact_row(const Case& setup, const std::vector<float>& qkv,
                              const std::vector<float>& sinks,
                              const std::vector<std::vector<double>>& stored, int64_t i, int h) {
  const int64_t dim = setup.head_dim;
  const int64_t width = (setup.num_heads + 2 * setup.num_kv_heads) * dim;
  const double scale = double{0.7f / std::sqrt(static_cast<float>(setup.head_dim))};
  const int64_t kv_head = h / (setup.num_heads / setup.num_kv_heads);
  const int64_t lowest = setup.window > 0 ? std::max<int64_t>(0, i + 1 - setup.window) : 0;
  double total = setup.sinks ? std::exp(double{sinks[static_cast<size_t>(h)]}) : 0;
  std::vector<double> out(static_cast<size_t>(dim));
  for (int64_t j = lowest; j <= i; ++j) {
    const auto at = static_cast<size_t>(j * setup.num_kv_heads + kv_head);
    const std::vector<double>& key = stored[at];
    const std::vector<double>& value = stored[stored.size() / 2 + at];
    double dot = 0;
    for (int64_t d = 0; d < dim; ++d) {
      dot +=
          double{qkv[static_cast<size_t>(i * width + h * dim + d)]} * key[static_cast<size_t>(d)];
    }
    double score = dot * scale;
    const double cap = double{setup.softcap};
    if (cap > 0) score = cap * std::tanh(score / cap);
    const double weight = std::exp(score);
    total += weight;
    for (size_t d = 0; d < out.size(); ++d) out[d] += weight * value[d];
  }
  for (double& value : out) value /= total;
  return out;
}

// Largest error of a run against float64 over every `stride`-th token and the last.
double worst_error(const Case& setup, const std::vector<float>& qkv,
                   const std::vector<float>& sinks, const std::vector<float>& out,
                   int64_t stride = 1) {
  const auto stored = stored_heads(setup, qkv);
  double worst = 0;
  for (int64_t i = 0; i < setup.num_tokens; ++i) {
    if (i % stride != 0 && i + 1 != setup.num_tokens) continue;
    for (int h = 0; h < setup.num_heads; ++h) {
      const auto exact = exact_row(setup, qkv, sinks, stored, i, h);
      for (size_t d = 0; d < exact.size(); ++d) {
        const auto at = static_cast<size_t>(i * setup.num_heads + h) * exact.size() + d;
        const double error = std::fabs(exact[d] - double{out[at]});
        worst = std::isnan(error) ? 1e30 : std::max(worst, error);
      }
    }
  }
  return worst;
}

constexpr KvType kTypes[] = {KvType::kF32, KvType::kBF16, KvType::kF16,
                             KvType::kFp8, KvType::kInt8, KvType::kInt16};
static_assert(std::size(kTypes) == kNumKvTypes);

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const int dim : {16, 24, 32, 64, 80, 96, 112, 128, 192, 256, 512}) {
    cases.push_back({4, 2, dim, KvType::kF32, 0, 0, false, 81});
    cases.push_back({2, 2, dim, KvType::kBF16, 0, 0, false, 70});
    cases.push_back({3, 1, dim, dim % 32 == 0 ? KvType::kFp8 : KvType::kInt8, 0, 0, false, 40});
  }
  for (const KvType type : kTypes) {
    cases.push_back({9, 3, 64, type, 0, 0, false, 150});
    cases.push_back({6, 1, 32, type, 20.0f, 0, false, 140});
    cases.push_back({4, 4, 64, type, 0, 17, false, 140});
    cases.push_back({4, 2, 64, type, 0, 64, true, 200});
    cases.push_back({5, 1, 40, type, 30.0f, 1, true, 66});
    cases.push_back({3, 1, 64, type, 0, 100, false, 197});
  }
  for (const int group : {7, 8, 13, 16, 20, 50}) {
    cases.push_back({group, 1, 32, KvType::kBF16, 0, 0, group % 2 == 0, 70});
  }
  return cases;
}

// One in three of the long cases runs, one in six where they take ten times as long, all with
// HEADRACE_FULL=1.
int long_stride() {
  constexpr int kStride = kHasAddressSanitizer ? 6 : 3;
  const char* full = std::getenv("HEADRACE_FULL");
  return full != nullptr && std::string_view(full) == "1" ? 1 : kStride;
}

// Lengths around blocks, steps and splits, and sequences of several splits with windows that begin
// in one and end in another.
std::vector<Case> long_cases() {
  constexpr int64_t kSplit = cpu::kKvSplit;
  std::vector<Case> cases;
  for (const int64_t length :
       std::initializer_list<int64_t>{1, 2, 15, 16, 17, 63, 64, 65, 257, 773, kSplit - 1, kSplit,
                                      kSplit + 1, 2 * kSplit + 5}) {
    cases.push_back({3, 1, 32, KvType::kF32, 0, 0, false, length});
  }
  for (const KvType type : kTypes) {
    cases.push_back({9, 3, 64, type, 0, 0, false, kSplit + 773});
  }
  cases.push_back({6, 2, 64, KvType::kBF16, 25.0f, 0, true, 530});
  for (const int64_t window :
       std::initializer_list<int64_t>{64, 65, 257, 512, kSplit - 1, kSplit + 44}) {
    cases.push_back({4, 1, 64, KvType::kBF16, 0, window, window % 2 == 1, kSplit + 344});
  }
  std::erase_if(cases,
                [i = 0, stride = long_stride()](const Case&) mutable { return i++ % stride != 0; });
  return cases;
}

size_t qkv_size(const Case& c) {
  return static_cast<size_t>(c.num_tokens * (c.num_heads + 2 * c.num_kv_heads) * c.head_dim);
}
size_t out_size(const Case& c) {
  return static_cast<size_t>(c.num_tokens * c.num_heads * c.head_dim);
}

std::string name_of(const std::string& isa, const Case& setup) {
  return fmt::format("{} heads {}/{} dim {} kv {} window {} softcap {} sinks {} tokens {}", isa,
                     setup.num_heads, setup.num_kv_heads, setup.head_dim, kv_type_name(setup.type),
                     setup.window, setup.softcap, setup.sinks, setup.num_tokens);
}

struct Inputs {
  std::vector<float> qkv, sinks;
  Inputs(const Case& setup, uint32_t seed) {
    Random random(seed);
    qkv = random_floats(qkv_size(setup), random);
    sinks = random_floats(static_cast<size_t>(setup.num_heads), random);
  }
};

// Where a sequence is cut into steps of `chunk` tokens. Long sequences token by token: only their
// first and last tokens and those around each split, and the rest between them in one piece.
std::vector<int64_t> cuts(int64_t num_tokens, int64_t chunk) {
  constexpr int64_t kLong = 600, kAround = 9;
  std::vector<int64_t> ends;
  for (int64_t end = chunk; end < num_tokens; end += chunk) {
    const int64_t in_split = end % cpu::kKvSplit;
    const bool is_near =
        in_split <= kAround || in_split >= cpu::kKvSplit - kAround || num_tokens - end <= kAround;
    if (chunk > 1 || num_tokens < kLong || is_near) ends.push_back(end);
  }
  ends.push_back(num_tokens);
  return ends;
}

// All tokens in chunks.
std::vector<float> run_chunks(Backend& backend, const Case& setup, const Inputs& in,
                              int64_t chunk) {
  std::vector<float> out(out_size(setup), NAN);
  Sequence sequence(backend, setup);
  int64_t first = 0;
  for (const int64_t end : cuts(setup.num_tokens, chunk)) {
    sequence.run(in.qkv, first, end, setup.sinks ? in.sinks.data() : nullptr, &out);
    first = end;
  }
  return out;
}

// Class of the attention that a backend has for a type of keys and values.
std::string class_of(const Backend& backend, KvType type) {
  std::string found;
  for (const KernelInfo& kernel : backend.kernels()) {
    if (kernel.op != "attention" || !kernel.selected) continue;
    const bool is_whole = kernel.numerics_class == "fixed-point";
    if (is_whole ? type == KvType::kInt16 : found.empty()) found = kernel.numerics_class;
  }
  return found;
}

// Whole numbers leave out the products of low bytes: a ten-thousandth of the largest values here.
double bound_of(const Backend& backend, KvType type) {
  return class_of(backend, type) == "fixed-point" ? 2e-4 : 4e-6;
}

int check_float64(const std::vector<Case>& cases, int64_t stride) {
  int num_cases = 0;
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    for (const Case& setup : cases) {
      const Inputs in(setup, 20);
      const auto out = run_chunks(*backend, setup, in, setup.num_tokens);
      EXPECT_LT(worst_error(setup, in.qkv, in.sinks, out, stride), bound_of(*backend, setup.type))
          << name_of(isa, setup);
      ++num_cases;
    }
  }
  return num_cases;
}

TEST(Attention, MatchesFloat64) { EXPECT_GE(check_float64(all_cases(), 1), 60); }
TEST(Attention, MatchesFloat64OverSplits) {
  EXPECT_GE(check_float64(long_cases(), 13), 25 / long_stride());
}

// Whole once and in chunks once is what the plain unit has time for.
bool is_long(const Case& setup) { return setup.num_tokens > 256; }

// Whole, in chunks of several sizes and token by token, on 1, 2 and 3 threads, on every unit of a
// class: one result.
int check_bits(const std::vector<Case>& cases, const std::vector<int64_t>& chunks) {
  int num_cases = 0;
  for (const Case& setup : cases) {
    const Inputs in(setup, 21);
    std::map<std::string, std::vector<float>> by_class;
    for (const std::string& isa : available_isas()) {
      std::vector<float>& expected = by_class[class_of(*make_backend(isa, 1), setup.type)];
      for (const int num_threads : {2, 1, 3}) {
        const auto backend = make_backend(isa, num_threads);
        for (const int64_t chunk : chunks) {
          if (isa == "reference" && num_threads == 3) continue;  // slow
          if (isa == "reference" && chunk < 1000 && num_threads != 1) continue;
          if (isa == "reference" && chunk != 100 && num_threads == 1 && is_long(setup)) continue;
          const auto out = run_chunks(*backend, setup, in, chunk);
          if (expected.empty()) expected = out;
          EXPECT_TRUE(same_bits(expected, out))
              << name_of(isa, setup) << " threads " << num_threads << " chunk " << chunk;
          if (!same_bits(expected, out)) return num_cases;
          ++num_cases;
        }
      }
    }
  }
  return num_cases;
}

TEST(Attention, ChunksAndThreadsDoNotChangeBits) {
  EXPECT_GE(check_bits(all_cases(), {1000, 1, 7, 64}), 300);
}
TEST(Attention, ChunksAndThreadsDoNotChangeBitsOverSplits) {
  EXPECT_GE(check_bits(long_cases(), {1000, 1, 100}), 150 / long_stride());
}

// Several sequences in one batch give what each gives alone.
void check_neighbours(KvType type) {
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    const Case setup{6, 2, 48, type, 0, 0, false, 100};
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
    const int32_t* const table_of[] = {tables[0], tables[1]};
    const Span spans[] = {{0, 100, 0, &table_of[0]}, {100, 100, 0, &table_of[1]}};
    std::vector<float> both = first;
    both.insert(both.end(), second.begin(), second.end());
    std::vector<float> q(2 * out_size(setup)), out(2 * out_size(setup));
    QkvArgs append;
    append.qkv = on_device(both.data());
    append.q_out = on_device(q.data());
    append.num_rows = 200;
    append.num_heads = setup.num_heads;
    append.kv = {shape, on_device(slab.data()), stride};
    append.step = backend->begin_step(spans);
    backend->finish_qkv(append);
    AttentionArgs args;
    args.q = on_device(q.data());
    args.out = on_device(out.data());
    args.num_heads = setup.num_heads;
    args.kv = append.kv;
    args.step = append.step;
    args.scale = 0.7f / std::sqrt(48.0f);
    backend->attention(args);
    EXPECT_TRUE(same_bits(std::span(out).first(out_size(setup)), out_first)) << isa;
    EXPECT_TRUE(same_bits(std::span(out).last(out_size(setup)), out_second)) << isa;
  }
}

TEST(Attention, NeighboursDoNotChangeBits) {
  for (const KvType type : kTypes) check_neighbours(type);
}

// A key or value that is not a number reaches the rows that see it, and no other, in every type.
TEST(Attention, NotANumberIsNotHidden) {
  int num_cases = 0;
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 1);
    for (const KvType type : kTypes) {
      const Case setup{2, 1, 32, type, 0, 0, false, 40};
      for (const int part : {2, 3}) {  // k, v
        Inputs in(setup, 24);
        in.qkv[static_cast<size_t>((17 * 4 + part) * 32 + 5)] = NAN;
        const auto out = run_chunks(*backend, setup, in, 1);
        for (int64_t i = 0; i < 40; ++i) {
          EXPECT_EQ(std::isnan(out[static_cast<size_t>(i * 64 + 5)]), i >= 17)
              << name_of(isa, setup) << " part " << part << " token " << i;
        }
        ++num_cases;
      }
    }
  }
  EXPECT_GE(num_cases, 20);
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
    args.qkv = on_device(qkv.data());
    args.num_rows = kRows;
    args.num_heads = kHeads;
    args.qk_norm = setup.norm;
    args.q_norm_weight = on_device(q_weight.data());
    args.k_norm_weight = on_device(k_weight.data());
    args.pairing = setup.pairing;
    args.rope_dims = setup.rope_dims;
    args.rope_cos = on_device(cos.data());
    args.rope_sin = on_device(sin.data());
    args.q_row_scale = on_device(setup.scaled ? row_scale.data() : nullptr);
    return args;
  }
};

// Attention of unit queries e_0 on one position, with a sink of 0: out = v / (1 + exp(-k[0])).
std::vector<float> read_back(Backend& backend, const QkvArgs& append, int position,
                             const int32_t* const* tables) {
  const int dim = append.kv.shape.head_dim;
  std::vector<float> unit(static_cast<size_t>(append.num_heads * dim)), out(unit.size());
  for (int h = 0; h < append.num_heads; ++h) unit[static_cast<size_t>(h * dim)] = 1.0f;
  const std::vector<float> sinks(static_cast<size_t>(append.num_heads), 0.0f);
  const Span one{0, 1, position, tables};
  AttentionArgs attend;
  attend.q = on_device(unit.data());
  attend.out = on_device(out.data());
  attend.num_heads = append.num_heads;
  attend.kv = append.kv;
  attend.step = backend.begin_step({&one, 1});
  attend.window = 1;
  attend.sinks = on_device(sinks.data());
  backend.attention(attend);
  return out;
}

void check_qkv_row(Backend& backend, const QkvCase& setup, const QkvInputs& in, const QkvArgs& args,
                   const int32_t* const* tables, int m) {
  const int dim = setup.head_dim, half = setup.rope_dims / 2;
  const float* row = in.qkv.data() + m * (QkvInputs::kHeads + 2 * QkvInputs::kKvHeads) * dim;
  const float* cos = in.cos.data() + m * half;
  const float* sin = in.sin.data() + m * half;
  const auto q = expected_heads(setup, row, QkvInputs::kHeads, in.q_weight.data(), cos, sin);
  const double scale = setup.scaled ? double{in.row_scale[static_cast<size_t>(m)]} : 1.0;
  const float* found_q = raw(args.q_out) + m * QkvInputs::kHeads * dim;
  for (size_t i = 0; i < q.size(); ++i) ASSERT_NEAR(double{found_q[i]}, scale * q[i], 1e-5) << i;
  const float* k_row = row + QkvInputs::kHeads * dim;
  const auto k = expected_heads(setup, k_row, QkvInputs::kKvHeads, in.k_weight.data(), cos, sin);
  const auto out = read_back(backend, args, QkvInputs::kFirst + m, tables);
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
      const int32_t blocks[] = {1, 0};
      const int32_t* const table = blocks;
      const Span span{0, QkvInputs::kRows, QkvInputs::kFirst, &table};
      GuardedFloats q(static_cast<size_t>(QkvInputs::kRows * QkvInputs::kHeads * setup.head_dim));
      QkvArgs args = inputs.args(setup);
      args.q_out = on_device(q.data());
      args.kv = {shape, on_device(memory.data()), backend->kv_layer_bytes(shape)};
      args.step = backend->begin_step({&span, 1});
      backend->finish_qkv(args);
      ASSERT_TRUE(q.intact());
      for (int m = 0; m < QkvInputs::kRows; ++m) {
        check_qkv_row(*backend, setup, inputs, args, span.tables, m);
      }
      ++num_cases;
    }
  }
  EXPECT_GE(num_cases, 5);
}

// A gate multiplies what comes out without it.
TEST(Attention, AGateMultipliesTheResult) {
  Case setup;
  setup.num_tokens = 21;
  const int64_t q_width = int64_t{setup.num_heads} * setup.head_dim, stride = q_width + 5;
  Random random(9);
  const auto qkv =
      random_floats(static_cast<size_t>(setup.num_tokens * 5 * setup.head_dim), random);
  const auto gate = random_floats(static_cast<size_t>(setup.num_tokens * stride), random);
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    const auto size = static_cast<size_t>(setup.num_tokens * q_width);
    std::vector<float> plain(size), gated(size);
    Sequence(*backend, setup).run(qkv, 0, setup.num_tokens, nullptr, &plain);
    Sequence with_gate(*backend, setup);
    with_gate.set_gate(gate.data(), stride);
    with_gate.run(qkv, 0, setup.num_tokens, nullptr, &gated);
    for (size_t i = 0; i < size; ++i) {
      const auto at = i / static_cast<size_t>(q_width) * static_cast<size_t>(stride) +
                      i % static_cast<size_t>(q_width);
      const double expected = double{plain[i]} / (1 + std::exp(-double{gate[at]}));
      ASSERT_NEAR(gated[i], expected, 1e-6 * std::fabs(expected)) << isa << " at " << i;
    }
  }
}

}  // namespace
}  // namespace headrace
