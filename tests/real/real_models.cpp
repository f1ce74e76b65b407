#include "real/real_models.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/testing/golden.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string name_of(const RealModel& model) {
  std::string name = model.stem;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

std::optional<std::string> find_model_file(const std::string& stem) {
  const std::string folder = environment("HEADRACE_TEST_MODELS");
  if (folder.empty()) return std::nullopt;
  const fs::path direct = fs::path(folder) / (stem + ".gguf");
  if (fs::exists(direct)) return direct.string();
  const std::string stored = stem.substr(0, stem.rfind('-'));
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string parent = entry.path().parent_path().filename().string();
    if (entry.path().extension() == ".gguf" && parent.starts_with(stored))
      return entry.path().string();
  }
  return std::nullopt;
}

bool wants_everything() { return environment("HEADRACE_FULL") == "1"; }

std::string golden_file(const std::string& name) { return (test::golden_root() / name).string(); }

std::string beginnings_of(const std::string& expect, int num_prompts, int num_ids) {
  std::ifstream file(expect);
  boost::json::value recorded = boost::json::parse(std::string(std::istreambuf_iterator(file), {}));
  auto& prompts = recorded.at("prompts").as_array();
  EXPECT_GE(prompts.size(), static_cast<size_t>(num_prompts));
  prompts.resize(static_cast<size_t>(num_prompts));
  for (auto& prompt : prompts) {
    auto& greedy = prompt.at("greedy").as_array();
    EXPECT_GE(greedy.size(), static_cast<size_t>(num_ids));
    greedy.resize(static_cast<size_t>(num_ids));
  }
  return boost::json::serialize(recorded);
}

}  // namespace headrace
