#include "checkpoint/hub/repository.h"

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "base/json.h"
#include "checkpoint/hub/download.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/split_name.h"
#include "checkpoint/text_file.h"

namespace headrace::hub {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::string_view kSidecars[] = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "additional_chat_templates/tool_use.jinja",
    "adapter_config.json",
    "modules.json",
    "1_Pooling/config.json",
};
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr size_t kMaxDepth = 16;
// In the folder of an unfinished pull: the commit that its files are of. No file of a repository is
// named so.
constexpr const char* kCommitFile = ".commit";

std::string text_at(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

uint64_t count_at(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_int64() || value->get_int64() < 0) return 0;
  return static_cast<uint64_t>(value->get_int64());
}

Result<json::object> parse_object(std::string_view text, std::string_view what) {
  json::value value = TRY(parse_json(text, what, kMaxDepth));
  if (!value.is_object()) return make_error(ErrorCode::kCorrupt, "{} is not a JSON object", what);
  return std::move(value.get_object());
}

// Of the files below a folder; `kept` holds flattened names, which they have there or not.
Status discard_all_but(const std::set<std::string>& kept, const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> discarded;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().lexically_relative(folder);
    if (!entry->is_directory(error) && !kept.contains(flattened(name))) {
      discarded.push_back(entry->path());
    }
  }
  for (const fs::path& path : discarded) {
    if (!error) fs::remove(path, error);
  }
  if (!error) return {};
  return make_error(ErrorCode::kIo, "cannot clear the folder '{}': {}", folder, error.message());
}

class RepositoryPull {
 public:
  RepositoryPull(const Spec& spec, const PullOptions& options)
      : spec_(spec),
        options_(options),
        retry_{options.max_attempts, options.backoff_ms, options.stall_seconds} {}

  Status list() {
    const std::string url =
        fmt::format("{}/api/models/{}/{}/revision/{}?blobs=true", options_.endpoint,
                    spec_.organisation, spec_.repository, encoded(spec_.revision));
    listing_ = TRY(parse_listing(TRY(fetch_text(url, options_.token, retry_, options_.stopped))));
    return {};
  }

  // One GGUF; the parts of a split file go to their places before the first one, whose name is the
  // model's.
  Status pull_gguf(const std::string& target) {
    std::vector<RepositoryFile> files = TRY(gguf_files());
    for (RepositoryFile& file : files) file.place = flattened(file.name);
    const std::string staging = target + ".incoming";
    TRY(open_staging(staging));
    TRY(prepare(staging, files));
    for (const RepositoryFile& file : files) TRY(fetch(file, staging));
    const std::string folder = fs::path(target).parent_path();
    for (size_t i = files.size(); i-- > 0;) {
      TRY(move_into_place(staging + "/" + files[i].place, folder + "/" + files[i].place));
    }
    std::error_code ignored;
    fs::remove_all(staging, ignored);
    return {};
  }

  Status pull_folder(const std::string& target) {
    const std::string staging = target + ".incoming";
    std::vector<RepositoryFile> files = sidecar_files();
    if (find("config.json") == nullptr && find("adapter_config.json") == nullptr)
      return not_a_model();
    TRY(open_staging(staging));
    const std::vector<RepositoryFile> weights = TRY(weight_files(staging));
    if (weights.empty()) return not_a_model();
    files.insert(files.end(), weights.begin(), weights.end());
    TRY(prepare(staging, files));
    for (const RepositoryFile& file : files) {
      TRY(make_folder(fs::path(staging + "/" + file.place).parent_path().string()));
      TRY(fetch(file, staging));
    }
    std::set<std::string> wanted;
    for (const RepositoryFile& file : files) wanted.insert(flattened(file.name));
    TRY(discard_all_but(wanted, staging));
    return move_into_place(staging, target);
  }

 private:
  static std::string encoded(std::string text) {
    for (size_t at = text.find('/'); at != std::string::npos; at = text.find('/', at)) {
      text.replace(at, 1, "%2F");
    }
    return text;
  }

  const RepositoryFile* find(std::string_view name) const {
    const auto found = std::find_if(listing_.files.begin(), listing_.files.end(),
                                    [&](const RepositoryFile& file) { return file.name == name; });
    return found == listing_.files.end() ? nullptr : &*found;
  }

  std::vector<RepositoryFile> sidecar_files() const {
    std::vector<RepositoryFile> files;
    for (const std::string_view name : kSidecars) {
      if (const RepositoryFile* file = find(name)) files.push_back(*file);
    }
    return files;
  }

  // The index names the shards; without one, model.safetensors alone, else every .safetensors.
  Result<std::vector<RepositoryFile>> weight_files(const std::string& staging) {
    std::vector<RepositoryFile> files;
    if (const RepositoryFile* index = find(kIndex)) {
      files.push_back(*index);
      for (const std::string& name : TRY(shards_of_index(*index, staging))) {
        const RepositoryFile* shard = find(name);
        if (shard == nullptr) {
          return make_error(ErrorCode::kCorrupt, "{} of {} names '{}', which the repository lacks",
                            kIndex, options_.spec, name);
        }
        files.push_back(*shard);
      }
      return files;
    }
    if (const RepositoryFile* single = find("model.safetensors")) return std::vector{*single};
    for (const RepositoryFile& file : listing_.files) {
      if (file.name.ends_with(".safetensors") && file.name.find('/') == std::string::npos) {
        files.push_back(file);
      }
    }
    return files;
  }

  Result<std::set<std::string>> shards_of_index(const RepositoryFile& index,
                                                const std::string& staging) {
    TRY(fetch(index, staging));
    const std::string text = TRY(read_text_file(staging + "/" + index.place, kMaxIndexBytes));
    const json::object object = TRY(parse_object(text, kIndex));
    std::set<std::string> names;
    const json::value* map = object.if_contains("weight_map");
    if (map == nullptr || !map->is_object()) {
      return make_error(ErrorCode::kCorrupt, "{} of {} has no weight_map", kIndex, options_.spec);
    }
    for (const auto& [tensor, name] : map->get_object()) {
      if (!name.is_string()) {
        return make_error(ErrorCode::kCorrupt, "{}: the file of '{}' is not a text", kIndex,
                          std::string_view(tensor));
      }
      names.emplace(name.get_string());
    }
    return names;
  }

  // "x-00001-of-00003.gguf" and the two after it, or just the file.
  Result<std::vector<RepositoryFile>> gguf_files() const {
    const RepositoryFile* first = find(spec_.file);
    if (first == nullptr) {
      Error error = make_error(ErrorCode::kNotFound, "{}/{} has no file '{}'", spec_.organisation,
                               spec_.repository, spec_.file);
      error.hint = gguf_hint();
      return error;
    }
    std::vector<RepositoryFile> files{*first};
    const std::optional<SplitName> split = parse_split_name(spec_.file);
    const int64_t num_parts = split ? split->num_parts : 1;
    for (int64_t part = 1; part < num_parts; ++part) {
      const RepositoryFile* file = find(split->of_part(part));
      if (file == nullptr) return missing_part(*split, part);
      files.push_back(*file);
    }
    return files;
  }

  Error missing_part(const SplitName& split, int64_t part) const {
    Error error = make_error(
        ErrorCode::kNotFound, "{}/{} has no file '{}', part {} of {} of the model",
        spec_.organisation, spec_.repository, split.of_part(part), part + 1, split.num_parts);
    error.hint =
        "nothing was fetched: a model without one of its parts cannot be loaded; tell the "
        "owner of the repository, or choose another file";
    return error;
  }

  std::string gguf_hint() const {
    std::string names;
    for (const RepositoryFile& file : listing_.files) {
      if (file.name.ends_with(".gguf")) names += (names.empty() ? "" : ", ") + file.name;
    }
    if (names.empty()) return "it has no GGUF file either";
    return fmt::format("name one of its GGUF files as hf:{}/{}:FILE; it has {}", spec_.organisation,
                       spec_.repository, names);
  }

  Error not_a_model() const {
    Error error =
        make_error(ErrorCode::kUnsupported, "{}/{} has no config.json with safetensors weights",
                   spec_.organisation, spec_.repository);
    error.hint = gguf_hint();
    return error;
  }

  Status prepare(const std::string& folder, const std::vector<RepositoryFile>& files) {
    TRY(make_folder(folder));
    total_bytes_ = 0;
    uint64_t present = 0;
    for (const RepositoryFile& file : files) {
      total_bytes_ += file.num_bytes;
      const std::string path = folder + "/" + file.place;
      present += std::max(file_size_or_zero(path), file_size_or_zero(path + ".part"));
    }
    done_bytes_ = 0;
    return check_free_space(folder, total_bytes_ - std::min(present, total_bytes_));
  }

  // Makes the folder, or takes up the one that an earlier pull left. What that one got of another
  // commit, or of one that is not known, stays only where a digest will tell whether it is the
  // same.
  Status open_staging(const std::string& staging) {
    TRY(make_folder(staging));
    const std::string commit_file = staging + "/" + kCommitFile;
    const auto commit = read_text_file(commit_file, listing_.commit.size());
    if (!listing_.commit.empty() && commit.ok() && *commit == listing_.commit) return {};
    TRY(discard_all_but(names_with_digest(), staging));
    std::ofstream output(commit_file, std::ios::trunc);
    output << listing_.commit;
    output.close();
    if (output) return {};
    return make_error(ErrorCode::kIo, "cannot write '{}': {}", commit_file, std::strerror(errno));
  }

  std::set<std::string> names_with_digest() const {
    std::set<std::string> names;
    for (const RepositoryFile& file : listing_.files) {
      if (file.sha256.empty()) continue;
      for (const char* ending : {"", ".part", ".part.id"}) {
        names.insert(flattened(file.name) + ending);
      }
    }
    return names;
  }

  // By length and digest, as far as the hub says them.
  static Result<bool> is_whole(const RepositoryFile& file, const std::string& path) {
    if (!fs::exists(path)) return false;
    if (file.num_bytes > 0 && file_size_or_zero(path) != file.num_bytes) return false;
    return file.sha256.empty() || TRY(sha256_of_file(path)) == file.sha256;
  }

  // A file that an earlier pull left whole is kept.
  Status fetch(const RepositoryFile& file, const std::string& folder) {
    const std::string path = folder + "/" + file.place;
    if (!TRY(is_whole(file, path))) {
      std::error_code ignored;
      fs::remove(path, ignored);
      DownloadRequest request;
      const std::string& revision = listing_.commit.empty() ? spec_.revision : listing_.commit;
      request.url = fmt::format("{}/{}/{}/resolve/{}/{}", options_.endpoint, spec_.organisation,
                                spec_.repository, encoded(revision), file.name);
      request.token = options_.token;
      request.path = path;
      request.expected_bytes = file.num_bytes;
      request.sha256 = file.sha256;
      request.retry = retry_;
      request.stopped = options_.stopped;
      request.progress = [&](uint64_t done, uint64_t) {
        if (options_.progress) options_.progress(done_bytes_ + done, total_bytes_);
      };
      TRY(download(request));
    }
    done_bytes_ += file_size_or_zero(path);
    return {};
  }

  const Spec& spec_;
  const PullOptions& options_;
  const RetryPolicy retry_;
  RepositoryListing listing_;
  uint64_t total_bytes_ = 0;
  uint64_t done_bytes_ = 0;
};

}  // namespace

Result<RepositoryListing> parse_listing(std::string_view text) {
  const json::object answer = TRY(parse_object(text, "the hub's answer"));
  const json::value* siblings = answer.if_contains("siblings");
  if (siblings == nullptr || !siblings->is_array()) {
    return make_error(ErrorCode::kCorrupt, "the hub's answer lists no files ('siblings')");
  }
  RepositoryListing listing;
  listing.commit = text_at(answer, "sha");
  if (listing.commit.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return make_error(ErrorCode::kCorrupt, "the hub's answer has a malformed commit '{}'",
                      listing.commit);
  }
  for (const json::value& sibling : siblings->get_array()) {
    if (!sibling.is_object()) continue;
    const json::object& entry = sibling.get_object();
    RepositoryFile file{text_at(entry, "rfilename"), {}, count_at(entry, "size"), {}};
    if (!is_safe_path(file.name)) continue;  // never ours: the names we ask for are plain
    file.place = file.name;
    if (const json::value* lfs = entry.if_contains("lfs"); lfs != nullptr && lfs->is_object()) {
      file.sha256 = text_at(lfs->get_object(), "sha256");
      if (file.num_bytes == 0) file.num_bytes = count_at(lfs->get_object(), "size");
    }
    listing.files.push_back(std::move(file));
  }
  return listing;
}

Status pull_repository(const Spec& spec, const PullOptions& options, const std::string& target) {
  RepositoryPull pull(spec, options);
  TRY(pull.list());
  return spec.file.empty() ? pull.pull_folder(target) : pull.pull_gguf(target);
}

}  // namespace headrace::hub
