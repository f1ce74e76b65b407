#include "cli/model_argument.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>

#include "base/quote.h"
#include "checkpoint/hub/hub.h"
#include "checkpoint/hub/store.h"
#include "cli/suggest.h"
#include "model/config/families.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

bool ends_as_checkpoint(std::string_view name) {
  return name.ends_with(".gguf") || name.ends_with(".safetensors");
}

bool has_blank(std::string_view word) { return word.find_first_of(" \t\r\n") != word.npos; }

bool is_checkpoint_folder(const fs::path& path) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    if (name == "config.json" || ends_as_checkpoint(name)) return true;
  }
  return false;
}

bool is_gguf_file(const fs::path& path) {
  std::array<char, 4> magic{};
  std::ifstream file(path, std::ios::binary);
  file.read(magic.data(), magic.size());
  return file.good() && std::string_view(magic.data(), magic.size()) == "GGUF";
}

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool names_model(const std::string& word) {
  if (hub::parse_spec(word).ok()) return true;
  std::error_code error;
  if (fs::is_directory(word, error)) return is_checkpoint_folder(word);
  if (fs::is_regular_file(word, error)) return ends_as_checkpoint(word) || is_gguf_file(word);
  return ends_as_checkpoint(word) && !has_blank(word);  // and will be reported as missing
}

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
  });
}

bool has_digit(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

// The letters at the beginning, as lower case.
std::string letters_of(std::string_view word) {
  std::string letters;
  for (const unsigned char c : word) {
    if (std::isalpha(c) == 0) break;
    letters += static_cast<char>(std::tolower(c));
  }
  return letters;
}

// "llama3.2:1b", "mistral:latest": as other programs name models.
bool is_tagged_name(std::string_view word) {
  const size_t colon = word.find(':');
  if (colon == word.npos || !is_name(word.substr(0, colon))) return false;
  const std::string_view tag = word.substr(colon + 1);
  return is_name(tag) && (has_digit(tag) || tag == "latest");
}

// "Qwen/Qwen2.5-0.5B": as hubs name repositories.
bool is_repository(std::string_view word) {
  const size_t slash = word.find('/');
  if (slash == word.npos) return false;
  const std::string_view owner = word.substr(0, slash), name = word.substr(slash + 1);
  return is_name(owner) && is_name(name) && letters_of(owner).size() > 1 &&
         letters_of(name).size() > 1 && has_digit(name);
}

// "llama3", "qwen3-4b": begins with the letters of a family that we know, and more than a letter.
bool begins_as_family(std::string_view word) {
  const std::string letters = letters_of(word);
  const auto rows = families();
  return is_name(word) && letters.size() > 1 &&
         std::any_of(rows.begin(), rows.end(),
                     [&](const Family& family) { return letters_of(family.name) == letters; });
}

std::string known_names() {
  std::string names;
  for (const NamedModel& row : named_models()) names += fmt::format("{}, ", row.name);
  return names + "hf:ORG/REPO, a URL, or a file or folder";
}

// Why a first word is taken for a model that there is not; nothing if it is simply text.
Status refuse_lookalike(const std::string& word, bool is_alone, const std::string& other) {
  if (has_blank(word)) return {};
  const std::string near = nearest_model(word);
  const bool may_be_meant =
      is_tagged_name(word) || (is_alone && (begins_as_family(word) || exists(word)));
  if (near.empty() && !may_be_meant) return {};
  Error error;
  if (near.empty() && exists(word)) {
    error = make_error(ErrorCode::kInvalidArgument, "{} is a file or folder, but no model",
                       quote(word));
    error.hint = "to give a file to the model: headrace COMMAND MODEL \"PROMPT\" < FILE";
    return error;
  }
  error = make_error(ErrorCode::kInvalidArgument, "there is no model {}{}", quote(word),
                     near.empty() ? std::string() : fmt::format("; did you mean {}?", near));
  const std::string as_text = fmt::format("as text it goes behind a model: {} {}", other, word);
  error.hint = near.empty() ? fmt::format("models are {}; {}", known_names(), as_text) : as_text;
  return error;
}

}  // namespace

std::string nearest_model(const std::string& spec) {
  if (has_blank(spec)) return {};
  if (is_repository(spec) && !exists(spec)) return "hf:" + spec;
  std::vector<std::string> names, families;
  for (const NamedModel& row : named_models()) {
    names.emplace_back(row.name);
    families.emplace_back(row.name.substr(0, row.name.find(':')));
  }
  const std::string name = nearest_name(spec, names);
  if (!name.empty()) return name;
  const std::string family = nearest_name(spec.substr(0, spec.find(':')), families);
  for (size_t i = 0; i < names.size(); ++i) {
    if (families[i] == family) return names[i];
  }
  return {};
}

Result<ModelArgument> take_model_and_text(const Options& options) {
  ModelArgument taken{options.text("--model"), options.is_typed("--model"), options.positionals()};
  if (taken.named || taken.words.empty()) return taken;
  const std::string& first = taken.words.front();
  if (!names_model(first)) {
    TRY(refuse_lookalike(first, taken.words.size() == 1, taken.model));
    return taken;
  }
  taken.model = first;
  taken.named = true;
  taken.words.erase(taken.words.begin());
  return taken;
}

Result<std::vector<std::string>> take_models(const Options& options) {
  const std::vector<std::string>& words = options.positionals();
  if (words.empty()) return std::vector{options.text("--model")};
  if (options.is_typed("--model")) {
    return make_error(ErrorCode::kInvalidArgument,
                      "two models are named, --model {} and {}: leave one out",
                      quote(options.text("--model")), quote(words.front()));
  }
  return words;
}

Result<ModelArgument> take_model(const Options& options, size_t max_others, size_t skipped) {
  const auto& all = options.positionals();
  ModelArgument taken{options.text("--model"),
                      options.is_typed("--model"),
                      {all.begin() + static_cast<ptrdiff_t>(skipped), all.end()}};
  const bool is_model =
      !taken.words.empty() && (taken.words.size() > max_others || names_model(taken.words.front()));
  if (!is_model) return taken;
  if (taken.named && taken.words.size() <= max_others) return taken;
  if (taken.named) {
    return make_error(ErrorCode::kInvalidArgument,
                      "two models are named, --model {} and {}: leave one out", quote(taken.model),
                      quote(taken.words.front()));
  }
  taken.model = taken.words.front();
  taken.named = true;
  taken.words.erase(taken.words.begin());
  return taken;
}

}  // namespace headrace
