// Weights of a head that predicts further tokens, beside those of its layer.
#include "model/config/role_tables.h"

namespace headrace {
namespace {

int64_t token_and_state(const ModelConfig& config, const LayerConfig&) {
  return 2 * config.hidden_size;
}

constexpr RoleRow kPrediction[] = {
    {.role = Role::kPredictionTokenNorm,
     .name = "norm of the token of the prediction head",
     .form = RoleForm::kNorm,
     .place = RolePlace::kPrediction,
     .parts = {{{.names = {{"enorm", "pre_fc_norm_embedding"}, {"nextn.enorm"}},
                 .outputs = hidden}}},
     .row_norm = true},
    {.role = Role::kPredictionStateNorm,
     .name = "norm of the state of the prediction head",
     .form = RoleForm::kNorm,
     .place = RolePlace::kPrediction,
     .parts = {{{.names = {{"hnorm", "pre_fc_norm_hidden"}, {"nextn.hnorm"}}, .outputs = hidden}}},
     .row_norm = true},
    {.role = Role::kPredictionJoin,
     .name = "join of the prediction head",
     .place = RolePlace::kPrediction,
     .parts = {{{.names = {{"eh_proj", "fc"}, {"nextn.eh_proj"}}, .outputs = hidden}}},
     .inputs = token_and_state},
    {.role = Role::kPredictionNorm,
     .name = "final norm of the prediction head",
     .form = RoleForm::kNorm,
     .place = RolePlace::kPrediction,
     .parts = {{{.names = {{"shared_head.norm", "norm"}, {"nextn.shared_head_norm"}},
                 .outputs = hidden}}},
     .row_norm = true},
};

}  // namespace

std::span<const RoleRow> prediction_roles() { return kPrediction; }

}  // namespace headrace
