// Latent attention, always in its absorbed form (ADR 0043): queries are carried into the latent
// space of their head, scored and summed there, and the sums carried out of it.
#include <cmath>
#include <utility>

#include "model/mixer_kinds.h"

namespace headrace {
namespace {

// One layer of one step.
class LatentLayer {
 public:
  LatentLayer(const StepContext& step, int layer_idx, const RoleWeights& weights,
              const Branch& branch)
      : step_(step),
        layer_(step.config.layers[static_cast<size_t>(layer_idx)]),
        latent_(layer_.latent),
        weights_(weights),
        branch_(branch),
        room_(layer_, step.num_rows),
        base_(step.workspace.mixer),
        plane_(step.kv.plane(layer_idx, 0)) {
    if (latent_.index_n_heads > 0) index_plane_ = step.kv.plane(layer_idx, 1);
  }

  void run() {
    project();
    append();
    if (latent_.index_n_heads > 0) select();
    attend();
  }

 private:
  DevicePtr<float> at(int64_t offset) const { return base_ + offset; }

  void linear(Role role, const Input& input, DevicePtr<float> out, float scale = 1.0f) const {
    Epilogue epilogue;
    epilogue.bias = weights_.vector(role);
    epilogue.scale = scale;
    step_.backend.linear(weights_.weight(role), input, step_.num_rows, epilogue, out);
  }

  void project() const {
    Input query = branch_.input;
    if (latent_.q_lora_rank > 0) {
      const DevicePtr<float> rank = at(room_.query_rank);
      linear(Role::kQueryDown, branch_.input, rank);
      // Normed in place: the index reads the normed rows as well.
      step_.backend.norm({.x = rank,
                          .weight = weights_.vector(Role::kQueryDownNorm),
                          .out = rank,
                          .num_rows = step_.num_rows,
                          .width = latent_.q_lora_rank,
                          .eps = kLatentNormEps});
      query = Input(rank);
    }
    linear(Role::kQueryUp, query, at(room_.queries));
    linear(Role::kKvDown, branch_.input, at(room_.keys));
  }

  AppendRowArgs append_args(const KvPlaneView& plane, DevicePtr<const float> keys) const {
    AppendRowArgs args;
    args.keys = keys;
    args.plane = plane;
    args.num_rows = step_.num_rows;
    args.step = step_.geometry;
    args.norm_eps = kLatentNormEps;
    if (layer_.rope_idx < 0) return args;
    const auto rope_idx = static_cast<size_t>(layer_.rope_idx);
    args.pairing = step_.config.ropes[rope_idx].pairing;
    args.rope_dims = latent_.qk_rope_head_dim;
    args.rope_cos = step_.workspace.ropes[rope_idx].cos;
    args.rope_sin = step_.workspace.ropes[rope_idx].sin;
    return args;
  }

  // The latent and the shared key into the cache; rotated parts of the queries to their places.
  void append() const {
    AppendRowArgs args = append_args(plane_, at(room_.keys));
    args.by_position = true;
    args.norm_width = latent_.kv_lora_rank;
    args.norm_weight = weights_.vector(Role::kKvDownNorm);
    args.key_rope = latent_.kv_lora_rank;
    args.q = at(room_.queries);
    args.q_out = at(room_.latent_queries);
    args.num_heads = layer_.num_attention_heads;
    args.q_width = latent_.qk_head_dim();
    args.q_rope = latent_.qk_nope_head_dim;
    args.q_out_width = latent_.width();
    args.q_out_rope = latent_.kv_lora_rank;
    args.q_dims = latent_.qk_rope_head_dim;
    step_.backend.append_row(args);
  }

  // The positions that each row attends to.
  void select() const {
    linear(Role::kIndexQuery, at(room_.query_rank), at(room_.index_queries));
    linear(Role::kIndexKey, branch_.input, at(room_.index_keys));
    linear(Role::kIndexWeights, branch_.input, at(room_.index_weights),
           1.0f / std::sqrt(static_cast<float>(latent_.index_n_heads)));
    // Rotated in halves, whatever the rest is, and from the first dimension on.
    AppendRowArgs append = append_args(index_plane_, at(room_.index_keys));
    append.pairing = RopePairing::kHalf;
    append.norm = NormKind::kLayer;
    append.norm_width = latent_.index_head_dim;
    append.norm_weight = weights_.vector(Role::kIndexKeyNorm);
    append.norm_bias = weights_.vector(Role::kIndexKeyNormBias);
    append.q = append.q_out = at(room_.index_queries);
    append.num_heads = latent_.index_n_heads;
    append.q_width = append.q_out_width = append.q_dims = latent_.index_head_dim;
    step_.backend.append_row(append);
    SelectKeysArgs select;
    select.q = at(room_.index_queries);
    select.weights = at(room_.index_weights);
    select.num_heads = latent_.index_n_heads;
    select.plane = index_plane_;
    select.scale = 1.0f / std::sqrt(static_cast<float>(latent_.index_head_dim));
    select.max_kept = latent_.index_topk;
    select.num_rows = step_.num_rows;
    select.step = step_.geometry;
    select.kept = kept();
    step_.backend.select_keys(select);
  }

  DevicePtr<int32_t> kept() const { return at(room_.kept).cast<int32_t>(); }

  void head_linear(Role role, DevicePtr<const float> x, int64_t x_width, DevicePtr<float> out,
                   int64_t out_width) const {
    step_.backend.head_linear({.weight = &weights_.weight(role),
                               .x = x,
                               .x_width = x_width,
                               .out = out,
                               .out_width = out_width,
                               .num_rows = step_.num_rows,
                               .num_heads = layer_.num_attention_heads});
  }

  void attend() const {
    head_linear(Role::kKeyUp, at(room_.queries), latent_.qk_head_dim(), at(room_.latent_queries),
                latent_.width());
    LatentAttentionArgs args;
    args.q = at(room_.latent_queries);
    args.out = at(room_.latent_values);
    args.num_heads = layer_.num_attention_heads;
    args.value_dim = latent_.kv_lora_rank;
    args.plane = plane_;
    args.num_rows = step_.num_rows;
    args.step = step_.geometry;
    args.scale = layer_.attention_scale;
    if (latent_.index_n_heads > 0) {
      args.kept = kept();
      args.max_kept = latent_.index_topk;
    }
    step_.backend.latent_attention(args);
    head_linear(Role::kValueUp, at(room_.latent_values), latent_.kv_lora_rank, at(room_.values),
                latent_.v_head_dim);
    step_.backend.linear(weights_.weight(Role::kAttentionOut), at(room_.values), step_.num_rows,
                         branch_.with_bias(weights_.vector(Role::kAttentionOut)), branch_.out);
  }

  const StepContext& step_;
  const LayerConfig& layer_;
  const LatentConfig& latent_;
  const RoleWeights& weights_;
  const Branch& branch_;
  const LatentRoom room_;
  const DevicePtr<float> base_;
  const KvPlaneView plane_;
  KvPlaneView index_plane_;
};

}  // namespace

void run_latent(const StepContext& step, int layer_idx, const RoleWeights& weights,
                const Branch& branch) {
  LatentLayer(step, layer_idx, weights, branch).run();
}

KeptState keep_latent(const ModelConfig&, const LayerConfig& layer, KvType type) {
  std::vector<KvPlane> planes = {{"latent", type, 1, layer.latent.width()}};
  if (layer.latent.index_n_heads > 0) {
    planes.push_back({"index keys", type, 1, layer.latent.index_head_dim});
  }
  return {.pieces = {std::move(planes)}};
}

}  // namespace headrace
