#include "checkpoint/hub/installed.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "checkpoint/hub/hub.h"
#include "checkpoint/hub/store.h"
#include "checkpoint/split_name.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFileFolder =
    ".gguf";  // of single files of a repository: see Spec::place
// What a pull that was interrupted leaves beside the place of a model.
constexpr std::string_view kLeftovers[] = {".incoming", ".part", ".part.id"};

// "org--repo@main" as "org/repo": any reading of it names the same place.
std::string repository_name(std::string folder) {
  if (folder.ends_with("@main")) folder.resize(folder.size() - std::string_view("@main").size());
  const size_t dashes = folder.find("--");
  if (dashes != std::string::npos) folder.replace(dashes, 2, "/");
  return "hf:" + folder;
}

bool is_leftover(const fs::path& path) {
  const std::string name = path.filename();
  return std::any_of(std::begin(kLeftovers), std::end(kLeftovers),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

uint64_t bytes_below(const fs::path& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) return hub::file_size_or_zero(path);
  uint64_t num_bytes = 0;
  for (fs::recursive_directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->is_regular_file(error)) num_bytes += hub::file_size_or_zero(entry->path());
  }
  return num_bytes;
}

// The files of the model at `path`: itself, and the later parts of a split GGUF beside it.
std::vector<fs::path> files_of_model(const fs::path& path) {
  std::vector<fs::path> files{path};
  const auto split = parse_split_name(path.string());
  const int64_t num_parts = split && split->part == 0 ? split->num_parts : 1;
  for (int64_t part = 1; part < num_parts; ++part) files.emplace_back(split->of_part(part));
  return files;
}

uint64_t model_bytes(const fs::path& path) {
  uint64_t num_bytes = 0;
  for (const fs::path& file : files_of_model(path)) num_bytes += bytes_below(file);
  return num_bytes;
}

int64_t modified_at(const fs::path& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 ? status.st_mtime : 0;
}

// What lies in one folder of the store, each under the name that `name_of` makes of its entry.
template <typename F>
Status add_folder(const fs::path& folder, const F& name_of, std::vector<InstalledModel>* models) {
  std::error_code error;
  if (!fs::exists(folder, error)) return {};
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& path = entry->path();
    if (is_leftover(path)) continue;
    const std::string name = name_of(path);
    if (name.empty()) continue;
    models->push_back({name, path, model_bytes(path), modified_at(path)});
  }
  if (!error) return {};
  return make_error(ErrorCode::kIo, "cannot read the folder '{}': {}", folder.string(),
                    error.message());
}

// Names of the table, and only whole files of them.
std::string named_model_at(const fs::path& path) {
  for (const NamedModel& row : named_models()) {
    const auto spec = hub::parse_spec(std::string(row.name));
    if (spec.ok() && path.filename() == spec->place &&
        hub::file_size_or_zero(path) == row.num_bytes) {
      return std::string(row.name);
    }
  }
  return {};
}

Status add_repositories(const fs::path& folder, std::vector<InstalledModel>* models) {
  std::vector<fs::path> of_files;
  const auto name_of = [&](const fs::path& path) -> std::string {
    const std::string name = path.filename();
    if (!name.ends_with(kFileFolder)) return repository_name(name);
    of_files.push_back(path);
    return {};
  };
  TRY(add_folder(folder, name_of, models));
  for (const fs::path& files : of_files) {
    std::string repository = files.filename();
    repository.resize(repository.size() - kFileFolder.size());
    const auto file_name = [&](const fs::path& path) -> std::string {
      const std::string name = path.filename();
      const auto split = parse_split_name(name);
      const bool of_another = split && split->part > 0;  // goes with its first part
      return of_another ? std::string() : repository_name(repository) + ":" + name;
    };
    TRY(add_folder(files, file_name, models));
  }
  return {};
}

Status add_urls(const fs::path& folder, std::vector<InstalledModel>* models) {
  std::vector<fs::path> digests;
  const auto collect = [&](const fs::path& path) {
    digests.push_back(path);
    return std::string();
  };
  TRY(add_folder(folder, collect, models));
  for (const fs::path& digest : digests) {
    const auto name_of = [&](const fs::path& path) {
      return fmt::format("url/{}/{}", digest.filename().string(), path.filename().string());
    };
    TRY(add_folder(digest, name_of, models));
  }
  return {};
}

std::string store_folder(const std::string& store_dir) {
  return store_dir.empty() ? default_store_dir() : store_dir;
}

// With what pulls may have left of them.
std::vector<fs::path> paths_of_model(const fs::path& target) {
  std::vector<fs::path> paths;
  for (const fs::path& file : files_of_model(target)) {
    paths.push_back(file);
    for (const std::string_view ending : kLeftovers) {
      paths.emplace_back(file.string() + std::string(ending));
    }
  }
  return paths;
}

Result<uint64_t> remove_path(const fs::path& path) {
  std::error_code error;
  const uint64_t num_bytes = bytes_below(path);
  fs::remove_all(path, error);
  if (!error) return num_bytes;
  return make_error(ErrorCode::kIo, "cannot remove '{}': {}", path.string(), error.message());
}

}  // namespace

Result<std::vector<InstalledModel>> list_installed(const std::string& store_dir) {
  const fs::path store = store_folder(store_dir);
  std::vector<InstalledModel> models;
  TRY(add_folder(store, named_model_at, &models));
  TRY(add_repositories(store / "hf", &models));
  TRY(add_urls(store / "url", &models));
  std::sort(models.begin(), models.end(),
            [](const InstalledModel& a, const InstalledModel& b) { return a.name < b.name; });
  return models;
}

Result<uint64_t> remove_installed(const std::string& name, const std::string& store_dir) {
  const std::string place = TRY(hub::place_of(name));
  const fs::path store = store_folder(store_dir);
  const fs::path target = store / place;
  std::error_code ignored;
  Error missing = make_error(ErrorCode::kNotFound, "'{}' is not in the model folder '{}'", name,
                             store.string());
  missing.hint = "headrace list shows what is there";
  if (!fs::exists(store, ignored)) return missing;
  const hub::StoreLock lock =
      TRY(hub::StoreLock::acquire((store / ".locks" / hub::flattened(place)).string()));
  bool found = false;
  uint64_t num_bytes = 0;
  for (const fs::path& path : paths_of_model(target)) {
    if (!fs::exists(path, ignored)) continue;
    found = true;
    num_bytes += TRY(remove_path(path));
  }
  if (!found) return missing;
  return num_bytes;
}

}  // namespace headrace
