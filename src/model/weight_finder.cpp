// find_weights(): every tensor of the network by role, whatever the file format calls it.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/log.h"
#include "checkpoint/quantisation.h"
#include "checkpoint/weight_rows.h"
#include "model/config/families.h"
#include "model/config/read_prediction.h"
#include "model/row_orders.h"
#include "model/weight_transpose.h"
#include "model/weights.h"

namespace headrace {
namespace {

// Row order that undoes a converter's interleaving of each head: row j of the network's first half
// is stored at 2j, of its second half at 2j + 1.
void append_unpermuted(int num_heads, int head_dim, std::vector<int32_t>* order) {
  const auto first = static_cast<int32_t>(order->size());
  const int half = head_dim / 2;
  for (int head = 0; head < num_heads; ++head) {
    for (int row = 0; row < head_dim; ++row) {
      const int stored = row < half ? 2 * row : 2 * (row - half) + 1;
      order->push_back(first + head * head_dim + stored);
    }
  }
}

void append_identity(int64_t count, std::vector<int32_t>* order) {
  const auto first = static_cast<int32_t>(order->size());
  for (int32_t i = 0; i < count; ++i) order->push_back(first + i);
}

Status check_qkv_order(QkvOrder kind, const LayerConfig& layer) {
  if (kind != QkvOrder::kFourBlocks) return {};
  if (layer.num_attention_heads % 4 == 0 && layer.num_key_value_heads % 4 == 0) return {};
  return make_error(ErrorCode::kUnsupported,
                    "the rows of q, k and v lie in four blocks, but {} heads do not make four",
                    layer.num_attention_heads);
}

void reorder_rows(const std::vector<int32_t>& order, WeightView* weight) {
  if (order.empty()) return;
  std::vector<int32_t> composed;
  for (int32_t row : order) composed.push_back(static_cast<int32_t>(weight->stored_row(row)));
  weight->row_order = std::move(composed);
  weight->num_outputs = std::ssize(weight->row_order);
}

// Where a weight's tensors are looked for.
struct Base {
  std::string name;          // without ".weight"
  bool is_there = false;     // some tensor of that name
  bool is_numbered = false;  // of one expert: the name holds its number
};

class WeightFinder {
 public:
  WeightFinder(const Checkpoint& checkpoint, const ModelConfig& config,
               const Quantisation& quantisation)
      : checkpoint_(checkpoint), config_(config), quantisation_(quantisation) {
    for (const std::string& name : checkpoint.names()) bases_.insert(base_of(name));
  }

  Result<FoundWeights> find();

 private:
  // One role while its tensors are looked for.
  struct Search {
    const RoleRow& row;
    const LayerConfig& layer;
    std::string prefix;
    FoundRole* found;
  };

  static std::string base_of(std::string_view name) {
    return std::string(name.substr(0, name.rfind('.')));
  }
  bool has(const std::string& base) const;
  int64_t extent(const Search& search, Extent of) const { return of(config_, search.layer); }
  Status find_prefix();
  std::string prefix_of(const RoleSlot& slot) const;
  Base base_in(const Search& search, const RoleNames& names, int64_t expert) const;
  Base base_of_part(const Search& search, const PartRow& part, int64_t expert) const {
    return base_in(search, role_names(config_, search.row, part), expert);
  }

  Status find_role(const Search& search);
  Status find_vector(const Search& search);
  Status find_taps(const Search& search);
  bool is_left_out(const Search& search) const;
  Status find_parts(const Search& search, int64_t expert);
  Status find_fused(const Search& search, const Base& base, int64_t expert);
  Status find_shared(const Search& search, const Base& base, int64_t expert);
  Status check_biases(const Search& search) const;
  Status check_stack(const Search& search, const Base& base) const;
  bool is_transposed(const Search& search) const;
  Result<WeightView> weight(const Search& search, const Base& base, int64_t outputs, int64_t expert,
                            int64_t stored = 0);
  Status find_part(const Search& search, const PartRow& part, int64_t expert);
  Status append_bias(const Search& search, const Base& base, int64_t size,
                     const std::vector<int32_t>& order, int64_t expert);
  Result<FoundVector> vector(const std::string& base, std::string_view suffix, int64_t size,
                             const std::vector<int32_t>& order = {});
  void append_order(const Search& search, const PartRow& part, std::vector<int32_t>* order) const;
  void pass_over_shared_keys();
  std::set<std::string> unused_bases() const;
  bool is_of_prediction(const std::string& base) const;
  void warn_about_unused() const;

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const Quantisation& quantisation_;
  NamePrefix prefix_;
  std::set<std::string, std::less<>> bases_;  // of all tensors in the file
  std::set<std::string, std::less<>> used_;
};

// Stacks of experts may do without ".weight".
constexpr std::string_view kStackSuffixes[] = {"", "_blocks", "_scales"};
constexpr std::string_view kUsedSuffixes[] = {"", "_blocks", "_scales", "_bias"};

bool WeightFinder::has(const std::string& base) const {
  if (bases_.contains(base)) return true;
  return std::any_of(std::begin(kStackSuffixes), std::end(kStackSuffixes), [&](auto suffix) {
    return checkpoint_.find(base + std::string(suffix)) != nullptr;
  });
}

Status WeightFinder::find_prefix() {
  const RoleRow& row = role_row(Role::kEmbedding);
  const RoleNames all = role_names(config_, row, row.parts[0]);
  const std::span<const std::string_view> names = all.in(checkpoint_.kind());
  for (const NamePrefix& prefix :
       name_prefixes(checkpoint_.kind(), &family_named(config_.family))) {
    const auto is_there = [&](std::string_view name) {
      return has(std::string(prefix.body) + std::string(name));
    };
    if (std::none_of(names.begin(), names.end(), is_there)) continue;
    prefix_ = prefix;
    return {};
  }
  return make_error(ErrorCode::kNotFound, "{} has no tensor {}.weight under any known prefix",
                    checkpoint_.path(), names.front());
}

std::string WeightFinder::prefix_of(const RoleSlot& slot) const {
  switch (slot.row->place) {
    case RolePlace::kBody:
      return std::string(prefix_.body);
    case RolePlace::kHead:
      return std::string(prefix_.head);
    case RolePlace::kLayer:
    case RolePlace::kPrediction:
      break;
  }
  if (slot.layer >= config_.num_layers()) {
    return prediction_prefix(checkpoint_.kind(), config_, prefix_.body,
                             slot.row->place == RolePlace::kLayer);
  }
  return fmt::format("{}{}{}.", prefix_.body,
                     layer_prefix(checkpoint_.kind(), &family_named(config_.family)), slot.layer);
}

// The first of the names that the file has; if it has none, the first, for the message.
Base WeightFinder::base_in(const Search& search, const RoleNames& names, int64_t expert) const {
  Base first;
  for (const std::string_view name : names.in(checkpoint_.kind())) {
    Base base{search.prefix + std::string(name)};
    if (const size_t at = base.name.find("{}"); at != std::string::npos) {
      base.name.replace(at, 2, std::to_string(expert));
      base.is_numbered = true;
    }
    base.is_there = has(base.name);
    if (base.is_there) return base;
    if (first.name.empty()) first = std::move(base);
  }
  return first;
}

// A stack of more experts than the configuration says belongs to another network.
Status WeightFinder::check_stack(const Search& search, const Base& base) const {
  const int64_t num_experts = extent(search, search.row.experts);
  for (const std::string_view suffix : {".weight", "", "_blocks"}) {
    const TensorView* stack = checkpoint_.find(base.name + std::string(suffix));
    if (stack == nullptr || stack->rank < 3 || stack->dim(0) == num_experts) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "weight {} is {}, but the configuration has {} experts", base.name,
                      stack->shape_string(), num_experts);
  }
  return {};
}

bool WeightFinder::is_transposed(const Search& search) const {
  if (config_.transposed == Transposed::kExperts) return search.row.experts != nullptr;
  return config_.transposed == Transposed::kLayers && search.row.place == RolePlace::kLayer;
}

// With `stored`, a tensor of so many rows will do as well.
Result<WeightView> WeightFinder::weight(const Search& search, const Base& base, int64_t outputs,
                                        int64_t expert, int64_t stored) {
  const bool stacked = search.row.experts != nullptr && !base.is_numbered;
  if (stacked) TRY(check_stack(search, base));
  WeightView weight = stacked
                          ? TRY(find_expert_weight(checkpoint_, quantisation_, base.name, expert))
                          : TRY(find_weight(checkpoint_, quantisation_, base.name));
  if (is_transposed(search)) weight = TRY(as_transposed(weight));
  if (search.row.scale_apart) weight.global_scale = {};
  const int64_t inputs = extent(search, search.row.inputs);
  const bool fits = weight.num_outputs == outputs || (stored != 0 && weight.num_outputs == stored);
  if (!fits || weight.num_inputs != inputs) {
    return make_error(ErrorCode::kInvalidArgument,
                      "weight {}{} is [{}, {}], but [{}, {}] is needed", base.name,
                      stacked ? fmt::format(" of expert {}", expert) : "", weight.num_outputs,
                      weight.num_inputs, outputs, inputs);
  }
  used_.insert(base.name);
  return weight;
}

Result<FoundVector> WeightFinder::vector(const std::string& base, std::string_view suffix,
                                         int64_t size, const std::vector<int32_t>& order) {
  const std::string name = base + std::string(suffix);
  const TensorView* tensor = checkpoint_.find(name);
  if (tensor == nullptr && suffix == ".weight") tensor = checkpoint_.find(base);
  if (tensor == nullptr) {
    return make_error(ErrorCode::kNotFound, "{} has no tensor {}, which is needed",
                      checkpoint_.path(), name);
  }
  const DTypeRow& dtype = dtype_row(tensor->dtype);
  if (tensor->num_elements() != size || dtype.dequantise == nullptr ||
      size % dtype.block_elements != 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "tensor {} is {} {}, but {} floating-point numbers are needed", name,
                      dtype.name, tensor->shape_string(), size);
  }
  used_.insert(base);
  FoundVector found;
  found.pieces.push_back({*tensor, order});
  return found;
}

// Of a stack of experts: [experts, outputs], under one of two names.
Status WeightFinder::append_bias(const Search& search, const Base& base, int64_t size,
                                 const std::vector<int32_t>& order, int64_t expert) {
  const Presence presence =
      search.row.bias == nullptr ? Presence::kAbsent : config_.*search.row.bias;
  const bool stacked = search.row.experts != nullptr && !base.is_numbered;
  const bool is_joined = stacked && checkpoint_.find(base.name + "_bias") != nullptr;
  const std::string_view suffix = is_joined ? "_bias" : ".bias";
  const bool is_there = checkpoint_.find(base.name + std::string(suffix)) != nullptr;
  if (presence == Presence::kAbsent || (presence == Presence::kIfPresent && !is_there)) return {};
  const int64_t count = stacked ? extent(search, search.row.experts) : 1;
  FoundVector bias = TRY(vector(base.name, suffix, count * size, order));
  FoundVector::Piece& piece = bias.pieces.front();
  if (stacked) {
    if (piece.tensor.rank != 2 || piece.tensor.dim(0) != count) {
      return make_error(ErrorCode::kInvalidArgument, "tensor {}{} is {}, but [{}, {}] is needed",
                        base.name, suffix, piece.tensor.shape_string(), count, size);
    }
    piece.tensor = piece.tensor.slice(expert);
  }
  search.found->vector.pieces.push_back(std::move(piece));
  return {};
}

Status WeightFinder::check_biases(const Search& search) const {
  const std::span<const PartRow> parts = search.row.used_parts();
  const size_t num_biases = search.found->vector.pieces.size();
  if (num_biases == 0 || num_biases == search.found->parts.size()) return {};
  std::string names;
  for (const PartRow& part : parts) {
    if (extent(search, part.outputs) == 0) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", base_of_part(search, part, 0).name);
  }
  return make_error(ErrorCode::kInvalidArgument, "{} of {} have a bias, but all or none must",
                    num_biases, names);
}

void WeightFinder::append_order(const Search& search, const PartRow& part,
                                std::vector<int32_t>* order) const {
  const int64_t outputs = extent(search, part.outputs);
  if (part.heads == nullptr) return append_identity(outputs, order);
  const auto heads = static_cast<int>(extent(search, part.heads));
  append_unpermuted(heads, search.layer.head_dim, order);
}

// One tensor that holds all parts. Parts that are packed apart are views of their rows.
Status WeightFinder::find_fused(const Search& search, const Base& base, int64_t expert) {
  const std::span<const PartRow> parts = search.row.used_parts();
  int64_t outputs = 0;
  bool has_heads = false;
  for (const PartRow& part : parts) {
    outputs += extent(search, part.outputs);
    has_heads = has_heads || part.heads != nullptr;
  }
  // Checked before the order is made, which is as long as the configuration says.
  WeightView whole = TRY(weight(search, base, outputs, expert));
  std::vector<int32_t> order;
  if (config_.permuted_qk && has_heads) {
    for (const PartRow& part : parts) append_order(search, part, &order);
  }
  if (config_.interleaved_experts && search.row.experts != nullptr) {
    append_alternating(outputs, &order);
  }
  if (search.row.role == Role::kQkv) {
    TRY(check_qkv_order(config_.qkv_order, search.layer));
    append_qkv_order(config_.qkv_order, search.layer, &order);
  }
  reorder_rows(order, &whole);
  TRY(append_bias(search, base, outputs, order, expert));
  std::vector<WeightView>& found = search.found->parts;
  if (search.row.pack != WeightRole::kGateUp) {
    found.push_back(std::move(whole));
    return {};
  }
  int64_t first = 0;
  for (const PartRow& part : parts) {
    const int64_t count = extent(search, part.outputs);
    found.push_back(slice_rows(whole, first, count));
    first += count;
  }
  return {};
}

// The expert's rows of a tensor of all.
Status WeightFinder::find_shared(const Search& search, const Base& base, int64_t expert) {
  const SharedRows& shared = search.row.shared;
  int64_t rows = extent(search, search.row.parts[0].outputs);
  int64_t columns = extent(search, search.row.inputs);
  if (shared.transposed) std::swap(rows, columns);
  const int64_t stride = extent(search, shared.stride);
  const int64_t all = extent(search, search.row.experts) * stride;
  const WeightView whole = TRY(find_weight(checkpoint_, quantisation_, base.name));
  if (whole.num_outputs != all || whole.num_inputs != columns) {
    return make_error(ErrorCode::kInvalidArgument, "weight {} is [{}, {}], but [{}, {}] is needed",
                      base.name, whole.num_outputs, whole.num_inputs, all, columns);
  }
  used_.insert(base.name);
  WeightView own = slice_rows(whole, expert * stride + extent(search, shared.first), rows);
  if (shared.transposed) {
    search.found->parts.push_back(transposed_view(own));
    search.found->transposed_from.push_back(std::move(own));
  } else {
    search.found->parts.push_back(std::move(own));
  }
  return {};
}

Status WeightFinder::find_parts(const Search& search, int64_t expert) {
  const std::span<const PartRow> parts = search.row.used_parts();
  if (search.row.shared.stride != nullptr) {
    const Base own = base_of_part(search, parts[0], expert);
    const Base shared = base_in(search, search.row.shared.names, expert);
    if (!own.is_there && (shared.is_there || own.name.empty())) {
      return find_shared(search, shared, expert);
    }
  }
  const Base fused = base_in(search, fused_names(config_, search.row), expert);
  if (fused.is_there && !base_of_part(search, parts[0], expert).is_there) {
    return find_fused(search, fused, expert);
  }
  for (const PartRow& part : parts) {
    if (extent(search, part.outputs) > 0) TRY(find_part(search, part, expert));
  }
  return check_biases(search);
}

Status WeightFinder::find_part(const Search& search, const PartRow& part, int64_t expert) {
  const Base base = base_of_part(search, part, expert);
  const int64_t outputs = extent(search, part.outputs);
  const int64_t stored = part.stored_outputs == nullptr ? 0 : extent(search, part.stored_outputs);
  WeightView view = TRY(weight(search, base, outputs, expert, stored));
  const int64_t found = view.num_outputs;
  std::vector<int32_t> order;
  if (found != outputs) {
    for (int64_t i = 0; i < outputs; ++i) {
      order.push_back(static_cast<int32_t>(part.stored_row(search.layer, i)));
    }
  } else if (config_.permuted_qk && part.heads != nullptr) {
    append_order(search, part, &order);
  }
  reorder_rows(order, &view);
  search.found->parts.push_back(std::move(view));
  return append_bias(search, base, found, order, expert);
}

Status WeightFinder::find_vector(const Search& search) {
  const PartRow& part = search.row.parts[0];
  const int64_t size = extent(search, part.outputs);
  FoundVector& found = search.found->vector;
  if (search.row.row_norm && !config_.norm_weight) {
    found.num_ones = size;
    return {};
  }
  const Base base = base_of_part(search, part, 0);
  if (search.row.optional && !base.is_there) return {};
  found = TRY(vector(base.name, ".weight", size));
  found.plus_one = search.row.form == RoleForm::kNorm && config_.norm_weight_plus_one;
  found.minus_exp =
      search.row.form == RoleForm::kDecay && checkpoint_.kind() != CheckpointKind::kGguf;
  if (search.row.row_norm && config_.norm_bias) {
    FoundVector bias = TRY(vector(base.name, ".bias", size));
    found.pieces.push_back(std::move(bias.pieces.front()));
  }
  return {};
}

// Whether a vector of its own that is a bias need not be looked for.
bool WeightFinder::is_left_out(const Search& search) const {
  if (search.row.bias == nullptr) return false;
  const Presence presence = config_.*search.row.bias;
  if (presence != Presence::kIfPresent) return presence == Presence::kAbsent;
  return !base_in(search, search.row.parts[0].names, 0).is_there;
}

// The channels of all parts side by side, tap by tap.
Status WeightFinder::find_taps(const Search& search) {
  const int64_t num_taps = extent(search, search.row.inputs);
  std::vector<TensorView> tensors;
  for (const PartRow& part : search.row.used_parts()) {
    const int64_t size = extent(search, part.outputs) * num_taps;
    const Base base = base_in(search, part.names, 0);
    const FoundVector found = TRY(vector(base.name, ".weight", size));
    tensors.push_back(found.pieces.front().tensor);
  }
  for (int64_t tap = 0; tap < num_taps; ++tap) {
    for (const TensorView& tensor : tensors) {
      FoundVector::Piece& piece = search.found->vector.pieces.emplace_back(tensor);
      for (int64_t at = tap; at < tensor.num_elements(); at += num_taps) {
        piece.order.push_back(static_cast<int32_t>(at));
      }
    }
  }
  return {};
}

Status WeightFinder::find_role(const Search& search) {
  if (search.row.form == RoleForm::kTaps) return find_taps(search);
  if (search.row.form != RoleForm::kWeight) {
    if (is_left_out(search)) return {};
    return find_vector(search);
  }
  const int64_t num_experts =
      search.row.experts == nullptr ? 1 : extent(search, search.row.experts);
  search.found->pack.num_experts = num_experts;
  for (int64_t expert = 0; expert < num_experts; ++expert) TRY(find_parts(search, expert));
  return {};
}

// Files may hold keys and values of layers that read those of others: nothing reads them.
void WeightFinder::pass_over_shared_keys() {
  for (int i = 0; i < config_.num_layers(); ++i) {
    if (config_.layers[static_cast<size_t>(i)].kv_source_layer < 0) continue;
    const std::string prefix =
        fmt::format("{}{}{}.", prefix_.body, layer_prefix(checkpoint_.kind()), i);
    const std::span<const PartRow> projections = role_row(Role::kQkv).used_parts();
    const PartRow& norm = role_row(Role::kKNorm).parts[0];
    for (const PartRow& part : {projections[1], projections[2], norm}) {
      used_.insert(prefix + std::string(part.names.in(checkpoint_.kind()).front()));
    }
  }
}

std::set<std::string> WeightFinder::unused_bases() const {
  std::set<std::string> unused;
  for (const std::string& name : checkpoint_.names()) {
    const std::string_view text(name);
    const bool is_used =
        used_.contains(base_of(name)) ||
        std::any_of(std::begin(kUsedSuffixes), std::end(kUsedSuffixes), [&](auto suffix) {
          return text.ends_with(suffix) &&
                 used_.contains(text.substr(0, text.size() - suffix.size()));
        });
    if (!is_used) unused.insert(base_of(name));
  }
  return unused;
}

// A layer behind the network's own that predicts further tokens: it has a projection of two inputs.
bool WeightFinder::is_of_prediction(const std::string& base) const {
  const std::string layers =
      std::string(prefix_.body) + std::string(layer_prefix(checkpoint_.kind()));
  const size_t end = base.find('.', layers.size());
  if (!base.starts_with(layers) || end == base.npos) return false;
  const std::string layer = base.substr(0, end + 1);
  return has(layer + "eh_proj") || has(layer + "nextn.eh_proj");
}

// A tensor that the network does not read may mean that it is another network.
void WeightFinder::warn_about_unused() const {
  static constexpr std::string_view kExpected[] = {
      "rotary_emb", "rope_f", "mtp.",  "visual", "vision", "multi_modal_projector",
      "lm_head",    "audio",  "nextn", "act_fn"};
  size_t num_unused = 0;
  std::string example;
  for (const std::string& base : unused_bases()) {
    const auto expected = [&](std::string_view part) { return base.find(part) != base.npos; };
    if (std::any_of(std::begin(kExpected), std::end(kExpected), expected)) continue;
    if (is_of_prediction(base)) continue;
    if (num_unused++ == 0) example = base;
  }
  if (num_unused == 0) return;
  LOG(kWarning, "{} tensors of {} are not part of a {} network and are not used, for instance {}",
      num_unused, checkpoint_.path(), config_.family, example);
}

Result<FoundWeights> WeightFinder::find() {
  static const LayerConfig kNone;
  TRY(find_prefix());
  FoundWeights found;
  for (const RoleSlot& slot : role_slots(config_)) {
    const bool is_prediction = slot.layer >= config_.num_layers();
    if (is_prediction && !found.lacks_prediction.empty()) continue;
    FoundRole role{slot.layer, slot.row->role, slot.row->pack, {}, {}, {}};
    const LayerConfig& layer = slot.layer == kNoLayer ? kNone : config_.weight_layer(slot.layer);
    const Status status = find_role({*slot.row, layer, prefix_of(slot), &role});
    if (!status.ok() && !is_prediction) return status.error();
    if (!status.ok()) found.lacks_prediction = status.error().message;
    found.roles.push_back(std::move(role));
  }
  if (!found.lacks_prediction.empty()) {
    std::erase_if(found.roles,
                  [this](const FoundRole& role) { return role.layer >= config_.num_layers(); });
  }
  pass_over_shared_keys();
  warn_about_unused();
  return found;
}

}  // namespace

Result<FoundWeights> find_weights(const Checkpoint& checkpoint, const ModelConfig& config) {
  const Quantisation quantisation = TRY(read_quantisation(checkpoint));
  return WeightFinder(checkpoint, config, quantisation).find();
}

}  // namespace headrace
