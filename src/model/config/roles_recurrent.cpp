// Weights of short convolutions and of state space layers.
#include "model/config/role_tables.h"

namespace headrace {
namespace {

// ---- Short convolution --------------------------------------------------------------------------

int64_t short_conv_rows(const ModelConfig& config, const LayerConfig&) {
  return 3 * config.hidden_size;
}
int64_t short_taps(const ModelConfig&, const LayerConfig& layer) {
  return layer.short_conv.num_taps;
}

constexpr RoleRow kShortConv[] = {
    {.role = Role::kShortConvInput,
     .name = "input of the short convolution",
     .parts = {{{.names = {{"conv.in_proj"}, {"shortconv.in_proj"}}, .outputs = short_conv_rows}}},
     .inputs = hidden,
     .bias = &ModelConfig::mixer_bias},
    {.role = Role::kShortConvTaps,
     .name = "taps of the short convolution",
     .form = RoleForm::kTaps,
     .parts = {{{.names = {{"conv.conv"}, {"shortconv.conv"}}, .outputs = hidden}}},
     .inputs = short_taps},
    {.role = Role::kShortConvBias,
     .name = "bias of the short convolution",
     .form = RoleForm::kVector,
     .parts = {{{.names = {{"conv.conv.bias"}, {"shortconv.conv.bias"}}, .outputs = hidden}}},
     .bias = &ModelConfig::conv_bias},
    {.role = Role::kShortConvOut,
     .name = "output of the short convolution",
     .parts = {{{.names = {{"conv.out_proj"}, {"shortconv.out_proj"}}, .outputs = hidden}}},
     .inputs = hidden,
     .bias = &ModelConfig::mixer_bias},
};

// ---- State space --------------------------------------------------------------------------------

int64_t scan_rows(const ModelConfig&, const LayerConfig& layer) {
  return layer.scan.projection_width();
}
int64_t scan_channels(const ModelConfig&, const LayerConfig& layer) {
  return layer.scan.num_channels();
}
int64_t scan_taps(const ModelConfig&, const LayerConfig& layer) { return layer.scan.num_taps; }
int64_t scan_heads(const ModelConfig&, const LayerConfig& layer) { return layer.scan.num_heads; }
int64_t scan_width(const ModelConfig&, const LayerConfig& layer) { return layer.scan.inner_size(); }

constexpr RoleRow scan_vector(Role role, std::string_view name, const RoleNames& names,
                              Extent size) {
  return {.role = role,
          .name = name,
          .form = RoleForm::kVector,
          .parts = {{{.names = names, .outputs = size}}}};
}

constexpr RoleRow kScan[] = {
    {.role = Role::kScanInput,
     .name = "input of the scan",
     .parts = {{{.names = {{"mixer.in_proj", "mamba.in_proj"}, {"ssm_in"}}, .outputs = scan_rows}}},
     .inputs = hidden,
     .bias = &ModelConfig::mixer_bias},
    {.role = Role::kScanTaps,
     .name = "taps of the scan",
     .form = RoleForm::kTaps,
     .parts = {{{.names = {{"mixer.conv1d", "mamba.conv1d"}, {"ssm_conv1d"}},
                 .outputs = scan_channels}}},
     .inputs = scan_taps},
    {.role = Role::kScanTapsBias,
     .name = "bias of the scan's taps",
     .form = RoleForm::kVector,
     .parts = {{{.names = {{"mixer.conv1d.bias", "mamba.conv1d.bias"}, {"ssm_conv1d.bias"}},
                 .outputs = scan_channels}}},
     .bias = &ModelConfig::conv_bias},
    {.role = Role::kScanDecay,
     .name = "decay of the scan",
     .form = RoleForm::kDecay,
     .parts = {{{.names = {{"mixer.A_log", "mamba.A_log"}, {"ssm_a"}}, .outputs = scan_heads}}}},
    scan_vector(Role::kScanStepBias, "bias of the time step",
                {{"mixer.dt_bias", "mamba.dt_bias"}, {"ssm_dt.bias"}}, scan_heads),
    scan_vector(Role::kScanSkip, "skip of the scan", {{"mixer.D", "mamba.D"}, {"ssm_d"}},
                scan_heads),
    scan_vector(Role::kScanNorm, "norm of the scan", {{"mixer.norm", "mamba.norm"}, {"ssm_norm"}},
                scan_width),
    {.role = Role::kScanOut,
     .name = "output of the scan",
     .parts = {{{.names = {{"mixer.out_proj", "mamba.out_proj"}, {"ssm_out"}}, .outputs = hidden}}},
     .inputs = scan_width,
     .bias = &ModelConfig::mixer_bias},
};

}  // namespace

std::span<const RoleRow> short_conv_roles() { return kShortConv; }
std::span<const RoleRow> scan_roles() { return kScan; }

}  // namespace headrace
