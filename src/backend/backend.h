// Backend: memory of a device, and arithmetic on it. Knows shapes and dtypes, not models.
//
// What ops work on lies in device memory, which nobody but the backend looks into
// (device_memory.h). Calls take effect in the order in which they are made, but an op may still run
// when its call has returned. Hence:
//   - arguments in host memory (ids, rows, positions, spans) are read during the call, but
//     tables of blocks until synchronize() has returned;
//   - results in host memory (best, finite) are there when synchronize() has returned;
//   - device memory is seen by the host only through download(), which waits, and through views.
//
// Each op is a complete piece of work over a whole batch (fork and join inside). Rules for all:
//   - arrays are float32, row-major, contiguous; M = rows (tokens), N = outputs, K = inputs;
//   - shapes are checked at entry (CHECK: a mismatch is our bug); at run time no op allocates;
//   - each output element is reduced over K (or over KV positions) in an order that depends on K
//     (or on the absolute position) alone: never on M, batch, chunk or number of threads;
//   - inputs are read-only, outputs do not alias inputs unless the op says so.
// One caller at a time: the engine thread.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "backend/activation.h"
#include "backend/device_memory.h"
#include "backend/kv_planes.h"
#include "backend/packed_weight.h"
#include "backend/recurrent_args.h"
#include "backend/span.h"
#include "backend/stream_args.h"
#include "base/result.h"
#include "checkpoint/weight_view.h"

namespace headrace {

struct OpRecord;  // op_record.h

enum class NormKind : uint8_t { kRms, kLayer };  // both times weight; kLayer subtracts the mean

// A norm over whole rows: the identity without a weight.
struct Norm {
  NormKind kind = NormKind::kRms;
  DevicePtr<const float> weight;  // [width], or null
  float eps = 1e-6f;
  DevicePtr<const float> bias = {};  // [width], or null
};

// What a linear layer multiplies: norm(x). The norm, and the form that a weight's kernels read, are
// made inside the op; `normed` is room that it may use.
struct Input {
  // Plain rows are an input.
  template <typename T>
  Input(DevicePtr<T> rows) : x(rows) {}
  Input(DevicePtr<const float> rows, const Norm& row_norm, DevicePtr<float> room)
      : x(rows), norm(row_norm), normed(room) {}

  DevicePtr<const float> x;  // [M, K]; apart from what the op writes, but for `normed`
  Norm norm;
  DevicePtr<float> normed;  // [M, K], needed with a norm; may be x, which is then lost
};

// Where a product is one of several summands: other processes hold the rest of K. Called between
// the product and the rest of the epilogue, on the thread of the op's caller, with the op's own
// products [num_rows, num_outputs] in device memory; leaves the sum of all there.
class Reduction {
 public:
  virtual ~Reduction() = default;
  virtual void reduce(DevicePtr<float> products, int64_t num_rows, int64_t num_outputs) = 0;
};

// y = x W^T + bias
// out = gain * (residual + scale * post_norm(y)); softcap > 0: out = softcap * tanh(out / softcap)
struct Epilogue {
  DevicePtr<const float> bias = {};      // [N], or null
  DevicePtr<const float> residual = {};  // [M, N], or null; may be the output itself
  float scale = 1.0f;
  float softcap = 0.0f;  // 0 with a post_norm
  Norm post_norm = {};
  DevicePtr<const float> gain = {};  // [1] multiplies out at the end, with a post_norm; or null
  DevicePtr<float> branch = {};      // [M, N] room for y, needed with a post_norm or a reduction
  Reduction* reduction = nullptr;    // null: this y is the whole
};

// The largest of a row of outputs; the lowest index among equals (-0 equals +0). If a value is not
// finite, the first such output and its value instead.
struct BestOutput {
  int32_t output = -1;
  bool finite = true;
  float value = 0;
};

// The last layer. All M rows are multiplied; the first num_written are written, of the others only
// the best output is kept. Values as Epilogue says, without residual.
struct HeadArgs {
  int64_t num_rows = 0;
  int64_t num_written = 0;
  float scale = 1.0f;
  float softcap = 0.0f;
  DevicePtr<float> logits = {};      // [num_written, N]
  BestOutput* best = nullptr;        // [M - num_written], host memory
  DevicePtr<const float> bias = {};  // [N], or null
  // [M] the step's row that each of these is, in host memory: whose adapter it takes. Empty: none.
  std::span<const int32_t> rows = {};
};

// out[m] = gain * ((residual[m] +) scale * (norm(x[m]) * weight + bias)); root: sqrt(mean(..) +
// eps)
struct NormArgs {
  NormKind kind = NormKind::kRms;
  DevicePtr<const float> x = {};         // [M, width]
  DevicePtr<const float> weight = {};    // [width]
  DevicePtr<const float> residual = {};  // [M, width] or null; may be out
  DevicePtr<const float> gain = {};      // [1], or null: 1
  DevicePtr<float> out = {};             // [M, width]; may be x
  int64_t num_rows = 0;
  int64_t width = 0;
  float eps = 1e-6f;
  float scale = 1.0f;
  DevicePtr<const float> bias = {};  // [width] or null
};

enum class QkNorm : uint8_t { kNone, kPerHead, kWhole, kLayerPerHead };  // kWhole: all heads as one
enum class RopePairing : uint8_t { kHalf, kInterleaved };  // (i, i + r/2) or (2i, 2i + 1)

// What a backend made of the spans of a step, once for the ops of all layers (begin_step).
class StepGeometry {
 public:
  virtual ~StepGeometry() = default;
};

// Takes the fused projection apart: norms q and k (and v), rotates q and k, scales q, appends k and
// v to the KV blocks of each span.
struct QkvArgs {
  // [M, (num_heads + kv_parts * num_kv_heads) * head_dim + num_others]: q, k, v
  DevicePtr<const float> qkv;
  DevicePtr<float> q_out;  // [M, num_heads * head_dim]
  int64_t num_rows = 0;
  int num_heads = 0;
  // 2: k and v follow q. 1: k does; v is what k is before its norm and rope. 0: neither does, and
  // nothing is appended: the blocks are another layer's.
  int kv_parts = 2;
  int64_t num_others = 0;              // outputs of the projection behind these, not looked at here
  KvLayer kv;                          // num_kv_heads and head_dim are in its shape
  const StepGeometry* step = nullptr;  // of the same rows

  QkNorm qk_norm = QkNorm::kNone;
  DevicePtr<const float> q_norm_weight;  // [head_dim], or [num_heads * head_dim] but for kPerHead
  DevicePtr<const float> k_norm_weight;  // [head_dim], or [num_kv_heads * head_dim]
  bool value_norm = false;               // v too, per head, without a weight
  float norm_eps = 1e-6f;
  bool norm_after_rope = false;  // kPerHead only
  float clip = 0.0f;             // q, k and v are within it, after the norm and before rope; 0: off
  RopePairing pairing = RopePairing::kHalf;
  int rope_dims = 0;                   // first r of head_dim are rotated; 0: no rope
  DevicePtr<const float> rope_cos;     // [M, rope_dims / 2]
  DevicePtr<const float> rope_sin;     // [M, rope_dims / 2]
  DevicePtr<const float> q_row_scale;  // [M] multiplies q after rope, or null
};

// Causal attention of each span's rows over its own KV blocks, in fixed blocks from position 0.
// score = scale * q.k; if softcap > 0: softcap * tanh(score / softcap); key j is visible to query i
// when i - window < j <= i (window 0: no limit); slopes add slope[head] * (j - i) to
// it; a sink is one logit per head in the denominator.
struct AttentionArgs {
  DevicePtr<const float> q;  // [M, num_heads * head_dim]
  DevicePtr<float> out;      // [M, num_heads * head_dim]
  int num_heads = 0;
  KvLayer kv;
  const StepGeometry* step = nullptr;
  float scale = 1.0f;
  float softcap = 0.0f;
  int64_t window = 0;
  DevicePtr<const float> sinks;   // [num_heads] or null
  DevicePtr<const float> slopes;  // [num_heads] or null
  // Multiplies the result by sigmoid(gate), or null: num_heads * head_dim of every gate_stride.
  DevicePtr<const float> gate;
  int64_t gate_stride = 0;
};

// What one token leaves in a plane, and the rotation of the queries that go with it. Of each row
// the first `width` numbers of `keys` are a vector: its first norm_width numbers are normed,
// rope_dims numbers from key_rope on rotated, all stored. Of each query head rope_dims numbers from
// q_rope on are rotated and written to q_out.
struct AppendRowArgs {
  DevicePtr<const float> keys;  // [M, width]
  KvPlaneView plane;            // of one head
  bool by_position = false;     // for ops that read all numbers of a position at once (a latent)
  int64_t num_rows = 0;
  const StepGeometry* step = nullptr;  // of the same rows

  NormKind norm = NormKind::kRms;
  int norm_width = 0;                  // 0: no norm
  DevicePtr<const float> norm_weight;  // [norm_width]
  DevicePtr<const float> norm_bias;    // [norm_width] or null
  float norm_eps = 1e-6f;

  RopePairing pairing = RopePairing::kHalf;
  int rope_dims = 0;                // 0: numbers are copied as they are
  DevicePtr<const float> rope_cos;  // [M, rope_dims / 2]
  DevicePtr<const float> rope_sin;
  int key_rope = 0;

  DevicePtr<const float> q;  // [M, num_heads, q_width]
  DevicePtr<float> q_out;    // [M, num_heads, q_out_width]; may be q
  int num_heads = 0;
  int q_width = 0, q_rope = 0;
  int q_out_width = 0, q_out_rope = 0;
  int q_dims = 0;  // numbers of a head that are written, rotated or not
};

// out[m, h] = W_h x[m, h]: the weight has an expert axis of num_heads.
struct HeadLinearArgs {
  const PackedWeight* weight = nullptr;  // per head [N, K]
  DevicePtr<const float> x;              // [M, num_heads, x_width], of which the first K are read
  int64_t x_width = 0;
  DevicePtr<float> out;  // [M, num_heads, out_width], of which the first N are written
  int64_t out_width = 0;
  int64_t num_rows = 0;
  int num_heads = 0;
};

inline constexpr int kMaxIndexHeads = 512;

// The cached positions that each row keeps: those with the largest scores, the lowest position
// among equals; all where there are no more than max_kept.
//   score(m, j) = sum over heads of weights[m, h] * max(0, scale * (q[m, h] . key[j]))
struct SelectKeysArgs {
  DevicePtr<const float> q;        // [M, num_heads, width]
  DevicePtr<const float> weights;  // [M, num_heads]
  int num_heads = 0;
  KvPlaneView plane;  // of one head
  float scale = 1.0f;
  int64_t max_kept = 0;
  int64_t num_rows = 0;
  const StepGeometry* step = nullptr;
  // [M, kept_words(max_kept)]: their number and then they in ascending order, or -1 for all.
  DevicePtr<int32_t> kept;
};
// Words of a row of `kept`: the rest is room.
inline constexpr int64_t kept_words(int64_t max_kept) { return 1 + 4 * max_kept; }

// Causal attention of all query heads over one plane whose vectors are keys, and whose first
// value_dim numbers are values. Positions are visible as in attention(), or those that are kept.
struct LatentAttentionArgs {
  DevicePtr<const float> q;  // [M, num_heads, width]
  DevicePtr<float> out;      // [M, num_heads, value_dim]
  int num_heads = 0;
  int value_dim = 0;
  KvPlaneView plane;  // of one head; its rows were appended by position
  int64_t num_rows = 0;
  const StepGeometry* step = nullptr;
  float scale = 1.0f;
  DevicePtr<const int32_t> kept;  // of select_keys(), or null: all
  int64_t max_kept = 0;
};

inline constexpr int64_t kMaxExperts = 4096;  // of one weight
// Floats of a slot's inputs in the room of an op.
inline constexpr int64_t padded_expert_inputs(int64_t width) { return (width + 255) / 256 * 256; }

enum class RouterScore : uint8_t {
  kSoftmax,        // s = softmax(l) over all experts
  kSigmoid,        // s = sigmoid(l)
  kSoftmaxChosen,  // s = l; the weights are a softmax over the chosen
  // s = l; the weight of each chosen one is its share of a softmax over those not chosen before it
  // that are near it: (s - l) / max(|l|, s) is at most 2 * jitter.
  kSparseMixer,
};
enum class GroupScore : uint8_t {
  kSumOfTwo,  // of the two largest s + bias; experts of other groups are left out
  kMaximum,   // the largest s; experts of other groups have score 0 and may still be chosen
};

// How a router chooses by its logits l. The num_chosen largest of s + selection bias are chosen,
// the lowest expert among equals, within the groups that are kept: experts in num_groups runs of
// equal length, of which the num_groups_kept of the largest group scores stay. The weights of the
// chosen come from s alone: divided by (their sum + epsilon) if `normalise`, then times `scale`.
struct Router {
  RouterScore score = RouterScore::kSoftmax;
  int num_groups = 1;
  int num_groups_kept = 1;
  GroupScore group_score = GroupScore::kSumOfTwo;
  bool normalise = false;  // not with kSoftmaxChosen, whose weights have sum 1
  float normalise_epsilon = 0.0f;
  float scale = 1.0f;
  float jitter = 0.0f;  // of kSparseMixer
};

struct RouteArgs {
  DevicePtr<const float> logits = {};  // [M, num_experts]
  Router router = {};
  DevicePtr<const float> selection_bias = {};  // [num_experts] or null
  DevicePtr<const float> expert_scale = {};    // [num_experts] or null: multiplies weights at last
};

// Which experts the rows of a batch go to, num_chosen each; written by experts(), for it alone to
// read and for tests. One row has no slots. An expert's rows, in ascending order, have slots
// [first_slot[e], first_slot[e + 1]); all num_rows * num_chosen slots are taken.
struct Routing {
  int64_t num_rows = 0;
  int64_t num_experts = 0;
  int64_t num_chosen = 0;
  DevicePtr<int32_t> experts;     // [M, num_chosen], the one with the largest weight first
  DevicePtr<float> weights;       // [M, num_chosen]
  DevicePtr<int32_t> slots;       // [M, num_chosen]
  DevicePtr<int32_t> rows;        // [M * num_chosen] of the slots
  DevicePtr<int32_t> first_slot;  // [num_experts + 1]
};

// The form of gpt-oss: g' = min(g, limit), u' = clamp(u, -limit, limit),
// (u' + 1) * g' * sigmoid(alpha g'). Biases come before. In use when limit > 0.
struct ClampedSwiglu {
  float alpha = 0.0f;
  float limit = 0.0f;
};

// y[m] = sum over j of weights[m, j] * (W_down(act(W_gate n) * W_up n) + b_down), n = norm(x[m]),
// with the weights of expert experts[m, j]; summed in the order of j, whatever else is in the
// batch; then + shared[m], times sigmoid(shared_gate . n) if there is such a gate. Then the
// epilogue (no bias, no softcap).
struct ExpertsArgs {
  const PackedWeight* gate_up = nullptr;  // both with num_experts experts
  const PackedWeight* down = nullptr;
  Input input;  // [M, K]
  RouteArgs route;
  Routing routing;  // its arrays are room
  Activation activation = Activation::kSilu;
  ClampedSwiglu clamp = {};                  // instead of the activation
  DevicePtr<const float> gate_up_bias = {};  // [num_experts, 2 I], gate then up, or null
  DevicePtr<const float> down_bias = {};     // [num_experts, N] or null
  DevicePtr<const float> shared = {};        // [M, N] of experts that all rows go to, or null
  DevicePtr<const float> shared_gate = {};   // [K] or null
  // [num_experts] or null: the rows that each expert has had; this batch's are added.
  DevicePtr<uint64_t> counts = {};
  // Room, 64-byte aligned, P = padded_expert_inputs: by slot [slots, P(max(K, I))], [slots, I] and
  // [slots, P(max(K, N))]; y [M, N]; factors of the shared experts [M].
  DevicePtr<float> slot_inputs;
  DevicePtr<float> slot_activations;
  DevicePtr<float> slot_outputs;
  DevicePtr<float> mixed;
  DevicePtr<float> shared_factors;
  Epilogue epilogue = {};
  DevicePtr<float> out;  // [M, N]; may be the residual
};

// out[i] = x[rows[i]]
struct GatherArgs {
  DevicePtr<const float> x;  // [num_rows, width]; apart from out
  int64_t num_rows = 0;
  int64_t width = 0;
  std::span<const int32_t> rows;  // each in [0, num_rows)
  DevicePtr<float> out;           // [rows, width]
};

// cos[i][k] = factor * cos(positions[i] * frequencies[k]), and so sin; the angle in float32.
struct RopeArgs {
  std::span<const float> frequencies;
  float factor = 1.0f;
  std::span<const int64_t> positions;
  DevicePtr<float> cos;  // [positions, frequencies]
  DevicePtr<float> sin;
};

// Host work on one of several items: work(item, member), item in [0, num_items), member in
// [0, num_threads()). Refers to the function that it is made of: use in one expression.
class ItemWork {
 public:
  template <typename F>
    requires(!std::same_as<F, ItemWork>)
  ItemWork(const F& work)
      : run_([](const void* context, int64_t item, int member) {
          (*static_cast<const F*>(context))(item, member);
        }),
        context_(&work) {}

  void operator()(int64_t item, int member) const { run_(context_, item, member); }

 private:
  void (*run_)(const void* context, int64_t item, int member);
  const void* context_;
};

struct KernelInfo {  // one row of --list-kernels
  std::string op, name, isa, weight_dtype, layout, numerics_class;
  bool available = false;  // this processor has what it needs
  bool selected = false;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // ---- Memory and movement ----------------------------------------------------------------------
  // kExhausted, with the use and the size, when there is not so much.
  virtual Result<DeviceMemory> allocate(size_t num_bytes, MemoryUse use) = 0;
  // Has the system give memory for what was allocated and is used soon, where it else would at the
  // first use. From any thread, beside any other call; contents stay.
  virtual void touch(DevicePtr<std::byte> /*memory*/, size_t /*num_bytes*/) {}
  // `from` may change when this returns.
  virtual void upload(std::span<const std::byte> from, DevicePtr<std::byte> to) = 0;
  // Waits for all ops before it; `to` is filled when it returns.
  virtual void download(DevicePtr<const std::byte> from, std::span<std::byte> to) = 0;
  // The bytes for the host to look at, from any thread, until the next call of this backend but
  // another view and run_on_team(). Waits for all ops before it. Without a copy where host and
  // device share memory.
  virtual std::span<const std::byte> read_view(DevicePtr<const std::byte> from,
                                               size_t num_bytes) = 0;
  // The same for the host to fill; all of it is written. On the device from the next call on.
  virtual std::span<std::byte> write_view(DevicePtr<std::byte> to, size_t num_bytes) = 0;
  // The two do not overlap.
  virtual void copy(DevicePtr<const std::byte> from, DevicePtr<std::byte> to, size_t num_bytes) = 0;
  virtual void zero(DevicePtr<std::byte> to, size_t num_bytes) = 0;
  // Returns when all that was called before is done: results in host memory are there.
  virtual void synchronize() = 0;

  virtual void gather_rows(const GatherArgs& args) = 0;
  // The rotary tables of a step.
  virtual void rope_rows(const RopeArgs& args) = 0;
  // finite[m]: whether all of x[m], [M, width], is. `finite` is in host memory.
  virtual void find_finite_rows(DevicePtr<const float> x, int64_t num_rows, int64_t width,
                                bool* finite) = 0;

  // Runs host work on the threads that ops are shared among (sampling, scores); returns when every
  // item has run. Two items never run as the same member at the same time. Does not wait for ops.
  virtual void run_on_team(int64_t num_items, ItemWork work) = 0;
  // Back ends may share threads and compute in turns: ops and run_on_team() are called between
  // these two. A step's turn is its runner's, packing takes its own.
  virtual void begin_turn() {}
  virtual void end_turn() {}
  // For a thread that calls ops from now on, and those it starts: binds it to cores where none of
  // the back end's own threads is bound. Never needed for what ops compute.
  virtual void keep_apart() {}
  virtual bool has_spare_core() const { return true; }  // where none of its threads is bound
  // Calls it once, on this thread, when the next op has begun and others compute meanwhile, a
  // device or the back end's threads, else now. An empty one takes back one not called.
  virtual void call_beside(std::function<void()> call) {
    if (call) call();
  }
  // The same when the next op is about to end, if others then still compute of it; else not.
  virtual void call_near_end(std::function<void()> /*call*/) {}

  // The same for values of a type.
  template <typename T>
  void upload(std::type_identity_t<std::span<const T>> from, DevicePtr<T> to) {
    upload(std::as_bytes(from), to.bytes());
  }
  template <typename T>
  void download(std::type_identity_t<DevicePtr<const T>> from, std::span<T> to) {
    download(from.bytes(), std::as_writable_bytes(to));
  }
  template <typename T>
  std::span<const T> read_view(DevicePtr<T> from, size_t count) {
    const DevicePtr<const T> values = from;
    return {reinterpret_cast<const T*>(read_view(values.bytes(), count * sizeof(T)).data()), count};
  }
  template <typename T>
  std::span<T> write_view(DevicePtr<T> to, size_t count) {
    return {reinterpret_cast<T*>(write_view(to.bytes(), count * sizeof(T)).data()), count};
  }

  // ---- Weights ----------------------------------------------------------------------------------
  // Lays parts (stacked by rows, equal K) out for this machine. The result does not refer to the
  // checkpoint. kExhausted when memory is short; kUnsupported for K or N beyond the layout's
  // limits.
  virtual Result<std::unique_ptr<PackedWeight>> pack(std::span<const WeightView> parts,
                                                     PackForm form) = 0;
  // The same into memory of packed_bytes(parts, form) zeros, 64-byte aligned, which outlives the
  // weight.
  virtual Result<std::unique_ptr<PackedWeight>> pack_into(std::span<const WeightView> parts,
                                                          PackForm form,
                                                          DevicePtr<std::byte> memory) = 0;
  // A weight over bytes that pack_into() wrote, here or in a process with the same packing_id, for
  // parts of the same shapes and formats. Reads no data of the parts; no copy.
  virtual Result<std::unique_ptr<PackedWeight>> adopt(std::span<const WeightView> parts,
                                                      PackForm form,
                                                      DevicePtr<const std::byte> bytes) = 0;
  // Names the packed layouts: equal ids, equal bytes of equal parts.
  virtual std::string packing_id() const = 0;
  // Room for batches of up to max_rows rows (64 without it). Called at load, before or after
  // pack().
  virtual Status reserve(int64_t max_rows) = 0;
  // Bytes that pack() would hold, for memory plans; reads no weight values.
  virtual size_t packed_bytes(std::span<const WeightView> parts, PackForm form) const = 0;
  // Deltas of one adapter, no two of the same outputs; they are read during the call. From any
  // thread, while ops run. kExhausted when memory is short.
  virtual Result<std::unique_ptr<PackedAdapter>> pack_adapter(
      std::span<const WeightDelta> deltas) = 0;
  // Of one block: kBlockTokens tokens of a plane, of any width.
  virtual size_t kv_plane_bytes(const KvPlane& plane) const = 0;
  size_t kv_layer_bytes(const KvShape& shape) const {
    return 2 * kv_plane_bytes({"", shape.type, shape.num_kv_heads, shape.head_dim});
  }

  // ---- Ops --------------------------------------------------------------------------------------
  // Makes what the ops of a step need of its spans, which cover rows 0.. in order. The spans are
  // read during the call, their tables until the step is done (synchronize). The result belongs to
  // the backend and is good until the next begin_step(). Rows of a span with an adapter take its
  // weights in embed and in all linear ops of the step (those of head_linear excepted), whose rows
  // are then the step's: row m of an op is row m of the step, but for head (HeadArgs::rows).
  virtual const StepGeometry* begin_step(std::span<const Span> spans) = 0;

  // out[m] = addend[m] + scale * row ids[m] of the table; ids are in range. addend may be out.
  virtual void embed(const PackedWeight& table, std::span<const int32_t> ids, float scale,
                     DevicePtr<const float> addend, DevicePtr<float> out) = 0;
  virtual void norm(const NormArgs& args) = 0;
  // x [M, K] -> out [M, N].
  virtual void linear(const PackedWeight& weight, const Input& input, int64_t num_rows,
                      const Epilogue& epilogue, DevicePtr<float> out) = 0;
  // x [M, K] -> out [M, I] = activation(x Wg^T + bg) * (x Wu^T + bu); bias [2 I] or null.
  virtual void gated_linear(const PackedWeight& gate_up, const Input& input, int64_t num_rows,
                            Activation activation, DevicePtr<const float> bias,
                            DevicePtr<float> out) = 0;
  // x [M, K] -> out [M, N].
  virtual void activated_linear(const PackedWeight& weight, const Input& input, int64_t num_rows,
                                const ActivatedArgs& args, DevicePtr<float> out) = 0;
  // Routes every row and sums what its experts make of it.
  virtual void experts(const ExpertsArgs& args) = 0;
  // linear() into `projection` [M, N], then finish_qkv() of it (args.qkv is not read).
  virtual void qkv_linear(const PackedWeight& weight, const Input& input,
                          DevicePtr<const float> bias, DevicePtr<float> projection,
                          const QkvArgs& args) = 0;
  virtual void finish_qkv(const QkvArgs& args) = 0;
  virtual void attention(const AttentionArgs& args) = 0;
  virtual void causal_conv(const CausalConvArgs& args) = 0;
  virtual void scan(const ScanArgs& args) = 0;
  virtual void delta(const DeltaArgs& args) = 0;
  virtual void append_row(const AppendRowArgs& args) = 0;
  virtual void head_linear(const HeadLinearArgs& args) = 0;
  virtual void select_keys(const SelectKeysArgs& args) = 0;
  virtual void latent_attention(const LatentAttentionArgs& args) = 0;
  virtual void mix_streams(const StreamArgs& args) = 0;
  virtual void sparse_gate(const SparseGateArgs& args) = 0;
  virtual void head(const PackedWeight& weight, const Input& input, const HeadArgs& args) = 0;

  // ---- Watching ---------------------------------------------------------------------------------
  // From now on every op is waited for and appends its record, gather_rows() and the like among
  // them; null: no more. False: this back end does not tell. No result changes by a bit.
  virtual bool watch_ops(std::vector<OpRecord>* /*records*/) { return false; }
  // What follows is of this layer, or of the network (kNoOpLayer): for records.
  virtual void enter_layer(int /*layer*/) {}

  // ---- Facts ------------------------------------------------------------------------------------
  virtual int num_threads() const = 0;
  // Times that the threads were brought together since start: one per op that had work. From any
  // thread.
  virtual int64_t num_joins() const = 0;
  virtual std::string_view isa() const = 0;  // "reference", "avx2", "avx512"
  // Everything here that decides a result bit, as lines of text: of each op in use the form of its
  // operands and its numerics class with the class's version (of attention, that for keys and
  // values of the type), and how attention is split. Equal texts promise equal bits for equal
  // requests (engine/numerics.h makes an id of it).
  virtual std::string numerics(KvType kv_type) const = 0;
  // The type of keys and values that serves best here and is near exact: what users get who do not
  // choose (docs/adr/0100-attention-by-whole-numbers.md).
  virtual KvType default_kv_type() const { return KvType::kF16; }
  virtual std::vector<KernelInfo> kernels() const = 0;
};

}  // namespace headrace
