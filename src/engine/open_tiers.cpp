#include "engine/open_tiers.h"

#include "base/build_id.h"

namespace headrace {

Result<std::unique_ptr<KvTiers>> open_tiers(const EngineOptions& options, const CacheLayout& layout,
                                            const std::string& numerics, KvType kv_type) {
  const bool has_disk = !options.kv_disk_folder.empty();
  if (options.kv_ram_bytes == 0 && !has_disk) return std::unique_ptr<KvTiers>();
  if (has_disk && (build_id().empty() || options.model_digest.empty())) {
    return make_error(
        ErrorCode::kUnsupported,
        "--kv-disk needs a binary with a build id and a model in files, to know whose "
        "keys and values it keeps");
  }
  KvTierOptions tiers;
  tiers.block_bytes = layout.block_bytes;
  tiers.ram_bytes = options.kv_ram_bytes;
  tiers.disk_folder = options.kv_disk_folder;
  tiers.disk_bytes = options.kv_disk_bytes;
  // Equal facts, root and tokens: equal bytes. The program stands for the layout inside blocks.
  tiers.identity = {{"format", fmt::format("{}", kStoreVersion)},
                    {"program", build_id()},
                    {"model", options.model_digest},
                    {"numerics", numerics},
                    {"kv type", std::string(kv_type_name(kv_type))},
                    {"block bytes", fmt::format("{}", layout.block_bytes)},
                    {"columns", fmt::format("{}", layout.num_columns)}};
  return KvTiers::create(tiers);
}

}  // namespace headrace
