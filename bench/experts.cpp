// bench_experts [--isa NAME] [--shape NAME] [--format NAME] [--threads N] [--repeats N]
//
// The op of a mixture of experts, of random weights in the shapes of real models: rows of 1, 4, 16
// and 512 tokens, each routed to experts of their own, beside a dense MLP of the width that a token
// has in all, which reads and multiplies as much for one token. Both are run in turn; medians. With
// one thread the time is the process's own, which other processes disturb less. The weights of two
// layers are larger than caches. Columns: microseconds, GB/s of the weights that the rows' experts
// hold, multiplications per ns, and the same of the dense MLP.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <random>
#include <set>

#include "backend/cpu/cpu_backend.h"
#include "backend/device_access.h"
#include "op_support.h"

namespace headrace {
namespace {

struct Shape {
  std::string_view name;
  DType dtype;
  int64_t hidden, experts, chosen, width;
};
constexpr Shape kShapes[] = {
    {"olmoe-1b-7b", DType::kQ4K, 2048, 64, 8, 1024},
    {"qwen3-30b-a3b", DType::kQ4K, 2048, 128, 8, 768},
    {"gpt-oss-20b", DType::kMXFP4, 2880, 32, 4, 2880},
    {"deepseek-v2-lite", DType::kQ8_0, 2048, 64, 6, 1408},
};
constexpr int64_t kRows[] = {1, 4, 16, 512};
constexpr size_t kLayers = 2;

struct Weights {
  std::unique_ptr<PackedWeight> gate_up, down;
};

class Case {
 public:
  Case(Backend& backend, const Shape& shape, int64_t num_rows)
      : backend_(backend), shape_(shape), num_rows_(num_rows) {
    const int64_t widest = std::max(shape.hidden, shape.width);
    const int64_t slots = num_rows * shape.chosen;
    const auto floats = [](int64_t count) {
      return std::vector<float>(static_cast<size_t>(count));
    };
    x_ = floats(num_rows * shape.hidden);
    logits_ = floats(num_rows * shape.experts);
    out_ = floats(num_rows * shape.hidden);
    inner_ = floats(slots * shape.width);
    room_ = backend
                .allocate(static_cast<size_t>(2 * slots * padded_expert_inputs(widest) +
                                              slots * shape.width + out_size()) *
                              sizeof(float),
                          MemoryUse::kActivations)
                .value();
    integers_.resize(static_cast<size_t>(4 * slots + shape.experts + 1));
    for (float& value : x_) value = normal_(random_);
  }

  // Bytes of the weights that the rows' experts hold, of the last run.
  double used_bytes(const Weights& weights) const {
    const std::set<int32_t> used(integers_.begin(),
                                 integers_.begin() + static_cast<ptrdiff_t>(num_slots()));
    const auto of_one = [&](const PackedWeight& weight) {
      return static_cast<double>(weight.num_bytes()) / static_cast<double>(shape_.experts);
    };
    return static_cast<double>(used.size()) * (of_one(*weights.gate_up) + of_one(*weights.down));
  }
  double multiplications() const {
    return static_cast<double>(num_slots() * 3 * shape_.hidden * shape_.width);
  }

  void route_anew() {
    for (float& value : logits_) value = normal_(random_);
  }
  void run_experts(const Weights& weights) {
    int32_t* integers = integers_.data();
    const int64_t slots = num_slots();
    const int64_t padded = padded_expert_inputs(std::max(shape_.hidden, shape_.width));
    const DevicePtr<float> room = room_.as<float>();
    backend_.experts({.gate_up = weights.gate_up.get(),
                      .down = weights.down.get(),
                      .input = Input(on_device(x_.data())),
                      .route = {.logits = on_device(logits_.data()), .router = {.normalise = true}},
                      .routing = {.num_rows = num_rows_,
                                  .num_experts = shape_.experts,
                                  .num_chosen = shape_.chosen,
                                  .experts = on_device(integers),
                                  .weights = on_device(inner_.data()),
                                  .slots = on_device(integers + slots),
                                  .rows = on_device(integers + 2 * slots),
                                  .first_slot = on_device(integers + 3 * slots)},
                      .slot_inputs = room,
                      .slot_activations = room + 2 * slots * padded,
                      .slot_outputs = room + slots * padded,
                      .mixed = room + 2 * slots * padded + slots * shape_.width,
                      .shared_factors = {},
                      .out = on_device(out_.data())});
  }
  void run_dense(const Weights& weights) {
    backend_.gated_linear(*weights.gate_up, Input(on_device(x_.data())), num_rows_,
                          Activation::kSilu, {}, on_device(inner_.data()));
    backend_.linear(*weights.down, Input(on_device(inner_.data())), num_rows_, {},
                    on_device(out_.data()));
  }

 private:
  int64_t num_slots() const { return num_rows_ * shape_.chosen; }
  int64_t out_size() const { return num_rows_ * shape_.hidden; }

  Backend& backend_;
  const Shape shape_;
  const int64_t num_rows_;
  std::vector<float> x_, logits_, out_, inner_;
  DeviceMemory room_;
  std::vector<int32_t> integers_;
  std::mt19937 random_{11};
  std::normal_distribution<float> normal_;
};

void run_shape(Backend& backend, const Shape& shape, int repeats) {
  std::vector<Weights> layers, dense;
  for (size_t i = 0; i < kLayers; ++i) {
    const PackForm gate_up(WeightRole::kGateUp, shape.experts);
    const PackForm down(WeightRole::kLinear, shape.experts);
    const int64_t wide = shape.chosen * shape.width;
    layers.push_back({random_weight(backend, shape.dtype, gate_up, shape.width, shape.hidden),
                      random_weight(backend, shape.dtype, down, shape.hidden, shape.width)});
    dense.push_back({random_weight(backend, shape.dtype, WeightRole::kGateUp, wide, shape.hidden),
                     random_weight(backend, shape.dtype, WeightRole::kLinear, shape.hidden, wide)});
  }
  for (const int64_t num_rows : kRows) {
    Case one(backend, shape, num_rows);
    std::vector<double> mixture, plain, bytes;
    for (int i = 0; i < repeats * (num_rows == 1 ? 8 : 1); ++i) {
      const size_t layer = static_cast<size_t>(i) % kLayers;
      one.route_anew();
      const double start = op_seconds(backend.num_threads());
      one.run_experts(layers[layer]);
      const double middle = op_seconds(backend.num_threads());
      one.run_dense(dense[layer]);
      mixture.push_back(middle - start);
      plain.push_back(op_seconds(backend.num_threads()) - middle);
      bytes.push_back(one.used_bytes(layers[layer]));
    }
    const double time = median(mixture), dense_time = median(plain);
    const auto dense_bytes =
        static_cast<double>(dense[0].gate_up->num_bytes() + dense[0].down->num_bytes());
    fmt::print(
        "{:<17} {:>4} {:>9.0f} us {:>7.1f} GB/s {:>7.1f} /ns | dense {:>9.0f} us {:>7.1f} "
        "GB/s {:>7.1f} /ns\n",
        shape.name, num_rows, time * 1e6, median(bytes) / time * 1e-9,
        one.multiplications() / time * 1e-9, dense_time * 1e6, dense_bytes / dense_time * 1e-9,
        one.multiplications() / dense_time * 1e-9);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  using namespace headrace;
  std::string isa = "auto", name;
  int num_threads = 1, repeats = 5;
  CLI::App app{"The op of a mixture of experts beside a dense MLP of the same work."};
  app.add_option("--isa", isa);
  app.add_option("--shape", name);
  app.add_option("--threads", num_threads);
  app.add_option("--repeats", repeats);
  CLI11_PARSE(app, argc, argv);
  const auto backend = backend_or_message("bench_experts", isa, num_threads);
  if (backend == nullptr) return 1;
  if (!backend->reserve(512).ok()) return 1;
  for (const Shape& shape : kShapes) {
    if (name.empty() || name == shape.name) run_shape(*backend, shape, repeats);
  }
  return 0;
}
