// Networks of every family the table has, as the reference implementation saves them: recorded
// configurations and tensor lists (tools/make_model_seeds.py), with values of our own.
#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "base/testing/golden.h"
#include "model/config/families.h"
#include "model_seeds.h"

namespace headrace::fuzz {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

// ---- safetensors ----

// The types that checkpoints have, so that the tensor outlives the text it was read from.
std::string_view dtype_named(std::string_view name) {
  for (const std::string_view known : {"BF16", "F32", "F16", "I64", "U8"}) {
    if (known == name) return known;
  }
  CHECK(false, "a seed's tensor is {}", name);
}

SeedTensor tensor_of(const json::value& value) {
  const json::array& fields = value.as_array();
  SeedTensor tensor{std::string(fields[0].as_string()), dtype_named(fields[1].as_string()), {}};
  for (const json::value& size : fields[2].as_array()) {
    tensor.shape.push_back(size.to_number<uint64_t>());
  }
  return tensor;
}

bool is_known(const json::value& config) {
  return find_family_by_model_type(config.at("model_type").as_string()) != nullptr;
}

// The files, in the order of their names.
std::vector<std::pair<std::string, json::value>> read_seeds() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(test::archive_root() / "seeds")) {
    paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  std::vector<std::pair<std::string, json::value>> seeds;
  for (const fs::path& path : paths) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    const auto root = parse_json(text.str(), path.string());
    CHECK(root.ok(), "{}", root.error().message);
    if (is_known(root->at("config"))) seeds.emplace_back(path.stem().string(), *root);
  }
  return seeds;
}

// ---- GGUF ----

std::vector<int32_t> integers_of(const json::array& list) {
  std::vector<int32_t> values;
  for (const json::value& value : list) {
    values.push_back(value.is_bool() ? value.get_bool() : value.to_number<int32_t>());
  }
  return values;
}

GgufKey::Value list_of(std::string_view type, const json::array& list) {
  if (type == "STRING") {
    std::vector<std::string> texts;
    for (const json::value& value : list) texts.emplace_back(value.as_string());
    return texts;
  }
  if (type != "FLOAT32") return integers_of(list);
  std::vector<float> numbers;
  // JSON has no infinity; the one that files have is that of a gate that leaves nothing out.
  for (const json::value& value : list) {
    numbers.push_back(value.is_null() ? -std::numeric_limits<float>::infinity()
                                      : value.to_number<float>());
  }
  return numbers;
}

// types: that of the value; of a list "ARRAY" and that of its elements.
GgufKey::Value value_of(const json::array& types, const json::value& value) {
  const std::string_view type = types[0].as_string();
  if (type == "ARRAY") return list_of(types.at(1).as_string(), value.as_array());
  if (type == "STRING") return std::string(value.as_string());
  if (type == "BOOL") return value.as_bool();
  if (type == "FLOAT32") return value.to_number<float>();
  if (type == "INT32") return value.to_number<int32_t>();
  return value.to_number<uint32_t>();
}

GgufModel gguf_model_of(const std::string& name, const json::object& form) {
  GgufModel model;
  model.name = name;
  for (const json::value& key : form.at("keys").as_array()) {
    const json::array& fields = key.as_array();
    model.keys.push_back(
        {std::string(fields[0].as_string()), value_of(fields[1].as_array(), fields[2])});
  }
  model.architecture = std::get<std::string>(model.keys.at(0).value);
  for (const json::value& tensor : form.at("tensors").as_array()) {
    const json::array& fields = tensor.as_array();
    std::vector<uint64_t> sizes;
    for (const json::value& size : fields[2].as_array()) {
      sizes.push_back(size.to_number<uint64_t>());
    }
    const bool is_wide = fields[1].as_string() == "F32";
    model.tensors.tensor(std::string(fields[0].as_string()), sizes,
                         is_wide ? DType::kF32 : DType::kBF16);
  }
  add_merged_vocabulary(&model.keys);
  return model;
}

}  // namespace

std::vector<SafetensorsModel> recorded_models() {
  std::vector<SafetensorsModel> models;
  for (const auto& [name, seed] : read_seeds()) {
    std::vector<SeedTensor> tensors;
    for (const json::value& tensor : seed.at("tensors").as_array()) {
      tensors.push_back(tensor_of(tensor));
    }
    models.push_back({{safetensors_seed(name, tensors)}, json::serialize(seed.at("config"))});
  }
  return models;
}

std::vector<GgufModel> recorded_gguf_models() {
  std::vector<GgufModel> models;
  for (const auto& [name, seed] : read_seeds()) {
    const json::value* form = seed.as_object().if_contains("gguf");
    if (form != nullptr && !form->is_null()) {
      models.push_back(gguf_model_of(name, form->as_object()));
    }
  }
  return models;
}

}  // namespace headrace::fuzz
