#include "model/config/families.h"

#include <algorithm>
#include <vector>

#include "model/config/family_rows.h"
#include "model/config/gguf_keys.h"
#include "model/config/read_form.h"

namespace headrace {
namespace {

constexpr NamePrefix kSafetensorsPrefixes[] = {
    {"model.", ""},
    {"model.language_model.", ""},
    {"language_model.model.", "language_model."},
    {"backbone.", ""},
    {"", ""},
};
constexpr NamePrefix kGgufPrefixes[] = {{"", ""}};

}  // namespace

std::span<const Family> families() {
  static const std::vector<Family> kAll = [] {
    std::vector<Family> all;
    for (const std::span<const Family> rows :
         {dense_families(), expert_families(), delta_families(), recurrent_families(),
          gated_families(), plain_families(), latent_families(), gemma4_families(),
          gemma3n_families(), routed_families()}) {
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }();
  return kAll;
}

const Family& family_named(std::string_view name) {
  for (const Family& family : families()) {
    if (family.name == name) return family;
  }
  CHECK(false, "no family named {}", name);
}

const Family* find_family_by_model_type(std::string_view model_type) {
  for (const Family& family : families()) {
    for (std::string_view known : family.model_types) {
      if (!known.empty() && known == model_type) return &family;
    }
  }
  return nullptr;
}

namespace {

bool suits(const GgufRow& row, const Checkpoint* file) {
  if (file == nullptr) return true;
  if (!row.tensor.empty() && file->find(row.tensor) == nullptr) return false;
  if (row.parallel < 0) return true;
  const GgufKeys keys(file->metadata(), row.architecture);
  return keys.boolean("use_parallel_residual", true) == (row.parallel == 1);
}

}  // namespace

const Family* find_family_by_gguf(std::string_view architecture, bool has_window, bool has_experts,
                                  const Checkpoint* file) {
  const Family* found = nullptr;
  int best = -1;
  for (const Family& family : families()) {
    if (family.gguf.architecture != architecture || !suits(family.gguf, file)) continue;
    const int alike = ((family.experts != nullptr) == has_experts ? 2 : 0) +
                      ((family.window.rule != WindowRule::kNone) == has_window ? 1 : 0);
    if (alike <= best) continue;
    best = alike;
    found = &family;
  }
  return found;
}

Result<const Family*> find_family(std::string_view model_type, const JsonObject& json) {
  for (const Family& family : families()) {
    const auto& types = family.model_types;
    if (std::find(types.begin(), types.end(), model_type) == types.end()) continue;
    if (TRY(first_unlike(json, family.form.when)) == nullptr) return &family;
  }
  return nullptr;
}

std::string_view layer_prefix(CheckpointKind kind, const Family* family) {
  if (kind == CheckpointKind::kGguf) return "blk.";
  const bool own = family != nullptr && !family->form.names.layers.empty();
  return own ? family->form.names.layers : "layers.";
}

std::span<const NamePrefix> name_prefixes(CheckpointKind kind, const Family* family) {
  if (kind == CheckpointKind::kGguf) return kGgufPrefixes;
  const bool own = family != nullptr && !family->form.names.prefixes.empty();
  return own ? family->form.names.prefixes : kSafetensorsPrefixes;
}

}  // namespace headrace
