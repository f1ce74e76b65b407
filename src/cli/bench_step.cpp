// headrace bench step MODEL: prefill, decode at depths and batches, each beside its ceiling.

#include <fmt/format.h>

#include <boost/json.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <optional>

#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/registry.h"
#include "bench/step_bench.h"
#include "bench/step_work.h"
#include "cli/bench.h"
#include "cli/runtime.h"
#include "cli/terminal.h"
#include "engine/numerics.h"

namespace headrace {
namespace {

namespace json = boost::json;

struct PointPlan {
  std::vector<int64_t> prefills, depths, batches;
  int64_t decode_steps = 32;
  int64_t batch_depth = 128;
  int repeats = 3;
};

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

// Something to time, and what bounds it.
struct Point {
  const char* kind;     // "prefill", "decode", "batch"
  int64_t size;         // tokens, depth, or sequences
  double num_tokens;    // that one run computes
  double arithmetic_s;  // of one run at the peaks
  double bytes;         // that one run reads
  size_t working_set;   // that one step reads
  std::function<StepTiming(StepBench&)> run;
  std::vector<double> seconds = {};
  std::optional<uint64_t> digest = {};
  double joins_per_step = 0;
};

// The machine's limits as the points need them, each measured once.
class Ceilings {
 public:
  Ceilings(int num_threads, uint32_t isa)
      : num_threads_(num_threads), isa_(isa), peaks_(cpu::peak_rates(num_threads)) {}

  std::span<const cpu::PeakRate> peaks() const { return peaks_; }
  uint32_t isa() const { return isa_; }
  double attention_seconds(double operations) const {
    const double peak = cpu::best_peak(peaks_, cpu::PeakKind::kF32, isa_);
    return peak > 0 ? operations / peak : 0;
  }
  // Bytes per second over a working set, measured to the nearest eighth of a doubling.
  Result<double> bandwidth(size_t working_set) {
    const double steps =
        std::round(8 * std::log2(static_cast<double>(std::max<size_t>(working_set, 1))));
    auto found = bandwidths_.find(static_cast<int>(steps));
    if (found == bandwidths_.end()) {
      const double measured = TRY(cpu::read_bandwidth(working_set, num_threads_));
      found = bandwidths_.emplace(static_cast<int>(steps), measured).first;
    }
    return found->second;
  }

 private:
  int num_threads_;
  uint32_t isa_;
  std::vector<cpu::PeakRate> peaks_;
  std::map<int, double> bandwidths_;
};

class PointMaker {
 public:
  PointMaker(const StepWork& work, const PointPlan& plan, const Ceilings& ceilings, int64_t chunk)
      : work_(work), plan_(plan), ceilings_(ceilings), chunk_(chunk) {}

  std::vector<Point> make() const {
    std::vector<Point> points;
    for (const int64_t tokens : plan_.prefills) points.push_back(prefill(tokens));
    for (const int64_t depth : plan_.depths) points.push_back(decode("decode", depth, 1, depth));
    for (const int64_t sequences : plan_.batches) {
      points.push_back(decode("batch", plan_.batch_depth, sequences, sequences));
    }
    return points;
  }

 private:
  Point prefill(int64_t tokens) const {
    const auto count = static_cast<double>(tokens);
    const double steps = std::ceil(count / static_cast<double>(chunk_));
    double bytes = steps * static_cast<double>(work_.weight_bytes);
    for (int64_t end = chunk_; end < tokens; end += chunk_) bytes += work_.kv_bytes(end);
    return {"prefill",
            tokens,
            count,
            work_.linear_seconds(count, 1, ceilings_.peaks(), ceilings_.isa()) +
                ceilings_.attention_seconds(work_.attention_operations(0, tokens)),
            bytes,
            work_.weight_bytes,
            [tokens](StepBench& bench) { return bench.prefill(tokens); }};
  }

  Point decode(const char* kind, int64_t depth, int64_t sequences, int64_t size) const {
    const int64_t steps = plan_.decode_steps;
    const auto total = static_cast<double>(steps * sequences);
    const double step_bytes = static_cast<double>(work_.weight_bytes) +
                              static_cast<double>(sequences) * work_.kv_bytes(depth + steps / 2);
    const double operations =
        static_cast<double>(sequences) * work_.attention_operations(depth, steps);
    const bool batch = kind == std::string_view("batch");
    return {kind,
            size,
            total,
            work_.linear_seconds(total, total, ceilings_.peaks(), ceilings_.isa()) +
                ceilings_.attention_seconds(operations),
            step_bytes * static_cast<double>(steps),
            static_cast<size_t>(step_bytes),
            [=](StepBench& bench) {
              return batch ? bench.decode_batch(static_cast<int>(sequences), depth, steps)
                           : bench.decode(depth, steps);
            }};
  }

  const StepWork& work_;
  const PointPlan& plan_;
  const Ceilings& ceilings_;
  int64_t chunk_;
};

// All points in turn, again and again: a slow minute of the machine meets every point alike.
Status time_points(const PointPlan& plan, StepBench& bench, std::vector<Point>* points) {
  int64_t longest = plan.prefills.empty() ? 2 * kBlockTokens : plan.prefills.back();
  bench.fill_contexts(longest);
  ProgressBar bar("measuring", !is_terminal(STDERR_FILENO));
  for (int repeat = 0; repeat < plan.repeats; ++repeat) {
    for (size_t i = 0; i < points->size(); ++i) {
      Point& point = (*points)[i];
      const StepTiming timing = point.run(bench);
      point.seconds.push_back(timing.seconds);
      if (!timing.finite || point.digest.value_or(timing.digest) != timing.digest) {
        return make_error(ErrorCode::kInternal, "{} {} gave {} in repeat {}", point.kind,
                          point.size, timing.finite ? "other logits" : "logits that are no numbers",
                          repeat + 1);
      }
      point.digest = timing.digest;
      point.joins_per_step =
          static_cast<double>(timing.num_joins) / static_cast<double>(timing.num_steps);
      bar.update(static_cast<size_t>(repeat) * points->size() + i + 1,
                 static_cast<size_t>(plan.repeats) * points->size());
    }
  }
  return {};
}

Result<json::object> point_row(const Point& point, size_t num_layers, Ceilings& ceilings) {
  std::vector<double> seconds = point.seconds;
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const double bandwidth = TRY(ceilings.bandwidth(point.working_set));
  const double memory_s = point.bytes / bandwidth;
  const double limit_s = std::max(memory_s, point.arithmetic_s);
  const char* size_name = point.kind == std::string_view("decode")  ? "depth"
                          : point.kind == std::string_view("batch") ? "sequences"
                                                                    : "tokens";
  return json::object{{"kind", point.kind},
                      {size_name, point.size},
                      {"tok_s", point.num_tokens / median},
                      {"tok_s_low", point.num_tokens / seconds.back()},
                      {"tok_s_high", point.num_tokens / seconds.front()},
                      {"limit_tok_s", point.num_tokens / limit_s},
                      {"share", limit_s / median},
                      {"bound", memory_s >= point.arithmetic_s ? "memory" : "arithmetic"},
                      {"read_gb_s", bandwidth / 1e9},
                      {"joins_per_layer",
                       point.joins_per_step / static_cast<double>(std::max<size_t>(num_layers, 1))},
                      {"digest", fmt::format("{:016x}", *point.digest)}};
}

// Resident bytes of this process, as the system counts them.
size_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  size_t kilobytes = 0;
  for (std::string word; status >> word;) {
    if (word == "VmRSS:") status >> kilobytes;
  }
  return kilobytes << 10;
}

struct Loaded {
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  PointPlan plan;
  MemoryPlan memory;
  double seconds = 0;
};

Result<Loaded> load(const Options& options, const std::string& spec) {
  Loaded loaded;
  loaded.backend = TRY(create_backend(options));
  const auto start = std::chrono::steady_clock::now();
  loaded.checkpoint = TRY(open_checkpoint(options, spec));
  loaded.plan = TRY(read_plan(options, TRY(Model::read_config(*loaded.checkpoint))));
  ModelOptions model = model_options(options);
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
  loaded.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return loaded;
}

StepBench::Room room_for(const PointPlan& plan) {
  StepBench::Room room;
  room.single_tokens = plan.prefills.empty() ? 2 * kBlockTokens : plan.prefills.back();
  if (!plan.depths.empty()) {
    room.single_tokens = std::max(room.single_tokens, plan.depths.back() + plan.decode_steps);
  }
  if (!plan.batches.empty()) {
    room.max_sequences = static_cast<int>(plan.batches.back());
    room.batch_tokens = plan.batch_depth + plan.decode_steps;
  }
  return room;
}

// The rows of the back end that create_backend made of the same options.
Result<cpu::KernelSet> kernels_in_use(const Options& options, const Backend& backend) {
  const uint32_t isa = cpu::detect_isa();
  const cpu::KernelUnit* unit = TRY(cpu::select_unit(backend.isa(), isa));
  const auto activations = options.text("--activations") == "int8" ? cpu::ActivationType::kInt8
                                                                   : cpu::ActivationType::kInt16;
  return cpu::select_kernels(*unit, isa, activations);
}

// The instruction sets that any of the matmul rows needs: peaks beyond them are not ours.
uint32_t matmul_isa(const cpu::KernelSet& kernels) {
  uint32_t isa = 0;
  for (const cpu::MatmulRows& rows : kernels.matmul) {
    for (int i = 0; i < rows.count; ++i) isa |= rows.rows[static_cast<size_t>(i)]->isa;
  }
  return isa;
}

json::object load_row(const Options& options, const std::string& spec, const Loaded& loaded,
                      const StepBench& bench) {
  const size_t resident = resident_bytes();
  const size_t needed = loaded.memory.weights + bench.kv_bytes() + loaded.memory.workspace;
  return {{"kind", "load"},
          {"model", spec},
          {"isa", loaded.backend->isa()},
          {"threads", loaded.backend->num_threads()},
          {"activations", options.text("--activations")},
          {"kv_type", options.text("--kv-type")},
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
  std::printf("%-8s %-16s %10s %21s %10s %6s %11s  %s\n", "work", "", "tok/s", "(low - high)",
              "limit", "share", "joins/layer", "bound by");
}

void print_point(const Point& point, const json::object& row) {
  const char* unit = point.kind == std::string_view("decode")  ? "deep"
                     : point.kind == std::string_view("batch") ? "sequences"
                                                               : "tokens";
  const auto number = [&](const char* key) { return row.at(key).as_double(); };
  std::printf(
      "%-8s %6ld %-9s %10.1f %10.1f-%10.1f %10.1f %6.2f %11.1f  %s\n", point.kind,
      static_cast<long>(point.size), unit, number("tok_s"), number("tok_s_low"),
      number("tok_s_high"), number("limit_tok_s"), number("share"), number("joins_per_layer"),
      row.at("bound") == "memory" ? fmt::format("reads, {:.1f} GB/s", number("read_gb_s")).c_str()
                                  : "arithmetic");
  std::fflush(stdout);
}

}  // namespace

Status bench_step(const Options& options, const std::vector<std::string>& arguments) {
  Loaded loaded = TRY(load(options, arguments[0]));
  const PointPlan& plan = loaded.plan;
  auto bench = TRY(StepBench::create(*loaded.model, *loaded.backend, room_for(plan)));
  const cpu::KernelSet kernels = TRY(kernels_in_use(options, *loaded.backend));
  Ceilings ceilings(loaded.backend->num_threads(), matmul_isa(kernels));
  const StepWork work = TRY(step_work(*loaded.checkpoint, loaded.model->config(), *loaded.backend,
                                      kernels, loaded.model->options().kv_type));
  std::vector<Point> points =
      PointMaker(work, plan, ceilings, loaded.model->options().max_batch_tokens).make();
  TRY(time_points(plan, bench, &points));
  loaded.checkpoint->release_pages();
  const bool as_json = options.flag("--json");
  const json::object load = load_row(options, arguments[0], loaded, bench);
  as_json ? print_row(load) : print_load(load);
  for (const Point& point : points) {
    const json::object row = TRY(point_row(point, work.layers.size(), ceilings));
    as_json ? print_row(row) : print_point(point, row);
  }
  return {};
}

}  // namespace headrace
