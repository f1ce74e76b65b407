// Grammar: the form that a text is held to (a JSON schema, a regular expression, a grammar),
// compiled for one vocabulary; and a matcher, which follows one text through it, token by token.
//
// A compiled grammar is immutable and shared; a matcher belongs to one text and one thread at a
// time. Facades over textkit.h, which says what the texts of each kind are.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

struct TkGrammar;
struct TkGrammars;
struct TkMatcher;

namespace headrace {

enum class GrammarKind : uint8_t {  // in the order of TkGrammarKind
  kJsonObject,
  kJsonSchema,
  kRegex,
  kChoice,
  kGrammar,
  kTags
};

class GrammarMatcher {
 public:
  explicit GrammarMatcher(TkMatcher* handle) : handle_(handle) {}  // takes it

  bool is_complete() const;  // the text may end here
  bool is_finished() const;  // and nothing may follow
  bool has_failed() const;   // over the limits of a step: no token may come any more
  // Bit i % 64 of word i / 64: token i may come next; end ids where the text is complete.
  void fill_mask(std::span<uint64_t> mask);
  // False: it has failed.
  bool accept(int32_t token_id);
  bool rollback(int32_t num_tokens);
  // Writes tokens of the text that must come next, as far as that is sure; returns how many. Other
  // tokens may spell the same text.
  size_t forced(std::span<int32_t> ids);

 private:
  struct Closer {
    void operator()(TkMatcher* handle) const;
  };
  std::unique_ptr<TkMatcher, Closer> handle_;
};

class Grammar {
 public:
  Grammar(TkGrammar* handle, size_t num_bytes) : handle_(handle), num_bytes_(num_bytes) {}

  // At the beginning. kInternal if the library failed. Thread-safe.
  Result<std::unique_ptr<GrammarMatcher>> matcher() const;
  size_t num_bytes() const { return num_bytes_; }

 private:
  struct Closer {
    void operator()(TkGrammar* handle) const;
  };
  std::unique_ptr<TkGrammar, Closer> handle_;
  const size_t num_bytes_;
};

using GrammarPtr = std::shared_ptr<const Grammar>;

// Compiles grammars for one vocabulary and keeps those used last, refusals too. Thread-safe; call
// it on a worker thread: compiling takes milliseconds, and the first call makes the vocabulary's
// trie.
class GrammarCompiler {
 public:
  static constexpr size_t kCacheBytes = size_t{256} << 20;

  // The tokenizer outlives the compiler, the compiler outlives nothing that it made.
  GrammarCompiler(const Tokenizer& tokenizer, std::vector<int32_t> end_ids,
                  size_t cache_bytes = kCacheBytes);
  ~GrammarCompiler();

  // Makes the trie on a thread of its own, so that the first compile need not; where memory is
  // short, it does nothing. What fails is tried again by the first compile. Once.
  void prepare();

  // kInvalidArgument with what is wrong; the same text is always taken or always refused.
  Result<GrammarPtr> compile(GrammarKind kind, std::string_view text);
  const std::vector<int32_t>& end_ids() const { return end_ids_; }

  struct Counts {
    size_t num_entries = 0, num_bytes = 0;     // in the cache
    uint64_t num_compiled = 0, num_found = 0;  // calls that compiled, and that found it there
  };
  Counts counts() const;

 private:
  struct Entry {
    std::string key;
    Result<GrammarPtr> result;
    size_t num_bytes = 0;
  };
  struct Closer {
    void operator()(TkGrammars* handle) const;
  };

  Result<TkGrammars*> vocabulary();
  Result<GrammarPtr> compile_now(GrammarKind kind, std::string_view text);
  std::optional<Result<GrammarPtr>> find(const std::string& key);
  void keep(std::string key, const Result<GrammarPtr>& result);

  const Tokenizer& tokenizer_;
  const std::vector<int32_t> end_ids_;
  const size_t cache_bytes_;
  std::mutex building_;
  std::unique_ptr<TkGrammars, Closer> vocabulary_;
  mutable std::mutex mutex_;                                                 // of all below
  std::list<Entry> entries_;                                                 // used last first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_;  // views their keys
  Counts counts_;
  std::thread preparing_;  // last: what it makes is there when it starts
};

}  // namespace headrace
