// bench_step MODEL.gguf [--isa NAME] [--threads N] [--prefill N] [--decode N] [--depth N]
//
// Runs a model without a server: tokens per second of prefill and of single-stream decode at a
// depth, beside what reading the packed weights (and the KV of that depth) once per token would
// allow. One JSON object on standard output. Greedy ids of the run are printed too, so that two
// builds can be compared.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <thread>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "checkpoint/checkpoint.h"
#include "model/model.h"
#include "model/sequence_runner.h"

namespace headrace {
namespace {

struct Arguments {
  std::string model;
  CpuBackendOptions backend;
  int prefill_tokens = 512;
  int decode_tokens = 64;
  int depth = 0;
  int repeats = 3;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// GB/s of summing a buffer of num_bytes with every thread, best of five passes.
double read_bandwidth(size_t num_bytes, int num_threads) {
  std::vector<uint64_t> memory(num_bytes / sizeof(uint64_t), 1);
  std::vector<uint64_t> sums(static_cast<size_t>(num_threads));
  double best = 0;
  for (int pass = 0; pass < 5; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    for (int t = 0; t < num_threads; ++t) {
      threads.emplace_back([&, t] {
        const size_t share = memory.size() / static_cast<size_t>(num_threads);
        const auto begin = memory.begin() + static_cast<ptrdiff_t>(share * static_cast<size_t>(t));
        sums[static_cast<size_t>(t)] =
            std::accumulate(begin, begin + static_cast<ptrdiff_t>(share), uint64_t{0});
      });
    }
    for (std::thread& thread : threads) thread.join();
    best = std::max(best, static_cast<double>(num_bytes) / seconds_since(start) / 1e9);
  }
  CHECK(std::accumulate(sums.begin(), sums.end(), uint64_t{0}) <= memory.size(), "sums");
  return best;
}

// A fixed, varied prompt: the figures do not depend on the ids, the sequence of ids does.
std::vector<int32_t> prompt_ids(int num_tokens, int64_t vocab_size) {
  std::vector<int32_t> ids;
  uint64_t state = 12345;
  for (int i = 0; i < num_tokens; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    ids.push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocab_size)));
  }
  return ids;
}

double measure_prefill(SequenceRunner& runner, const std::vector<int32_t>& ids) {
  runner.restart();
  const auto start = std::chrono::steady_clock::now();
  runner.append(ids, static_cast<int64_t>(ids.size()) - 1, [](int64_t, std::span<const float>) {});
  return static_cast<double>(ids.size()) / seconds_since(start);
}

// Tokens per second after a context of `ids`; fills the greedy continuation.
double measure_decode(SequenceRunner& runner, const std::vector<int32_t>& ids, int num_tokens,
                      std::vector<int32_t>& greedy) {
  runner.restart();
  int32_t next = 0;
  const auto take = [&next](int64_t, std::span<const float> logits) { next = argmax(logits); };
  runner.append(ids, static_cast<int64_t>(ids.size()) - 1, take);
  greedy.clear();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < num_tokens; ++i) {
    greedy.push_back(next);
    runner.append({&next, 1}, runner.num_tokens(), take);
  }
  return num_tokens / seconds_since(start);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Status run(const Arguments& arguments) {
  const auto checkpoint = TRY(Checkpoint::open(arguments.model));
  const auto backend = TRY(create_cpu_backend(arguments.backend));
  const MemoryPlan plan = TRY(Model::memory_plan(*checkpoint, *backend, {}));
  const auto model = TRY(Model::load(*checkpoint, *backend, {}));
  checkpoint->release_pages();
  const int depth = std::max(arguments.depth, 1);
  auto runner = TRY(SequenceRunner::create(
      *model, *backend, std::max(arguments.prefill_tokens, depth + arguments.decode_tokens)));
  const auto vocab_size = model->config().vocab_size;
  const auto prefill_ids = prompt_ids(arguments.prefill_tokens, vocab_size);
  const auto depth_ids = prompt_ids(depth, vocab_size);
  std::vector<double> prefill, decode;
  std::vector<int32_t> greedy;
  measure_decode(runner, depth_ids, 4, greedy);  // warm-up
  for (int i = 0; i < arguments.repeats; ++i) {
    prefill.push_back(measure_prefill(runner, prefill_ids));
    decode.push_back(measure_decode(runner, depth_ids, arguments.decode_tokens, greedy));
  }
  const double kv_bytes =
      static_cast<double>(plan.kv_block) / kBlockTokens * (depth + arguments.decode_tokens / 2.0);
  const double token_bytes = static_cast<double>(plan.weights) + kv_bytes;
  const double bandwidth = read_bandwidth(static_cast<size_t>(token_bytes), backend->num_threads());
  const double limit = bandwidth * 1e9 / token_bytes;
  fmt::print(
      "{{\"model\": \"{}\", \"isa\": \"{}\", \"threads\": {}, \"prefill_tokens\": {}, "
      "\"prefill_tok_s\": {:.1f}, \"depth\": {}, \"decode_tok_s\": {:.1f}, "
      "\"decode_limit_tok_s\": {:.1f}, \"decode_share\": {:.2f}, \"read_gb_s\": {:.1f}, "
      "\"packed_bytes\": {}, \"greedy\": [{}]}}\n",
      arguments.model, backend->isa(), backend->num_threads(), arguments.prefill_tokens,
      median(prefill), arguments.depth, median(decode), limit, median(decode) / limit, bandwidth,
      plan.weights, fmt::join(greedy, ", "));
  return {};
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  headrace::Arguments arguments;
  CLI::App program("Prefill and decode speed of a model, without a server.", "bench_step");
  program.add_option("model", arguments.model, "GGUF file or safetensors folder")->required();
  program.add_option("--isa", arguments.backend.isa, "as for headrace --isa");
  program.add_option("--threads", arguments.backend.num_threads, "0: all usable cores");
  program.add_option("--prefill", arguments.prefill_tokens, "tokens of the prompt");
  program.add_option("--decode", arguments.decode_tokens, "tokens decoded one by one");
  program.add_option("--depth", arguments.depth, "tokens in the context before decode");
  program.add_option("--repeats", arguments.repeats, "repeats; medians are printed");
  CLI11_PARSE(program, argc, argv);
  const headrace::Status status = headrace::run(arguments);
  if (!status.ok()) std::fprintf(stderr, "bench_step: %s\n", status.error().to_string().c_str());
  return status.ok() ? 0 : 1;
}
