#include "model/config/families.h"

#include <vector>

#include "model/config/family_rows.h"

namespace headrace {
namespace {

constexpr NamePrefix kSafetensorsPrefixes[] = {
    {"model.", ""},
    {"model.language_model.", ""},
    {"language_model.model.", "language_model."},
    {"", ""},
};
constexpr NamePrefix kGgufPrefixes[] = {{"", ""}};

}  // namespace

std::span<const Family> families() {
  static const std::vector<Family> kAll = [] {
    std::vector<Family> all;
    for (const std::span<const Family> rows : {dense_families(), expert_families(), delta_families()}) {
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

const Family* find_family_by_gguf(std::string_view architecture, bool has_window,
                                  bool has_experts) {
  const Family* found = nullptr;
  int best = -1;
  for (const Family& family : families()) {
    if (family.gguf.architecture != architecture) continue;
    const int alike = ((family.experts != nullptr) == has_experts ? 2 : 0) +
                      ((family.window.rule != WindowRule::kNone) == has_window ? 1 : 0);
    if (alike <= best) continue;
    best = alike;
    found = &family;
  }
  return found;
}

std::string_view layer_prefix(CheckpointKind kind) {
  return kind == CheckpointKind::kGguf ? "blk." : "layers.";
}

std::span<const NamePrefix> name_prefixes(CheckpointKind kind) {
  if (kind == CheckpointKind::kGguf) return kGgufPrefixes;
  return kSafetensorsPrefixes;
}

}  // namespace headrace
