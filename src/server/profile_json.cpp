#include "server/profile_json.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "server/api/json_writer.h"

namespace headrace {
namespace {

// To a tenth, as short as may be.
double microseconds(int64_t nanoseconds) {
  return std::round(static_cast<double>(nanoseconds) * 1e-2) / 10;
}

void write_phase_parts(JsonWriter& json, const ProfilePhase& phase) {
  json.key("parts").open_object();
  for (size_t i = 0; i < kNumStepParts; ++i) {
    json.number(kStepPartNames[i], phase.part_s[i] * 1e6);
  }
  json.close_object();
}

void write_row(JsonWriter& json, const ProfileRow& row, const ProfilePhase& phase) {
  json.open_object().text("op", row.op).text("shape", row.shape).integer("count", row.count);
  json.number("us", row.seconds * 1e6);
  json.number("share_of_time", phase.seconds > 0 ? row.seconds / phase.seconds : 0);
  json.number("bytes", row.bytes).number("operations", row.operations);
  if (row.limit_s > 0) json.number("share_of_limit", row.share_of_limit());
  json.close_object();
}

void write_phase(JsonWriter& json, const ProfilePhase& phase) {
  json.open_object().text("name", phase.name).integer("steps", phase.num_steps);
  json.integer("tokens", phase.num_tokens).number("us", phase.seconds * 1e6);
  json.number("waiting_us", phase.waiting_s * 1e6);
  json.number("between_ops_us", phase.between_ops_s * 1e6);
  write_phase_parts(json, phase);
  json.key("ops").open_array();
  for (const ProfileRow& row : phase.rows) write_row(json, row, phase);
  json.close_array().close_object();
}

// Names of ops with their shapes, so that each of many ops says a number.
class OpTable {
 public:
  int64_t index(const OpRecord& op) {
    const auto [found, is_new] =
        indices_.emplace(std::pair(op.kind, op_shape(op)), static_cast<int64_t>(indices_.size()));
    if (is_new) order_.push_back(found->first);
    return found->second;
  }
  void write(JsonWriter& json) const {
    json.key("kinds").open_array();
    for (const auto& [kind, shape] : order_) {
      json.open_array().text(kOpNames[static_cast<size_t>(kind)]).text(shape).close_array();
    }
    json.close_array();
  }

 private:
  std::map<std::pair<OpKind, std::string>, int64_t> indices_;
  std::vector<std::pair<OpKind, std::string>> order_;
};

void write_ops(JsonWriter& json, const StepProfile& step, int64_t zero_ns, OpTable& table) {
  json.key("ops").open_array();
  for (const OpRecord& op : step.ops) {
    json.open_array().integer(table.index(op)).integer(op.layer).integer(op.num_rows);
    json.number(microseconds(op.start_ns - zero_ns));
    json.number(microseconds(op.end_ns - op.start_ns));
    json.number(std::round(op.bytes)).number(std::round(op.operations)).close_array();
  }
  json.close_array();
}

void write_step(JsonWriter& json, const StepProfile& step, int64_t zero_ns, OpTable& table) {
  json.open_object().integer("index", static_cast<int64_t>(step.step_idx));
  json.number("start_us", microseconds(step.start_ns - zero_ns));
  json.number("us", microseconds(step.end_ns() - step.start_ns));
  json.integer("tokens", step.num_tokens).integer("prompt_tokens", step.num_prompt_tokens);
  json.integer("sequences", step.num_sequences).key("parts").open_array();
  for (size_t i = 0; i < kNumStepParts; ++i) {
    const auto part = static_cast<StepPart>(i);
    json.open_array().text(kStepPartNames[i]);
    json.number(microseconds(step.part_start_ns(part) - zero_ns));
    json.number(microseconds(step.part_ns(part))).close_array();
  }
  json.close_array();
  write_ops(json, step, zero_ns, table);
  json.close_object();
}

int64_t zero_of(const Profile& profile) {
  return profile.steps.empty() ? 0 : profile.steps.front().start_ns;
}

// ---- Trace --------------------------------------------------------------------------------------

// A trace's numbers are microseconds; three places keep what nests within what it nests in.
class Trace {
 public:
  explicit Trace(int64_t zero_ns) : zero_ns_(zero_ns) {
    json_.open_object().text("displayTimeUnit", "ms").key("traceEvents").open_array();
  }

  void name(std::string_view what, std::string_view name, int thread) {
    json_.open_object().text("ph", "M").text("name", what).integer("pid", 1).integer("tid", thread);
    json_.key("args").open_object().text("name", name).close_object().close_object();
  }
  // The arguments follow, then close().
  JsonWriter& open(std::string_view category, std::string_view name, int thread, int64_t start_ns,
                   int64_t end_ns) {
    json_.open_object().text("ph", "X").text("cat", category).text("name", name);
    json_.integer("pid", 1).integer("tid", thread);
    json_.number("ts", static_cast<double>(start_ns - zero_ns_) / 1e3);
    json_.number("dur", static_cast<double>(end_ns - start_ns) / 1e3);
    return json_.key("args").open_object();
  }
  void close() { json_.close_object().close_object(); }
  std::string take() { return json_.close_array().close_object().take(); }

 private:
  const int64_t zero_ns_;
  JsonWriter json_;
};

constexpr int kStepThread = 1, kOpThread = 2;

void trace_op(Trace& trace, const OpRecord& op) {
  JsonWriter& args =
      trace.open("op", kOpNames[static_cast<size_t>(op.kind)], kOpThread, op.start_ns, op.end_ns);
  args.text("shape", op_shape(op)).integer("rows", op.num_rows);
  args.number("bytes", op.bytes).number("operations", op.operations);
  trace.close();
}

// A layer holds its ops: neighbours of one number.
void trace_ops(Trace& trace, const std::vector<OpRecord>& ops) {
  for (size_t first = 0, end = 0; first < ops.size(); first = end) {
    while (end < ops.size() && ops[end].layer == ops[first].layer) ++end;
    if (ops[first].layer != kNoOpLayer) {
      trace.open("layer", fmt::format("layer {}", ops[first].layer), kOpThread, ops[first].start_ns,
                 ops[end - 1].end_ns);
      trace.close();
    }
    for (size_t i = first; i < end; ++i) trace_op(trace, ops[i]);
  }
}

void trace_step(Trace& trace, const StepProfile& step) {
  const bool is_prompt = step.num_prompt_tokens > 0;
  JsonWriter& args = trace.open("step", is_prompt ? "step of prompts" : "step of answers",
                                kStepThread, step.start_ns, step.end_ns());
  args.integer("step", static_cast<int64_t>(step.step_idx)).integer("tokens", step.num_tokens);
  args.integer("prompt_tokens", step.num_prompt_tokens).integer("sequences", step.num_sequences);
  trace.close();
  for (size_t i = 0; i < kNumStepParts; ++i) {
    const auto part = static_cast<StepPart>(i);
    trace.open("part", kStepPartNames[i], kStepThread, step.part_start_ns(part),
               step.part_ends_ns[i]);
    trace.close();
  }
  trace_ops(trace, step.ops);
}

}  // namespace

std::string profile_json(const Profile& profile, const ModelInfo& model, const OpLimit& limit) {
  JsonWriter json;
  json.open_object().text("format", "headrace-profile").integer("version", 1);
  json.text("model", model.name).text("isa", model.isa).integer("threads", model.num_threads);
  json.boolean("complete", profile.complete).key("phases").open_array();
  for (const ProfilePhase& phase : summarise(profile, limit)) write_phase(json, phase);
  json.close_array().key("steps").open_array();
  OpTable table;
  for (const StepProfile& step : profile.steps) write_step(json, step, zero_of(profile), table);
  json.close_array();
  table.write(json);
  return json.close_object().take();
}

std::string profile_trace(const Profile& profile, const ModelInfo& model) {
  Trace trace(zero_of(profile));
  trace.name("process_name", fmt::format("headrace {}", model.name), 0);
  trace.name("thread_name", "steps", kStepThread);
  trace.name("thread_name", "ops", kOpThread);
  for (const StepProfile& step : profile.steps) trace_step(trace, step);
  return trace.take();
}

}  // namespace headrace
