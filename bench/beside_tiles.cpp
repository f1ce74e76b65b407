// bench_beside_tiles MODEL [--threads N] [--rounds N] [--prompt N] [--sequences N]
//                    [--activations exact|fast] [--kv-type f16|int16]
//                    [--tiles left-out|stand-ins|loads|hardware]
//
// What a prompt, or a step of the answers of several sequences behind such prompts, takes on unit
// amx beside its tile instructions: the same kernels with these left out, on any processor with
// AVX-512 VNNI. Prints for each kind of op the time of the fastest round, in ms. Products run while
// vectors make the next operands, so all of it takes at least this, at least what `headrace bench
// machine` says of its tile instructions, and at most the sum. With --tiles stand-ins other
// instructions take their place and, on a processor of the kind that has tiles, their time
// (stand_in_tiles.h); with --tiles loads those for loads and stores alone. What is computed means
// nothing then. --tiles hardware is the unit itself, on a processor that has it.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/registry.h"
#include "backend/cpu/kernels/units.h"
#include "backend/op_record.h"
#include "backend/timed_backend.h"
#include "bench/step_bench.h"
#include "checkpoint/checkpoint.h"
#include "model/model.h"
#include "stand_in_tiles.h"

namespace headrace {
namespace cpu {

#define HEADRACE_BESIDE_TILES(unit)                                                      \
  namespace unit {                                                                       \
  extern const KernelPart kQuantiseBf16Codes, kDirectFixed, kTilesFixed, kQuantiseFixed, \
      kTilesBf16, kTilesAttention;                                                       \
  }                                                                                      \
  namespace unit##_fp16 {                                                                \
    extern const KernelPart kTilesBf16Codes;                                             \
  }                                                                                      \
  /* In the order of unit amx. */                                                        \
  static const KernelPart* const unit##_parts[] = {                                      \
      &unit##_fp16::kTilesBf16Codes, &unit::kQuantiseBf16Codes,                          \
      &unit::kDirectFixed,           &unit::kTilesFixed,                                 \
      &unit::kQuantiseFixed,         &unit::kTilesBf16,                                  \
      &unit::kTilesAttention};
HEADRACE_BESIDE_TILES(amx_idle)
HEADRACE_BESIDE_TILES(amx_stand_in)
HEADRACE_BESIDE_TILES(amx_loaded)

// What takes the place of tile instructions.
enum class Instead : uint8_t { kNothing, kStandIns, kLoads, kHardware };

namespace {

using Parts = std::vector<const KernelPart*>;

// Those, then the parts of the units that serve what unit amx has no kernels for.
Parts parts_with(Instead instead) {
  const auto own = instead == Instead::kNothing    ? std::span(amx_idle_parts)
                   : instead == Instead::kStandIns ? std::span(amx_stand_in_parts)
                                                   : std::span(amx_loaded_parts);
  Parts parts(own.begin(), own.end());
  for (const KernelUnit* unit : {&kAvx512VnniUnit, &kAvx512Unit}) {
    parts.insert(parts.end(), unit->parts, unit->parts + unit->num_parts);
  }
  return parts;
}

// Refers to itself: stays where it is.
struct BesideTilesUnit {
  explicit BesideTilesUnit(Instead instead) : parts(parts_with(instead)) {}
  BesideTilesUnit(const BesideTilesUnit&) = delete;
  BesideTilesUnit& operator=(const BesideTilesUnit&) = delete;

  const Parts parts;
  const KernelUnit unit = {"amx beside tiles", kAvx512VnniUnitIsa, parts.data(),
                           static_cast<int>(parts.size())};
};

}  // namespace

}  // namespace cpu

namespace {

struct Setup {
  std::string model;
  int num_threads = 0, num_rounds = 15;
  int64_t prompt_tokens = 512;
  int num_sequences = 0;  // 0: the prompt is timed
  cpu::Instead instead = cpu::Instead::kNothing;
  ActivationArithmetic activations = ActivationArithmetic::kExact;
  std::optional<KvType> kv_type;  // else what the unit has by default
};

Result<std::unique_ptr<Backend>> create_backend(const Setup& setup, const cpu::KernelUnit& unit) {
  const uint32_t isa = cpu::detect_isa();
  if ((unit.isa & ~isa) != 0) {
    return make_error(ErrorCode::kUnsupported, "this processor lacks {}",
                      cpu::isa_names(unit.isa & ~isa));
  }
  const uint32_t with_tiles = isa | cpu::kAmxUnitIsa;
  const auto kernels =
      cpu::select_kernels(unit, with_tiles, cpu::coded_activations(setup.activations));
  return create_cpu_backend({.num_threads = setup.num_threads, .activations = setup.activations},
                            kernels, with_tiles);
}

using KindTimes = std::map<std::string, double>;  // ms by kind of op and shape of its weight
KindTimes times_of(const std::vector<OpRecord>& records) {
  KindTimes times;
  for (const OpRecord& record : records) {
    std::string name(kOpNames[static_cast<size_t>(record.kind)]);
    if (record.num_outputs > 0) {
      name += fmt::format(" {} x {}", record.num_outputs, record.num_inputs);
    }
    times[name] += 1e-6 * static_cast<double>(record.end_ns - record.start_ns);
  }
  return times;
}

constexpr int64_t kSteps = 16;

Result<KindTimes> measure(const Setup& setup) {
  const auto checkpoint = TRY(Checkpoint::open(setup.model));
  const cpu::BesideTilesUnit kernels(setup.instead);
  const bool is_hardware = setup.instead == cpu::Instead::kHardware;
  TimedBackend backend(TRY(create_backend(setup, is_hardware ? cpu::kAmxUnit : kernels.unit)));
  ModelOptions options;
  options.kv_type = setup.kv_type.value_or(backend.default_kv_type());
  const auto model = TRY(Model::load(*checkpoint, backend, options));
  StepBench::Room room;
  room.single_tokens = setup.prompt_tokens;
  room.batch_tokens = setup.prompt_tokens + kSteps;
  room.max_sequences = std::max(setup.num_sequences, 1);
  StepBench bench = TRY(StepBench::create(*model, backend, room));
  bench.fill_contexts(setup.prompt_tokens);
  KindTimes fastest;
  for (int round = 0; round < setup.num_rounds; ++round) {
    std::vector<OpRecord> records;
    backend.watch_ops(&records);
    const int64_t num_steps = setup.num_sequences > 0 ? kSteps : 1;
    if (setup.num_sequences > 0) {
      bench.decode_batch(setup.num_sequences, setup.prompt_tokens, num_steps);
    } else {
      bench.prefill(setup.prompt_tokens);
    }
    backend.watch_ops(nullptr);
    for (const auto& [name, all_ms] : times_of(records)) {
      const double ms = all_ms / static_cast<double>(num_steps);
      const auto [at, is_new] = fastest.try_emplace(name, ms);
      if (!is_new) at->second = std::min(at->second, ms);
    }
  }
  return fastest;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  headrace::Setup setup;
  CLI::App app{
      "What a prompt or a step takes on unit amx beside its tile instructions, by kinds of op, in "
      "ms."};
  app.add_option("model", setup.model, "A GGUF file of coded weights.")->required();
  app.add_option("--threads", setup.num_threads);
  app.add_option("--rounds", setup.num_rounds)->check(CLI::PositiveNumber);
  app.add_option("--prompt", setup.prompt_tokens)->check(CLI::PositiveNumber);
  app.add_option("--sequences", setup.num_sequences, "Time a step of as many; 0: the prompt.")
      ->check(CLI::Range(0, 256));
  const std::map<std::string, headrace::ActivationArithmetic> arithmetics = {
      {"exact", headrace::ActivationArithmetic::kExact},
      {"fast", headrace::ActivationArithmetic::kFast}};
  app.add_option("--activations", setup.activations)
      ->transform(CLI::CheckedTransformer(arithmetics));
  const std::map<std::string, headrace::KvType> kv_types = {{"f16", headrace::KvType::kF16},
                                                            {"int16", headrace::KvType::kInt16}};
  app.add_option("--kv-type", setup.kv_type)->transform(CLI::CheckedTransformer(kv_types));
  using headrace::cpu::Instead;
  const std::map<std::string, Instead> instead = {{"left-out", Instead::kNothing},
                                                  {"stand-ins", Instead::kStandIns},
                                                  {"loads", Instead::kLoads},
                                                  {"hardware", Instead::kHardware}};
  app.add_option("--tiles", setup.instead, "What takes the place of tile instructions.")
      ->transform(CLI::CheckedTransformer(instead));
  CLI11_PARSE(app, argc, argv);
  if (setup.instead == Instead::kStandIns) headrace::cpu::StandInTiles::round_denormals();
  const auto times = headrace::measure(setup);
  if (!times.ok()) {
    fmt::print(stderr, "bench_beside_tiles: {}\n", times.error().to_string());
    return 1;
  }
  double sum = 0;
  for (const auto& [name, ms] : *times) {
    fmt::print("{:<28} {:8.2f}\n", name, ms);
    sum += ms;
  }
  fmt::print("{:<28} {:8.2f}\n", "all", sum);
  return 0;
}
