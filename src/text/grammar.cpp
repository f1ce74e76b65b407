#include "text/grammar.h"

#include <utility>

#include "base/system_memory.h"
#include "text/textkit_call.h"

namespace headrace {
namespace {

constexpr size_t kGrammarEntryBytes = 512;  // of an entry without its key and grammar

// Several times what the trie of a large vocabulary takes.
constexpr size_t kBytesToPrepare = size_t{512} << 20;

// What a refusal says of it, besides the kind.
constexpr size_t kMaxKeptError = 1024;

}  // namespace

void GrammarMatcher::Closer::operator()(TkMatcher* handle) const { tk_matcher_free(handle); }
void Grammar::Closer::operator()(TkGrammar* handle) const { tk_grammar_free(handle); }
void GrammarCompiler::Closer::operator()(TkGrammars* handle) const { tk_grammars_free(handle); }

bool GrammarMatcher::is_complete() const {
  return (tk_matcher_state(handle_.get()) & kTkComplete) != 0;
}

bool GrammarMatcher::is_finished() const {
  return (tk_matcher_state(handle_.get()) & kTkFinished) != 0;
}

bool GrammarMatcher::has_failed() const {
  return (tk_matcher_state(handle_.get()) & kTkFailed) != 0;
}

void GrammarMatcher::fill_mask(std::span<uint64_t> mask) {
  tk_matcher_mask(handle_.get(), mask.data(), mask.size());
}

bool GrammarMatcher::accept(int32_t token_id) {
  return tk_matcher_accept(handle_.get(), static_cast<uint32_t>(token_id)) != 0;
}

bool GrammarMatcher::rollback(int32_t num_tokens) {
  return tk_matcher_rollback(handle_.get(), static_cast<size_t>(num_tokens)) != 0;
}

size_t GrammarMatcher::forced(std::span<int32_t> ids) {
  static_assert(sizeof(int32_t) == sizeof(uint32_t));
  return tk_matcher_forced(handle_.get(), reinterpret_cast<uint32_t*>(ids.data()), ids.size());
}

Result<std::unique_ptr<GrammarMatcher>> Grammar::matcher() const {
  TkMatcher* handle = nullptr;
  TkBytes error = {};
  const TkStatus status = tk_matcher_new(handle_.get(), &handle, &error);
  if (status != kTkOk) return textkit_error(status, error);
  return std::make_unique<GrammarMatcher>(handle);
}

GrammarCompiler::GrammarCompiler(const Tokenizer& tokenizer, std::vector<int32_t> end_ids,
                                 size_t cache_bytes)
    : tokenizer_(tokenizer), end_ids_(std::move(end_ids)), cache_bytes_(cache_bytes) {}

GrammarCompiler::~GrammarCompiler() {
  if (preparing_.joinable()) preparing_.join();
}

void GrammarCompiler::prepare() {
  if (preparing_.joinable() || available_memory_bytes() < kBytesToPrepare) return;
  // At the usual priority: a request that comes meanwhile waits for this thread.
  preparing_ = std::thread([this] { (void)vocabulary(); });
}

// Made when it is first needed, or by prepare(): most servers start faster than they are asked for
// a structure.
Result<TkGrammars*> GrammarCompiler::vocabulary() {
  std::lock_guard lock(building_);
  if (vocabulary_ != nullptr) return vocabulary_.get();
  const auto num_tokens = static_cast<size_t>(tokenizer_.vocab_size());
  std::vector<std::string> bytes(num_tokens);
  std::vector<TkToken> tokens(num_tokens);
  for (size_t i = 0; i < num_tokens; ++i) {
    const auto id = static_cast<int32_t>(i);
    const bool special = tokenizer_.is_special(id);
    bytes[i] =
        special ? tokenizer_.id_to_token(id).value_or("") : tokenizer_.token_bytes(id, false);
    tokens[i].bytes = tk_view(bytes[i]);
    tokens[i].flags = special ? static_cast<uint32_t>(kTkTokenSpecial) : 0;
  }
  const std::vector<uint32_t> ends(end_ids_.begin(), end_ids_.end());
  TkGrammars* handle = nullptr;
  TkBytes error = {};
  const TkStatus status =
      tk_grammars_new(tokens.data(), tokens.size(), ends.data(), ends.size(), &handle, &error);
  if (status != kTkOk) return textkit_error(status, error);
  vocabulary_.reset(handle);
  return handle;
}

Result<GrammarPtr> GrammarCompiler::compile(GrammarKind kind, std::string_view text) {
  std::string key(1, static_cast<char>('0' + static_cast<int>(kind)));
  key += text;
  if (auto found = find(key)) return *found;
  auto result = compile_now(kind, text);
  // Scarcity passes; a refusal stays.
  const bool lasts = result.ok() || result.error().code == ErrorCode::kInvalidArgument;
  if (lasts) keep(std::move(key), result);
  return result;
}

Result<GrammarPtr> GrammarCompiler::compile_now(GrammarKind kind, std::string_view text) {
  TkGrammars* vocabulary = TRY(this->vocabulary());
  TkGrammar* handle = nullptr;
  size_t num_bytes = 0;
  TkBytes error = {};
  const TkStatus status = tk_grammar_compile(vocabulary, static_cast<int32_t>(kind), tk_view(text),
                                             &handle, &num_bytes, &error);
  if (status != kTkOk) return textkit_error(status, error);
  return std::make_shared<const Grammar>(handle, num_bytes);
}

std::optional<Result<GrammarPtr>> GrammarCompiler::find(const std::string& key) {
  std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, found->second);
  ++counts_.num_found;
  return found->second->result;
}

// What is larger than the cache is not kept.
void GrammarCompiler::keep(std::string key, const Result<GrammarPtr>& result) {
  const size_t num_bytes =
      kGrammarEntryBytes + key.size() + (result.ok() ? (*result)->num_bytes() : kMaxKeptError);
  std::lock_guard lock(mutex_);
  ++counts_.num_compiled;
  if (num_bytes > cache_bytes_ || by_key_.contains(key)) return;
  entries_.push_front({std::move(key), result, num_bytes});
  by_key_.emplace(entries_.front().key, entries_.begin());
  counts_.num_bytes += num_bytes;
  while (counts_.num_bytes > cache_bytes_) {
    by_key_.erase(entries_.back().key);
    counts_.num_bytes -= entries_.back().num_bytes;
    entries_.pop_back();
  }
  counts_.num_entries = entries_.size();
}

GrammarCompiler::Counts GrammarCompiler::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace headrace
