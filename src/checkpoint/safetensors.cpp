#include "checkpoint/safetensors.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "base/checked.h"
#include "base/json.h"
#include "base/quote.h"
#include "checkpoint/byte_reader.h"
#include "checkpoint/mapped_checkpoint.h"
#include "checkpoint/safetensors_header.h"
#include "checkpoint/text_file.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxHeaderBytes = uint64_t{25} << 20;
constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr std::string_view kDefaultIndex = "model.safetensors.index.json";
constexpr std::string_view kDefaultFile = "model.safetensors";

Error corrupt(std::string_view name, const std::string& message) {
  return make_error(ErrorCode::kCorrupt, "{}: {}", name, message);
}

// The view of one entry; its byte range must hold exactly its shape and dtype.
Result<TensorView> entry_view(const SafetensorsEntry& entry, std::span<const std::byte> data,
                              std::string_view name) {
  const auto [begin, end] = entry.data_offsets;
  if (begin > end || end > data.size()) {
    return corrupt(name, fmt::format("tensor {} has data_offsets [{}, {}], the data section has {} "
                                     "bytes",
                                     quote(entry.name), begin, end, data.size()));
  }
  TensorView view;
  view.dtype = entry.dtype;
  view.rank = entry.rank;
  CheckedSize nonzero_product = dtype_row(entry.dtype).block_bytes;
  CheckedSize num_bytes = dtype_row(entry.dtype).block_bytes;
  for (int i = 0; i < entry.rank; ++i) {
    const uint64_t size = entry.shape[static_cast<size_t>(i)];
    nonzero_product *= std::max<uint64_t>(size, 1);
    num_bytes *= size;
    view.shape[static_cast<size_t>(i)] = static_cast<int64_t>(size);
  }
  if (!nonzero_product.at_most(uint64_t{INT64_MAX})) {
    return corrupt(name, fmt::format("tensor {} has a shape whose product does not fit 63 bits",
                                     quote(entry.name)));
  }
  if (num_bytes.value() != end - begin) {
    return corrupt(name, fmt::format("tensor {} {} of {} needs {} bytes, its data_offsets [{}, {}] "
                                     "hold {}",
                                     quote(entry.name), view.shape_string(), dtype_name(view.dtype),
                                     num_bytes.value(), begin, end, end - begin));
  }
  view.num_bytes = end - begin;
  view.data = data.data() + begin;
  return view;
}

// The tensors cover the data section without gap or overlap.
Status check_coverage(const std::vector<SafetensorsEntry>& entries, uint64_t data_bytes,
                      std::string_view name) {
  std::vector<const SafetensorsEntry*> sorted;
  for (const SafetensorsEntry& entry : entries) sorted.push_back(&entry);
  std::sort(sorted.begin(), sorted.end(),
            [](const auto* a, const auto* b) { return a->data_offsets < b->data_offsets; });
  uint64_t covered = 0;
  for (const SafetensorsEntry* entry : sorted) {
    const uint64_t begin = entry->data_offsets[0];
    if (begin != covered) {
      return corrupt(name, fmt::format("tensor {} begins at {} where the tensor before it ends at "
                                       "{}: tensors must neither overlap nor leave gaps",
                                       quote(entry->name), begin, covered));
    }
    covered = entry->data_offsets[1];
  }
  if (covered != data_bytes) {
    return corrupt(name, fmt::format("the data section has {} bytes, its tensors cover {}",
                                     data_bytes, covered));
  }
  return {};
}

Status check_names(const std::vector<SafetensorsEntry>& entries, std::string_view name) {
  std::vector<std::string_view> sorted;
  for (const SafetensorsEntry& entry : entries) sorted.push_back(entry.name);
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice == sorted.end()) return {};
  return corrupt(name, fmt::format("tensor {} occurs twice", quote(*twice)));
}

Status read_file(std::span<const std::byte> bytes, std::string_view name,
                 MappedCheckpoint* checkpoint) {
  ByteReader reader(bytes, name);
  const auto header_bytes = TRY(reader.read<uint64_t>("the header length"));
  if (header_bytes > kMaxHeaderBytes) {
    return reader.corrupt("the header length at byte 0 is {}, at most {} are allowed", header_bytes,
                          kMaxHeaderBytes);
  }
  const auto text = TRY(reader.take(header_bytes, "the header"));
  SafetensorsHeader header = TRY(parse_safetensors_header(
      std::string_view(reinterpret_cast<const char*>(text.data()), text.size()), name));
  const auto data = bytes.subspan(reader.offset());
  TRY(check_names(header.entries, name));
  for (const SafetensorsEntry& entry : header.entries) TRY(entry_view(entry, data, name));
  TRY(check_coverage(header.entries, data.size(), name));
  for (SafetensorsEntry& entry : header.entries) {
    const TensorView view = TRY(entry_view(entry, data, name));
    const std::string quoted = quote(entry.name);
    if (!checkpoint->add_tensor(std::move(entry.name), view)) {
      return corrupt(name,
                     fmt::format("tensor {} is in another file of this checkpoint too", quoted));
    }
  }
  for (const auto& [key, value] : header.metadata) {
    // Files of one set repeat the same metadata; the first one's stands.
    checkpoint->mutable_metadata().insert(key, {checkpoint->own_text(value)});
  }
  checkpoint->add_header(bytes.first(reader.offset()), bytes.size());
  return {};
}

Status open_file(const std::string& path, MappedCheckpoint* checkpoint) {
  return read_file(checkpoint->add_file(TRY(MappedFile::open(path))), path, checkpoint);
}

// Tensor name -> file name, as an index file lists them.
Result<boost::json::object> read_weight_map(const std::string& path, FileStamp* stamp = nullptr) {
  const std::string text = TRY(read_text_file(path, kMaxIndexBytes, stamp));
  const boost::json::value index = TRY(parse_json(text, path));
  const boost::json::value* map = json_member(&index, "weight_map");
  if (map == nullptr || !map->is_object()) {
    return corrupt(path, "has no object 'weight_map'");
  }
  for (const auto& [tensor, file] : map->get_object()) {
    const bool plain = file.is_string() && is_plain_file_name(file.get_string());
    if (!plain || !std::string_view(file.get_string()).ends_with(".safetensors")) {
      return corrupt(path, fmt::format("tensor {} is said to be in {}, needed is the name of a "
                                       ".safetensors file in the same folder",
                                       quote(tensor),
                                       file.is_string() ? quote(file.get_string()) : "no string"));
    }
  }
  return map->get_object();
}

Result<std::unique_ptr<Checkpoint>> open_index(const std::string& path, const fs::path& index) {
  const std::string folder = index.has_parent_path() ? index.parent_path().string() : ".";
  FileStamp stamp;
  const boost::json::object map = TRY(read_weight_map(index.string(), &stamp));
  auto checkpoint = std::make_unique<MappedCheckpoint>(CheckpointKind::kSafetensors, path, folder);
  checkpoint->add_read_file(index.string(), stamp);
  std::set<std::string> files;
  for (const auto& [tensor, file] : map) files.emplace(file.get_string());
  for (const std::string& file : files) TRY(open_file(folder + "/" + file, checkpoint.get()));
  for (const auto& [tensor, file] : map) {
    if (checkpoint->find(tensor) != nullptr) continue;
    return corrupt(index.string(), fmt::format("tensor {} is said to be in {}, which does not hold "
                                               "it",
                                               quote(tensor), quote(file.get_string())));
  }
  return std::unique_ptr<Checkpoint>(std::move(checkpoint));
}

Result<std::unique_ptr<Checkpoint>> open_single(const std::string& path, const fs::path& file) {
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  auto checkpoint = std::make_unique<MappedCheckpoint>(CheckpointKind::kSafetensors, path, folder);
  TRY(open_file(file.string(), checkpoint.get()));
  return std::unique_ptr<Checkpoint>(std::move(checkpoint));
}

// The index beside `file` that lists it as one of several, or an empty path.
fs::path index_listing(const fs::path& file) {
  std::error_code ignored;
  const fs::path index = file.parent_path() / kDefaultIndex;
  if (!fs::is_regular_file(index, ignored)) return {};
  const Result<boost::json::object> map = read_weight_map(index.string());
  if (!map.ok()) return {};
  for (const auto& [tensor, name] : *map) {
    if (name.get_string() == file.filename().string()) return index;
  }
  return {};
}

// What to say about a folder without safetensors.
Error no_weights(const std::string& path, const std::vector<fs::path>& entries) {
  Error error = make_error(ErrorCode::kNotFound, "{}: the folder holds no .safetensors file", path);
  for (const fs::path& entry : entries) {
    const std::string extension = entry.extension().string();
    if (extension == ".gguf") {
      error.hint = fmt::format("open the GGUF file itself: '{}'", entry.string());
    } else if ((extension == ".bin" || extension == ".pt") && error.hint.empty()) {
      error.hint = "pickled weights can run code and are not read: get the model as safetensors";
    }
  }
  return error;
}

Result<std::unique_ptr<Checkpoint>> open_folder(const std::string& path) {
  const fs::path folder(path);
  std::error_code code;
  if (fs::is_regular_file(folder / kDefaultIndex, code)) {
    return open_index(path, folder / kDefaultIndex);
  }
  if (fs::is_regular_file(folder / kDefaultFile, code)) {
    return open_single(path, folder / kDefaultFile);
  }
  std::vector<fs::path> entries;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    entries.push_back(it->path());
  }
  if (code) return make_error(ErrorCode::kIo, "{}: {}", path, code.message());
  std::sort(entries.begin(), entries.end());
  std::vector<fs::path> weights;
  for (const fs::path& entry : entries) {
    if (entry.string().ends_with(kIndexSuffix)) return open_index(path, entry);
    if (entry.extension() == ".safetensors") weights.push_back(entry);
  }
  if (weights.empty()) return no_weights(path, entries);
  if (weights.size() == 1) return open_single(path, weights[0]);
  return make_error(
      ErrorCode::kInvalidArgument,
      "{}: the folder holds {} .safetensors files and no index ({}), open one of them", path,
      weights.size(), kDefaultIndex);
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> open_safetensors(const std::string& path) {
  std::error_code code;
  if (fs::is_directory(path, code)) return open_folder(path);
  if (path.ends_with(kIndexSuffix)) return open_index(path, path);
  const fs::path index = index_listing(path);
  return index.empty() ? open_single(path, path) : open_index(path, index);
}

Result<std::unique_ptr<Checkpoint>> parse_safetensors(std::span<const std::byte> bytes,
                                                      const std::string& name) {
  auto checkpoint = std::make_unique<MappedCheckpoint>(CheckpointKind::kSafetensors, name, "");
  TRY(read_file(bytes, name, checkpoint.get()));
  return std::unique_ptr<Checkpoint>(std::move(checkpoint));
}

}  // namespace headrace
