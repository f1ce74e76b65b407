#include "backend/timed_backend.h"

#include <algorithm>
#include <chrono>

namespace headrace {
namespace {

int64_t clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double float_bytes(int64_t count) {
  return static_cast<double>(sizeof(float)) * static_cast<double>(count);
}

void add_product(const PackedWeight& weight, int64_t num_rows, OpRecord* record) {
  const int64_t outputs = weight.num_outputs(), inputs = weight.num_inputs();
  record->bytes += float_bytes(num_rows * (outputs + inputs));
  record->operations += 2.0 * static_cast<double>(outputs) * static_cast<double>(inputs) *
                        static_cast<double>(num_rows);
}

void name_weight(const PackedWeight& weight, OpRecord* record) {
  record->num_outputs = weight.num_outputs();
  record->num_inputs = weight.num_inputs();
  record->layout = weight.layout();
}

// Rows of `width` numbers, so many times read or written.
auto rows_of(int64_t num_rows, int64_t width, int64_t times) {
  return [=](OpRecord* record) { record->bytes = float_bytes(num_rows * width * times); };
}

}  // namespace

bool TimedBackend::watch_ops(std::vector<OpRecord>* records) {
  records_ = records;
  layer_ = kNoOpLayer;
  return true;
}

template <typename Op, typename Describe>
void TimedBackend::run(OpKind kind, int64_t num_rows, const Op& op, const Describe& describe) {
  if (records_ == nullptr) return op();
  OpRecord record;
  record.kind = kind;
  record.layer = layer_;
  record.num_rows = static_cast<int32_t>(num_rows);
  record.start_ns = clock_ns();
  op();
  inner_->synchronize();
  record.end_ns = clock_ns();
  describe(&record);
  records_->push_back(record);
}

template <typename Op>
void TimedBackend::run_product(OpKind kind, const PackedWeight& weight, int64_t num_rows,
                               const Op& op) {
  run(kind, num_rows, op, [&](OpRecord* record) {
    name_weight(weight, record);
    record->bytes = static_cast<double>(weight.num_bytes());
    add_product(weight, num_rows, record);
  });
}

TimedBackend::Seen TimedBackend::seen(int64_t window) const {
  Seen seen;
  for (const Span& span : spans_) {
    const int64_t first = span.first_position, end = span.end_position();
    const int64_t limit = window > 0 ? window : end;
    seen.by_spans += static_cast<double>(std::min(end, limit + span.num_rows - 1));
    for (int64_t position = first; position < end; ++position) {
      seen.by_rows += static_cast<double>(std::min(position + 1, limit));
    }
  }
  return seen;
}

double TimedBackend::plane_position_bytes(const KvPlane& plane) const {
  return static_cast<double>(inner_->kv_plane_bytes(plane)) / kBlockTokens;
}

// Float32, of each sequence once in and once out.
double TimedBackend::state_bytes(std::span<const KvPlaneView> planes) const {
  double numbers = 0;
  for (const KvPlaneView& view : planes) {
    numbers += static_cast<double>(view.plane.num_heads) * view.plane.width;
  }
  return 2 * sizeof(float) * numbers * static_cast<double>(spans_.size());
}

const StepGeometry* TimedBackend::begin_step(std::span<const Span> spans) {
  if (records_ != nullptr) spans_.assign(spans.begin(), spans.end());
  return inner_->begin_step(spans);
}

void TimedBackend::embed(const PackedWeight& table, std::span<const int32_t> ids, float scale,
                         DevicePtr<const float> addend, DevicePtr<float> out) {
  run(
      OpKind::kEmbed, std::ssize(ids), [&] { inner_->embed(table, ids, scale, addend, out); },
      [&](OpRecord* record) {
        name_weight(table, record);
        const double row = static_cast<double>(table.num_bytes()) /
                           static_cast<double>(std::max<int64_t>(table.num_outputs(), 1));
        record->bytes = row * static_cast<double>(ids.size()) +
                        float_bytes(std::ssize(ids) * table.num_inputs());
      });
}

void TimedBackend::norm(const NormArgs& args) {
  run(
      OpKind::kNorm, args.num_rows, [&] { inner_->norm(args); },
      rows_of(args.num_rows, args.width, 2));
}

void TimedBackend::linear(const PackedWeight& weight, const Input& input, int64_t num_rows,
                          const Epilogue& epilogue, DevicePtr<float> out) {
  run_product(OpKind::kLinear, weight, num_rows,
              [&] { inner_->linear(weight, input, num_rows, epilogue, out); });
}

void TimedBackend::gated_linear(const PackedWeight& gate_up, const Input& input, int64_t num_rows,
                                Activation activation, DevicePtr<const float> bias,
                                DevicePtr<float> out) {
  run_product(OpKind::kGatedLinear, gate_up, num_rows,
              [&] { inner_->gated_linear(gate_up, input, num_rows, activation, bias, out); });
}

void TimedBackend::activated_linear(const PackedWeight& weight, const Input& input,
                                    int64_t num_rows, const ActivatedArgs& args,
                                    DevicePtr<float> out) {
  run_product(OpKind::kActivatedLinear, weight, num_rows,
              [&] { inner_->activated_linear(weight, input, num_rows, args, out); });
}

// How many experts the rows went to: a single row has no slots.
double TimedBackend::experts_met(const ExpertsArgs& args) {
  const Routing& routing = args.routing;
  if (routing.num_rows == 1) return static_cast<double>(routing.num_chosen);
  const auto first =
      inner_->read_view(routing.first_slot, static_cast<size_t>(routing.num_experts) + 1);
  double met = 0;
  for (size_t e = 0; e + 1 < first.size(); ++e) met += first[e + 1] > first[e] ? 1 : 0;
  return met;
}

void TimedBackend::experts(const ExpertsArgs& args) {
  run(
      OpKind::kExperts, args.routing.num_rows, [&] { inner_->experts(args); },
      [&](OpRecord* record) {
        const int64_t slots = args.routing.num_rows * args.routing.num_chosen;
        name_weight(*args.gate_up, record);
        const double weights =
            static_cast<double>(args.gate_up->num_bytes() + args.down->num_bytes());
        if (slots > 0) {
          record->bytes =
              weights * experts_met(args) / static_cast<double>(args.routing.num_experts);
        }
        add_product(*args.gate_up, slots, record);
        add_product(*args.down, slots, record);
      });
}

void TimedBackend::qkv_linear(const PackedWeight& weight, const Input& input,
                              DevicePtr<const float> bias, DevicePtr<float> projection,
                              const QkvArgs& args) {
  run_product(OpKind::kQkvLinear, weight, args.num_rows,
              [&] { inner_->qkv_linear(weight, input, bias, projection, args); });
}

void TimedBackend::finish_qkv(const QkvArgs& args) {
  const KvShape& shape = args.kv.shape;
  const int64_t width =
      int64_t{args.num_heads + args.kv_parts * shape.num_kv_heads} * shape.head_dim;
  run(
      OpKind::kFinishQkv, args.num_rows, [&] { inner_->finish_qkv(args); },
      rows_of(args.num_rows, width, 2));
}

void TimedBackend::attention(const AttentionArgs& args) {
  run(
      OpKind::kAttention, spans_.empty() ? 0 : spans_.back().first_row + spans_.back().num_rows,
      [&] { inner_->attention(args); },
      [&](OpRecord* record) {
        const KvShape& shape = args.kv.shape;
        const Seen positions = seen(args.window);
        const double width = static_cast<double>(args.num_heads) * shape.head_dim;
        const double position_bytes =
            static_cast<double>(inner_->kv_layer_bytes(shape)) / kBlockTokens;
        record->bytes =
            positions.by_spans * position_bytes + 2 * sizeof(float) * width * record->num_rows;
        record->operations = 4 * width * positions.by_rows;
      });
}

void TimedBackend::causal_conv(const CausalConvArgs& args) {
  run(
      OpKind::kCausalConv, args.num_rows, [&] { inner_->causal_conv(args); },
      rows_of(args.num_rows, args.num_channels, 2));
}

void TimedBackend::scan(const ScanArgs& args) {
  run(
      OpKind::kScan, args.num_rows, [&] { inner_->scan(args); },
      [&](OpRecord* record) {
        const int64_t width = int64_t{args.num_heads} * args.head_dim;
        record->bytes = state_bytes(args.state) + float_bytes(3 * width * args.num_rows);
        record->operations = 6.0 * static_cast<double>(width * args.state_width * args.num_rows);
      });
}

void TimedBackend::delta(const DeltaArgs& args) {
  run(
      OpKind::kDelta, args.num_rows, [&] { inner_->delta(args); },
      [&](OpRecord* record) {
        const int64_t width = int64_t{args.num_value_heads} * args.value_dim;
        record->bytes = state_bytes(args.state) + float_bytes(3 * width * args.num_rows);
        record->operations = 8.0 * static_cast<double>(width * args.key_dim * args.num_rows);
      });
}

void TimedBackend::append_row(const AppendRowArgs& args) {
  run(
      OpKind::kAppendRow, args.num_rows, [&] { inner_->append_row(args); },
      rows_of(args.num_rows, args.plane.plane.width + int64_t{args.num_heads} * args.q_dims, 2));
}

void TimedBackend::head_linear(const HeadLinearArgs& args) {
  run(
      OpKind::kHeadLinear, args.num_rows, [&] { inner_->head_linear(args); },
      [&](OpRecord* record) {
        name_weight(*args.weight, record);
        record->bytes = static_cast<double>(args.weight->num_bytes());
        add_product(*args.weight, args.num_rows * args.num_heads, record);
      });
}

void TimedBackend::select_keys(const SelectKeysArgs& args) {
  run(
      OpKind::kSelectKeys, args.num_rows, [&] { inner_->select_keys(args); },
      [&](OpRecord* record) {
        const Seen positions = seen(0);
        const double width = static_cast<double>(args.num_heads) * args.plane.plane.width;
        record->bytes = positions.by_spans * plane_position_bytes(args.plane.plane);
        record->operations = 2 * width * positions.by_rows;
      });
}

// Of keys that are kept the most that may be.
void TimedBackend::latent_attention(const LatentAttentionArgs& args) {
  run(
      OpKind::kLatentAttention, args.num_rows, [&] { inner_->latent_attention(args); },
      [&](OpRecord* record) {
        Seen positions = seen(0);
        if (args.kept) positions.by_rows = seen(args.max_kept).by_rows;
        const KvPlane& plane = args.plane.plane;
        record->bytes = positions.by_spans * plane_position_bytes(plane);
        record->operations =
            2.0 * args.num_heads * (plane.width + args.value_dim) * positions.by_rows;
      });
}

void TimedBackend::mix_streams(const StreamArgs& args) {
  run(
      OpKind::kMixStreams, args.num_rows, [&] { inner_->mix_streams(args); },
      rows_of(args.num_rows, args.width, int64_t{2} * args.num_streams));
}

void TimedBackend::sparse_gate(const SparseGateArgs& args) {
  run(
      OpKind::kSparseGate, args.num_rows, [&] { inner_->sparse_gate(args); },
      rows_of(args.num_rows, args.width, 3));
}

// Rows whose best output alone is wanted write none.
void TimedBackend::head(const PackedWeight& weight, const Input& input, const HeadArgs& args) {
  run(
      OpKind::kHead, args.num_rows, [&] { inner_->head(weight, input, args); },
      [&](OpRecord* record) {
        name_weight(weight, record);
        if (args.num_rows == 0) return;
        record->bytes = static_cast<double>(weight.num_bytes());
        add_product(weight, args.num_rows, record);
        record->bytes -= float_bytes((args.num_rows - args.num_written) * weight.num_outputs());
      });
}

void TimedBackend::gather_rows(const GatherArgs& args) {
  run(
      OpKind::kGatherRows, std::ssize(args.rows), [&] { inner_->gather_rows(args); },
      rows_of(std::ssize(args.rows), args.width, 2));
}

void TimedBackend::rope_rows(const RopeArgs& args) {
  run(
      OpKind::kRopeRows, std::ssize(args.positions), [&] { inner_->rope_rows(args); },
      rows_of(std::ssize(args.positions), std::ssize(args.frequencies), 2));
}

void TimedBackend::find_finite_rows(DevicePtr<const float> x, int64_t num_rows, int64_t width,
                                    bool* finite) {
  run(
      OpKind::kFindFiniteRows, num_rows,
      [&] { inner_->find_finite_rows(x, num_rows, width, finite); }, rows_of(num_rows, width, 1));
}

}  // namespace headrace
