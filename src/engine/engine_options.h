// What a caller decides of an engine.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace headrace {

class Backend;
class Model;
class KvEventSink;  // engine/kv_events.h
class TenantBook;   // engine/tenant_book.h

// Who guesses tokens of answers; none by default.
struct SpeculationOptions {
  bool text = false;                 // repetitions in a sequence's own text
  bool head = false;                 // the model's own head for further tokens, if it has one
  Model* draft_model = nullptr;      // a smaller one with the same vocabulary, and what it runs on;
  Backend* draft_backend = nullptr;  // null, or they outlive the engine
  int32_t max_guesses = 16;          // of a sequence in one step
};

struct EngineOptions {
  int max_batch_tokens = 512;  // token budget of one step; at most the model's
  int max_sequences = 64;      // running at once; at most the model's logit rows
  // Queued behind them; more are refused with kExhausted, and so is a client that holds three times
  // as many places as are free.
  int max_waiting = 4096;
  // Tokens of the prompts of all that run or wait, with the same share for a client. 0: what the KV
  // store holds 32 times, at least 64 contexts and a million. One request alone is always taken.
  int64_t max_prompt_tokens = 0;
  size_t max_request_bytes = size_t{1} << 30;  // of memory that they hold, in the same way
  int64_t max_context = 0;  // tokens per sequence; 0: the model's own limit; more is only warned of
  // Between two tokens of an answer, where prompts are computed beside it: their chunks are as long
  // as this allows. The cost of steps is then measured before the first request. 0: off.
  std::chrono::milliseconds inter_token_target{0};
  int64_t num_kv_blocks = 0;            // 0: from kv_memory_bytes
  size_t kv_memory_bytes = 0;           // 0: see size_kv()
  KvEventSink* kv_events = nullptr;     // null, or outlives the engine
  const TenantBook* tenants = nullptr;  // who shares with whom, also later; null, or as that
  size_t kv_ram_bytes = 0;              // for blocks that the others push out
  std::string kv_disk_folder;           // where blocks outlive the engine; empty: nowhere
  uint64_t kv_disk_bytes = 0;           // the most in that folder
  std::string model_digest;             // names weights and configuration there
  SpeculationOptions speculation = {};
  std::chrono::milliseconds cancel_patience{5000};  // of drain, for a step that hangs
  // A step in which so long nothing moves hangs: its requests end with kError, then on_hang is
  // called, once (engine/watchdog.h). 0: nobody looks.
  std::chrono::milliseconds step_deadline{0};
  std::function<void()> on_hang = nullptr;  // on a thread of its own; what hangs stays so
};

}  // namespace headrace
