// headrace bench serve URL|MODEL: load on a server, and what it made of it.

#include <fmt/format.h>

#include <boost/json.hpp>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <optional>

#include "base/json.h"
#include "base/whole_file.h"
#include "bench/plan.h"
#include "bench/serve/campaign.h"
#include "bench/serve/curl_transport.h"
#include "bench/serve/report.h"
#include "cli/bench.h"
#include "cli/generate.h"
#include "cli/http_client.h"
#include "cli/own_server.h"
#include "cli/runtime.h"

namespace headrace {
namespace {

namespace json = boost::json;

bool is_address(std::string_view text) {
  if (text.find("://") != text.npos) return !text.ends_with(".gguf");
  const size_t colon = text.rfind(':');
  if (colon == text.npos || colon + 1 == text.size()) return false;
  return std::ranges::all_of(text.substr(colon + 1),
                             [](unsigned char c) { return std::isdigit(c) != 0; });
}

// The options that both commands have, as they were typed.
std::vector<std::string> arguments_of_server(const Options& options, const std::string& model) {
  std::vector<std::string> arguments = {model, "--port", "0", "--log-level", "warning"};
  for (const OptionRow& row : option_rows()) {
    const bool shared = option_applies(row, "serve") && option_applies(row, "bench");
    if (!shared || !options.is_typed(row.name)) continue;
    arguments.emplace_back(row.name);
    switch (row.kind) {
      case OptionKind::kInteger:
        arguments.push_back(std::to_string(options.integer(row.name)));
        break;
      case OptionKind::kBytes:
        arguments.push_back(std::to_string(options.bytes(row.name)));
        break;
      default:
        arguments.push_back(options.text(row.name));
    }
  }
  return arguments;
}

// The name by which to ask: of --request-model, else the first that the server lists.
Result<std::string> model_of_server(const Options& options, const std::string& url) {
  HttpCall call = call_of(options, url, "/v1/models");
  const HttpAnswer answer = TRY(call_server(call));
  if (answer.status == 401 || answer.status == 403) {
    Error error =
        make_error(ErrorCode::kPermission, "{} wants a key (status {})", url, answer.status);
    error.hint = "name it with --api-key or HEADRACE_API_KEY";
    return error;
  }
  if (!options.text("--request-model").empty()) return options.text("--request-model");
  const auto parsed = parse_json(answer.body, "the list of models");
  const json::value* data = parsed.ok() ? json_member(&*parsed, "data") : nullptr;
  const bool has_rows = data != nullptr && data->is_array() && !data->get_array().empty();
  const json::value* id = has_rows ? json_member(&data->get_array().front(), "id") : nullptr;
  if (answer.status == 200 && id != nullptr && id->is_string()) {
    return std::string(std::string_view(id->get_string()));
  }
  Error error = make_error(ErrorCode::kUnavailable,
                           "{} does not list its models as servers with the OpenAI API do "
                           "(status {})",
                           call.url, answer.status);
  error.hint = "name a model with --request-model";
  return error;
}

Result<loads::Workload> make_workload(const Options& options) {
  const auto seed = static_cast<uint64_t>(options.integer("--seed"));
  if (const std::string& trace = options.text("--trace"); !trace.empty()) {
    return loads::Workload(TRY(loads::parse_trace(TRY(read_text(trace)), trace, seed)));
  }
  loads::WorkloadOptions work;
  work.prompts =
      TRY(loads::parse_lengths(options.text("--prompt-tokens"), "--prompt-tokens", false));
  work.answers =
      TRY(loads::parse_lengths(options.text("--answer-tokens"), "--answer-tokens", true));
  work.profile = TRY(loads::parse_profile(options.text("--profile")));
  work.prefix_tokens = options.integer("--prefix-tokens");
  work.turns = static_cast<int>(options.integer("--turns"));
  work.seed = seed;
  return loads::Workload(work);
}

// A recording is played at its times, or by clients of which each asks again when it has its
// answer.
Result<loads::LoadShape> make_shape(const Options& options, bool traced) {
  const bool plays = traced && !options.is_set("--load");
  const auto shape = TRY(loads::parse_load(plays ? "trace" : options.text("--load"),
                                           static_cast<int>(options.integer("--connections"))));
  if (!traced && shape.kind == loads::ShapeKind::kTrace) {
    return make_error(ErrorCode::kInvalidArgument, "--load trace needs --trace FILE");
  }
  if (traced && shape.kind != loads::ShapeKind::kTrace && shape.is_open()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--trace says when requests are sent, and --load {} does too: leave out one",
                      options.text("--load"));
  }
  return shape;
}

// num_recorded: requests of a recording; 0: there is none.
Result<loads::Campaign> make_campaign(const Options& options, int64_t num_recorded) {
  loads::Campaign campaign;
  const bool traced = num_recorded > 0;
  campaign.rule.connections = static_cast<int>(options.integer("--connections"));
  campaign.rule.shape = TRY(make_shape(options, traced));
  campaign.rule.seconds = options.number("--duration");
  if (options.is_set("--warmup")) {
    campaign.rule.warmup = options.number("--warmup");
  } else if (traced) {
    campaign.rule.warmup = 0;
  }
  if (!traced && campaign.rule.warmup.value_or(0) >= campaign.rule.seconds) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--warmup is {} s, but must be shorter than --duration, {} s",
                      *campaign.rule.warmup, campaign.rule.seconds);
  }
  campaign.rule.max_requests = options.integer("--requests");
  if (traced && (campaign.rule.max_requests == 0 || campaign.rule.max_requests > num_recorded)) {
    campaign.rule.max_requests = num_recorded;
  }
  campaign.rule.seed = static_cast<uint64_t>(options.integer("--seed"));
  campaign.num_rates = static_cast<int>(options.integer("--rates"));
  campaign.slo = TRY(loads::parse_slo(options.text("--slo")));
  campaign.form.chat = options.text("--api") == "chat";
  campaign.form.ignore_eos = !options.flag("--natural-end");
  return campaign;
}

// Whole or not at all, so that what an earlier stage wrote is never half gone.
Status write_whole(const std::string& path, const std::string& contents) {
  const auto file = TRY(WholeFile::create(path));
  TRY(file->write(std::as_bytes(std::span(contents))));
  return file->publish();
}

class Reporter {
 public:
  Reporter(const Options& options, loads::ReportHead head)
      : head_(std::move(head)),
        save_(options.text("--save")),
        html_(options.text("--html")),
        as_json_(options.flag("--json")) {}

  // To files: after every stage, and before the first, so that a path that cannot be written is
  // told at once.
  Status write(std::span<const loads::StageSummary> stages) const { return write(stages, false); }
  // To streams, which keep what they are sent: after the last stage alone.
  Status end(std::span<const loads::StageSummary> stages) const { return write(stages, true); }
  void print(std::span<const loads::StageSummary> stages) const {
    if (as_json_) return print_row(loads::report_json(head_, stages));
    std::printf("%s", loads::report_text(stages).c_str());
  }

 private:
  Status write(std::span<const loads::StageSummary> stages, bool to_streams) const {
    const auto takes = [=](const std::string& path) {
      return !path.empty() && is_stream(path) == to_streams;
    };
    if (takes(save_)) {
      TRY(write_whole(save_, json::serialize(loads::report_json(head_, stages)) + "\n"));
    }
    if (takes(html_)) TRY(write_whole(html_, loads::report_html(head_, stages)));
    return {};
  }

  loads::ReportHead head_;
  std::string save_, html_;
  bool as_json_;
};

loads::ReportHead head_of(const Options& options, const std::string& url,
                          const std::string& model) {
  const std::string& trace = options.text("--trace");
  return {url,
          model,
          trace.empty() ? options.text("--prompt-tokens") : trace,
          trace.empty() ? options.text("--answer-tokens") : trace,
          options.text("--profile"),
          options.text("--slo")};
}

loads::ServerQueue queue_of_server(const Options& options, const std::string& url) {
  const auto answer = call_server(call_of(options, url, "/metrics"));
  if (!answer.ok() || answer->status != 200) return {};  // a server without is as good
  return loads::read_server_queue(answer->body);
}

// What the model and the machine allow; empty with --bare, and of a server whose model is not here.
struct Expectation {
  MachineFile machine;
  std::optional<Forecast> forecast;

  // Prompts that come meanwhile stretch the gaps of the others.
  void add_to(loads::StageSummary& stage) const {
    if (!forecast || stage.num_answered == 0 || stage.mean_prompt_tokens < 1) return;
    const auto prompt = static_cast<int64_t>(std::llround(stage.mean_prompt_tokens));
    const auto answer = static_cast<int64_t>(std::llround(stage.mean_answer_tokens));
    const double running = std::max(stage.mean_running, 1.0);
    const StepForecast first = forecast->prefill(prompt);
    const StepForecast step = forecast->decode(std::llround(running), prompt + answer / 2);
    const double others = stage.requests_per_s * first.seconds() * (running - 1) / running;
    stage.forecast = loads::StageForecast{
        1e3 * first.seconds(), 1e3 * step.seconds() / (1 - std::min(others, 0.9)),
        std::string(first.bound_by()), std::string(step.bound_by())};
  }
};

Result<std::unique_ptr<Expectation>> expectation_of(const Options& options,
                                                    const std::string& model) {
  auto expectation = std::make_unique<Expectation>();
  if (options.flag("--bare")) return expectation;
  const auto checkpoint = TRY(open_checkpoint(options, model));
  const ModelConfig config = TRY(Model::read_config(*checkpoint));
  expectation->machine = TRY(machine_of(options));
  PlanRequest request;
  request.chunk = static_cast<int>(options.integer("--batch-tokens"));
  request.kv_type = kv_type_from_options(options, TRY(default_kv_type(expectation->machine)));
  request.activations = activations_from_options(options);
  expectation->forecast = TRY(Forecast::create(*checkpoint, config, expectation->machine, request));
  return expectation;
}

Status run_load(const Options& options, const std::string& url, loads::Campaign campaign,
                loads::Workload& workload, const Expectation& expectation) {
  campaign.form.model = TRY(model_of_server(options, url));
  loads::Target target;
  target.url = url + (campaign.form.chat ? "/v1/chat/completions" : "/v1/completions");
  target.key = options.text("--api-key");
  target.ca = options.text("--ca");
  target.timeout_seconds = options.number("--request-timeout");
  target.connections = campaign.rule.connections;
  const auto transport = TRY(loads::open_transport(target));
  const Reporter reporter(options, head_of(options, url, campaign.form.model));
  TRY(reporter.write({}));
  loads::ServerQueue before;
  Status written;
  campaign.before = [&](const loads::LoadShape& shape) {
    std::fprintf(stderr, "%s ...\n", shape.name().c_str());
    before = queue_of_server(options, url);
  };
  campaign.after = [&](std::vector<loads::StageSummary>& stages) {
    const loads::ServerQueue after = queue_of_server(options, url);
    const double requests = after.requests - before.requests;
    if (requests > 0) {
      stages.back().server_queue_ms = 1e3 * (after.seconds - before.seconds) / requests;
    }
    expectation.add_to(stages.back());
    written = reporter.write(stages);
  };
  const InterruptGuard interrupted;
  const std::vector<loads::StageSummary> stages =
      run_campaign(campaign, workload, *transport, &interrupted.flag());
  reporter.print(stages);
  TRY(std::move(written));
  TRY(reporter.end(stages));
  const loads::StageSummary& last = stages.back();
  if (!last.ended_by.empty()) {
    return make_error(ErrorCode::kUnavailable, "the load ended early: {}", last.ended_by);
  }
  if (last.num_answered > 0) return {};
  return make_error(ErrorCode::kUnavailable, "no request was answered in {:.3g} s: {}",
                    last.window_seconds,
                    last.first_error.empty() ? "all ended within the warm-up, or were refused"
                                             : last.first_error);
}

}  // namespace

Status bench_serve(const Options& options, const std::vector<std::string>& arguments) {
  loads::Workload workload = TRY(make_workload(options));
  loads::Campaign campaign = TRY(make_campaign(options, workload.num_recorded()));
  if (is_address(arguments[0])) {
    for (const char* name : {"--machine", "--speculation", "--draft-model"}) {
      if (!options.is_typed(name)) continue;
      return make_error(ErrorCode::kInvalidArgument,
                        "{} is for a MODEL: what stands behind {} is not known", name,
                        arguments[0]);
    }
    return run_load(options, server_address(arguments[0]), std::move(campaign), workload, {});
  }
  const auto expectation = TRY(expectation_of(options, arguments[0]));
  const OwnServer server = TRY(OwnServer::start(arguments_of_server(options, arguments[0])));
  return run_load(options, server.url(), std::move(campaign), workload, *expectation);
}

}  // namespace headrace
