// The gated delta rule: against float64, and independence of chunks, neighbours and threads.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernel_cases.h"

namespace headrace {
namespace {

struct Case {
  const char* name;
  int key_heads = 2, value_heads = 4, key_dim = 16, value_dim = 16;
  bool tiled = false;
  bool channels = false;  // a decay for each key dimension
  float rate = -1.5f;     // of the decays; 0: nothing is forgotten
  Activation activation = Activation::kSilu;
  int64_t num_tokens = 75;
};
constexpr Case kCases[] = {
    {"two value heads a key head"},
    {"tiled", 3, 6, 24, 40, true},
    {"odd widths", 1, 3, 7, 19},
    {"wide values", 1, 1, 33, 150},
    {"channels", 2, 2, 24, 24, false, true, -1.5f, Activation::kSigmoid},
    {"nothing is forgotten", 2, 2, 16, 16, false, false, 0.0f},
    {"all is forgotten", 2, 2, 16, 33, false, false, -1e4f},
    {"all is forgotten in every channel", 2, 2, 16, 16, false, true, -1e4f},
    {"a real layer", 4, 8, 128, 128, false, false, -2.0f, Activation::kSilu, 20},
};

int64_t decay_dims(const Case& c) { return c.channels ? c.key_dim : 1; }

// What a layer's projections give, row by row, and its weights.
struct Inputs {
  int64_t width, side;  // of q, k and v; of beta, decay and gate
  std::vector<float> qkv, others, rate, bias, weight;

  Inputs(const Case& c, uint64_t seed) {
    Random random(seed);
    width = int64_t{2} * c.key_heads * c.key_dim + int64_t{c.value_heads} * c.value_dim;
    side = c.value_heads * (1 + decay_dims(c) + c.value_dim);
    qkv = random_floats(static_cast<size_t>(c.num_tokens * width), random);
    others = random_floats(static_cast<size_t>(c.num_tokens * side), random);
    rate.assign(static_cast<size_t>(c.value_heads), c.rate);
    bias = random_floats(static_cast<size_t>(c.value_heads * decay_dims(c)), random);
    weight = random_floats(static_cast<size_t>(c.value_dim), random);
  }
  float beta(const Case&, int64_t token, int64_t head) const {
    return others[static_cast<size_t>(token * side + head)];
  }
  float decay(const Case& c, int64_t token, int64_t head, int64_t i) const {
    const int64_t at = c.value_heads + head * decay_dims(c) + (c.channels ? i : 0);
    return others[static_cast<size_t>(token * side + at)];
  }
  float gate(const Case& c, int64_t token, int64_t at) const {
    return others[static_cast<size_t>(token * side + c.value_heads * (1 + decay_dims(c)) + at)];
  }
};

// The states of sequences in blocks of a scrambled order, memory poisoned with NaN; each head's in
// a column of its own.
class States {
 public:
  States(const Case& c, int64_t num_sequences) {
    const int64_t num_blocks = (c.num_tokens + kBlockTokens - 1) / kBlockTokens;
    const int64_t width = delta_state_width(c.key_dim, c.value_dim), stride = width + 16;
    const int64_t total = (num_blocks + 1) * c.value_heads * num_sequences;
    memory_.assign(static_cast<size_t>(stride * total + 16), NAN);
    float* base = memory_.data();
    while (reinterpret_cast<uintptr_t>(base) % 64 != 0) ++base;
    for (int h = 0; h < c.value_heads; ++h) {
      planes_.push_back({{"state", KvType::kF32, 1, static_cast<int>(width)},
                         on_device(reinterpret_cast<std::byte*>(base)),
                         static_cast<size_t>(stride) * sizeof(float),
                         h});
    }
    int64_t next = total;
    tables_.resize(static_cast<size_t>(num_sequences * c.value_heads));
    places_.resize(static_cast<size_t>(num_sequences));
    for (size_t i = 0; i < tables_.size(); ++i) {
      for (int64_t b = 0; b < num_blocks; ++b) tables_[i].push_back(static_cast<int32_t>(--next));
      ahead_.push_back(static_cast<int32_t>(--next));
      places_[i / static_cast<size_t>(c.value_heads)].push_back(tables_[i].data());
    }
  }

  // Tokens [first, end) of a sequence as rows from `row` on.
  Span span(size_t sequence, int64_t row, int64_t first, int64_t end) const {
    return {static_cast<int32_t>(row), static_cast<int32_t>(end - first), first,
            places_[sequence].data()};
  }
  std::span<const KvPlaneView> planes() const { return planes_; }
  // For the last rows of a span of the first sequence, which are guesses.
  const int32_t* ahead() const { return ahead_.data(); }
  // They were right, up to so many tokens.
  void take_ahead(int64_t num_tokens) {
    for (size_t i = 0; i < planes_.size(); ++i) {
      std::swap(tables_[i][static_cast<size_t>((num_tokens - 1) / kBlockTokens)], ahead_[i]);
    }
  }

 private:
  std::vector<float> memory_;
  std::vector<KvPlaneView> planes_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<int32_t> ahead_;                       // by table
  std::vector<std::vector<const int32_t*>> places_;  // by sequence
};

DeltaArgs args_of(const Case& c, const Inputs& in, float* qkv, float* others, float* out) {
  DeltaArgs args;
  args.num_key_heads = c.key_heads;
  args.num_value_heads = c.value_heads;
  args.key_dim = c.key_dim;
  args.value_dim = c.value_dim;
  args.tiled_heads = c.tiled;
  args.qkv = on_device(qkv);
  args.beta = on_device(others);
  args.decay = on_device(others + c.value_heads);
  args.gate = on_device(others + c.value_heads * (1 + decay_dims(c)));
  args.beta_stride = args.decay_stride = args.gate_stride = in.side;
  args.decay_dims = static_cast<int>(decay_dims(c));
  args.decay_rate = on_device(in.rate.data());
  args.decay_bias = on_device(in.bias.data());
  args.activation = c.activation;
  args.norm_weight = on_device(in.weight.data());
  args.norm_eps = 1e-5f;
  args.out = on_device(out);
  return args;
}

struct Piece {  // tokens of a sequence
  const Inputs* in;
  size_t sequence;
  int64_t first, end;
  int32_t num_guesses = 0;  // the last of them; of the first sequence
};

// A step of some tokens of each of several sequences; their outputs, one after the other.
std::vector<float> run(Backend& backend, const Case& c, const States& states,
                       std::span<const Piece> pieces) {
  std::vector<float> qkv, others;
  std::vector<Span> spans;
  int64_t rows = 0;
  for (const Piece& piece : pieces) {
    const Inputs& in = *piece.in;
    const auto take = [&](const std::vector<float>& from, int64_t width, std::vector<float>* to) {
      to->insert(to->end(), from.begin() + piece.first * width, from.begin() + piece.end * width);
    };
    take(in.qkv, in.width, &qkv);
    take(in.others, in.side, &others);
    spans.push_back(states.span(piece.sequence, rows, piece.first, piece.end));
    spans.back().num_draft = piece.num_guesses;
    if (piece.num_guesses > 0) spans.back().states_ahead = states.ahead();
    rows += piece.end - piece.first;
  }
  GuardedFloats out(static_cast<size_t>(rows * c.value_heads * c.value_dim));
  DeltaArgs args = args_of(c, *pieces[0].in, qkv.data(), others.data(), out.data());
  args.num_rows = rows;
  args.step = backend.begin_step(spans);
  args.state = states.planes();
  backend.delta(args);
  backend.synchronize();
  EXPECT_TRUE(out.intact());
  return {out.values().begin(), out.values().end()};
}

std::vector<float> outputs_of(Backend& backend, const Case& c, const Inputs& in, int64_t chunk) {
  const States states(c, 1);
  std::vector<float> out;
  for (int64_t first = 0; first < c.num_tokens; first += chunk) {
    const Piece piece{&in, 0, first, std::min(first + chunk, c.num_tokens)};
    const std::vector<float> of_piece = run(backend, c, states, {&piece, 1});
    out.insert(out.end(), of_piece.begin(), of_piece.end());
  }
  return out;
}

// ---- Float64 ------------------------------------------------------------------------------------

std::vector<double> unit_length(const float* x, int64_t dims, double scale) {
  double sum = 1e-6;
  for (int64_t i = 0; i < dims; ++i) sum += double{x[i]} * double{x[i]};
  std::vector<double> result;
  for (int64_t i = 0; i < dims; ++i) result.push_back(double{x[i]} / std::sqrt(sum) * scale);
  return result;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// One token of one head: the state [key_dim][value_dim] moves on, the output is not normed yet.
std::vector<double> step_exactly(const Case& c, const Inputs& in, int64_t token, int64_t head,
                                 std::vector<double>* state) {
  const int64_t key_head = c.tiled ? head % c.key_heads : head / (c.value_heads / c.key_heads);
  const float* row = in.qkv.data() + token * in.width;
  const int64_t keys = int64_t{c.key_heads} * c.key_dim;
  const auto q = unit_length(row + key_head * c.key_dim, c.key_dim, 1 / std::sqrt(c.key_dim));
  const auto k = unit_length(row + keys + key_head * c.key_dim, c.key_dim, 1);
  const float* v = row + 2 * keys + head * c.value_dim;
  const double beta = sigmoid(in.beta(c, token, head));
  const auto at = [&](int64_t i, int64_t n) -> double& {
    return (*state)[static_cast<size_t>(i * c.value_dim + n)];
  };
  for (int64_t i = 0; i < c.key_dim; ++i) {
    const double bias = in.bias[static_cast<size_t>(head * decay_dims(c) + (c.channels ? i : 0))];
    const double plus = std::log1p(std::exp(double{in.decay(c, token, head, i)} + bias));
    const double decay = std::exp(double{in.rate[static_cast<size_t>(head)]} * plus);
    for (int64_t n = 0; n < c.value_dim; ++n) at(i, n) *= decay;
  }
  std::vector<double> out(static_cast<size_t>(c.value_dim));
  for (int64_t n = 0; n < c.value_dim; ++n) {
    double held = 0;
    for (int64_t i = 0; i < c.key_dim; ++i) held += at(i, n) * k[static_cast<size_t>(i)];
    const double e = beta * (double{v[n]} - held);
    for (int64_t i = 0; i < c.key_dim; ++i) {
      at(i, n) += k[static_cast<size_t>(i)] * e;
      out[static_cast<size_t>(n)] += at(i, n) * q[static_cast<size_t>(i)];
    }
  }
  return out;
}

void finish_exactly(const Case& c, const Inputs& in, int64_t token, int64_t head,
                    std::vector<double>* out) {
  double sum = 0;
  for (const double value : *out) sum += value * value;
  const double factor = 1 / std::sqrt(sum / c.value_dim + 1e-5);
  for (int64_t n = 0; n < c.value_dim; ++n) {
    const double gate = in.gate(c, token, head * c.value_dim + n);
    const bool silu = c.activation == Activation::kSilu;
    (*out)[static_cast<size_t>(n)] *=
        factor * in.weight[static_cast<size_t>(n)] * sigmoid(gate) * (silu ? gate : 1);
  }
}

std::vector<double> exact_outputs(const Case& c, const Inputs& in) {
  std::vector<double> all(static_cast<size_t>(c.num_tokens * c.value_heads * c.value_dim));
  for (int64_t head = 0; head < c.value_heads; ++head) {
    std::vector<double> state(static_cast<size_t>(c.key_dim * c.value_dim));
    for (int64_t token = 0; token < c.num_tokens; ++token) {
      std::vector<double> out = step_exactly(c, in, token, head, &state);
      finish_exactly(c, in, token, head, &out);
      std::copy(out.begin(), out.end(), all.begin() + (token * c.value_heads + head) * c.value_dim);
    }
  }
  return all;
}

// The norm of an output near 0 makes its errors large: they are compared with the largest value.
TEST(Delta, MatchesFloat64) {
  for (const Case& c : kCases) {
    const Inputs in(c, 5);
    const std::vector<double> expected = exact_outputs(c, in);
    double largest = 0;
    for (const double value : expected) largest = std::max(largest, std::fabs(value));
    for (const std::string& isa : available_isas()) {
      const auto backend = make_backend(isa, 2);
      const std::vector<float> found = outputs_of(*backend, c, in, c.num_tokens);
      double worst = 0;
      for (size_t i = 0; i < found.size(); ++i) {
        const double error = std::fabs(double{found[i]} - expected[i]);
        worst = std::isnan(error) ? 1e30 : std::max(worst, error);
      }
      EXPECT_LE(worst, 5e-5 * largest) << isa << ", " << c.name;
    }
  }
}

TEST(Delta, BitsDoNotDependOnChunksOrThreads) {
  for (const std::string& isa : available_isas()) {
    for (const Case& c : kCases) {
      const Inputs in(c, 6);
      const std::vector<float> whole = outputs_of(*make_backend(isa, 1), c, in, c.num_tokens);
      for (const int64_t chunk : {1, 7, 16, 33}) {
        const auto backend = make_backend(isa, static_cast<int>(1 + chunk % 3));
        EXPECT_TRUE(same_bits(outputs_of(*backend, c, in, chunk), whole))
            << isa << ", " << c.name << ", chunks of " << chunk;
      }
    }
  }
}

// Steps of three tokens and two guesses, of which every other time one is wrong.
TEST(Delta, WrongGuessesLeaveTheStateBeforeThem) {
  for (const std::string& isa : available_isas()) {
    for (const Case& c : kCases) {
      const Inputs in(c, 9);
      const auto backend = make_backend(isa, 2);
      const std::vector<float> whole = outputs_of(*backend, c, in, c.num_tokens);
      const int64_t width = int64_t{c.value_heads} * c.value_dim;
      States states(c, 1);
      std::vector<float> out;
      for (int64_t first = 0, i = 0; first + 5 <= c.num_tokens; ++i) {
        const Piece piece{&in, 0, first, first + 5, 2};
        const std::vector<float> rows = run(*backend, c, states, {&piece, 1});
        if (i % 2 == 0) states.take_ahead(first + 5);
        const int64_t num_kept = i % 2 == 0 ? 5 : 3;
        out.insert(out.end(), rows.begin(), rows.begin() + num_kept * width);
        first += num_kept;
      }
      EXPECT_TRUE(same_bits(out, std::span(whole).first(out.size()))) << isa << ", " << c.name;
    }
  }
}

// Two sequences side by side, the second from a later position, then both again.
TEST(Delta, BitsDoNotDependOnNeighbours) {
  const Case& c = kCases[0];
  const Inputs a(c, 7);
  Inputs b(c, 8);
  b.bias = a.bias;  // weights of one layer
  b.weight = a.weight;
  const auto width = static_cast<size_t>(c.value_heads * c.value_dim);
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    const std::vector<float> alone_a = outputs_of(*backend, c, a, c.num_tokens);
    const std::vector<float> alone_b = outputs_of(*backend, c, b, c.num_tokens);
    const States states(c, 2);
    const Piece prompt{&b, 1, 0, 21};
    run(*backend, c, states, {&prompt, 1});
    const Piece steps[][2] = {{{&a, 0, 0, 5}, {&b, 1, 21, 40}}, {{&a, 0, 5, 33}, {&b, 1, 40, 41}}};
    for (const auto& step : steps) {
      const std::vector<float> out = run(*backend, c, states, step);
      const auto part = [&](const std::vector<float>& all, const Piece& piece) {
        return std::span(all).subspan(static_cast<size_t>(piece.first) * width,
                                      static_cast<size_t>(piece.end - piece.first) * width);
      };
      const size_t cut = static_cast<size_t>(step[0].end - step[0].first) * width;
      EXPECT_TRUE(same_bits(std::span(out).first(cut), part(alone_a, step[0]))) << isa;
      EXPECT_TRUE(same_bits(std::span(out).subspan(cut), part(alone_b, step[1]))) << isa;
    }
  }
}

}  // namespace
}  // namespace headrace
