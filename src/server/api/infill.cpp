#include "server/api/infill.h"

#include <fmt/format.h>

#include <algorithm>

namespace headrace {
namespace {

// Sources: the model cards of Qwen2.5-Coder, CodeGemma, StarCoder2, Granite, DeepSeek-Coder,
// CodeLlama, Codestral, SantaCoder.
struct SpellingRow {
  std::string_view before, after, middle;
  bool after_first = false;
};

constexpr SpellingRow kSpellings[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
    {"▁<PRE>", "▁<SUF>", "▁<MID>"},
    {"[PREFIX]", "[SUFFIX]", "[MIDDLE]", true},
};
constexpr std::string_view kEnds[] = {
    "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|file_separator|>",
    "<fim_pad>",   "<file_sep>",    "▁<EOT>"};

std::optional<InfillMarks> named_by(const Metadata& metadata, int32_t vocab_size) {
  const auto id = [&](std::string_view name, std::string_view old_name) -> int32_t {
    auto value = metadata.integer(fmt::format("tokenizer.ggml.{}_token_id", name));
    if (!value) value = metadata.integer(fmt::format("tokenizer.ggml.{}_token_id", old_name));
    return value && *value >= 0 && *value < vocab_size ? static_cast<int32_t>(*value) : -1;
  };
  const InfillMarks marks{
      id("fim_pre", "prefix"), id("fim_suf", "suffix"), id("fim_mid", "middle"), false, {}};
  if (marks.before < 0 || marks.after < 0 || marks.middle < 0) return std::nullopt;
  return marks;
}

// Ordinary words that read so do not count.
int32_t special_id(const Tokenizer& tokenizer, std::string_view spelling) {
  const auto id = tokenizer.token_to_id(spelling);
  return id && tokenizer.is_special(*id) ? *id : -1;
}

std::optional<InfillMarks> spelled_in(const Tokenizer& tokenizer) {
  for (const SpellingRow& row : kSpellings) {
    const InfillMarks marks{special_id(tokenizer, row.before),
                            special_id(tokenizer, row.after),
                            row.after_first ? 0 : special_id(tokenizer, row.middle),
                            row.after_first,
                            {}};
    if (marks.before >= 0 && marks.after >= 0 && marks.middle >= 0) return marks;
  }
  return std::nullopt;
}

}  // namespace

std::optional<InfillMarks> find_infill_marks(const Tokenizer& tokenizer, const Metadata& metadata) {
  auto marks = named_by(metadata, tokenizer.vocab_size());
  if (!marks) marks = spelled_in(tokenizer);
  if (!marks) return std::nullopt;
  marks->ends = {marks->before, marks->after};
  if (!marks->after_first) marks->ends.push_back(marks->middle);
  for (const std::string_view spelling : kEnds) {
    const int32_t id = special_id(tokenizer, spelling);
    if (id >= 0) marks->ends.push_back(id);
  }
  return marks;
}

Result<std::vector<int32_t>> encode_infill(const InfillMarks& marks, std::string_view before,
                                           std::string_view after, const Tokenizer& tokenizer,
                                           const EncodeLimits& limits) {
  std::vector<int32_t> ids;
  const auto bos = tokenizer.bos_id();
  if (tokenizer.adds_bos() && bos) ids.push_back(*bos);
  const auto add = [&](int32_t mark, std::string_view text) -> Status {
    const std::vector<int32_t> text_ids = TRY(tokenizer.encode(text, false, limits));
    ids.push_back(mark);
    ids.insert(ids.end(), text_ids.begin(), text_ids.end());
    return {};
  };
  if (marks.after_first) {
    TRY(add(marks.after, after));
    TRY(add(marks.before, before));
    return ids;
  }
  TRY(add(marks.before, before));
  TRY(add(marks.after, after));
  ids.push_back(marks.middle);
  return ids;
}

}  // namespace headrace
