#include "server/api/bundle.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/json.h"
#include "base/log.h"
#include "server/api/json.h"
#include "server/api/parts/marked_tokenizer.h"

namespace headrace {
namespace {

constexpr int32_t kControlToken = 3;  // tokenizer.ggml.token_type

// Texts that end a turn in some model family: a control token that reads so ends generation,
// because GGUF files name at most three of the ids that the original lists.
constexpr std::string_view kEndTexts[] = {"<|eot_id|>",
                                          "<|im_end|>",
                                          "<|end|>",
                                          "<|return|>",
                                          "<|call|>",
                                          "<|flush|>",
                                          "<|calls|>",
                                          "<end_of_turn>",
                                          "<|endoftext|>",
                                          "</s>",
                                          "<|eom_id|>",
                                          "<EOT>",
                                          "_<EOT>",
                                          "[EOT]",
                                          "[EOS]",
                                          "<|end_of_text|>",
                                          "<end_of_utterance>",
                                          "<eos>",
                                          "<turn|>",
                                          "<|tool_response>",
                                          "<｜end▁of▁sentence｜>",
                                          "[e~["};

constexpr std::string_view kSpecialNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                              "pad_token", "cls_token", "mask_token"};

// The JSON files beside the weights; empty objects where there is none.
struct Sidecars {
  boost::json::value config, tokenizer_config, special_tokens, generation;
};

Result<boost::json::value> read_json(const Checkpoint& checkpoint, std::string_view name) {
  const auto text = checkpoint.sidecar(name);
  if (!text) return boost::json::value(boost::json::object());
  return parse_json(*text, name);
}

Result<Sidecars> read_sidecars(const Checkpoint& checkpoint) {
  Sidecars files;
  files.config = TRY(read_json(checkpoint, "config.json"));
  files.tokenizer_config = TRY(read_json(checkpoint, "tokenizer_config.json"));
  files.special_tokens = TRY(read_json(checkpoint, "special_tokens_map.json"));
  files.generation = TRY(read_json(checkpoint, "generation_config.json"));
  return files;
}

std::vector<int32_t> as_int32(const std::vector<int64_t>& values) {
  return std::vector<int32_t>(values.begin(), values.end());
}

Result<GgufVocabulary> read_vocabulary(const Metadata& metadata) {
  GgufVocabulary vocabulary;
  const auto* tokens = metadata.texts("tokenizer.ggml.tokens");
  if (tokens == nullptr) {
    return Error{ErrorCode::kUnsupported,
                 "the file has no tokenizer (tokenizer.ggml.tokens)",
                 "use a file that was converted with its vocabulary",
                 {}};
  }
  vocabulary.tokens = *tokens;
  vocabulary.model = metadata.text("tokenizer.ggml.model").value_or("");
  vocabulary.pre = metadata.text("tokenizer.ggml.pre").value_or("");
  vocabulary.architecture = metadata.text("general.architecture").value_or("");
  if (const auto types = metadata.integers("tokenizer.ggml.token_type")) {
    vocabulary.token_types = as_int32(*types);
  }
  if (const auto scores = metadata.numbers("tokenizer.ggml.scores")) {
    for (const double score : *scores) vocabulary.scores.push_back(static_cast<float>(score));
  }
  if (const auto* merges = metadata.texts("tokenizer.ggml.merges")) vocabulary.merges = *merges;
  const auto id = [&](std::string_view name) -> std::optional<int32_t> {
    const auto value = metadata.integer(fmt::format("tokenizer.ggml.{}_token_id", name));
    const bool valid = value && *value >= 0 && *value < static_cast<int64_t>(tokens->size());
    return valid ? std::optional<int32_t>(static_cast<int32_t>(*value)) : std::nullopt;
  };
  vocabulary.bos_id = id("bos");
  vocabulary.eos_id = id("eos");
  vocabulary.eot_id = id("eot");
  vocabulary.eom_id = id("eom");
  vocabulary.unknown_id = id("unknown");
  vocabulary.padding_id = id("padding");
  vocabulary.add_bos = metadata.boolean("tokenizer.ggml.add_bos_token");
  vocabulary.add_eos = metadata.boolean("tokenizer.ggml.add_eos_token");
  vocabulary.add_space_prefix = metadata.boolean("tokenizer.ggml.add_space_prefix");
  vocabulary.huggingface_json = metadata.text("tokenizer.huggingface.json");
  return vocabulary;
}

Result<std::unique_ptr<Tokenizer>> make_tokenizer(const Checkpoint& checkpoint) {
  if (const auto text = checkpoint.sidecar("tokenizer.json")) {
    return Tokenizer::from_json(*text, checkpoint.sidecar("tokenizer_config.json").value_or(""));
  }
  if (checkpoint.kind() != CheckpointKind::kGguf) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} has no tokenizer.json beside the weights", checkpoint.path()),
                 "put the model's tokenizer.json into the same folder",
                 {}};
  }
  const GgufVocabulary vocabulary = TRY(read_vocabulary(checkpoint.metadata()));
  return Tokenizer::from_gguf(vocabulary);
}

// "<s>" or {"content": "<s>", ...}.
std::optional<std::string> token_text(const boost::json::value* value) {
  if (value != nullptr && value->is_object()) value = value->get_object().if_contains("content");
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return std::string(text_view(value->get_string()));
}

// The strings that templates may use, by name.
boost::json::object special_tokens(const Checkpoint& checkpoint, const Sidecars& files,
                                   const Tokenizer& tokenizer) {
  boost::json::object tokens;
  for (const std::string_view name : kSpecialNames) {
    auto text = token_text(json_member(&files.tokenizer_config, name));
    if (!text) text = token_text(json_member(&files.special_tokens, name));
    if (text) tokens[name] = *text;
  }
  const auto add = [&](std::string_view name, std::optional<int64_t> id) {
    if (!id || *id < 0 || *id >= tokenizer.vocab_size() || tokens.contains(name)) return;
    const auto text = tokenizer.id_to_token(static_cast<int32_t>(*id));
    if (text) tokens[name] = *text;
  };
  add("bos_token", tokenizer.bos_id());
  add("eos_token", tokenizer.eos_id());
  add("pad_token", checkpoint.metadata().integer("tokenizer.ggml.padding_token_id"));
  add("unk_token", checkpoint.metadata().integer("tokenizer.ggml.unknown_token_id"));
  return tokens;
}

std::string member_text(const boost::json::object& object, std::string_view name) {
  const boost::json::value* value = object.if_contains(name);
  return value == nullptr ? std::string() : std::string(text_view(value->as_string()));
}

constexpr std::string_view kUsualTemplate = "default";
constexpr std::string_view kToolTemplate = "tool_use";

// The chat templates of a checkpoint: for all conversations, and for those with tools.
struct TemplateSources {
  std::optional<std::string> usual, with_tools;
};

std::optional<std::string> text_of(const boost::json::value* value) {
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return std::string(text_view(value->get_string()));
}

// tokenizer_config.json's chat_template: a string, or named ones as a list or an object.
std::optional<std::string> config_template(const Sidecars& files, std::string_view wanted) {
  const boost::json::value* entry = json_member(&files.tokenizer_config, "chat_template");
  if (entry == nullptr) return std::nullopt;
  if (entry->is_object()) return text_of(json_member(entry, wanted));
  const boost::json::array* list = entry->if_array();
  if (list == nullptr) return wanted == kUsualTemplate ? text_of(entry) : std::nullopt;
  for (const boost::json::value& item : *list) {
    if (text_of(json_member(&item, "name")) != wanted) continue;
    if (auto text = text_of(json_member(&item, "template"))) return text;
  }
  return std::nullopt;
}

std::optional<std::string> stored_template(const Metadata& metadata, std::string_view key) {
  const auto stored = metadata.text(key);
  if (!stored) return std::nullopt;
  if (stored->find('{') == std::string_view::npos) {
    LOG(kWarning, "the file's chat template is the name '{}', not a template: it is left out",
        *stored);
    return std::nullopt;
  }
  return std::string(*stored);
}

// From the first place that has one.
TemplateSources template_sources(const Checkpoint& checkpoint, const Sidecars& files) {
  if (const auto file = checkpoint.sidecar("chat_template.jinja")) {
    return {*file, checkpoint.sidecar("additional_chat_templates/tool_use.jinja")};
  }
  if (auto usual = config_template(files, kUsualTemplate)) {
    return {std::move(usual), config_template(files, kToolTemplate)};
  }
  const Metadata& metadata = checkpoint.metadata();
  return {stored_template(metadata, "tokenizer.chat_template"),
          stored_template(metadata, "tokenizer.chat_template.tool_use")};
}

// A number or a list of numbers.
void add_ids(const boost::json::value* value, std::set<int32_t>& ids) {
  if (value == nullptr) return;
  if (value->is_int64() && value->get_int64() >= 0 && value->get_int64() <= INT32_MAX) {
    ids.insert(static_cast<int32_t>(value->get_int64()));
  }
  if (!value->is_array()) return;
  for (const boost::json::value& item : value->get_array()) {
    if (item.is_number()) add_ids(&item, ids);
  }
}

// Control tokens of a GGUF file whose text ends a turn. An ordinary word that reads so (Qwen2.5 has
// "</s>" as one) does not count.
void add_end_texts(const Metadata& metadata, std::set<int32_t>& ids) {
  const auto* tokens = metadata.texts("tokenizer.ggml.tokens");
  const auto types = metadata.integers("tokenizer.ggml.token_type");
  if (tokens == nullptr || !types) return;
  std::set<std::string_view> texts;
  for (size_t id = 0; id < std::min(tokens->size(), types->size()); ++id) {
    if ((*types)[id] == kControlToken) texts.insert((*tokens)[id]);
  }
  const bool channels = texts.contains("<|return|>") && texts.contains("<|call|>");
  const bool gemma4 = metadata.text("tokenizer.ggml.model").value_or("") == "gemma4";
  for (size_t id = 0; id < std::min(tokens->size(), types->size()); ++id) {
    const std::string_view text = (*tokens)[id];
    if ((*types)[id] != kControlToken) continue;
    if (std::find(std::begin(kEndTexts), std::end(kEndTexts), text) == std::end(kEndTexts)) {
      continue;
    }
    if (channels && text == "<|end|>") continue;  // ends a message, not the turn
    if (gemma4 && text == "</s>") continue;
    ids.insert(static_cast<int32_t>(id));
  }
}

std::vector<int32_t> find_end_ids(const Checkpoint& checkpoint, const Sidecars& files,
                                  const TextBundle& bundle) {
  std::set<int32_t> ids;
  add_ids(json_member(&files.generation, "eos_token_id"), ids);
  add_ids(json_member(&files.config, "eos_token_id"), ids);
  add_ids(json_member(json_member(&files.config, "text_config"), "eos_token_id"), ids);
  const Metadata& metadata = checkpoint.metadata();
  for (const std::string_view name : {"eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"}) {
    const auto id = metadata.integer(fmt::format("tokenizer.ggml.{}_token_id", name));
    if (id && *id >= 0 && *id <= INT32_MAX) ids.insert(static_cast<int32_t>(*id));
  }
  add_end_texts(metadata, ids);
  if (const auto id = bundle.tokenizer->eos_id()) ids.insert(*id);
  if (!bundle.eos_token.empty()) {
    if (const auto id = bundle.tokenizer->token_to_id(bundle.eos_token)) ids.insert(*id);
  }
  std::erase_if(ids, [&](int32_t id) { return id >= bundle.tokenizer->vocab_size(); });
  return {ids.begin(), ids.end()};
}

// The special tokens of the vocabulary as a JSON list.
std::string special_spellings(const Tokenizer& tokenizer) {
  boost::json::array spellings;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_special(id)) spellings.emplace_back(tokenizer.id_to_token(id).value_or(""));
  }
  return boost::json::serialize(spellings);
}

// Tokens that the template writes though they are not special: <tool_call>, [INST]. As they stand
// between brackets in its source.
boost::json::array written_spellings(const Tokenizer& tokenizer, std::string_view source) {
  constexpr size_t kMaxBytes = 64;
  std::set<std::string> spellings;
  for (size_t at = source.find_first_of("<["); at != std::string_view::npos;
       at = source.find_first_of("<[", at + 1)) {
    const size_t end = source.find_first_of("<[>]\"'\n ", at + 1);
    if (end == std::string_view::npos || end - at > kMaxBytes) continue;
    if (source[end] != (source[at] == '<' ? '>' : ']')) continue;
    std::string spelling(source.substr(at, end + 1 - at));
    const auto id = tokenizer.token_to_id(spelling);
    if (id && !tokenizer.is_special(*id)) spellings.insert(std::move(spelling));
  }
  boost::json::array list;
  for (const std::string& spelling : spellings) list.emplace_back(spelling);
  return list;
}

struct SamplingRow {
  std::string_view name;      // in generation_config.json
  std::string_view metadata;  // in a GGUF file
  double low, high;
  std::optional<float> SamplingDefaults::* member;
};

constexpr SamplingRow kSampling[] = {
    {"temperature", "general.sampling.temp", 0, 100, &SamplingDefaults::temperature},
    {"top_p", "general.sampling.top_p", 1e-6, 1, &SamplingDefaults::top_p},
    {"min_p", "general.sampling.min_p", 0, 1, &SamplingDefaults::min_p},
    {"repetition_penalty", "general.sampling.penalty_repeat", 0.01, 100,
     &SamplingDefaults::repetition_penalty},
};

std::optional<double> sampling_number(const Checkpoint& checkpoint, const Sidecars& files,
                                      std::string_view name, std::string_view metadata_key) {
  const boost::json::value* value = json_member(&files.generation, name);
  if (value != nullptr && value->is_number()) return value->to_number<double>();
  return checkpoint.metadata().number(metadata_key);
}

SamplingDefaults read_sampling(const Checkpoint& checkpoint, const Sidecars& files) {
  SamplingDefaults sampling;
  for (const SamplingRow& row : kSampling) {
    const auto value = sampling_number(checkpoint, files, row.name, row.metadata);
    if (value && *value >= row.low && *value <= row.high) {
      sampling.*row.member = static_cast<float>(*value);
    }
  }
  const auto top_k = sampling_number(checkpoint, files, "top_k", "general.sampling.top_k");
  if (top_k && *top_k >= 0 && *top_k <= INT32_MAX) {
    sampling.top_k = static_cast<int32_t>(*top_k);
  }
  return sampling;
}

std::string find_display_name(const Checkpoint& checkpoint) {
  const auto name = checkpoint.metadata().text("general.name");
  if (checkpoint.kind() == CheckpointKind::kGguf && name && !name->empty()) {
    return std::string(*name);
  }
  const std::filesystem::path path(checkpoint.path());
  return path.has_stem() ? path.stem().string() : path.parent_path().filename().string();
}

Result<std::unique_ptr<ChatTemplate>> make_template(const std::string& source,
                                                    const std::string& tokens_json,
                                                    const TextBundle& bundle) {
  const bool plain = bundle.content_tokens == ContentTokens::kPlain;
  return ChatTemplate::create(source, tokens_json,
                              plain ? TextBundle::content_words(*bundle.tokenizer, source) : "");
}

// A template for tools that cannot be used costs the tools, not the model.
Status add_templates(const TemplateSources& sources, const std::string& tokens_json,
                     ContentTokens content_tokens, TextBundle& bundle) {
  if (!sources.usual) return {};
  bundle.content_tokens = content_tokens;
  bundle.chat_template = TRY(make_template(*sources.usual, tokens_json, bundle));
  if (!sources.with_tools) return {};
  auto with_tools = make_template(*sources.with_tools, tokens_json, bundle);
  if (!with_tools.ok()) {
    LOG(kWarning, "the chat template for tools ({}) is left out: {}", kToolTemplate,
        with_tools.error().message);
    return {};
  }
  bundle.tool_template = std::move(with_tools).value();
  return {};
}

}  // namespace

SamplingParams default_sampling(const SamplingDefaults& recommended) {
  const SamplingParams neutral;
  SamplingParams sampling;
  sampling.temperature = recommended.temperature.value_or(0.7f);
  sampling.top_p = recommended.top_p.value_or(0.95f);
  sampling.top_k = recommended.top_k.value_or(neutral.top_k);
  sampling.min_p = recommended.min_p.value_or(neutral.min_p);
  sampling.repetition_penalty = recommended.repetition_penalty.value_or(neutral.repetition_penalty);
  return sampling;
}

Result<TextBundle> TextBundle::load(const Checkpoint& checkpoint, ContentTokens content_tokens) {
  const Sidecars files = TRY(read_sidecars(checkpoint));
  TextBundle bundle;
  bundle.pooling = TRY(PoolingConfig::read(checkpoint));
  bundle.tokenizer = TRY(make_tokenizer(checkpoint));
  const boost::json::object tokens = special_tokens(checkpoint, files, *bundle.tokenizer);
  bundle.bos_token = member_text(tokens, "bos_token");
  bundle.eos_token = member_text(tokens, "eos_token");
  bundle.pad_token = member_text(tokens, "pad_token");
  TRY(add_templates(template_sources(checkpoint, files), boost::json::serialize(tokens),
                    content_tokens, bundle));
  bundle.infill = find_infill_marks(*bundle.tokenizer, checkpoint.metadata());
  bundle.end_ids = find_end_ids(checkpoint, files, bundle);
  bundle.grammars = std::make_unique<GrammarCompiler>(*bundle.tokenizer, bundle.end_ids);
  TRY(bundle.use_formats("auto", "auto"));
  bundle.sampling = read_sampling(checkpoint, files);
  bundle.display_name = find_display_name(checkpoint);
  return bundle;
}

std::string TextBundle::content_words(const Tokenizer& tokenizer, std::string_view source) {
  return fmt::format("{{\"special\":{},\"written\":{}}}", special_spellings(tokenizer),
                     boost::json::serialize(written_spellings(tokenizer, source)));
}

Status TextBundle::use_formats(std::string_view tool_format, std::string_view reasoning_format) {
  const ChatTemplate* of_calls = template_for(true);
  calls_are_text = tool_format == "none";
  formats = {};
  if (reasoning_format != "auto") {
    formats.reasoning = TRY(reasoning_format_named(reasoning_format));
  } else if (chat_template != nullptr) {
    formats.reasoning = find_reasoning_format(chat_template->source());
  }
  if (tool_format != "auto") {
    formats.tools = TRY(tool_format_named(tool_format));
  } else if (chat_template != nullptr) {
    formats.tools = find_tool_format(of_calls->source(), special_spellings(*tokenizer));
  }
  auto marked = std::make_unique<MarkedTokenizer>(*tokenizer, mark_texts(formats));
  marked_tokenizer = marked->shows_more() ? std::move(marked) : nullptr;
  return {};
}

bool TextBundle::opens_reasoning(std::span<const int32_t> prompt_ids) const {
  constexpr size_t kTailTokens = 32;  // in which a prompt's last mark stands
  if (formats.reasoning == nullptr) return false;
  const size_t num_before = prompt_ids.size() - std::min(prompt_ids.size(), kTailTokens);
  const auto decoded = tokenizer->decode(prompt_ids.subspan(num_before), false);
  if (!decoded.ok()) return false;
  const auto trimmed = [](std::string_view text) {
    const size_t end = text.find_last_not_of(" \n\r\t");
    return text.substr(0, end == std::string_view::npos ? 0 : end + 1);
  };
  return trimmed(*decoded).ends_with(trimmed(formats.reasoning->open));
}

std::string TextBundle::visible(std::string rendered) {
  constexpr std::string_view kMark = "\uFDD0";
  for (size_t at = rendered.find(kMark); at != std::string::npos; at = rendered.find(kMark, at)) {
    rendered.erase(at, kMark.size());
  }
  return rendered;
}

Result<std::vector<int32_t>> TextBundle::encode_prompt(std::string_view text, bool add_special,
                                                       const EncodeLimits& limits) const {
  const bool has_bos = tokenizer->adds_bos() && !bos_token.empty() && text.starts_with(bos_token);
  return tokenizer->encode(text, add_special && !has_bos, limits);
}

Result<std::vector<int32_t>> TextBundle::encode_chat(std::string_view rendered,
                                                     const EncodeLimits& limits) const {
  EncodeLimits marked = limits;
  if (content_tokens == ContentTokens::kPlain) marked.hidden = kContentMark;
  std::vector<int32_t> ids = TRY(tokenizer->encode(rendered, false, marked));
  const auto bos = tokenizer->bos_id();
  if (tokenizer->adds_bos() && bos && (ids.empty() || ids.front() != *bos)) {
    ids.insert(ids.begin(), *bos);
  }
  return ids;
}

}  // namespace headrace
