// headrace profile [MODEL]: where the time of its steps goes.

#include <fmt/format.h>

#include <cstdio>
#include <fstream>

#include "base/queue.h"
#include "bench/op_limits.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/model_argument.h"
#include "cli/runtime.h"
#include "engine/step_profiler.h"
#include "server/profile_json.h"

namespace headrace {
namespace {

struct ProfileShape {
  int64_t prompt_tokens = 0;
  int32_t answer_tokens = 0;
  int num_requests = 1;
};

Result<ProfileShape> read_shape(const Options& options, const Engine& engine) {
  const ProfileShape shape{options.integer("--prefill"),
                           static_cast<int32_t>(options.integer("--decode")),
                           static_cast<int>(options.integer("--batch"))};
  const int64_t tokens = shape.prompt_tokens + shape.answer_tokens;
  if (tokens <= engine.max_context()) return shape;
  return make_error(ErrorCode::kInvalidArgument,
                    "--prefill and --decode are {} tokens together, but a sequence has {} here",
                    tokens, engine.max_context());
}

// Of its own for each number, so that no prompt is found in the cache.
Request random_request(const ProfileShape& shape, uint64_t number, int64_t vocab_size) {
  Request request;
  uint64_t state = number * 0x9e3779b97f4a7c15u + 1;
  for (int64_t i = 0; i < shape.prompt_tokens; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    request.prompt_ids.push_back(
        static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocab_size)));
  }
  request.sampling.temperature = 0;
  request.max_tokens = shape.answer_tokens;
  request.ignore_eos = true;
  return request;
}

// All at once; returns when they have ended.
Status answer_requests(Engine& engine, const ProfileShape& shape, uint64_t first_number,
                       int64_t vocab_size) {
  BoundedQueue<Event> ended(static_cast<size_t>(shape.num_requests));
  int num_submitted = 0;
  Status status;
  for (; num_submitted < shape.num_requests; ++num_submitted) {
    const uint64_t number = first_number + static_cast<uint64_t>(num_submitted);
    const auto id = engine.submit(random_request(shape, number, vocab_size), [&](Event&& event) {
      return event.kind != Event::Kind::kFinished || ended.try_push(std::move(event));
    });
    if (!id.ok()) {
      status = id.error();
      break;
    }
  }
  for (; num_submitted > 0; --num_submitted) {
    const std::optional<Event> event = ended.pop();
    if (event && event->failed() && status.ok()) status = event->error;
  }
  return status;
}

// After a first round that nobody looks at: memory is touched, threads are awake.
Result<Profile> record_profile(Runtime& runtime, const ProfileShape& shape) {
  const int64_t vocab_size = runtime.model->config().vocab_size;
  Engine& engine = *runtime.engine;
  const ProfileShape warm{std::min<int64_t>(shape.prompt_tokens, 32), 2, shape.num_requests};
  TRY(answer_requests(engine, warm, 0, vocab_size));
  StepProfiler& profiler = *engine.profiler();
  TRY(profiler.start(StepProfiler::kMaxSteps));
  const Status status = answer_requests(engine, shape, 1'000'000, vocab_size);
  Profile profile = profiler.take();
  TRY(status);
  return profile;
}

std::string share_text(double share) {
  return share > 0 ? fmt::format("{:.0f} %", 100 * share) : "-";
}

void print_profile_row(const ProfileRow& row, const ProfilePhase& phase) {
  std::printf("  %-17s %-28s %6ld %9.2f %6.1f %9.1f %9.1f %8s\n", std::string(row.op).c_str(),
              row.shape.c_str(), static_cast<long>(row.count), 1e3 * row.seconds,
              100 * row.seconds / phase.seconds, row.bytes / row.seconds / 1e9,
              row.operations / row.seconds / 1e9, share_text(row.share_of_limit()).c_str());
}

void print_rest(std::string_view name, double seconds, const ProfilePhase& phase) {
  std::printf("  %-17s %-28s %6s %9.2f %6.1f\n", std::string(name).c_str(), "", "", 1e3 * seconds,
              100 * seconds / phase.seconds);
}

void print_phase(const ProfilePhase& phase) {
  std::printf("\nsteps with %ss: %ld of %ld tokens in %.2f ms, %.1f tok/s; %.2f ms between them\n",
              std::string(phase.name).c_str(), static_cast<long>(phase.num_steps),
              static_cast<long>(phase.num_tokens), 1e3 * phase.seconds,
              static_cast<double>(phase.num_tokens) / phase.seconds, 1e3 * phase.waiting_s);
  std::printf("  %-17s %-28s %6s %9s %6s %9s %9s %8s\n", "op", "weight", "count", "ms", "%", "GB/s",
              "Gop/s", "of limit");
  for (const ProfileRow& row : phase.rows) print_profile_row(row, phase);
  print_rest("between ops", phase.between_ops_s, phase);
  for (size_t i = 0; i < kNumStepParts; ++i) {
    if (static_cast<StepPart>(i) == StepPart::kForward) continue;
    print_rest(kStepPartNames[i], phase.part_s[i], phase);
  }
}

Status write_trace(const std::string& path, const std::string& trace) {
  if (path.empty()) return {};
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << trace << '\n';
  file.flush();
  if (file) return {};
  return make_error(ErrorCode::kIo, "cannot write the trace to '{}'", path);
}

}  // namespace

Result<int> run_profile(const Options& options) {
  const ModelArgument given = TRY(take_model(options, 0));
  const std::string& trace_path = options.text("--trace");
  TRY(write_trace(trace_path, ""));  // before minutes of work
  const MachineFile machine = TRY(machine_of(options, MachineParts::kLimits));
  Runtime runtime = TRY(open_engine(options, given.model));
  const ProfileShape shape = TRY(read_shape(options, *runtime.engine));
  const OpLimit limit = op_limit(TRY(kernels_in_use(options, *runtime.backend)),
                                 runtime.model->options().kv_type, machine);
  const Profile profile = TRY(record_profile(runtime, shape));
  ModelInfo model;
  model.name = given.model;
  model.isa = runtime.backend->isa();
  model.num_threads = runtime.backend->num_threads();
  TRY(write_trace(trace_path, trace_path.empty() ? "" : profile_trace(profile, model)));
  if (options.flag("--json")) {
    std::printf("%s\n", profile_json(profile, model, limit).c_str());
    return 0;
  }
  std::printf("%s on %s, %d threads\n", given.model.c_str(), model.isa.c_str(), model.num_threads);
  for (const ProfilePhase& phase : summarise(profile, limit)) print_phase(phase);
  return 0;
}

}  // namespace headrace
