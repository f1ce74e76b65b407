// textkit: the C boundary to the Rust libraries for tokenisers, chat templates and grammars.
//
// Every function is safe to call with any bytes: input that is wrong gives a status and a message,
// and a panic inside a library is caught and becomes kTkInternal. Handles are immutable after
// creation and may be used by many threads at once, but for matchers. Views that come back point
// into the handle and live as long. Owned results (TkBytes, TkIds) are released with the function
// named beside them.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum TkStatus {
  kTkOk = 0,
  kTkInvalid = 1,      // the caller's input is wrong
  kTkUnsupported = 2,  // well-formed, but nothing here can do it
  kTkCorrupt = 3,      // a file contradicts its own format
  kTkInternal = 4,     // a library failed
  kTkExhausted = 5,    // there is not enough memory
  kTkTooLong = 6,      // more tokens than the caller's limit
  kTkStopped = 7,      // the caller's `stopped` said so
} TkStatus;

typedef struct TkView {
  const char* data;
  size_t size;
} TkView;

typedef struct TkBytes {  // release with tk_free_bytes
  uint8_t* data;
  size_t size;
} TkBytes;

typedef struct TkIds {  // release with tk_free_ids
  uint32_t* data;
  size_t size;
} TkIds;

typedef struct TkTokenizer TkTokenizer;
typedef struct TkTemplate TkTemplate;
typedef struct TkGrammars TkGrammars;
typedef struct TkGrammar TkGrammar;
typedef struct TkMatcher TkMatcher;

void tk_free_bytes(TkBytes bytes);
void tk_free_ids(TkIds ids);

// ---- tokenisers ----

// What a GGUF file says of its tokeniser. A flag is -1 where the file is silent, an id too.
typedef struct TkVocabulary {
  TkView model;
  TkView pre;
  const TkView* tokens;
  size_t num_tokens;
  const int32_t* token_types;  // num_token_types is 0 or num_tokens
  size_t num_token_types;
  const float* scores;  // num_scores is 0 or num_tokens
  size_t num_scores;
  const TkView* merges;
  size_t num_merges;
  int32_t bos_id, eos_id, eot_id, eom_id, unknown_id, padding_id;
  int32_t add_bos, add_eos, add_space_prefix;
} TkVocabulary;

typedef struct TkTokenizerInfo {
  uint32_t vocab_size;     // largest id + 1
  int32_t bos_id;          // -1 if unknown
  int32_t eos_id;          // -1 if unknown
  uint8_t adds_bos;        // encode with add_special begins with bos_id
  uint8_t mark_each_byte;  // a broken byte token becomes one U+FFFD, not one per broken sequence
  uint8_t first_differs;   // the first token of a text has its own form (first_bytes)
  uint32_t strip_start_blanks;  // blanks removed from the start of a decoded text
} TkTokenizerInfo;

enum {
  kTkTokenExists = 1,   // contributes to decoded text
  kTkTokenSpecial = 2,  // left out when special tokens are skipped
};

typedef struct TkToken {
  TkView name;         // as the vocabulary writes it
  TkView bytes;        // what it adds to a text when it stands inside
  TkView first_bytes;  // and when it is the first
  uint32_t flags;
} TkToken;

TkStatus tk_tokenizer_from_json(TkView json, TkView config_json, TkTokenizer** out, TkBytes* error);
TkStatus tk_tokenizer_from_vocabulary(const TkVocabulary* vocabulary, TkTokenizer** out,
                                      TkBytes* error);
void tk_tokenizer_free(TkTokenizer* tokenizer);
void tk_tokenizer_info(const TkTokenizer* tokenizer, TkTokenizerInfo* out);
// 1 if the id exists. Never fails.
int32_t tk_tokenizer_token(const TkTokenizer* tokenizer, uint32_t id, TkToken* out);
// -1 if there is no such token.
int64_t tk_tokenizer_token_to_id(const TkTokenizer* tokenizer, TkView token);

// Bounds of one call. Encoding goes slice by slice: a limit is seen within one slice.
typedef struct TkEncodeLimits {
  int64_t max_tokens;  // more are kTkTooLong, with num_found tokens at least
  int32_t (*stopped)(
      void*);     // asked between slices; not 0 ends the call with kTkStopped. May be null
  void* context;  // for `stopped`
  size_t
      slice_bytes;  // longer texts are sliced into about this size; 0: the usual one; tests vary it
  uint32_t
      hidden;  // a character that is no part of the text and keeps special tokens from being
               // recognised where it interrupts them; 0: none. Then nothing is put around the text
  int64_t num_found;  // out
} TkEncodeLimits;

// The ids of a text encoded slice by slice are those of the text encoded at once.
TkStatus tk_tokenizer_encode(const TkTokenizer* tokenizer, TkView utf8, int32_t add_special,
                             TkEncodeLimits* limits, TkIds* out, TkBytes* error);

// ---- chat templates ----

// Only in a process of their own: what goes over its limits ends the process (src/sandbox.rs).
// plain_json: a list of strings that are marked with U+FDD0 behind their first character where they
// stand in the rendered text and the template did not write them; empty: nothing is marked.
TkStatus tk_template_new(TkView source, TkView special_tokens_json, TkView plain_json,
                         TkTemplate** out, TkBytes* error);
void tk_template_free(TkTemplate* chat_template);
// now: "2026-01-02T03:04:05" for strftime_now, or empty for the local time.
TkStatus tk_template_render(const TkTemplate* chat_template, TkView options_json, TkView now,
                            TkBytes* out, TkBytes* error);

// ---- grammars ----

typedef enum TkGrammarKind {
  kTkJsonObject = 0,  // any JSON object; no text
  kTkJsonSchema = 1,
  kTkRegex = 2,    // of the whole text; \\d and \\w are ASCII, as in schemas
  kTkChoice = 3,   // a JSON list of strings
  kTkGrammar = 4,  // Lark; with a "::=" in it the EBNF of GGUF tools, from its rule `root`
  // JSON. Free text and tags in it:
  //   {"tags": [{"begin": "", "schema": {}, "end": ""}], "triggers": [""], "text": true,
  //    "at_least_one": false, "stop_after_first": false, "separator": ""}
  // A trigger, the beginning of a begin, is no free text: with it a tag has begun. In place of
  // "schema" "regex" or "grammar". "text" false: tags alone, with the separator between.
  // "structures" for "tags", and
  // {"format": {"type": ...}}, as clients send them. What spells a special token is that token.
  kTkTags = 5,
} TkGrammarKind;

// The vocabulary as grammars see it. tokens[i] is the token i: only bytes and flags are read, and a
// special token is what its bytes name. Tokens without bytes never come. end_ids come where a text
// is complete.
TkStatus tk_grammars_new(const TkToken* tokens, size_t num_tokens, const uint32_t* end_ids,
                         size_t num_end_ids, TkGrammars** out, TkBytes* error);
void tk_grammars_free(TkGrammars* grammars);
// What it takes is bounded by fuel, so that the same text is always taken or always refused
// (kTkInvalid, with what is wrong). One at a time, others wait. num_bytes: what the grammar holds.
TkStatus tk_grammar_compile(const TkGrammars* grammars, int32_t kind, TkView text, TkGrammar** out,
                            size_t* num_bytes, TkBytes* error);
void tk_grammar_free(TkGrammar* grammar);

// One text on its way through a grammar, which may be freed before it. One thread at a time.
TkStatus tk_matcher_new(const TkGrammar* grammar, TkMatcher** out, TkBytes* error);
void tk_matcher_free(TkMatcher* matcher);
enum {
  kTkComplete = 1,  // the text may end here
  kTkFinished = 2,  // and nothing may follow
  kTkFailed = 4,    // over its limits: no token may come any more
};
uint32_t tk_matcher_state(TkMatcher* matcher);
// Bit i % 64 of word i / 64: token i may come. None is set where it has failed.
void tk_matcher_mask(TkMatcher* matcher, uint64_t* words, size_t num_words);
// 0: it has failed.
int32_t tk_matcher_accept(TkMatcher* matcher, uint32_t id);
int32_t tk_matcher_rollback(TkMatcher* matcher, size_t num_tokens);
// Tokens of the text that must come next, as far as that is sure: how many were written. A guess:
// other tokens may spell the same text.
size_t tk_matcher_forced(TkMatcher* matcher, uint32_t* ids, size_t most);

#ifdef __cplusplus
}
#endif
