// bench_sampling [--vocab N] [--repeats N] [--threads N] [--only NAME]
//
// Time of one row of logits, option by option: what a request costs each step beside the forward
// pass. Of a step with many rows each is one thread's, so M rows take M / threads times what one
// takes on one thread; a lone row is shared among the threads, which are awake, as after the
// forward pass that made the row. Logits are fresh in every repeat: half the rows are peaked like
// those of a trained model, half flat, which is the worst for filters. Medians: of one thread its
// processor time, of several the time that passed.

#include <fmt/format.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/line_vector.h"
#include "engine/constraint.h"
#include "engine/sampler.h"

namespace headrace {
namespace {

struct Case {
  std::string name;
  Request request;
  bool masked = false;
};

Case make_case(std::string name, float temperature = 1.0f) {
  Case made{std::move(name), {}, false};
  made.request.sampling.temperature = temperature;
  made.request.sampling.seed = 7;
  return made;
}

struct Cases {
  std::vector<Case> list;

  void add(std::string name, const auto& change, float temperature = 1.0f) {
    list.push_back(make_case(std::move(name), temperature));
    change(list.back());
  }
};

void add_filters(Cases* cases) {
  const auto add = [&](const auto&... args) { cases->add(args...); };
  add("temperature", [](Case&) {});
  add("top_k 40", [](Case& c) { c.request.sampling.top_k = 40; });
  add("top_k 100000", [](Case& c) { c.request.sampling.top_k = 100'000; });
  add("top_p 0.9", [](Case& c) { c.request.sampling.top_p = 0.9f; });
  add("top_p 0.999", [](Case& c) { c.request.sampling.top_p = 0.999f; });
  add("min_p 0.01", [](Case& c) { c.request.sampling.min_p = 0.01f; });
  add("top_k 100000, top_p 0.9", [](Case& c) {
    c.request.sampling.top_k = 100'000;
    c.request.sampling.top_p = 0.9f;
  });
  add("all filters", [](Case& c) {
    c.request.sampling.top_k = 100'000;
    c.request.sampling.top_p = 0.95f;
    c.request.sampling.min_p = 1e-4f;
  });
  add("typical_p 0.9", [](Case& c) { c.request.sampling.typical_p = 0.9f; });
  add("top_n_sigma 1", [](Case& c) { c.request.sampling.top_n_sigma = 1; });
  add("XTC", [](Case& c) {
    c.request.sampling.xtc_probability = 1;
    c.request.sampling.xtc_threshold = 1e-5f;
  });
  add("mirostat", [](Case& c) { c.request.sampling.mirostat = true; });
  add("all filters of all", [](Case& c) {
    c.request.sampling.top_n_sigma = 3;
    c.request.sampling.top_k = 100'000;
    c.request.sampling.typical_p = 0.95f;
    c.request.sampling.top_p = 0.95f;
    c.request.sampling.min_p = 1e-4f;
    c.request.sampling.xtc_probability = 1;
    c.request.sampling.xtc_threshold = 1e-5f;
  });
  // What costs most: no filter leaves the next less to look at, and the division is not by 1.
  add(
      "the worst of all filters",
      [](Case& c) {
        c.request.sampling.top_n_sigma = 3;
        c.request.sampling.top_k = 140'000;
        c.request.sampling.typical_p = 0.97f;
        c.request.sampling.top_p = 0.97f;
        c.request.sampling.min_p = 1e-6f;
        c.request.sampling.xtc_probability = 1;
        c.request.sampling.xtc_threshold = 1e-6f;
      },
      0.9f);
}

void add_others(Cases* cases, int32_t vocab_size) {
  const auto add = [&](const auto&... args) { cases->add(args...); };
  add("DRY", [](Case& c) { c.request.sampling.dry.multiplier = 0.8f; });
  add(
      "all penalties, greedy",
      [](Case& c) {
        c.request.sampling.repetition_penalty = 1.2f;
        c.request.sampling.presence_penalty = 0.5f;
        c.request.sampling.frequency_penalty = 0.5f;
      },
      0.0f);
  add("logit_bias of 4096", [&](Case& c) {
    for (int32_t i = 0; i < 4096; ++i) {
      c.request.sampling.logit_bias.emplace_back(i * 31 % vocab_size, 1.5f);
    }
  });
  add("mask of half", [](Case& c) { c.masked = true; });
  add(
      "filters, mask, penalties",
      [](Case& c) {
        c.masked = true;
        c.request.sampling.top_k = 50'000;
        c.request.sampling.top_p = 0.95f;
        c.request.sampling.min_p = 1e-4f;
        c.request.sampling.dry.multiplier = 0.8f;
        c.request.sampling.repetition_penalty = 1.2f;
        c.request.sampling.bad_words = {{3}, {1, 2}};
      },
      0.9f);
  add("log-probs 20", [](Case& c) { c.request.num_logprobs = 20; }, 0.0f);
}

double seconds(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void fill(LineVector<float>* logits, bool peaked, uint64_t* state) {
  for (float& logit : *logits) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    const auto uniform = static_cast<float>((*state >> 40) + 1) * 0x1p-24f;
    logit = peaked ? -2.5f * std::log(uniform) - 4.0f : 0.02f * uniform;
  }
}

struct Setup {
  int64_t vocab_size = 151'936;
  int repeats = 51;
  RowParts parts;
  Backend* backend = nullptr;
  clockid_t clock = CLOCK_THREAD_CPUTIME_ID;
};

double time_case(const Case& at, bool peaked, const Setup& setup) {
  const int64_t vocab_size = setup.vocab_size;
  Sampler sampler(vocab_size);
  LineVector<float> logits(static_cast<size_t>(vocab_size));  // as the backend's
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 8192; ++i) tokens.push_back(i * 17 % static_cast<int32_t>(vocab_size));
  const std::vector<uint64_t> mask(mask_words(vocab_size), 0x5555555555555555u);
  SampleContext context{tokens, 4096, {}, at.masked ? mask.data() : nullptr, setup.parts};
  // As a sequence keeps it: a step costs what is new.
  TokenHistory history(at.request.sampling, context.num_prompt);
  history.extend(tokens);
  context.history = &history;
  context.mirostat_bound = first_mirostat_bound(at.request.sampling);
  std::vector<double> times;
  uint64_t state = 1;
  for (int i = 0; i < setup.repeats; ++i) {
    fill(&logits, peaked, &state);
    setup.backend->run_on_team(setup.backend->num_threads(), [](int64_t, int) {});
    const double start = seconds(setup.clock);
    const Result<int32_t> token = sampler.sample(logits.data(), at.request, context);
    CHECK(token.ok(), "{}", token.error().message);
    if (at.request.num_logprobs) {
      CHECK(sampler.score(logits.data(), *token, *at.request.num_logprobs, setup.parts).ok());
    }
    times.push_back(seconds(setup.clock) - start);
  }
  const auto middle = times.begin() + setup.repeats / 2;
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  headrace::Setup setup;
  int num_threads = 1;
  std::string only;
  CLI::App app("time of sampling one row");
  app.add_option("--vocab", setup.vocab_size)->check(CLI::Range(64, 10'000'000));
  app.add_option("--repeats", setup.repeats)->check(CLI::Range(1, 100'000));
  app.add_option("--threads", num_threads)->check(CLI::Range(1, 1024));
  app.add_option("--only", only, "requests with this in their name");
  CLI11_PARSE(app, argc, argv);
  const auto backend = headrace::create_cpu_backend({.num_threads = num_threads});
  CHECK(backend.ok(), "{}", backend.error().message);
  setup.backend = backend->get();
  if (num_threads > 1) {
    setup.parts = headrace::RowParts(**backend);
    setup.clock = CLOCK_MONOTONIC;
  }
  fmt::print("{:26} {:>12} {:>12}\n", fmt::format("ms a row, threads: {}", num_threads), "peaked",
             "flat");
  headrace::Cases cases;
  headrace::add_filters(&cases);
  headrace::add_others(&cases, static_cast<int32_t>(setup.vocab_size));
  for (const headrace::Case& at : cases.list) {
    if (at.name.find(only) == std::string::npos) continue;
    fmt::print("{:26} {:12.3f} {:12.3f}\n", at.name, 1e3 * headrace::time_case(at, true, setup),
               1e3 * headrace::time_case(at, false, setup));
  }
}
