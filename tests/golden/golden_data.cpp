#include "golden/golden_data.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/registry.h"
#include "base/sanitizers.h"
#include "differential/tile_traps.h"
#include "model/config/json_object.h"

namespace headrace::golden {
namespace {

namespace fs = std::filesystem;

class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(fs::temp_directory_path() / ("headrace-golden-" + std::to_string(getpid()))) {
    fs::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

const TemporaryFolder& temporary() {
  static const TemporaryFolder folder;
  return folder;
}

// AMX on a processor that has the vectors of its units but no tiles.
bool needs_traps(const std::string& isa) {
  const uint32_t available = cpu::detect_isa();
  return isa.starts_with("amx") && (cpu::kAvx512VnniUnitIsa & ~available) == 0 &&
         (cpu::kAmxUnitIsa & ~available) != 0;
}

// With tile instructions done by a handler from here on. Sanitizers are for what it does not
// change.
Result<std::unique_ptr<Backend>> backend_with_traps(const CpuBackendOptions& options) {
  if (kIsInstrumented) return make_error(ErrorCode::kUnsupported, "traps in an instrumented build");
  static const cpu::TileTraps traps;
  const uint32_t available = cpu::detect_isa() | cpu::kAmxUnitIsa;
  const cpu::KernelUnit* unit = TRY(cpu::select_unit(options.isa, available));
  return create_cpu_backend(options, cpu::select_kernels(*unit, available), available);
}

}  // namespace

std::vector<std::string> entries(const std::filesystem::path& root, const std::string& kind) {
  std::vector<std::string> paths;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(root / kind, ignored)) {
    paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string file_name(const std::string& path) { return fs::path(path).filename().string(); }

const Family* family_of(const std::string& folder) {
  std::stringstream text;
  text << std::ifstream(folder + "/config.json").rdbuf();
  const auto config = parse_json_object(text.str(), "config.json");
  if (!config.ok()) return nullptr;  // an adapter
  const boost::json::object& object = config->as_object();
  const auto family =
      find_family(std::string_view(object.at("model_type").as_string()), JsonObject(object));
  return family.ok() ? *family : nullptr;
}

std::vector<std::string> folders_run(const std::filesystem::path& root, const std::string& kind) {
  std::vector<std::string> folders = entries(root, kind);
  std::erase_if(folders, [](const std::string& path) { return family_of(path) == nullptr; });
  return folders;
}

std::vector<std::string> folders_matched(const std::filesystem::path& root,
                                         const std::string& kind) {
  std::vector<std::string> folders = folders_run(root, kind);
  std::erase_if(folders, [](const std::string& path) { return file_name(path) == kTiedAtTheCut; });
  return folders;
}

std::vector<std::string> folders_refused(const std::filesystem::path& root,
                                         const std::string& kind) {
  std::vector<std::string> folders = entries(root, kind);
  std::erase_if(folders, [](const std::string& path) { return family_of(path) != nullptr; });
  return folders;
}

std::string temporary_folder(const std::string& name) {
  const fs::path path = temporary().path() / name;
  fs::create_directories(path);
  return path.string();
}

std::vector<std::string> instruction_sets() {
  return {"reference",   "avx2",        "avx_vnni", "avx512",
          "avx512_vnni", "avx512_bf16", "amx",      "amx_integer"};
}

std::unique_ptr<Backend> backend_for(const std::string& isa, int num_threads) {
  const CpuBackendOptions options = {.isa = isa, .num_threads = num_threads};
  auto backend = needs_traps(isa) ? backend_with_traps(options) : create_cpu_backend(options);
  if (backend.ok()) return std::move(backend).value();
  EXPECT_EQ(backend.error().code, ErrorCode::kUnsupported) << backend.error().message;
  return nullptr;
}

}  // namespace headrace::golden
