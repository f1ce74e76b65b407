// /api/headrace/profile: where the time of the next steps goes; and the page that draws it.

#include "engine/step_profiler.h"
#include "server/api/api_fields.h"
#include "server/api/fields.h"
#include "server/api/json.h"
#include "server/api/openai/openai.h"
#include "server/dashboard.h"
#include "server/routes.h"

namespace headrace {
namespace {

constexpr double kDefaultPatience = 30, kMaxPatience = 300;  // seconds

struct ProfileCall {
  ModelPtr model;
  int num_steps = 0;
  std::chrono::milliseconds patience{};
};

Result<ProfileCall> read_profile_call(ServerState& state, const HttpRequest& request) {
  const boost::json::object body = TRY(body_object(request));
  for (const auto& [name, value] : body) {
    if (name == "steps" || name == "timeout" || name == "model") continue;
    return bad_field(std::string(name), "given", "steps, timeout or model");
  }
  const Fields fields(body);
  ProfileCall call;
  const auto num_steps = TRY(fields.integer("steps", 1, StepProfiler::kMaxSteps));
  if (!num_steps) return bad_field("steps", "missing", "a whole number from 1 to 1000");
  call.num_steps = static_cast<int>(*num_steps);
  const double seconds =
      TRY(fields.number("timeout", 0.05, kMaxPatience)).value_or(kDefaultPatience);
  call.patience = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
  call.model = TRY(state.models.find_for(body));
  return call;
}

// One profile at a time is nothing that waiting for room would help.
Problem problem_of_profile(const Error& error) {
  Problem problem = problem_of(error);
  if (error.code == ErrorCode::kExhausted) problem.status = 409;
  return problem;
}

void handle_profile_steps(ServerState& state, HttpRequest& request, Writer writer) {
  const auto call = read_profile_call(state, request);
  if (!call.ok()) return refuse(request, *writer, call.error());
  const Dialect& dialect = dialect_of(request.route);
  const Status status = state.profiles.start(
      call->model, call->num_steps, call->patience,
      [&state, &dialect, writer](Result<std::string> profile) {
        if (!profile.ok()) {
          return respond(state, *writer,
                         error_response(dialect, problem_of_profile(profile.error())));
        }
        HttpResponse response{200, *std::move(profile)};
        response.headers.emplace_back("Cache-Control", "no-store");
        respond(state, *writer, std::move(response));
      });
  if (status.ok()) return;
  respond(state, *writer, error_response(dialect, problem_of_profile(status.error())));
}

// clang-format off
const RouteRow kProfileRows[] = {
    {"POST", "/api/headrace/profile", Scope::kManaging, &kOpenAi, handle_profile_steps, "Where the time of the next steps goes: {\"steps\": 1 to 1000, \"timeout\": seconds, \"model\": ...}."},
    {"GET", "/profile", Scope::kPublic, &kOpenAi, handle_asset, "The page that draws it."},
};
// clang-format on

}  // namespace

std::span<const RouteRow> profile_rows() { return kProfileRows; }

}  // namespace headrace
