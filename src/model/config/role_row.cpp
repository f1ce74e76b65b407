#include "model/config/role_row.h"

#include <algorithm>

namespace headrace {

std::span<const PartRow> RoleRow::used_parts() const {
  size_t count = 0;
  while (count < parts.size() && parts[count].outputs != nullptr) ++count;
  return std::span(parts).first(count);
}

std::span<const std::string_view> RoleNames::in(CheckpointKind kind) const {
  const std::span<const std::string_view> all =
      kind == CheckpointKind::kGguf ? std::span<const std::string_view>(gguf) : safetensors;
  return all.first(static_cast<size_t>(std::find(all.begin(), all.end(), "") - all.begin()));
}

}  // namespace headrace
