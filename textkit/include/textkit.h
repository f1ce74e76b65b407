// textkit: the C boundary to the Rust libraries for tokenisers and chat templates.
//
// Every function is safe to call with any bytes: input that is wrong gives a status and a message, and
// a panic inside a library is caught and becomes kTkInternal. Handles are immutable after creation and
// may be used by many threads at once. Views that come back point into the handle and live as long.
// Owned results (TkBytes, TkIds) are released with the function named beside them.
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
  uint32_t vocab_size;          // largest id + 1
  int32_t bos_id;               // -1 if unknown
  int32_t eos_id;               // -1 if unknown
  uint8_t adds_bos;             // encode with add_special begins with bos_id
  uint8_t mark_each_byte;       // a broken byte token becomes one U+FFFD, not one per broken sequence
  uint8_t first_differs;        // the first token of a text has its own form (first_bytes)
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
  int64_t max_tokens;          // more are kTkTooLong, with num_found tokens at least
  int32_t (*stopped)(void*);   // asked between slices; not 0 ends the call with kTkStopped. May be null
  void* context;               // for `stopped`
  size_t slice_bytes;  // longer texts are sliced into about this size; 0: the usual one; tests vary it
  uint32_t hidden;  // a character that is no part of the text and keeps special tokens from being
                    // recognised where it interrupts them; 0: none. Then nothing is put around the text
  int64_t num_found;   // out
} TkEncodeLimits;

// The ids of a text encoded slice by slice are those of the text encoded at once.
TkStatus tk_tokenizer_encode(const TkTokenizer* tokenizer, TkView utf8, int32_t add_special,
                             TkEncodeLimits* limits, TkIds* out, TkBytes* error);

// ---- chat templates ----

// Only in a process of their own: what goes over its limits ends the process (src/sandbox.rs).
// plain_json: a list of strings that are marked with U+FDD0 behind their first character where a
// request's values hold them; empty: nothing is marked.
TkStatus tk_template_new(TkView source, TkView special_tokens_json, TkView plain_json,
                         TkTemplate** out, TkBytes* error);
void tk_template_free(TkTemplate* chat_template);
// now: "2026-01-02T03:04:05" for strftime_now, or empty for the local time.
TkStatus tk_template_render(const TkTemplate* chat_template, TkView options_json, TkView now,
                            TkBytes* out, TkBytes* error);

#ifdef __cplusplus
}
#endif
