// headrace bench step MODEL: prefill, decode at depths and batches, each beside its ceiling.

#include <fmt/format.h>

#include <boost/json.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <optional>
#include <set>

#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/registry.h"
#include "bench/machine.h"
#include "bench/measure_rates.h"
#include "bench/op_limits.h"
#include "bench/step_bench.h"
#include "bench/step_points.h"
#include "bench/step_terms.h"
#include "bench/step_work.h"
#include "checkpoint/adapter_files.h"
#include "cli/bench.h"
#include "cli/runtime.h"
#include "cli/terminal.h"
#include "engine/numerics.h"

namespace headrace {
namespace {

namespace json = boost::json;

// "128,512": whole numbers from low on; an empty text is an empty list.
Result<std::vector<int64_t>> parse_list(const Options& options, const char* name, int64_t low) {
  constexpr int64_t kMost = int64_t{1} << 20;
  const std::string& text = options.text(name);
  std::vector<int64_t> values;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    const bool stops = next == end || (*next == ',' && next + 1 < end);
    if (error != std::errc() || !stops || value < low || value > kMost) {
      return make_error(ErrorCode::kInvalidArgument,
                        "{} is '{}', but it must be whole numbers in {}..{} with commas between",
                        name, text, low, kMost);
    }
    values.push_back(value);
    at = next == end ? end : next + 1;
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

// The points asked for, as far as the model's context reaches.
Result<PointPlan> read_plan(const Options& options, const ModelConfig& config) {
  PointPlan plan;
  plan.prefills = TRY(parse_list(options, "--prefill", 1));
  plan.depths = TRY(parse_list(options, "--depth", 0));
  plan.batches = TRY(parse_list(options, "--batch", 1));
  plan.decode_steps = options.integer("--decode");
  plan.batch_depth = options.integer("--batch-depth");
  plan.repeats = static_cast<int>(options.integer("--repeats"));
  if (!plan.batches.empty() && plan.batches.back() > 1024) {
    return make_error(ErrorCode::kInvalidArgument, "--batch asks for {} sequences, at most 1024",
                      plan.batches.back());
  }
  const int64_t context = config.max_position_embeddings;
  const int64_t deepest = context - plan.decode_steps;
  if (deepest < 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--decode is {}, but this model was made for at most {} tokens",
                      plan.decode_steps, context);
  }
  for (int64_t& tokens : plan.prefills) tokens = std::min(tokens, context);
  for (int64_t& depth : plan.depths) depth = std::min(depth, deepest);
  plan.batch_depth = std::min(plan.batch_depth, deepest);
  for (auto* list : {&plan.prefills, &plan.depths}) {
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  return plan;
}

struct Loaded {
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  PointPlan plan;
  MemoryPlan memory;
  std::vector<std::unique_ptr<const Adapter>> adapters;
  double seconds = 0;
};

// --with-adapter: one for each sequence of the largest batch, all the same but for their memory.
Status load_adapters(const std::string& folder, Loaded* loaded) {
  constexpr int64_t kMostCopies = 32;
  if (folder.empty()) return {};
  const AdapterFolder files = TRY(read_adapter_folder(folder));
  const std::vector<int64_t>& batches = loaded->plan.batches;
  const int64_t count = batches.empty() ? 1 : std::min(batches.back(), kMostCopies);
  for (int64_t i = 0; i < count; ++i) {
    loaded->adapters.push_back(
        TRY(loaded->model->load_adapter({folder, files.config, files.bytes()})));
    loaded->plan.adapters.push_back(loaded->adapters.back()->packed.get());
  }
  return {};
}

Result<Loaded> load(const Options& options, const std::string& spec) {
  Loaded loaded;
  loaded.backend = TRY(create_backend(options));
  const auto start = std::chrono::steady_clock::now();
  loaded.checkpoint = TRY(open_checkpoint(options, spec));
  loaded.plan = TRY(read_plan(options, TRY(Model::read_config(*loaded.checkpoint))));
  ModelOptions model = model_options(options, *loaded.backend);
  if (!loaded.plan.batches.empty()) {
    const auto largest = static_cast<int>(loaded.plan.batches.back());
    model.max_logit_rows = std::max(model.max_logit_rows, largest);
    model.max_batch_tokens = std::max(model.max_batch_tokens, largest);
  }
  loaded.memory = TRY(Model::memory_plan(*loaded.checkpoint, *loaded.backend, model));
  TRY(check_memory(loaded.memory, 0, memory_supply()));
  ProgressBar bar("loading " + spec, !is_terminal(STDERR_FILENO));
  loaded.model = TRY(Model::load(*loaded.checkpoint, *loaded.backend, model,
                                 [&](size_t done, size_t total) { bar.update(done, total); }));
  TRY(loaded.checkpoint->check_unchanged());
  loaded.checkpoint->release_pages();
  TRY(load_adapters(options.text("--with-adapter"), &loaded));
  loaded.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return loaded;
}

const char* size_name(PointKind kind) {
  constexpr const char* kNames[] = {"tokens", "depth", "sequences"};
  return kNames[static_cast<size_t>(kind)];
}

// A point beside its forecast, and where that is wrong, the times of its terms.
struct Judged {
  PointFigures figures;
  std::optional<TermTimes> terms = {};

  double share() const { return figures.tokens_per_s / figures.limit; }
  // Of points with adapters no more is forecast than the limit.
  double forecast() const { return figures.expected > 0 ? figures.expected : figures.limit; }
  double of_forecast() const { return figures.tokens_per_s / forecast(); }
};

// What it takes to run a point once more with every op recorded.
struct TermMeter {
  const PointPlan& plan;
  const MachineFile& machine;
  const cpu::KernelSet& kernels;
  KvType kv_type;
  StepBench& bench;
  Backend& backend;

  TermTimes measure(const Point& point) const {
    std::vector<OpRecord> records;
    bench.use_adapters(point.adapted ? std::span(plan.adapters)
                                     : std::span<const PackedAdapter* const>());
    backend.watch_ops(&records);
    const StepTiming timing = point.run(bench);
    backend.watch_ops(nullptr);
    TermTimes times = term_times(records, timing.seconds, op_limit(kernels, kv_type, machine),
                                 static_cast<double>(point.working_set));
    if (point.expected) expect_terms(*point.expected, &times);
    return times;
  }
};

json::object terms_json(const TermTimes& terms) {
  json::object object;
  for (size_t i = 0; i < kNumStepTerms; ++i) {
    object[step_term_name(static_cast<StepTerm>(i))] = {{"ms", 1e3 * terms[i].seconds},
                                                        {"expected_ms", 1e3 * terms[i].expected_s},
                                                        {"limit_ms", 1e3 * terms[i].limit_s}};
  }
  return object;
}

json::object point_row(const Point& point, const Judged& judged, bool bare) {
  const PointFigures& figures = judged.figures;
  json::object row{{"kind", point_kind_name(point.kind)},
                   {size_name(point.kind), point.size},
                   {"adapters", point.adapted},
                   {"tok_s", figures.tokens_per_s},
                   {"tok_s_low", figures.lowest},
                   {"tok_s_high", figures.highest},
                   {"joins_per_layer", figures.joins_per_layer},
                   {"digest", fmt::format("{:016x}", *point.digest)}};
  if (bare) return row;
  if (figures.expected > 0) {
    row["expected_tok_s"] = figures.expected;
    row["expected_ms"] = 1e3 * point.num_tokens / figures.expected;
  }
  row["limit_tok_s"] = figures.limit;
  row["share"] = judged.share();
  row["bound"] = figures.bound_by_memory ? "memory" : "arithmetic";
  row["read_gb_s"] = figures.bandwidth / 1e9;
  row["near_forecast"] = !judged.terms;
  if (judged.terms) {
    row["wrong_term"] = step_term_name(wrong_term(*judged.terms));
    row["terms"] = terms_json(*judged.terms);
  }
  return row;
}

json::object load_row(const Options& options, const std::string& spec, const Loaded& loaded,
                      const StepBench& bench) {
  const size_t resident = cpu::resident_bytes();
  const size_t needed = loaded.memory.weights + bench.kv_bytes() + loaded.memory.workspace;
  return {{"kind", "load"},
          {"model", spec},
          {"isa", loaded.backend->isa()},
          {"threads", loaded.backend->num_threads()},
          {"activations", options.text("--activations")},
          {"kv_type", kv_type_name(loaded.model->options().kv_type)},
          {"numerics_id", numerics_id(*loaded.backend, loaded.model->options().kv_type)},
          {"load_s", loaded.seconds},
          {"packed_bytes", loaded.memory.weights},
          {"kv_bytes", bench.kv_bytes()},
          {"workspace_bytes", loaded.memory.workspace},
          {"resident_bytes", resident},
          {"resident_share", static_cast<double>(resident) / static_cast<double>(needed)}};
}

void print_load(const json::object& row) {
  const auto size = [&](const char* key) { return size_text(row.at(key).to_number<size_t>()); };
  std::printf(
      "%s on %s, %ld threads, %s: loaded in %.2f s; resident %s = %.2f x (packed %s + KV %s + "
      "workspace %s)\n",
      row.at("model").as_string().c_str(), row.at("isa").as_string().c_str(),
      static_cast<long>(row.at("threads").to_number<int64_t>()),
      row.at("activations").as_string().c_str(), row.at("load_s").as_double(),
      size("resident_bytes").c_str(), row.at("resident_share").as_double(),
      size("packed_bytes").c_str(), size("kv_bytes").c_str(), size("workspace_bytes").c_str());
  std::printf("%-8s %-16s %10s %21s %10s %10s %6s %11s  %s\n", "work", "", "tok/s", "(low - high)",
              "expected", "limit", "share", "joins/layer", "bound by");
}

// "wrong: products (12.1 ms for 8.6); attention 2 ms for 1.8; other ops 0.5 ms; ..."
std::string terms_text(const TermTimes& terms) {
  const StepTerm wrong = wrong_term(terms);
  const auto times = [&](StepTerm term) {
    const TermTime& time = terms[static_cast<size_t>(term)];
    const std::string expected =
        time.expected_s > 0 ? fmt::format(" for {:.3g}", 1e3 * time.expected_s) : "";
    return fmt::format("{:.3g} ms{}", 1e3 * time.seconds, expected);
  };
  std::string text = fmt::format("wrong: {} ({})", step_term_name(wrong), times(wrong));
  for (size_t i = 0; i < kNumStepTerms; ++i) {
    const auto term = static_cast<StepTerm>(i);
    if (term != wrong) text += fmt::format("; {} {}", step_term_name(term), times(term));
  }
  return text;
}

void print_point(const Point& point, const Judged& judged, bool bare) {
  constexpr const char* kUnits[] = {"tokens", "deep", "sequences"};
  const PointFigures& figures = judged.figures;
  std::printf("%-8s %6ld %-9s %10.1f %10.1f-%10.1f",
              std::string(point_kind_name(point.kind)).c_str(), static_cast<long>(point.size),
              kUnits[static_cast<size_t>(point.kind)], figures.tokens_per_s, figures.lowest,
              figures.highest);
  const char* const adapted = point.adapted ? ", with adapters" : "";
  if (bare) {
    std::printf(" %10s %10s %6s %11.1f  %s\n", "-", "-", "-", figures.joins_per_layer, adapted);
  } else {
    const std::string bound = figures.bound_by_memory
                                  ? fmt::format("reads, {:.1f} GB/s", figures.bandwidth / 1e9)
                                  : "arithmetic";
    const std::string expected =
        figures.expected > 0 ? fmt::format("{:.1f}", figures.expected) : "-";
    std::printf(" %10s %10.1f %6.2f %11.1f  %s%s\n", expected.c_str(), figures.limit,
                judged.share(), figures.joins_per_layer, bound.c_str(), adapted);
  }
  if (judged.terms) std::printf("         %s\n", terms_text(*judged.terms).c_str());
  std::fflush(stdout);
}

// This machine as far as the points ask for it: what ops reach, and reads of the working sets that
// matter.
Result<MachineFile> machine_for(OpRates rates, std::span<const Point> points, int num_threads,
                                Ceilings& ceilings) {
  MachineFile machine;
  machine.isa = cpu::detect_isa();
  machine.limits.num_threads = num_threads;
  machine.limits.peaks.assign(ceilings.peaks().begin(), ceilings.peaks().end());
  machine.rates = std::move(rates);
  std::set<size_t> working_sets;
  for (const Point& point : points) working_sets.insert(point.working_set);
  for (const OpRate& rate : machine.rates.all()) {
    if (rate.working_set > 0) working_sets.insert(static_cast<size_t>(rate.working_set));
  }
  for (const size_t working_set : working_sets) {
    const double bandwidth = TRY(ceilings.bandwidth(working_set));
    machine.limits.reads.push_back({working_set, {bandwidth, bandwidth}});
  }
  return machine;
}

}  // namespace

Result<cpu::KernelSet> kernels_in_use(const Options& options, const Backend& backend) {
  const uint32_t isa = cpu::detect_isa();
  const cpu::KernelUnit* unit = TRY(cpu::select_unit(backend.isa(), isa));
  return cpu::select_kernels(*unit, isa, cpu::coded_activations(activations_from_options(options)));
}

Status bench_step(const Options& options, const std::vector<std::string>& arguments) {
  if (options.is_typed("--speculation") || options.is_typed("--draft-model")) {
    return make_error(ErrorCode::kInvalidArgument,
                      "bench step computes random tokens, which nobody guesses: --speculation and "
                      "--draft-model are for bench serve MODEL");
  }
  Loaded loaded = TRY(load(options, arguments[0]));
  const PointPlan& plan = loaded.plan;
  auto bench = TRY(StepBench::create(*loaded.model, *loaded.backend, room_for(plan)));
  const cpu::KernelSet kernels = TRY(kernels_in_use(options, *loaded.backend));
  const bool bare = options.flag("--bare");
  Ceilings ceilings = bare ? Ceilings({}, 0, 1)  // not looked at
                           : Ceilings(loaded.backend->num_threads(), matmul_isa(kernels));
  const StepWork work = TRY(step_work(*loaded.checkpoint, loaded.model->config(), *loaded.backend,
                                      kernels, loaded.model->options().kv_type));
  std::vector<Point> points =
      make_points(work, plan, ceilings, loaded.model->options().max_batch_tokens);
  const std::vector<cpu::Layout> layouts = work.layouts();
  RoundTimes times;
  OpRates rates;
  {
    ProgressBar bar("measuring", !is_terminal(STDERR_FILENO));
    Status rated;
    // A round of the ops after each round of the points: a slow minute meets both.
    TRY(time_points(plan, bench, &points, [&](size_t done, size_t total) {
      bar.update(done, total);
      if (bare || done % points.size() != 0 || !rated.ok()) return;
      rates = OpRates();
      rated = measure_rates(*loaded.backend, kernels,
                            {layouts, {&work.kv_type, 1}, loaded.model->weight_memory()}, &times,
                            &rates);
    }));
    TRY(std::move(rated));
  }
  loaded.checkpoint->release_pages();
  const bool as_json = options.flag("--json");
  const json::object load = load_row(options, arguments[0], loaded, bench);
  as_json ? print_row(load) : print_load(load);
  MachineFile machine;
  if (!bare) {
    machine = TRY(machine_for(std::move(rates), points, loaded.backend->num_threads(), ceilings));
    expect_points(ExpectedTimes(work, machine), plan, loaded.model->options().max_batch_tokens,
                  &points);
  }
  const TermMeter meter{plan, machine, kernels, work.kv_type, bench, *loaded.backend};
  for (const Point& point : points) {
    Judged judged{TRY(figures_of(point, work.mixers.size(), ceilings))};
    if (!bare && !near_forecast(judged.of_forecast())) judged.terms = meter.measure(point);
    as_json ? print_row(point_row(point, judged, bare)) : print_point(point, judged, bare);
  }
  return {};
}

}  // namespace headrace
