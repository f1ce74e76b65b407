// bench_delta [--isa NAME] [--heads N] [--hidden N] [--threads N] [--repeats N]
//
// A block of the gated delta rule (projection, convolution, recurrence, output) beside a block of
// softmax attention of the same width with as many heads of keys as of queries and a gate, both of
// random weights: a chunk of 512 tokens at position 0 and behind 7680 others, and one token behind
// 8000. Run in turn; medians, in microseconds, of the whole block and of what is not a projection.
// With one thread the time is the process's own, which other processes disturb less.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "backend/cpu/cpu_backend.h"
#include "backend/device_access.h"
#include "op_support.h"

namespace headrace {
namespace {

constexpr int kHeadDim = 128, kTaps = 4;
constexpr int64_t kLongest = 8192;

struct Setup {
  int64_t heads = 16, hidden = 1024;
  DType dtype = DType::kQ8_0;
  int64_t width() const { return heads * kHeadDim; }
};

struct Depth {
  int64_t position, rows;
};
constexpr Depth kDepths[] = {{0, 512}, {7680, 512}, {8000, 1}};

// What both blocks work on, and a table of blocks that is the same for all columns.
class Block {
 public:
  Block(Backend& backend, const Setup& setup)
      : backend_(backend),
        setup_(setup),
        x_(random_floats(512 * setup.hidden)),
        out_(x_.size()),
        tables_(kLongest / kBlockTokens) {
    for (size_t i = 0; i < tables_.size(); ++i) tables_[i] = static_cast<int32_t>(i);
  }

 protected:
  const StepGeometry* begin(const Depth& depth) {
    const Span span{0, static_cast<int32_t>(depth.rows), depth.position, &table_};
    return backend_.begin_step({&span, 1});
  }
  void linear(const PackedWeight& weight, std::vector<float>& from, int64_t rows,
              std::vector<float>& to) {
    backend_.linear(weight, Input(on_device(from.data())), rows, {}, on_device(to.data()));
  }
  double now() const { return 1e6 * op_seconds(backend_.num_threads()); }

  Backend& backend_;
  const Setup setup_;
  std::vector<float> x_, out_;
  std::vector<int32_t> tables_;
  const int32_t* const table_ = tables_.data();
};

struct Times {
  double all, inner;
};

class DeltaBlock : public Block {
 public:
  DeltaBlock(Backend& backend, const Setup& setup)
      : Block(backend, setup),
        columns_(4 * setup.width() + 2 * setup.heads),
        in_(random_weight(backend, setup.dtype, WeightRole::kLinear,
                          columns_ + (32 - columns_ % 32) % 32, setup.hidden)),
        down_(
            random_weight(backend, setup.dtype, WeightRole::kLinear, setup.hidden, setup.width())),
        taps_(random_floats(kTaps * 3 * setup.width(), 0.5f)),
        rate_(static_cast<size_t>(setup.heads), -0.5f),
        bias_(random_floats(setup.heads)),
        norm_(random_floats(kHeadDim)),
        projection_(static_cast<size_t>(512 * in_->num_outputs())),
        mixed_(static_cast<size_t>(512 * 3 * setup.width())),
        wide_(static_cast<size_t>(512 * setup.width())) {
    std::fill(tables_.begin(), tables_.end(), 0);
    const int64_t state = delta_state_width(kHeadDim, kHeadDim), inputs = 3 * setup.width();
    memory_ = backend
                  .allocate(static_cast<size_t>(setup.heads * state + (kTaps - 1) * inputs) *
                                sizeof(float),
                            MemoryUse::kKv)
                  .value();
    backend.zero(memory_.data(), memory_.size());
    const auto view = [&](int64_t first, int heads, int64_t width) {
      return KvPlaneView{{"state", KvType::kF32, heads, static_cast<int>(width)},
                         (memory_.as<float>() + first).bytes(),
                         0,
                         0};
    };
    for (int64_t h = 0; h < setup.heads; ++h) states_.push_back(view(h * state, 1, state));
    inputs_ = view(setup.heads * state, kTaps - 1, inputs);
  }

  Times run(const Depth& depth) {
    const StepGeometry* step = begin(depth);
    const double start = now();
    linear(*in_, x_, depth.rows, projection_);
    const double before = now();
    recur(depth, step);
    const double after = now();
    linear(*down_, wide_, depth.rows, out_);
    return {now() - start, after - before};
  }

 private:
  void recur(const Depth& depth, const StepGeometry* step) {
    const int64_t width = setup_.width(), stride = in_->num_outputs();
    CausalConvArgs conv;
    conv.x = on_device(projection_.data());
    conv.row_stride = stride;
    conv.num_rows = depth.rows;
    conv.num_channels = 3 * width;
    conv.num_taps = kTaps;
    conv.weight = on_device(taps_.data());
    conv.silu = true;
    conv.state = inputs_;
    conv.step = step;
    conv.out = on_device(mixed_.data());
    backend_.causal_conv(conv);
    DeltaArgs delta;
    delta.num_rows = depth.rows;
    delta.step = step;
    delta.num_key_heads = delta.num_value_heads = static_cast<int>(setup_.heads);
    delta.key_dim = delta.value_dim = kHeadDim;
    delta.qkv = on_device(mixed_.data());
    delta.gate = on_device(projection_.data() + 3 * width);
    delta.beta = on_device(projection_.data() + 4 * width);
    delta.decay = on_device(projection_.data() + 4 * width + setup_.heads);
    delta.gate_stride = delta.beta_stride = delta.decay_stride = stride;
    delta.decay_rate = on_device(rate_.data());
    delta.decay_bias = on_device(bias_.data());
    delta.norm_weight = on_device(norm_.data());
    delta.state = states_;
    delta.out = on_device(wide_.data());
    backend_.delta(delta);
  }

  const int64_t columns_;
  std::unique_ptr<PackedWeight> in_, down_;
  std::vector<float> taps_, rate_, bias_, norm_, projection_, mixed_, wide_;
  DeviceMemory memory_;
  std::vector<KvPlaneView> states_;
  KvPlaneView inputs_;
};

class AttentionBlock : public Block {
 public:
  AttentionBlock(Backend& backend, const Setup& setup)
      : Block(backend, setup),
        qkv_(random_weight(backend, setup.dtype, WeightRole::kLinear, 4 * setup.width(),
                           setup.hidden)),
        down_(
            random_weight(backend, setup.dtype, WeightRole::kLinear, setup.hidden, setup.width())),
        projection_(static_cast<size_t>(512 * 4 * setup.width())),
        q_(static_cast<size_t>(512 * setup.width())),
        wide_(q_.size()),
        shape_{KvType::kBF16, static_cast<int>(setup.heads), kHeadDim} {
    const size_t num_bytes = backend.kv_layer_bytes(shape_) * tables_.size();
    memory_ = backend.allocate(num_bytes, MemoryUse::kKv).value();
    backend.zero(memory_.data(), num_bytes);
  }

  Times run(const Depth& depth) {
    const StepGeometry* step = begin(depth);
    QkvArgs qkv;
    qkv.q_out = on_device(q_.data());
    qkv.num_rows = depth.rows;
    qkv.num_heads = static_cast<int>(setup_.heads);
    qkv.num_others = setup_.width();
    qkv.kv = {shape_, memory_.data(), backend_.kv_layer_bytes(shape_)};
    qkv.step = step;
    AttentionArgs attention;
    attention.q = on_device(q_.data());
    attention.out = on_device(wide_.data());
    attention.num_heads = qkv.num_heads;
    attention.kv = qkv.kv;
    attention.step = step;
    attention.scale = 1 / std::sqrt(static_cast<float>(kHeadDim));
    attention.gate = on_device(projection_.data() + 3 * setup_.width());
    attention.gate_stride = 4 * setup_.width();
    const double start = now();
    backend_.qkv_linear(*qkv_, Input(on_device(x_.data())), {}, on_device(projection_.data()), qkv);
    const double before = now();
    backend_.attention(attention);
    const double after = now();
    linear(*down_, wide_, depth.rows, out_);
    return {now() - start, after - before};
  }

 private:
  std::unique_ptr<PackedWeight> qkv_, down_;
  std::vector<float> projection_, q_, wide_;
  const KvShape shape_;
  DeviceMemory memory_;
};

void run_setup(Backend& backend, const Setup& setup, int repeats) {
  CHECK(backend.reserve(512).ok());
  DeltaBlock delta(backend, setup);
  AttentionBlock attention(backend, setup);
  for (const Depth& depth : kDepths) {
    std::vector<double> columns[4];
    for (int i = 0; i < repeats * (depth.rows == 1 ? 8 : 1); ++i) {
      const Times d = delta.run(depth), a = attention.run(depth);
      for (size_t c = 0; const double time : {d.all, d.inner, a.all, a.inner}) {
        columns[c++].push_back(time);
      }
    }
    const double d = median(columns[0]), a = median(columns[2]);
    fmt::print(
        "{:>4} rows at {:>5}  delta {:>9.0f} us ({:>8.0f} inside)  attention {:>9.0f} us "
        "({:>8.0f} inside)  {:.2f}\n",
        depth.rows, depth.position, d, median(columns[1]), a, median(columns[3]), d / a);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  using namespace headrace;
  std::string isa = "auto";
  Setup setup;
  int num_threads = 1, repeats = 5;
  CLI::App app{"A block of the gated delta rule beside a block of attention of the same width."};
  app.add_option("--isa", isa);
  app.add_option("--heads", setup.heads)->check(CLI::Range(1, 64));
  app.add_option("--hidden", setup.hidden)->check(CLI::Range(256, 8192));
  app.add_option("--threads", num_threads);
  app.add_option("--repeats", repeats);
  CLI11_PARSE(app, argc, argv);
  const auto backend = backend_or_message("bench_delta", isa, num_threads);
  if (backend == nullptr) return 1;
  run_setup(*backend, setup, repeats);
  return 0;
}
