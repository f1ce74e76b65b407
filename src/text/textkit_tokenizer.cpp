#include "text/tokenizer.h"

#include <new>

#include "text/joiner.h"
#include "text/textkit_call.h"

namespace headrace {

namespace {

struct TokenizerCloser {
  void operator()(TkTokenizer* handle) const { tk_tokenizer_free(handle); }
};
using TokenizerHandle = std::unique_ptr<TkTokenizer, TokenizerCloser>;

std::string to_string(TkView view) { return std::string(view.data, view.size); }

int32_t ask_stopped(void* limits) {
  return static_cast<const EncodeLimits*>(limits)->stopped() ? 1 : 0;
}

class TextkitTokenizer final : public Tokenizer {
 public:
  explicit TextkitTokenizer(TokenizerHandle handle) : handle_(std::move(handle)) {
    tk_tokenizer_info(handle_.get(), &info_);
  }

  Result<std::vector<int32_t>> encode(std::string_view utf8, bool add_special,
                                      const EncodeLimits& limits) const override {
    TkIds ids = {};
    TkBytes error = {};
    TkEncodeLimits bounds = {.max_tokens = limits.max_tokens,
                             .stopped = limits.stopped ? ask_stopped : nullptr,
                             .context = const_cast<EncodeLimits*>(&limits),
                             .slice_bytes = limits.slice_bytes,
                             .hidden = limits.hidden,
                             .num_found = 0};
    const TkStatus status =
        tk_tokenizer_encode(handle_.get(), tk_view(utf8), add_special, &bounds, &ids, &error);
    if (status == kTkTooLong) {
      tk_free_bytes(error);
      return too_many_tokens(bounds.num_found, limits.max_tokens);
    }
    if (status != kTkOk) return textkit_error(status, error);
    const std::unique_ptr<TkIds, void (*)(TkIds*)> owner(&ids,
                                                         [](TkIds* owned) { tk_free_ids(*owned); });
    try {
      return std::vector<int32_t>(ids.data, ids.data + ids.size);
    } catch (const std::bad_alloc&) {
      return make_error(ErrorCode::kExhausted, "there is not enough memory for {} token ids now",
                        ids.size);
    }
  }

  Result<std::string> decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string text;
    TokenJoiner joiner(*this, skip_special);
    for (const int32_t id : ids) {
      if (id < 0 || id >= vocab_size()) {
        return make_error(ErrorCode::kInvalidArgument,
                          "token id {} is out of range, the vocabulary has {} ids", id,
                          vocab_size());
      }
      joiner.push(id, &text);
    }
    joiner.finish(&text);
    return text;
  }

  int32_t vocab_size() const override { return static_cast<int32_t>(info_.vocab_size); }

  std::optional<std::string> id_to_token(int32_t id) const override {
    const std::optional<TkToken> token = find(id);
    if (!token) return std::nullopt;
    return to_string(token->name);
  }

  std::optional<int32_t> token_to_id(std::string_view token) const override {
    const int64_t id = tk_tokenizer_token_to_id(handle_.get(), tk_view(token));
    if (id < 0) return std::nullopt;
    return static_cast<int32_t>(id);
  }

  std::string token_bytes(int32_t id, bool skip_special) const override {
    const std::optional<TkToken> token = find(id);
    return token && is_shown(*token, skip_special) ? to_string(token->bytes) : std::string();
  }

  std::string first_token_bytes(int32_t id, bool skip_special) const override {
    const std::optional<TkToken> token = find(id);
    return token && is_shown(*token, skip_special) ? to_string(token->first_bytes) : std::string();
  }

  bool is_special(int32_t id) const override {
    const std::optional<TkToken> token = find(id);
    return token && (token->flags & kTkTokenSpecial) != 0;
  }

  bool decodes(int32_t id, bool skip_special) const override {
    const std::optional<TkToken> token = find(id);
    return token && is_shown(*token, skip_special);
  }

  std::optional<int32_t> bos_id() const override { return optional_id(info_.bos_id); }
  std::optional<int32_t> eos_id() const override { return optional_id(info_.eos_id); }
  bool adds_bos() const override { return info_.adds_bos != 0; }

  DecodeScheme decode_scheme() const override {
    return {.mark_each_byte = info_.mark_each_byte != 0,
            .first_differs = info_.first_differs != 0,
            .strip_start_blanks = info_.strip_start_blanks};
  }

 private:
  std::optional<TkToken> find(int32_t id) const {
    TkToken token;
    if (id < 0 || !tk_tokenizer_token(handle_.get(), static_cast<uint32_t>(id), &token)) {
      return std::nullopt;
    }
    return token;
  }

  static bool is_shown(const TkToken& token, bool skip_special) {
    const bool is_skipped = skip_special && (token.flags & kTkTokenSpecial) != 0;
    return (token.flags & kTkTokenExists) != 0 && !is_skipped;
  }

  static std::optional<int32_t> optional_id(int32_t id) {
    if (id < 0) return std::nullopt;
    return id;
  }

  TokenizerHandle handle_;
  TkTokenizerInfo info_ = {};
};

std::unique_ptr<Tokenizer> wrap(TkTokenizer* handle) {
  return std::make_unique<TextkitTokenizer>(TokenizerHandle(handle));
}

std::vector<TkView> views(const std::vector<std::string_view>& texts) {
  std::vector<TkView> result;
  result.reserve(texts.size());
  for (const std::string_view text : texts) result.push_back(tk_view(text));
  return result;
}

int32_t flag(std::optional<bool> value) { return value ? int32_t{*value} : -1; }

}  // namespace

Error too_many_tokens(int64_t num_found, int64_t max_tokens, TokenCount count) {
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format(
          "the prompt is too long: it has {}{} tokens, but this model's maximum context length is "
          "{} tokens, prompt and answer together",
          count == TokenCount::kAtLeast ? "at least " : "", num_found, max_tokens),
      "shorten the prompt",
      {}};
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_json(std::string_view tokenizer_json,
                                                        std::string_view tokenizer_config_json) {
  TkTokenizer* handle = nullptr;
  TkBytes error = {};
  const TkStatus status = tk_tokenizer_from_json(tk_view(tokenizer_json),
                                                 tk_view(tokenizer_config_json), &handle, &error);
  if (status != kTkOk) return textkit_error(status, error);
  return wrap(handle);
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_gguf(const GgufVocabulary& vocabulary) {
  if (vocabulary.huggingface_json) return from_json(*vocabulary.huggingface_json);
  const std::vector<TkView> tokens = views(vocabulary.tokens);
  const std::vector<TkView> merges = views(vocabulary.merges);
  const TkVocabulary raw = {
      .model = tk_view(vocabulary.model),
      .pre = tk_view(vocabulary.pre),
      .tokens = tokens.data(),
      .num_tokens = tokens.size(),
      .token_types = vocabulary.token_types.data(),
      .num_token_types = vocabulary.token_types.size(),
      .scores = vocabulary.scores.data(),
      .num_scores = vocabulary.scores.size(),
      .merges = merges.data(),
      .num_merges = merges.size(),
      .bos_id = vocabulary.bos_id.value_or(-1),
      .eos_id = vocabulary.eos_id.value_or(-1),
      .eot_id = vocabulary.eot_id.value_or(-1),
      .eom_id = vocabulary.eom_id.value_or(-1),
      .unknown_id = vocabulary.unknown_id.value_or(-1),
      .padding_id = vocabulary.padding_id.value_or(-1),
      .add_bos = flag(vocabulary.add_bos),
      .add_eos = flag(vocabulary.add_eos),
      .add_space_prefix = flag(vocabulary.add_space_prefix),
  };
  TkTokenizer* handle = nullptr;
  TkBytes error = {};
  const TkStatus status = tk_tokenizer_from_vocabulary(&raw, &handle, &error);
  if (status != kTkOk) return textkit_error(status, error);
  return wrap(handle);
}

}  // namespace headrace
