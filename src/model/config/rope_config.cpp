#include "model/config/rope_config.h"

#include <cmath>

namespace headrace {
namespace {

struct RopeTypeRow {
  std::string_view name;
  RopeType type;
};

constexpr RopeTypeRow kRopeTypes[] = {
    {"none", RopeType::kDefault},
    {"default", RopeType::kDefault},
    {"linear", RopeType::kLinear},
    {"dynamic", RopeType::kDynamic},
    {"llama3", RopeType::kLlama3},
    {"yarn", RopeType::kYarn},
    {"longrope", RopeType::kLongrope},
    {"su", RopeType::kLongrope},
    {"proportional", RopeType::kProportional},
};

}  // namespace

Result<RopeType> rope_type_named(std::string_view name) {
  for (const RopeTypeRow& row : kRopeTypes) {
    if (row.name == name) return row.type;
  }
  return make_error(ErrorCode::kUnsupported,
                    "rope type '{}' is unknown; known are default, linear, dynamic, llama3, "
                    "yarn, longrope and proportional",
                    name);
}

double rope_attention_factor(const RopeConfig& rope, const RopeMscale& given) {
  const bool scaled = rope.type == RopeType::kYarn || rope.type == RopeType::kLongrope;
  if (!scaled) return 1;
  if (given.attention_factor != 0) return given.attention_factor;
  if (rope.factor <= 1) return 1;
  if (rope.type == RopeType::kLongrope) {
    const auto original = static_cast<double>(rope.original_max_position_embeddings);
    return std::sqrt(1 + std::log(rope.factor) / std::log(original));
  }
  const auto grown = [&](double scale) { return 0.1 * scale * std::log(rope.factor) + 1; };
  if (given.mscale != 0 && given.mscale_all_dim != 0) {
    return grown(given.mscale) / grown(given.mscale_all_dim);
  }
  return grown(1);
}

}  // namespace headrace
