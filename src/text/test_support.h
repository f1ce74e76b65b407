// What the tests of this folder share: golden files, environment, vocabularies out of GGUF files.
#pragma once

#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/testing/golden.h"
#include "checkpoint/checkpoint.h"
#include "text/tokenizer.h"

namespace headrace::test {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The recorded results of one kind: "tokenizers/qwen3.json".
inline boost::json::object recorded(const std::string& name) {
  return boost::json::parse(read_file(golden_root() / name)).as_object();
}

inline std::optional<std::filesystem::path> folder_from(const char* variable) {
  const char* given = std::getenv(variable);
  if (given == nullptr || !std::filesystem::is_directory(given)) return std::nullopt;
  return given;
}

inline std::string text_of(const boost::json::value& value) {
  return std::string(value.as_string());
}

inline std::vector<int32_t> ids_of(const boost::json::value& value) {
  std::vector<int32_t> ids;
  for (const boost::json::value& id : value.as_array()) ids.push_back(id.to_number<int32_t>());
  return ids;
}

// The template that recorded renderings belong to: it is in the file, or in the folder that
// tools/fetch_templates.py filled and HEADRACE_TEST_TEMPLATES names; nothing if there is none.
inline std::optional<std::string> template_of(const boost::json::object& recorded) {
  if (const boost::json::value* text = recorded.if_contains("template")) return text_of(*text);
  const auto folder = folder_from("HEADRACE_TEST_TEMPLATES");
  if (!folder) return std::nullopt;
  return read_file(*folder / text_of(recorded.at("template_file")));
}

// The vocabulary of a GGUF file; views point into the checkpoint.
inline GgufVocabulary vocabulary_of(const Checkpoint& checkpoint) {
  const Metadata& metadata = checkpoint.metadata();
  const auto id = [&](const char* key) -> std::optional<int32_t> {
    const auto value = metadata.integer(std::string("tokenizer.ggml.") + key);
    if (!value) return std::nullopt;
    return static_cast<int32_t>(*value);
  };
  const auto texts = [&](const char* key) {
    const auto* values = metadata.texts(key);
    return values ? *values : std::vector<std::string_view>();
  };
  GgufVocabulary vocabulary;
  vocabulary.model = metadata.text("tokenizer.ggml.model").value_or("");
  vocabulary.pre = metadata.text("tokenizer.ggml.pre").value_or("");
  vocabulary.tokens = texts("tokenizer.ggml.tokens");
  vocabulary.merges = texts("tokenizer.ggml.merges");
  for (const int64_t type :
       metadata.integers("tokenizer.ggml.token_type").value_or(std::vector<int64_t>{})) {
    vocabulary.token_types.push_back(static_cast<int32_t>(type));
  }
  for (const double score :
       metadata.numbers("tokenizer.ggml.scores").value_or(std::vector<double>{})) {
    vocabulary.scores.push_back(static_cast<float>(score));
  }
  vocabulary.bos_id = id("bos_token_id");
  vocabulary.eos_id = id("eos_token_id");
  vocabulary.eot_id = id("eot_token_id");
  vocabulary.eom_id = id("eom_token_id");
  vocabulary.unknown_id = id("unknown_token_id");
  vocabulary.padding_id = id("padding_token_id");
  vocabulary.add_bos = metadata.boolean("tokenizer.ggml.add_bos_token");
  vocabulary.add_eos = metadata.boolean("tokenizer.ggml.add_eos_token");
  vocabulary.add_space_prefix = metadata.boolean("tokenizer.ggml.add_space_prefix");
  return vocabulary;
}

}  // namespace headrace::test
