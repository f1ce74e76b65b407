#include "bench/measure_rates.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/layouts.h"
#include "backend/cpu/kernels/pack.h"
#include "backend/cpu/verify/samples.h"
#include "backend/run_apart.h"
#include "base/check.h"
#include "bench/limits.h"

namespace headrace {
namespace {

constexpr double kOpWindowSeconds = 0.0007;  // much shorter than a scheduler's turn
constexpr int kOpWindows = 3;
constexpr int kMostWindows = 10;  // until enough of them are undisturbed
constexpr double kBusy = 0.95;    // of the time of all threads: none was off its core
constexpr int kRounds = 2;
constexpr int64_t kRatedInputs = 1024;
constexpr int64_t kFewRows[] = {1, 4, 16};
constexpr int64_t kManyRows[] = {64, 128, 256};
constexpr int64_t kMostRatedRows = 512;
// Of a row of queries, keys and values of the largest shape: two heads of keys.
constexpr int64_t kMostRatedWidth = 2 * int64_t{kRatedHeadDims.back()} * (kRatedGroups.back() + 2);
constexpr size_t kCachedBytes = size_t{384} << 10;  // of a thread
constexpr size_t kFarBytes = size_t{24} << 20;      // of all: beyond the cores' own caches
constexpr size_t kMemoryBytes = size_t{256} << 20;
constexpr size_t kReadGrain = 4096;              // of a read row
constexpr size_t kPieceBytes = size_t{1} << 20;  // of a thread: one weight of several
constexpr int64_t kSampleRows = 64;
constexpr size_t kFarContextBytes = size_t{64} << 20;
constexpr int64_t kRatedDepths[] = {128, 1024};
constexpr int64_t kFillRows = 64;
struct RatedChunk {
  int64_t position, num_rows;
};
constexpr RatedChunk kRatedChunks[] = {{0, 128}, {0, 384}, {1920, 128}};
constexpr int64_t kContextLayers = 16;  // whose blocks lie in turn, as a model's do

std::string_view activations_of(const PackedWeight& weight) {
  const auto& segment = static_cast<const cpu::CpuWeight&>(weight).segments()[0];
  return activation_name(segment.matmul.activation());
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Of all threads of the process.
double cpu_seconds_now() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Seconds of a call that keeps num_threads busy: the median of windows in which no thread was off
// its core, each of as many calls as make it long enough; where other work leaves no such window,
// the shortest.
double seconds_of_call(const std::function<void()>& call, double num_threads) {
  call();
  const double before = seconds_now();
  call();
  const double first = std::max(seconds_now() - before, 1e-8);
  const int count = std::clamp(static_cast<int>(kOpWindowSeconds / first), 1, 100'000);
  std::vector<double> undisturbed;
  double shortest = first;
  for (int i = 0; i < kMostWindows && std::ssize(undisturbed) < kOpWindows; ++i) {
    const double start = seconds_now(), cpu_start = cpu_seconds_now();
    for (int repeat = 0; repeat < count; ++repeat) call();
    const double cpu = cpu_seconds_now() - cpu_start, seconds = seconds_now() - start;
    shortest = std::min(shortest, seconds / count);
    if (cpu > kBusy * num_threads * seconds) undisturbed.push_back(seconds / count);
  }
  if (undisturbed.empty()) return shortest;
  const auto middle = undisturbed.begin() + std::ssize(undisturbed) / 2;
  std::ranges::nth_element(undisturbed, middle);
  return *middle;
}

// Floats in device memory, small and not all alike.
class Rows {
 public:
  static Result<Rows> create(Backend& backend, int64_t count) {
    Rows rows;
    rows.memory_ =
        TRY(backend.allocate(static_cast<size_t>(count) * sizeof(float), MemoryUse::kActivations));
    cpu::Random random(5);
    for (float& value : backend.write_view(rows.data(), static_cast<size_t>(count))) {
      value = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f;
    }
    return rows;
  }
  DevicePtr<float> data() { return memory_.as<float>(); }

 private:
  DeviceMemory memory_;
};

// The same rows of a layout, again and again: what they hold does not matter, but for subnormals.
struct RepeatedWeight {
  std::unique_ptr<cpu::SampleWeight> sample;
  WeightView view;
};

RepeatedWeight repeated_weight(cpu::Layout layout, int64_t num_outputs, int64_t num_inputs) {
  cpu::Random random(7);
  RepeatedWeight weight;
  weight.sample =
      cpu::sample_weight(layout, cpu::WeightSample::kTypical, kSampleRows, num_inputs, random);
  weight.view = weight.sample->view;
  weight.view.num_outputs = num_outputs;
  for (int64_t n = 0; n < num_outputs; ++n) {
    weight.view.row_order.push_back(static_cast<int32_t>(n % kSampleRows));
  }
  return weight;
}

// Where a layer's part of a sequence lies, and the position of its first row.
struct Place {
  int64_t first_block = 0;
  int64_t layer = 0;
  int64_t position = 0;
};

class RateMeter {
 public:
  RateMeter(Backend& backend, const cpu::KernelSet& kernels, RoundTimes* times, OpRates* rates)
      : backend_(backend),
        kernels_(kernels),
        threads_(static_cast<double>(backend.num_threads())),
        times_(*times),
        rates_(*rates) {}

  Status measure(const RatedParts& parts);

 private:
  Status prepare();
  void reads(const DeviceMemory& weights);
  void read(std::string_view of, const DeviceMemory& memory, size_t num_bytes);
  Status products(cpu::Layout layout);
  Status attention(KvType type);
  bool has(RatedOp op, std::string_view of = {}) const {
    return rates_.seconds(op, of).has_value();
  }
  void add(RatedOp op, std::string_view of, double size, double working_set, double seconds) {
    rates_.add({op, std::string(of), size, working_set, std::max(seconds, 1e-15)});
  }
  Status joins();
  Status starts();
  Status outputs();
  Status norms();
  Status ropes();
  void quantise(cpu::ActivationType type, const cpu::KernelRow& row);
  using Weights = std::vector<std::unique_ptr<PackedWeight>>;
  Result<Weights> far_weights(cpu::Layout layout, int64_t num_outputs, int64_t num_inputs,
                              size_t num_bytes);
  double seconds_of_linear(std::span<const std::unique_ptr<PackedWeight>> weights,
                           int64_t num_rows);
  double seconds_of_gated(const PackedWeight& weight, int64_t num_rows);
  static double without_inputs(const std::function<double(int64_t num_inputs)>& seconds);
  Status make_room(int64_t count);
  double beside_products(cpu::ActivationType type, int64_t num_rows, int64_t num_outputs) const;
  Status product_rows(cpu::Layout layout, const Weights& weights,
                      std::span<const int64_t> row_counts);
  // Fills far_ with a context of `type` and shape in blocks, as many as there is room for.
  struct Context {
    KvLayer layer;
    int num_heads;
    int64_t num_blocks;
  };
  Result<Context> context(KvType type, int num_kv_heads, int head_dim, int group);
  QkvArgs append_args(const Context& context, const StepGeometry* step, int64_t num_rows);
  double seconds_of_attention(const Context& context, std::span<const Place> places,
                              int64_t num_rows);
  Status attention_rows(KvType type, int head_dim, int group);
  Status attention_chunks(KvType type, int head_dim, int group);
  Status append(KvType type);

  // The median of what calls of this name took, in this round and those before.
  template <typename... Parts>
  double median_of(const std::function<void()>& call, const Parts&... parts) {
    std::string name;
    ((name += fmt::format("{} ", parts)), ...);
    return times_.add(std::move(name), seconds_of_call(call, threads_));
  }

  Backend& backend_;
  const cpu::KernelSet& kernels_;
  const double threads_;
  RoundTimes& times_;
  OpRates& rates_;
  std::optional<Rows> input_, output_;
  int64_t output_floats_ = 0;
  std::optional<DeviceMemory> far_;  // kMemoryBytes, for weights and for keys and values
};

Status RateMeter::measure(const RatedParts& parts) {
  TRY(prepare());
  for (const cpu::Layout layout : parts.layouts) TRY(products(layout));
  if (parts.weights != nullptr) reads(*parts.weights);
  for (const KvType type : parts.kv_types) TRY(attention(type));
  return {};
}

Status RateMeter::prepare() {
  TRY(backend_.reserve(kMostRatedRows));
  input_ = TRY(Rows::create(backend_, kMostRatedRows * kMostRatedWidth));
  far_ = TRY(backend_.allocate(kMemoryBytes + (size_t{1} << 20), MemoryUse::kWeights));
  TRY(make_room(kMostRatedRows * kMostRatedWidth));
  for (const cpu::KernelRow* row : {kernels_.quantise, kernels_.quantise_dense}) {
    if (row != nullptr) quantise(row->activation, *row);
  }
  TRY(joins());
  TRY(starts());
  TRY(outputs());
  TRY(norms());
  TRY(ropes());
  return {};
}

// As products read weights: the team shares pieces that lie one after the other.
void RateMeter::read(std::string_view of, const DeviceMemory& memory, size_t num_bytes) {
  const size_t even = num_bytes / static_cast<size_t>(backend_.num_threads());
  const size_t piece = std::clamp(even, kReadGrain, kPieceBytes) / kReadGrain * kReadGrain;
  const auto num_pieces = static_cast<int64_t>(std::max(num_bytes / piece, size_t{1}));
  const size_t num_read = static_cast<size_t>(num_pieces) * piece;
  const std::span<const std::byte> bytes = backend_.read_view(memory.data(), num_read);
  const cpu::ReadRow row = cpu::widest_read();
  const auto call = [&] {
    backend_.run_on_team(num_pieces, [&](int64_t i, int /*member*/) {
      row.function(bytes.data() + static_cast<size_t>(i) * piece, piece, 1);
    });
  };
  const double seconds = median_of(call, "read", of, num_read);
  add(RatedOp::kRead, of, 1, static_cast<double>(num_bytes),
      seconds / static_cast<double>(num_read));
}

// Products have written far_ by now: before, all its pages are one.
void RateMeter::reads(const DeviceMemory& weights) {
  if (has(RatedOp::kRead, kReadByModel) || weights.size() < kReadGrain) return;
  const size_t cached_bytes = kCachedBytes * static_cast<size_t>(backend_.num_threads());
  for (const size_t num_bytes : {cached_bytes, kFarBytes, kMemoryBytes}) {
    read(kReadByOps, *far_, num_bytes);
  }
  read(kReadByModel, weights, weights.size());
}

// At least so many floats of output.
Status RateMeter::make_room(int64_t count) {
  if (output_floats_ >= count) return {};
  output_ = TRY(Rows::create(backend_, count));
  output_floats_ = count;
  return {};
}

// Weights of `num_bytes` together, one after the other from the beginning of far_.
Result<RateMeter::Weights> RateMeter::far_weights(cpu::Layout layout, int64_t num_outputs,
                                                  int64_t num_inputs, size_t num_bytes) {
  const RepeatedWeight one = repeated_weight(layout, num_outputs, num_inputs);
  const size_t one_bytes = backend_.packed_bytes({&one.view, 1}, WeightRole::kLinear);
  const size_t stride = (one_bytes + 63) / 64 * 64;
  const size_t count = std::clamp<size_t>(num_bytes / stride, 1, far_->size() / stride);
  backend_.zero(far_->data(), one_bytes);
  Weights weights;
  weights.push_back(TRY(backend_.pack_into({&one.view, 1}, WeightRole::kLinear, far_->data())));
  const std::span<std::byte> bytes = backend_.write_view(far_->data(), count * stride);
  backend_.run_on_team(static_cast<int64_t>(count - 1), [&](int64_t item, int /*member*/) {
    const auto at = static_cast<ptrdiff_t>(static_cast<size_t>(item + 1) * stride);
    std::copy_n(bytes.begin(), one_bytes, bytes.begin() + at);
  });
  for (size_t i = 1; i < count; ++i) {
    const DevicePtr<const std::byte> at = far_->data() + static_cast<ptrdiff_t>(i * stride);
    weights.push_back(TRY(backend_.adopt({&one.view, 1}, WeightRole::kLinear, at)));
  }
  return weights;
}

double RateMeter::seconds_of_linear(std::span<const std::unique_ptr<PackedWeight>> weights,
                                    int64_t num_rows) {
  size_t next = 0;
  const PackedWeight& first = *weights[0];
  return median_of(
      [&] {
        backend_.linear(*weights[next++ % weights.size()], Input(input_->data()), num_rows, {},
                        output_->data());
      },
      "linear", activations_of(first), first.layout(), weights.size(), first.num_outputs(),
      first.num_inputs(), num_rows);
}

double RateMeter::seconds_of_gated(const PackedWeight& weight, int64_t num_rows) {
  return median_of(
      [&] {
        backend_.gated_linear(weight, Input(input_->data()), num_rows, Activation::kSilu, nullptr,
                              output_->data());
      },
      "gated", weight.layout(), weight.num_inputs(), num_rows);
}

// An op that has next to nothing to do: attention to one position.
Status RateMeter::joins() {
  if (has(RatedOp::kJoin)) return {};
  constexpr int kHeadDim = 16;
  const Context context = TRY(this->context(KvType::kF32, 2, kHeadDim, 1));
  const Place place;
  const double each = seconds_of_attention(context, {&place, 1}, 1);
  add(RatedOp::kJoin, "", 1, 0, each * 4 * context.num_heads * kHeadDim);
  return {};
}

// What an op takes beside its products: of small weights that lie far away, as each next weight of
// a model does, and of some four times as large. One row, and several, which have more phases.
Status RateMeter::starts() {
  if (has(RatedOp::kStart)) return {};
  const int64_t outputs = cpu::kPanel * 4 * backend_.num_threads();
  constexpr int64_t kRows[] = {1, 4};
  double seconds[2][2];
  for (const int64_t times : {1, 4}) {
    const Weights weights =
        TRY(far_weights(cpu::Layout::kQ8_0, times * outputs, kRatedInputs, kFarBytes));
    for (size_t i = 0; i < 2; ++i) {
      seconds[i][times == 1 ? 0 : 1] = seconds_of_linear(weights, kRows[i]);
    }
  }
  for (size_t i = 0; i < 2; ++i) {
    add(RatedOp::kStart, "", static_cast<double>(kRows[i]), 0,
        seconds[i][0] - (seconds[i][1] - seconds[i][0]) / 3);
  }
  return {};
}

// Seconds of an op that are there whatever the number of its inputs.
double RateMeter::without_inputs(const std::function<double(int64_t num_inputs)>& seconds) {
  constexpr int64_t kFew = 256, kMany = 1024;
  const double few = seconds(kFew), each = (seconds(kMany) - few) / (kMany - kFew);
  return few - kFew * each;
}

// A gate takes two weights, whose products are those of a plain weight of as many outputs.
Status RateMeter::outputs() {
  if (has(RatedOp::kFinish)) return {};
  constexpr int64_t kOutputs = 1024, kRows = 64;
  const auto weight_of = [&](int64_t num_inputs, bool gated) {
    const RepeatedWeight half = repeated_weight(cpu::Layout::kQ8_0, kOutputs, num_inputs);
    const WeightView both[] = {half.view, half.view};
    return backend_.pack(both, gated ? WeightRole::kGateUp : WeightRole::kLinear);
  };
  const double start = *rates_.seconds(RatedOp::kStart, {}, kRows);
  const double plain = without_inputs([&](int64_t num_inputs) {
    const auto weight = weight_of(num_inputs, false);
    return weight.ok() ? seconds_of_linear({&*weight, 1}, kRows) : 0;
  });
  const double gated = without_inputs([&](int64_t num_inputs) {
    const auto weight = weight_of(num_inputs, true);
    return weight.ok() ? seconds_of_gated(**weight, kRows) : 0;
  });
  const double each = threads_ / (kOutputs * kRows);
  add(RatedOp::kFinish, "", 1, 0, each * (plain - start) / 2);
  add(RatedOp::kGate, "", 1, 0, each * (gated - start));
  return {};
}

Status RateMeter::norms() {
  if (has(RatedOp::kNorm)) return {};
  constexpr int64_t kRows = 256;
  NormArgs args;
  args.x = input_->data();
  args.weight = input_->data();
  args.out = output_->data();
  args.num_rows = kRows;
  args.width = kRatedInputs;
  const double seconds = median_of([&] { backend_.norm(args); }, "norm");
  const double join = *rates_.seconds(RatedOp::kJoin);
  add(RatedOp::kNorm, "", 1, 0, (seconds - join) * threads_ / (kRows * kRatedInputs));
  return {};
}

// On the caller's thread.
Status RateMeter::ropes() {
  if (has(RatedOp::kRope)) return {};
  std::vector<float> frequencies(64);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(10000.0f, -static_cast<float>(i) / 64);
  }
  std::vector<int64_t> positions(64);
  std::iota(positions.begin(), positions.end(), 1000);
  RopeArgs args;
  args.positions = positions;
  args.frequencies = frequencies;
  args.cos = output_->data();
  args.sin = output_->data() + 64 * 64;
  const double seconds = times_.add("rope", seconds_of_call([&] { backend_.rope_rows(args); }, 1));
  add(RatedOp::kRope, "", 1, 0, seconds / (64 * 64));
  return {};
}

void RateMeter::quantise(cpu::ActivationType type, const cpu::KernelRow& row) {
  const std::string of(activation_name(type));
  if (has(RatedOp::kQuantise, of)) return;
  constexpr int64_t kRows = 16;
  constexpr int64_t kSlices = (kRatedInputs + cpu::kSliceInputs - 1) / cpu::kSliceInputs;
  const int64_t stride = cpu::activation_stride(type, kRows, kRatedInputs);
  const std::span<std::byte> out = backend_.write_view(
      far_->data(), static_cast<size_t>(kSlices * kRows * cpu::activation_record_bytes(type)));
  const std::span<const float> x =
      backend_.read_view(input_->data(), static_cast<size_t>(kRows * kRatedInputs));
  const auto call = [&] {
    row.function.quantise(
        {x.data(), kRows, kRatedInputs, reinterpret_cast<uint8_t*>(out.data()), stride});
  };
  const double seconds = times_.add("quantise " + of, seconds_of_call(call, 1));
  add(RatedOp::kQuantise, of, 1, 0, seconds / (kRows * kRatedInputs));
}

// Of a linear op: the join, the input's form, which a lone row has made by each thread, and the
// outputs.
double RateMeter::beside_products(cpu::ActivationType type, int64_t num_rows,
                                  int64_t num_outputs) const {
  const auto rows = static_cast<double>(num_rows);
  const double numbers = rows * kRatedInputs / (num_rows == 1 ? 1 : threads_);
  return *rates_.seconds(RatedOp::kStart, {}, rows) +
         rates_.seconds(RatedOp::kQuantise, activation_name(type)).value_or(0) * numbers +
         *rates_.seconds(RatedOp::kFinish) * rows * static_cast<double>(num_outputs) / threads_;
}

// Calls take the weights in turn, so that each is found where their common size leaves it.
Status RateMeter::product_rows(cpu::Layout layout, const Weights& weights,
                               std::span<const int64_t> row_counts) {
  const cpu::ActivationType type = kernels_.matmul[static_cast<size_t>(layout)].activation();
  const int64_t outputs = weights[0]->num_outputs();
  TRY(make_room(row_counts.back() * outputs));
  const auto num_bytes = static_cast<double>(weights.size() * weights[0]->num_bytes());
  for (const int64_t rows : row_counts) {
    const double seconds = seconds_of_linear(weights, rows) - beside_products(type, rows, outputs);
    add(RatedOp::kProduct, product_variant(layout, type), static_cast<double>(rows), num_bytes,
        seconds / (2.0 * static_cast<double>(rows * outputs * kRatedInputs)));
  }
  return {};
}

Status RateMeter::products(cpu::Layout layout) {
  const cpu::ActivationType type = kernels_.matmul[static_cast<size_t>(layout)].activation();
  if (has(RatedOp::kProduct, product_variant(layout, type))) return {};
  const auto outputs_in = [&](size_t bytes) {
    const size_t panels = bytes * static_cast<size_t>(backend_.num_threads()) /
                          cpu::panel_bytes(layout, kRatedInputs);
    return static_cast<int64_t>(std::max(panels, size_t{8})) * cpu::kPanel;
  };
  const int64_t near = outputs_in(kCachedBytes), piece = outputs_in(kPieceBytes);
  TRY(product_rows(layout, TRY(far_weights(layout, near, kRatedInputs, 0)), kFewRows));
  TRY(product_rows(layout, TRY(far_weights(layout, piece, kRatedInputs, kFarBytes)), kFewRows));
  const Weights weights = TRY(far_weights(layout, piece, kRatedInputs, kMemoryBytes));
  TRY(product_rows(layout, weights, kFewRows));
  return product_rows(layout, weights, kManyRows);
}

QkvArgs RateMeter::append_args(const Context& context, const StepGeometry* step, int64_t num_rows) {
  QkvArgs args;
  args.qkv = input_->data();
  args.q_out = output_->data();
  args.num_rows = num_rows;
  args.num_heads = context.num_heads;
  args.kv = context.layer;
  args.step = step;
  args.rope_dims = context.layer.shape.head_dim;
  args.rope_cos = args.rope_sin = input_->data();
  return args;
}

Result<RateMeter::Context> RateMeter::context(KvType type, int num_kv_heads, int head_dim,
                                              int group) {
  CHECK(int64_t{num_kv_heads} * (group + 2) * head_dim <= kMostRatedWidth, "{} heads of {}",
        num_kv_heads * (group + 2), head_dim);
  Context context;
  KvLayer& layer = context.layer;
  layer.shape = {type, num_kv_heads, head_dim};
  layer.base = far_->data();
  layer.block_stride = kContextLayers * backend_.kv_layer_bytes(layer.shape);
  context.num_heads = num_kv_heads * group;
  // Enough for the deepest, where a block is large.
  context.num_blocks = std::clamp<int64_t>(
      static_cast<int64_t>(kFarContextBytes / layer.block_stride), 2048 / kBlockTokens,
      static_cast<int64_t>(far_->size() / layer.block_stride));
  constexpr int64_t kFillBlocks = kFillRows / kBlockTokens;
  std::vector<int32_t> blocks(kFillBlocks);
  std::iota(blocks.begin(), blocks.end(), 0);
  const int32_t* const table = blocks.data();
  const Span span{0, kFillRows, 0, &table};
  backend_.finish_qkv(append_args(context, backend_.begin_step({&span, 1}), kFillRows));
  const std::span<std::byte> bytes = backend_.write_view(
      far_->data(), static_cast<size_t>(context.num_blocks) * layer.block_stride);
  for (int64_t block = kFillBlocks; block < context.num_blocks; ++block) {
    const auto from = static_cast<ptrdiff_t>(block % kFillBlocks * layer.block_stride);
    const auto to = static_cast<ptrdiff_t>(block * layer.block_stride);
    std::copy_n(bytes.begin() + from, layer.block_stride, bytes.begin() + to);
  }
  return context;
}

// Of one sequence; calls take the places in turn.
double RateMeter::seconds_of_attention(const Context& context, std::span<const Place> places,
                                       int64_t num_rows) {
  std::vector<int32_t> blocks(static_cast<size_t>(context.num_blocks));
  std::iota(blocks.begin(), blocks.end(), 0);
  AttentionArgs args;
  args.q = input_->data();
  args.out = output_->data();
  args.num_heads = context.num_heads;
  args.kv = context.layer;
  args.scale = 0.1f;
  size_t next = 0;
  const auto attend = [&] {
    const Place& place = places[next++ % places.size()];
    const int32_t* const table = blocks.data() + place.first_block;
    args.kv.base = context.layer.base + place.layer *
                                            static_cast<ptrdiff_t>(context.layer.block_stride) /
                                            kContextLayers;
    const Span span{0, static_cast<int32_t>(num_rows), place.position, &table};
    args.step = backend_.begin_step({&span, 1});
    backend_.attention(args);
  };
  const KvShape& shape = context.layer.shape;
  const double seconds =
      median_of(attend, "attention", static_cast<int>(shape.type), shape.num_kv_heads,
                shape.head_dim, context.num_heads, places.size(), places[0].position, num_rows);
  double positions = 0;
  for (int64_t row = 0; row < num_rows; ++row) {
    positions += static_cast<double>(places[0].position + row + 1);
  }
  const double operations = 4.0 * context.num_heads * shape.head_dim * positions;
  return (seconds - rates_.seconds(RatedOp::kJoin).value_or(0)) / operations;
}

Status RateMeter::attention_rows(KvType type, int head_dim, int group) {
  const std::string of = attention_variant(type, head_dim, group);
  const Context context = TRY(this->context(type, 2, head_dim, group));
  for (const int64_t depth : kRatedDepths) {
    const int64_t each = depth / kBlockTokens;
    std::vector<Place> places;
    for (int64_t first = 0; first + each <= context.num_blocks; first += each) {
      for (int64_t layer = 0; layer < kContextLayers; ++layer) {
        places.push_back({first, layer, depth - 1});
      }
    }
    const auto size = static_cast<double>(depth);
    add(RatedOp::kAttentionRow, of, size, static_cast<double>(kCachedBytes) * threads_,
        seconds_of_attention(context, std::span(places).first(1), 1));
    add(RatedOp::kAttentionRow, of, size, static_cast<double>(kFarContextBytes),
        seconds_of_attention(context, places, 1));
  }
  return {};
}

Status RateMeter::attention_chunks(KvType type, int head_dim, int group) {
  const Context context = TRY(this->context(type, 1, head_dim, group));
  for (const RatedChunk& chunk : kRatedChunks) {
    const Place place{0, 0, chunk.position};
    const double mean =
        static_cast<double>(chunk.position) + 0.5 * static_cast<double>(chunk.num_rows + 1);
    add(RatedOp::kAttentionChunk, attention_variant(type, head_dim, group), mean, 0,
        seconds_of_attention(context, {&place, 1}, chunk.num_rows));
  }
  return {};
}

Status RateMeter::append(KvType type) {
  const Context context = TRY(this->context(type, 2, 64, 4));
  std::vector<int32_t> blocks(kFillRows / kBlockTokens);
  std::iota(blocks.begin(), blocks.end(), 0);
  const int32_t* const table = blocks.data();
  const Span span{0, kFillRows, 0, &table};
  const QkvArgs args = append_args(context, backend_.begin_step({&span, 1}), kFillRows);
  const double seconds =
      median_of([&] { backend_.finish_qkv(args); }, "append", static_cast<int>(type));
  constexpr double kNumbers = kFillRows * (2 * 4 + 2 * 2) * 64;
  add(RatedOp::kAppend, kv_type_name(type), 1, 0,
      (seconds - *rates_.seconds(RatedOp::kJoin)) * threads_ / kNumbers);
  return {};
}

Status RateMeter::attention(KvType type) {
  if (has(RatedOp::kAppend, kv_type_name(type))) return {};
  TRY(append(type));
  for (const int head_dim : kRatedHeadDims) {
    for (const int group : kRatedGroups) {
      TRY(attention_rows(type, head_dim, group));
      TRY(attention_chunks(type, head_dim, group));
    }
  }
  return {};
}

Status measure_arithmetic(ActivationArithmetic activations, int num_threads,
                          const RatedParts& parts, RoundTimes* times, OpRates* rates) {
  const auto backend =
      TRY(create_cpu_backend({.num_threads = num_threads, .activations = activations}));
  const uint32_t isa = cpu::detect_isa();
  const cpu::KernelUnit* unit = TRY(cpu::select_unit(backend->isa(), isa));
  const cpu::KernelSet kernels =
      cpu::select_kernels(*unit, isa, cpu::coded_activations(activations));
  return measure_rates(*backend, kernels, parts, times, rates);
}

}  // namespace

double RoundTimes::add(std::string name, double seconds) {
  std::vector<double>& times = times_[std::move(name)];
  times.insert(std::lower_bound(times.begin(), times.end(), seconds), seconds);
  return times[(times.size() - 1) / 2];
}

Status measure_rates(Backend& backend, const cpu::KernelSet& kernels, const RatedParts& parts,
                     RoundTimes* times, OpRates* rates) {
  RateMeter meter(backend, kernels, times, rates);
  Status status;
  run_apart(backend, [&] { status = meter.measure(parts); });
  return status;
}

Result<OpRates> measure_all_rates(int num_threads) {
  std::vector<cpu::Layout> layouts;
  for (const cpu::LayoutInfo& info : cpu::kLayouts) layouts.push_back(info.layout);
  std::vector<KvType> kv_types;
  for (int type = 0; type < kNumKvTypes; ++type) kv_types.push_back(static_cast<KvType>(type));
  RoundTimes times;
  OpRates rates;
  for (int round = 0; round < kRounds; ++round) {
    rates = OpRates();
    for (const auto activations : {ActivationArithmetic::kExact, ActivationArithmetic::kFast}) {
      TRY(measure_arithmetic(activations, num_threads, {layouts, kv_types}, &times, &rates));
    }
  }
  return rates;
}

}  // namespace headrace
