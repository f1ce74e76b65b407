// Reading of golden folders: expect.json, expect.safetensors and the checkpoint beside them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "model/config/json_object.h"
#include "verify/golden.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

Result<std::string> read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return make_error(ErrorCode::kNotFound, "cannot read {}", path.string());
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class SidecarOverride : public Checkpoint {
 public:
  SidecarOverride(const Checkpoint& base, std::string file_name, std::string text)
      : base_(base), file_name_(std::move(file_name)), text_(std::move(text)) {}

  CheckpointKind kind() const override { return base_.kind(); }
  const std::string& path() const override { return base_.path(); }
  std::span<const std::string> names() const override { return base_.names(); }
  const TensorView* find(std::string_view name) const override { return base_.find(name); }
  size_t file_bytes() const override { return base_.file_bytes(); }
  const Metadata& metadata() const override { return base_.metadata(); }
  std::optional<std::string> sidecar(std::string_view file_name) const override {
    if (file_name == file_name_) return text_;
    return base_.sidecar(file_name);
  }
  std::string fingerprint() const override { return base_.fingerprint(); }
  Status check_unchanged() const override { return base_.check_unchanged(); }
  void release_pages() const override { base_.release_pages(); }
  void release_tensor(const TensorView& tensor) const override { base_.release_tensor(tensor); }

 private:
  const Checkpoint& base_;
  std::string file_name_;
  std::string text_;
};

template <typename T>
Result<std::vector<T>> whole_numbers(const JsonObject& json, std::string_view key) {
  std::vector<T> values;
  for (double value : TRY(json.numbers(key))) {
    if (value < 0 || value > 0x7FFFFFFF || value != std::floor(value)) {
      return make_error(ErrorCode::kInvalidArgument,
                        "expect.json: {} holds {}, but must hold ids or positions", key, value);
    }
    values.push_back(static_cast<T>(value));
  }
  return values;
}

TensorView find_or_empty(const Checkpoint* expected, const std::string& name) {
  const TensorView* tensor = expected == nullptr ? nullptr : expected->find(name);
  return tensor == nullptr ? TensorView{} : *tensor;
}

// Recorded rows without positions are all positions, or the last ones.
Status complete_positions(size_t index, GoldenPrompt* prompt) {
  const TensorView& logits = prompt->logits;
  if (logits.empty()) return {};
  if (logits.rank != 2 || logits.dtype != DType::kF32) {
    return make_error(ErrorCode::kInvalidArgument,
                      "prompt{}.logits is {} {}, but must be F32 with two dimensions", index,
                      dtype_name(logits.dtype), logits.shape_string());
  }
  const auto num_ids = static_cast<int64_t>(prompt->ids.size());
  if (prompt->positions.empty()) {
    for (int64_t i = std::max<int64_t>(0, num_ids - logits.dim(0)); i < num_ids; ++i) {
      prompt->positions.push_back(i);
    }
  }
  const bool ascending = std::is_sorted(prompt->positions.begin(), prompt->positions.end());
  if (static_cast<int64_t>(prompt->positions.size()) != logits.dim(0) || !ascending ||
      prompt->positions.back() >= num_ids) {
    return make_error(ErrorCode::kInvalidArgument,
                      "prompt {} has {} ids and {} positions for {} rows of logits, but needs one "
                      "ascending position below the number of ids per row",
                      index, num_ids, prompt->positions.size(), logits.dim(0));
  }
  return {};
}

Result<GoldenPrompt> read_prompt(const boost::json::value& value, size_t index,
                                 const Checkpoint* expected) {
  if (!value.is_object()) {
    return make_error(ErrorCode::kInvalidArgument, "expect.json: prompt {} is not an object",
                      index);
  }
  const JsonObject json(value.get_object());
  GoldenPrompt prompt;
  prompt.ids = TRY(whole_numbers<int32_t>(json, "ids"));
  prompt.positions = TRY(whole_numbers<int64_t>(json, "positions"));
  prompt.greedy = TRY(whole_numbers<int32_t>(json, "greedy"));
  if (prompt.ids.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "expect.json: prompt {} has no ids", index);
  }
  prompt.logits = find_or_empty(expected, fmt::format("prompt{}.logits", index));
  prompt.hidden = find_or_empty(expected, fmt::format("prompt{}.hidden_states", index));
  if (!prompt.hidden.empty() && prompt.hidden.dtype != DType::kF32) {
    return make_error(ErrorCode::kInvalidArgument, "prompt{}.hidden_states is {}, but must be F32",
                      index, dtype_name(prompt.hidden.dtype));
  }
  TRY(complete_positions(index, &prompt));
  if (prompt.logits.empty() && prompt.greedy.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "nothing is recorded for prompt {}: neither logits nor greedy ids", index);
  }
  return prompt;
}

double largest_logit(const std::vector<GoldenPrompt>& prompts) {
  double largest = 0;
  for (const GoldenPrompt& prompt : prompts) {
    for (int64_t i = 0; !prompt.logits.empty() && i < prompt.logits.num_elements(); ++i) {
      float value;
      std::memcpy(&value, prompt.logits.data + static_cast<size_t>(i) * sizeof value, sizeof value);
      largest = std::max(largest, static_cast<double>(std::abs(value)));
    }
  }
  return largest;
}

// The checkpoint that an adapter was made for.
Result<std::string> base_folder(const fs::path& adapter, const std::string& name) {
  const fs::path folder = fs::absolute(adapter);
  const fs::path parent =
      folder.has_filename() ? folder.parent_path() : folder.parent_path().parent_path();
  std::error_code ignored;
  for (const fs::path& path : {parent / ".." / "tiny" / name, parent / name}) {
    if (fs::is_directory(path, ignored)) return path.lexically_normal().string();
  }
  return make_error(ErrorCode::kNotFound, "the checkpoint '{}' of the adapter {} is not beside it",
                    name, adapter.string());
}

}  // namespace

Result<Golden> read_golden(const std::string& folder) {
  const fs::path path(folder);
  std::error_code ignored;
  Golden golden;
  golden.folder = folder;
  const std::string text = TRY(read_file(path / "expect.json"));
  const boost::json::value root = TRY(parse_json_object(text, "expect.json"));
  const JsonObject json(root.get_object());
  if (fs::exists(path / "adapter_config.json", ignored)) {
    golden.base = TRY(base_folder(path, TRY(json.text("base"))));
  }
  if (fs::exists(path / "expect.safetensors", ignored)) {
    golden.expected = TRY(Checkpoint::open((path / "expect.safetensors").string()));
  }
  const boost::json::value* prompts = json.find("prompts");
  if (prompts == nullptr || !prompts->is_array() || prompts->get_array().empty()) {
    return make_error(ErrorCode::kInvalidArgument, "expect.json in {} has no list of prompts",
                      folder);
  }
  for (const boost::json::value& prompt : prompts->get_array()) {
    golden.prompts.push_back(
        TRY(read_prompt(prompt, golden.prompts.size(), golden.expected.get())));
  }
  golden.max_abs_logit = TRY(json.number("max_abs_logit", largest_logit(golden.prompts)));
  return golden;
}

std::unique_ptr<Checkpoint> with_sidecar(const Checkpoint& base, std::string file_name,
                                         std::string text) {
  return std::make_unique<SidecarOverride>(base, std::move(file_name), std::move(text));
}

Result<std::unique_ptr<Checkpoint>> open_folder(const std::string& folder) {
  std::error_code ignored;
  if (!fs::exists(fs::path(folder) / "config.json", ignored)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
      if (entry.path().extension() == ".gguf") return Checkpoint::open(entry.path().string());
    }
  }
  return Checkpoint::open(folder);
}

}  // namespace headrace
