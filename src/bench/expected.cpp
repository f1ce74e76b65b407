#include "bench/expected.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels/layouts.h"
#include "backend/cpu/linear_tiles.h"
#include "base/numeric.h"

namespace headrace {
namespace {

bool is_normed(OpWork::Form form) { return form != OpWork::Form::kLinear; }

// What the busiest thread does of an op's panels, over an even share: the back end's own cut into
// pieces, each taken by the thread that is free first. 1 where there are many.
double busiest_over_even(const OpWork& op, double num_rows, int num_threads) {
  std::vector<cpu::Segment> segments;
  int64_t num_panels = 0;
  const bool gated = op.form == OpWork::Form::kGated;  // cut by the panels of the gate
  for (const OpWork::Part& part : std::span(op.parts).first(gated ? 1 : op.parts.size())) {
    cpu::Segment& segment = segments.emplace_back();
    segment.num_panels = (part.num_outputs + cpu::kPanel - 1) / cpu::kPanel;
    segment.panel_bytes = cpu::panel_bytes(part.layout, op.num_inputs);
    num_panels += segment.num_panels;
  }
  if (num_rows == 1) {
    const int64_t unit = std::clamp<int64_t>(num_panels / (cpu::kItemsPerMember * num_threads), 1,
                                             cpu::kMinTilePanels);
    const int64_t of_busiest = divide_up(divide_up(num_panels, unit), num_threads) * unit;
    return static_cast<double>(of_busiest * num_threads) / static_cast<double>(num_panels);
  }
  const auto rows = static_cast<int64_t>(num_rows);
  const cpu::LinearTiles tiles(segments, op.num_inputs, rows, num_threads);
  std::vector<int64_t> busy(static_cast<size_t>(num_threads), 0);
  for (int64_t item = 0; item < tiles.num_items(); ++item) {
    const cpu::Tile2D tile = tiles.at(item);
    *std::ranges::min_element(busy) += tile.num_rows * tile.num_panels;
  }
  return static_cast<double>(std::ranges::max(busy) * num_threads) /
         static_cast<double>(num_panels * rows);
}

}  // namespace

ExpectedTimes::ExpectedTimes(const StepWork& work, const MachineFile& machine)
    : work_(work), machine_(machine) {
  double floats = 0;
  for (const OpWork& op : work.ops) {
    if (op.form == OpWork::Form::kHead) continue;
    floats += static_cast<double>(op.num_inputs + op.num_outputs());
  }
  row_bytes_ =
      sizeof(float) * floats / static_cast<double>(std::max<size_t>(work.mixers.size(), 1));
}

std::optional<double> ExpectedTimes::rate(RatedOp op, std::string_view of, double size,
                                          double working_set) const {
  const bool is_product = op == RatedOp::kProduct;
  return machine_.rates.seconds(op, of, size, working_set, [&](double bytes) {
    return is_product ? read_seconds(bytes, bytes == working_set) : 1 / machine_.bandwidth(bytes);
  });
}

// Of a byte, by a product: of those that were measured, or of the model's.
double ExpectedTimes::read_seconds(double working_set, bool is_models) const {
  const auto logarithm = [](double bytes) { return std::log(bytes); };
  const auto of_model = machine_.rates.seconds(RatedOp::kRead, kReadByModel);
  const auto of_ops = machine_.rates.seconds(RatedOp::kRead, kReadByOps, 1, working_set, logarithm);
  if (!of_model || !of_ops) return 1 / machine_.bandwidth(working_set);
  return is_models ? *of_model : *of_ops;
}

double ExpectedTimes::shared(double num_rows) const {
  return num_rows / std::min<double>(num_rows, machine_.limits.num_threads);
}

// A lone row's input is made by every thread for itself.
std::optional<double> ExpectedTimes::input_seconds(const OpWork& op, double num_rows) const {
  const double numbers = shared(num_rows) * static_cast<double>(op.num_inputs);
  double seconds = 0;
  if (is_normed(op.form)) {
    const auto norm = rate(RatedOp::kNorm, {}, num_rows, 0);
    if (!norm) return std::nullopt;
    seconds += numbers * *norm;
  }
  std::vector<cpu::ActivationType> made = {cpu::ActivationType::kF32};
  for (const OpWork::Part& part : op.parts) {
    if (std::ranges::find(made, part.activation) != made.end()) continue;
    made.push_back(part.activation);
    const auto quantise = rate(RatedOp::kQuantise, activation_name(part.activation), num_rows, 0);
    if (!quantise) return std::nullopt;
    seconds += numbers * *quantise;
  }
  return seconds;
}

std::optional<double> ExpectedTimes::output_seconds(const OpWork& op, double num_rows) const {
  const double numbers =
      num_rows * static_cast<double>(op.num_outputs()) / machine_.limits.num_threads;
  const bool gated = op.form == OpWork::Form::kGated;
  const auto each = rate(gated ? RatedOp::kGate : RatedOp::kFinish, {}, num_rows, 0);
  if (!each) return std::nullopt;
  double seconds = numbers * *each / (gated ? 2 : 1);
  if (op.num_normed > 0) {
    const auto norm = rate(RatedOp::kNorm, {}, num_rows, 0);
    if (!norm) return std::nullopt;
    seconds += shared(num_rows) * static_cast<double>(op.num_normed) * *norm;
  }
  if (op.form != OpWork::Form::kQkv) return seconds;
  const auto append = rate(RatedOp::kAppend, kv_type_name(work_.kv_type), num_rows, 0);
  if (!append) return std::nullopt;
  return seconds + shared(num_rows) * static_cast<double>(op.num_outputs()) * *append;
}

// Rows in and out. What they hold was made by an op before, maybe on another core, or long ago.
double ExpectedTimes::row_seconds(const OpWork& op, double num_rows) const {
  const auto outputs = static_cast<double>(op.num_outputs());
  const double written = op.form == OpWork::Form::kGated ? outputs / 2 : outputs;
  // A line that is written is read before; a plain layer's output is added to what was there.
  const double times = op.form != OpWork::Form::kLinear ? 2 : op.num_normed > 0 ? 5 : 3;
  const double bytes =
      sizeof(float) * num_rows * (static_cast<double>(op.num_inputs) + times * written);
  return bytes / machine_.bandwidth(num_rows * row_bytes_);
}

std::optional<double> ExpectedTimes::op_seconds(const OpWork& op, const Rows& rows) const {
  const double num_rows = op.form == OpWork::Form::kHead ? rows.logit_rows : rows.count();
  if (num_rows == 0) return 0;
  const double multiplied = num_rows * op.num_used;
  const auto start = rate(RatedOp::kStart, {}, num_rows, 0);
  const auto input = input_seconds(op, num_rows), output = output_seconds(op, multiplied);
  if (!start || !input || !output) return std::nullopt;
  const double num_met = op.num_experts * share_met(op.num_used, op.num_experts, num_rows);
  const double rows_of_each = std::max(multiplied / num_met, 1.0);
  double products = 0;
  for (const OpWork::Part& part : op.parts) {
    const auto product = rate(RatedOp::kProduct, product_variant(part.layout, part.activation),
                              rows_of_each, rows.working_set);
    if (!product) return std::nullopt;
    products += 2 * multiplied * static_cast<double>(part.num_outputs * op.num_inputs) * *product;
  }
  double seconds = *start + *input;
  if (op.form != OpWork::Form::kHead) seconds += row_seconds(op, num_rows);
  // Experts are many weights in one op.
  const double uneven =
      op.num_experts > 1 ? 1 : busiest_over_even(op, num_rows, machine_.limits.num_threads);
  return seconds + uneven * (products + *output);
}

double ExpectedTimes::state_seconds(const MixerWork& mixer, const Rows& rows) const {
  if (mixer.state_bytes == 0) return 0;
  const double peak = machine_.peak(cpu::PeakKind::kF32);
  const double bytes = 2 * rows.sequences * static_cast<double>(mixer.state_bytes);
  return std::max(peak > 0 ? mixer.operations_per_token * rows.count() / peak : 0,
                  bytes / machine_.bandwidth(rows.working_set));
}

std::optional<double> ExpectedTimes::mixer_seconds(const MixerWork& mixer, const Rows& rows) const {
  const auto join = rate(RatedOp::kJoin, {}, 1, 0);
  if (!join) return std::nullopt;
  double seconds = *join + state_seconds(mixer, rows);
  if (mixer.num_heads == 0) return seconds;
  const double positions =
      mixer.positions_seen(rows.first_position, static_cast<int64_t>(rows.of_each));
  const auto each =
      rate(rows.of_each > 1 ? RatedOp::kAttentionChunk : RatedOp::kAttentionRow,
           attention_variant(work_.kv_type, mixer.head_dim, mixer.num_heads / mixer.num_kv_heads),
           positions / rows.of_each, rows.working_set);
  if (!each) return std::nullopt;
  return seconds + *each * mixer.operations_per_position * positions * rows.sequences;
}

std::optional<ExpectedStep> ExpectedTimes::step(const Rows& rows) const {
  ExpectedStep step;
  for (const OpWork& op : work_.ops) {
    const auto seconds = op_seconds(op, rows);
    if (!seconds) return std::nullopt;
    step.products_s += *seconds;
  }
  for (const MixerWork& mixer : work_.mixers) {
    const auto seconds = mixer_seconds(mixer, rows);
    if (!seconds) return std::nullopt;
    step.attention_s += *seconds;
  }
  const auto rope = rate(RatedOp::kRope, {}, 1, 0);
  if (!rope) return std::nullopt;
  step.other_s = rows.count() * static_cast<double>(work_.num_rotated) * *rope;
  return step;
}

std::optional<ExpectedStep> ExpectedTimes::decode(int64_t batch, int64_t depth) const {
  const auto count = static_cast<double>(batch);
  return step(
      {count, 1, depth, count, work_.weight_bytes_of(count) + count * work_.kv_bytes(depth)});
}

std::optional<ExpectedStep> ExpectedTimes::prefill(int64_t num_tokens, int64_t chunk) const {
  ExpectedStep sum;
  for (int64_t first = 0; first < num_tokens; first += chunk) {
    const int64_t end = std::min(first + chunk, num_tokens);
    const auto count = static_cast<double>(end - first);
    const auto one = step({1, count, first, end == num_tokens ? 1.0 : 0.0,
                           work_.weight_bytes_of(count) + work_.kv_bytes(end)});
    if (!one) return std::nullopt;
    sum.products_s += one->products_s;
    sum.attention_s += one->attention_s;
    sum.other_s += one->other_s;
  }
  return sum;
}

}  // namespace headrace
