// Networks of every family the table has, as the reference implementation saves them: recorded
// configurations and tensor lists (tools/make_model_seeds.py), with values of our own.
#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/check.h"
#include "base/json.h"
#include "base/testing/golden.h"
#include "model/config/families.h"
#include "model_seeds.h"

namespace headrace::fuzz {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

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

}  // namespace

std::vector<SafetensorsModel> recorded_models() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(test::archive_root() / "seeds")) {
    paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  std::vector<SafetensorsModel> models;
  for (const fs::path& path : paths) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    const auto root = parse_json(text.str(), path.string());
    CHECK(root.ok(), "{}", root.error().message);
    const json::object& config = root->at("config").as_object();
    if (find_family_by_model_type(config.at("model_type").as_string()) == nullptr) continue;
    std::vector<SeedTensor> tensors;
    for (const json::value& tensor : root->at("tensors").as_array()) {
      tensors.push_back(tensor_of(tensor));
    }
    models.push_back({{safetensors_seed(path.stem().string(), tensors)}, json::serialize(config)});
  }
  return models;
}

}  // namespace headrace::fuzz
