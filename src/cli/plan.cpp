// headrace plan MODEL: what it will take of memory and time on a machine, before anything is
// loaded.

#include <fmt/format.h>

#include <boost/json.hpp>

#include <algorithm>
#include <cstdio>

#include "backend/cpu/kernels/isa.h"
#include "base/strings.h"
#include "bench/machine.h"
#include "bench/measure_rates.h"
#include "bench/plan.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/model_argument.h"
#include "cli/runtime.h"

namespace headrace {
namespace {

namespace json = boost::json;

constexpr int64_t kPrompts[] = {128, 512, 2048, 8192, 32768};
constexpr int64_t kDepths[] = {0, 2048, 8192, 32768};
constexpr int64_t kBatches[] = {1, 4, 16, 64};
constexpr int64_t kPricedPrompt = 512;
constexpr DType kFormats[] = {DType::kBF16, DType::kQ8_0, DType::kQ6K,  DType::kQ5K,  DType::kQ4K,
                              DType::kQ3K,  DType::kQ2K,  DType::kQ4_0, DType::kMXFP4};

Result<PlanRequest> request_of(const Options& options, const ModelConfig& config,
                               const MachineFile& machine) {
  PlanRequest request;
  request.context = TRY(context_from_options(options, config));
  request.clients = options.integer("--clients");
  request.chunk = static_cast<int>(options.integer("--batch-tokens"));
  request.kv_type = kv_type_from_options(options, TRY(default_kv_type(machine)));
  request.activations = activations_from_options(options);
  request.memory_bytes = options.bytes("--memory");
  if (request.memory_bytes == 0) request.memory_bytes = machine.memory_bytes;
  return request;
}

json::object step_json(const StepForecast& step, double num_tokens) {
  json::object row{{"limit_tok_s", num_tokens / step.limit_s()},
                   {"limit_ms", 1e3 * step.limit_s()},
                   {"bytes", step.bytes},
                   {"operations", step.operations},
                   {"memory_ms", 1e3 * step.memory_s},
                   {"products_ms", 1e3 * step.linear_s},
                   {"attention_ms", 1e3 * step.mixer_s},
                   {"bound", step.bound_by()}};
  if (step.expected) {
    row["expected_tok_s"] = num_tokens / step.expected->seconds();
    row["expected_ms"] = 1e3 * step.expected->seconds();
    row["expected_products_ms"] = 1e3 * step.expected->products_s;
    row["expected_attention_ms"] = 1e3 * step.expected->attention_s;
  }
  return row;
}

std::string_view policy_name(CachePolicy policy) {
  constexpr std::string_view kNames[] = {"full", "window", "state"};
  return kNames[static_cast<size_t>(policy)];
}

json::object memory_json(const Forecast& forecast) {
  const PlanRequest& request = forecast.request();
  const MemoryPlan& memory = forecast.memory();
  json::array groups;
  for (const GroupForecast& group : forecast.groups()) {
    groups.push_back(
        {{"policy", policy_name(group.policy)},
         {"window", group.window},
         {"layers", group.num_layers},
         {group.policy == CachePolicy::kState ? "bytes_per_sequence" : "bytes_per_token",
          group.bytes}});
  }
  const size_t total = forecast.total_bytes(request.clients, request.context);
  return {{"weights", memory.weights},
          {"workspace", memory.workspace},
          {"other", memory.other},
          {"kv", total - memory.weights - memory.workspace - memory.other},
          {"kv_groups", std::move(groups)},
          {"total", total},
          {"available", request.memory_bytes},
          {"fits", forecast.fits(request.clients, request.context)},
          {"longest_context", forecast.longest_context(request.clients)},
          {"most_clients", forecast.most_clients(request.context)}};
}

json::object price_json(const Options& options, const Forecast& forecast, int64_t batch,
                        int64_t depth) {
  const double hour = options.number("--price-per-hour");
  const double prompt_speed =
      static_cast<double>(kPricedPrompt) / forecast.prefill(kPricedPrompt).seconds();
  return {{"per_hour", hour},
          {"million_prompt_tokens", price_of_million(hour, prompt_speed)},
          {"million_answer_tokens",
           price_of_million(hour, forecast.decode_tokens_per_s(batch, depth))}};
}

// What the model would be with another format or another type of keys and values. speed: wanted of
// each client; 0: any.
json::object variant_json(std::string_view name, const Forecast& forecast, int64_t depth,
                          double speed) {
  const PlanRequest& request = forecast.request();
  const double of_clients = forecast.decode_tokens_per_s(request.clients, depth);
  return {{"name", name},
          {"weights", forecast.memory().weights},
          {"total", forecast.total_bytes(request.clients, request.context)},
          {"fits", forecast.fits(request.clients, request.context)},
          {"fast_enough", of_clients >= speed * static_cast<double>(request.clients)},
          {"longest_context", forecast.longest_context(request.clients)},
          {"tok_s", forecast.decode_tokens_per_s(1, depth)},
          {"tok_s_of_clients", of_clients}};
}

class PlanReport {
 public:
  PlanReport(const Checkpoint& checkpoint, const ModelConfig& config, const MachineFile& machine,
             const Forecast& forecast, double speed)
      : checkpoint_(checkpoint),
        config_(config),
        machine_(machine),
        forecast_(forecast),
        speed_(speed),
        depth_(std::max<int64_t>(forecast.request().context / 2, 1)) {}

  Result<json::object> make(const Options& options, const std::string& spec) const {
    const int64_t batch = forecast_.best_batch(depth_);
    json::object report{{"kind", "plan"},
                        {"model", spec},
                        {"processor", machine_.processor},
                        {"isa", cpu::isa_names(machine_.isa)},
                        {"threads", machine_.limits.num_threads},
                        {"expects", !machine_.rates.empty()},
                        {"context", forecast_.request().context},
                        {"clients", forecast_.request().clients},
                        {"memory", memory_json(forecast_)},
                        {"prefill", prompts()},
                        {"decode", decodes()},
                        {"best_batch", batch},
                        {"best_batch_depth", depth_},
                        {"kv_types", TRY(kv_types())},
                        {"formats", TRY(formats())}};
    report["of_clients"] = step_json(forecast_.decode(forecast_.request().clients, depth_),
                                     static_cast<double>(forecast_.request().clients));
    report["speed"] = speed_;
    if (options.is_set("--price-per-hour")) {
      report["price"] = price_json(options, forecast_, batch, depth_);
    }
    return report;
  }

 private:
  json::array prompts() const {
    json::array rows;
    for (const int64_t tokens : kPrompts) {
      if (tokens > config_.max_position_embeddings) break;
      json::object row = step_json(forecast_.prefill(tokens), static_cast<double>(tokens));
      row["tokens"] = tokens;
      rows.push_back(std::move(row));
    }
    return rows;
  }
  json::array decodes() const {
    json::array rows;
    for (const int64_t depth : kDepths) {
      if (depth >= config_.max_position_embeddings) break;
      for (const int64_t batch : kBatches) {
        json::object row = step_json(forecast_.decode(batch, depth), static_cast<double>(batch));
        row["batch"] = batch;
        row["depth"] = depth;
        row["fits"] = forecast_.fits(batch, depth + 1);
        rows.push_back(std::move(row));
      }
    }
    return rows;
  }
  Result<json::array> kv_types() const {
    json::array rows;
    for (int type = 0; type < kNumKvTypes; ++type) {
      PlanRequest request = forecast_.request();
      request.kv_type = static_cast<KvType>(type);
      const Forecast other = TRY(Forecast::create(checkpoint_, config_, machine_, request));
      rows.push_back(variant_json(kKvTypeNames[type], other, depth_, speed_));
    }
    return rows;
  }
  Result<json::array> formats() const {
    json::array rows;
    for (const DType format : kFormats) {
      const Forecast other =
          TRY(Forecast::create(checkpoint_, config_, machine_, forecast_.request(), format));
      rows.push_back(variant_json(dtype_name(format), other, depth_, speed_));
    }
    return rows;
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const MachineFile& machine_;
  const Forecast& forecast_;
  double speed_;
  int64_t depth_;  // half of the context: where a sequence is on average
};

std::string plan_bytes(const json::object& row, std::string_view key) {
  return format_bytes(row.at(key).to_number<size_t>());
}
double plan_number(const json::object& row, std::string_view key) {
  return row.at(key).to_number<double>();
}
const char* plan_text(const json::object& row, std::string_view key) {
  return row.at(key).as_string().c_str();
}
// Of what is not expected of this machine, "-".
std::string expected_text(const json::object& row, std::string_view key) {
  const json::value* value = row.if_contains(key);
  return value == nullptr ? "-" : fmt::format("{:.4g}", value->to_number<double>());
}

void print_memory(const json::object& report) {
  const json::object& memory = report.at("memory").as_object();
  std::printf("%s on %s, %.0f threads: what to expect, and the limit that this machine allows\n\n",
              plan_text(report, "model"), plan_text(report, "processor"),
              plan_number(report, "threads"));
  if (!report.at("expects").as_bool()) {
    std::printf(
        "Only limits: the file of this machine was made before `headrace bench machine --json` "
        "measured what ops reach.\n\n");
  }
  std::printf(
      "memory     %s of %s: weights %s, KV %s (%.0f x %.0f tokens), workspace %s, other %s\n",
      plan_bytes(memory, "total").c_str(), plan_bytes(memory, "available").c_str(),
      plan_bytes(memory, "weights").c_str(), plan_bytes(memory, "kv").c_str(),
      plan_number(report, "clients"), plan_number(report, "context"),
      plan_bytes(memory, "workspace").c_str(), plan_bytes(memory, "other").c_str());
  for (const json::value& value : memory.at("kv_groups").as_array()) {
    const json::object& group = value.as_object();
    const bool is_state = group.contains("bytes_per_sequence");
    std::printf("           %s of %.0f layers: %s for each %s\n", plan_text(group, "policy"),
                plan_number(group, "layers"),
                plan_bytes(group, is_state ? "bytes_per_sequence" : "bytes_per_token").c_str(),
                is_state ? "sequence" : "token");
  }
  std::printf("fits       %s; at most %.0f tokens each, or %.0f clients of these\n",
              memory.at("fits").as_bool() ? "yes" : "no", plan_number(memory, "longest_context"),
              plan_number(memory, "most_clients"));
}

void print_speed(const json::object& report) {
  std::printf("\n%-8s %10s %12s %12s %12s  bound by\n", "prompt", "tok/s", "limit", "TTFT ms",
              "limit");
  for (const json::value& value : report.at("prefill").as_array()) {
    const json::object& row = value.as_object();
    std::printf("%-8.0f %10s %12.1f %12s %12.1f  %s\n", plan_number(row, "tokens"),
                expected_text(row, "expected_tok_s").c_str(), plan_number(row, "limit_tok_s"),
                expected_text(row, "expected_ms").c_str(), plan_number(row, "limit_ms"),
                plan_text(row, "bound"));
  }
  std::printf("\n%-8s %8s %10s %12s %12s %12s  bound by\n", "batch", "depth", "tok/s", "limit",
              "gap ms", "limit");
  for (const json::value& value : report.at("decode").as_array()) {
    const json::object& row = value.as_object();
    std::printf("%-8.0f %8.0f %10s %12.1f %12s %12.2f  %s%s\n", plan_number(row, "batch"),
                plan_number(row, "depth"), expected_text(row, "expected_tok_s").c_str(),
                plan_number(row, "limit_tok_s"), expected_text(row, "expected_ms").c_str(),
                plan_number(row, "limit_ms"), plan_text(row, "bound"),
                row.at("fits").as_bool() ? "" : ", does not fit");
  }
  const json::object& together = report.at("of_clients").as_object();
  std::printf(
      "\n%.0f clients at depth %.0f: %s tok/s together (limit %.1f), gap %s ms (limit %.2f by %s); "
      "best batch %.0f\n",
      plan_number(report, "clients"), plan_number(report, "best_batch_depth"),
      expected_text(together, "expected_tok_s").c_str(), plan_number(together, "limit_tok_s"),
      expected_text(together, "expected_ms").c_str(), plan_number(together, "limit_ms"),
      plan_text(together, "bound"), plan_number(report, "best_batch"));
}

// Of formats the first that suits costs least quality: they are in the order of their bits.
void print_variants(const json::object& report, std::string_view key, const char* title) {
  std::printf("\n%-8s %12s %12s %6s %6s %12s %10s %12s\n", title, "weights", "total", "fits",
              "fast", "longest", "tok/s", "of clients");
  std::string suits;
  const auto word = [](const json::object& row, std::string_view name) {
    return row.at(name).as_bool() ? "yes" : "no";
  };
  for (const json::value& value : report.at(key).as_array()) {
    const json::object& row = value.as_object();
    std::printf("%-8s %12s %12s %6s %6s %12.0f %10.1f %12.1f\n", plan_text(row, "name"),
                plan_bytes(row, "weights").c_str(), plan_bytes(row, "total").c_str(),
                word(row, "fits"), word(row, "fast_enough"), plan_number(row, "longest_context"),
                plan_number(row, "tok_s"), plan_number(row, "tok_s_of_clients"));
    if (!row.at("fits").as_bool() || !row.at("fast_enough").as_bool()) continue;
    append_format(suits, "{}{}", suits.empty() ? "" : ", ", plan_text(row, "name"));
  }
  std::printf("suit       %s\n", suits.empty() ? "none" : suits.c_str());
}

void print_plan(const json::object& report) {
  print_memory(report);
  print_speed(report);
  if (const json::value* value = report.if_contains("price")) {
    const json::object& price = value->as_object();
    std::printf("price      %.4g for a million prompt tokens, %.4g for a million of answers\n",
                plan_number(price, "million_prompt_tokens"),
                plan_number(price, "million_answer_tokens"));
  }
  print_variants(report, "kv_types", "KV");
  print_variants(report, "formats", "weights");
  std::printf("Weights whose width the blocks of a format do not divide stay as they are.\n");
}

}  // namespace

Result<MachineFile> machine_of(const Options& options, MachineParts parts) {
  const std::string& path = options.text("--machine");
  if (!path.empty()) return parse_machine(TRY(read_text(path)), path);
  std::fprintf(stderr, "measuring this machine (%s; --machine FILE spares it) ...\n",
               parts == MachineParts::kAll ? "half a minute" : "ten seconds");
  const cpu::MachineInfo info = cpu::describe_machine();
  MachineFile machine;
  machine.processor = info.processor;
  machine.isa = info.isa;
  machine.memory_bytes = info.memory_bytes;
  machine.limits = TRY(cpu::measure_machine());
  if (parts == MachineParts::kAll) {
    machine.rates = TRY(measure_all_rates(machine.limits.num_threads));
  }
  return machine;
}

Result<int> run_plan(const Options& options) {
  const auto checkpoint = TRY(open_checkpoint(options, TRY(take_model(options, 0)).model));
  const ModelConfig config = TRY(Model::read_config(*checkpoint));
  const MachineFile machine = TRY(machine_of(options));
  const PlanRequest request = TRY(request_of(options, config, machine));
  const Forecast forecast = TRY(Forecast::create(*checkpoint, config, machine, request));
  const json::object report =
      TRY(PlanReport(*checkpoint, config, machine, forecast,
                     options.is_set("--speed") ? options.number("--speed") : 0)
              .make(options, TRY(take_model(options, 0)).model));
  options.flag("--json") ? print_row(report) : print_plan(report);
  return 0;
}

}  // namespace headrace
