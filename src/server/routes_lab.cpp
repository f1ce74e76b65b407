// /api/lab/...: the laboratory beside a server (docs/lab-api.md), and the page without a model.

#include <boost/json.hpp>
#include <charconv>

#include "base/json.h"
#include "base/quote.h"
#include "lab/actions.h"
#include "lab/artifact_files.h"
#include "lab/views.h"
#include "server/api/fields.h"
#include "server/api/json.h"
#include "server/api/openai/openai.h"
#include "server/api/wall_clock.h"
#include "server/dashboard.h"
#include "server/lab/lab_service.h"
#include "server/routes.h"

namespace headrace {
namespace {

using boost::json::object;
using Bench = lab::LabService::Bench;
using LabLook = std::function<Result<object>(Bench&)>;

constexpr size_t kMaxAuthorBytes = 200;

HttpResponse lab_response(const boost::json::value& body) {
  HttpResponse response{200, valid_utf8(boost::json::serialize(body))};
  response.headers.emplace_back("Cache-Control", "no-store");
  return response;
}

// Does something on the laboratory's thread; refuses where there is none, or no room.
void with_lab(ServerState& state, const std::shared_ptr<HttpRequest>& request, const Writer& writer,
              lab::LabService::Task task) {
  if (state.lab == nullptr) {
    return refuse(*request, *writer,
                  Error{ErrorCode::kNotFound,
                        "this server has no laboratory",
                        "start it with --lab DIR, or headrace lab serve",
                        {}});
  }
  const Status taken = state.lab->submit(std::move(task));
  if (!taken.ok()) refuse(*request, *writer, taken.error());
}

// Answers with what it finds there.
void answer_from_lab(ServerState& state, HttpRequest& given, const Writer& writer, LabLook look) {
  const auto request = std::make_shared<HttpRequest>(std::move(given));
  with_lab(state, request, writer, [=](Bench& bench) {
    if (writer->disconnected()) return;
    const Result<object> found = look(bench);
    if (!found.ok()) return refuse(*request, *writer, found.error());
    writer->send(lab_response(*found));
  });
}

Result<int64_t> lab_number(std::string_view text, std::string_view what) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number >= 0) return number;
  Error wrong = make_error(ErrorCode::kInvalidArgument, "{} is {}, and must be a whole number",
                           what, quote(text.substr(0, 80)));
  wrong.param = what;
  return wrong;
}

// A member of "after=3&limit=10"; nothing where it is not there.
std::optional<std::string_view> query_member(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view member = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const size_t equals = std::min(member.find('='), member.size());
    if (member.substr(0, equals) != name) continue;
    return member.substr(std::min(equals + 1, member.size()));
  }
  return std::nullopt;
}

Result<int64_t> query_number(const HttpRequest& request, std::string_view name, int64_t otherwise) {
  const auto text = query_member(request.query, name);
  return text ? lab_number(*text, name) : Result<int64_t>(otherwise);
}

// What stands where the row's path has its '*'.
std::string_view path_rest(const HttpRequest& request) {
  return std::string_view(request.path).substr(request.route->path.size() - 1);
}

void handle_lab_overview(ServerState& state, HttpRequest& request, Writer writer) {
  answer_from_lab(state, request, writer,
                  [](Bench& bench) { return lab::overview_view(bench.store, bench.effects); });
}

void handle_lab_queue(ServerState& state, HttpRequest& request, Writer writer) {
  answer_from_lab(state, request, writer,
                  [](Bench& bench) { return lab::queue_view(bench.store, bench.effects); });
}

void handle_lab_graph(ServerState& state, HttpRequest& request, Writer writer) {
  answer_from_lab(state, request, writer,
                  [](Bench& bench) { return lab::graph_view(bench.store); });
}

void handle_lab_experiment(ServerState& state, HttpRequest& request, Writer writer) {
  const auto id = lab_number(path_rest(request), "the experiment");
  if (!id.ok()) return refuse(request, *writer, id.error());
  answer_from_lab(state, request, writer,
                  [id = *id](Bench& bench) { return lab::experiment_view(bench.store, id); });
}

void handle_lab_hypothesis(ServerState& state, HttpRequest& request, Writer writer) {
  const auto id = lab_number(path_rest(request), "the hypothesis");
  if (!id.ok()) return refuse(request, *writer, id.error());
  answer_from_lab(state, request, writer, [id = *id](Bench& bench) {
    return lab::hypothesis_view(bench.store, bench.effects, id);
  });
}

// Which entries of the log are asked for.
struct LogQuestion {
  int64_t after = 0, limit = lab::kMaxLogEntries;
  bool newest = false;
};

Result<LogQuestion> log_question(const HttpRequest& request) {
  LogQuestion question;
  question.newest = query_member(request.query, "last").has_value();
  question.after = TRY(query_number(request, "after", 0));
  question.limit = TRY(query_number(request, question.newest ? "last" : "limit", question.limit));
  question.limit = std::min(question.limit, lab::kMaxLogEntries);
  return question;
}

void handle_lab_log(ServerState& state, HttpRequest& request, Writer writer) {
  const auto question = log_question(request);
  if (!question.ok()) return refuse(request, *writer, question.error());
  answer_from_lab(state, request, writer, [asked = *question](Bench& bench) -> Result<object> {
    return lab::log_view(TRY(asked.newest ? bench.store.newest_log(asked.limit)
                                          : bench.store.log(asked.after, asked.limit)));
  });
}

// Behind which entry the events begin; -1: the newest one.
Result<int64_t> first_event(const HttpRequest& request) {
  const std::string_view resumed = request.header("last-event-id");
  if (!resumed.empty()) return lab_number(resumed, "Last-Event-ID");
  return query_number(request, "after", -1);
}

void handle_lab_events(ServerState& state, HttpRequest& given, Writer writer) {
  const auto after = first_event(given);
  if (!after.ok()) return refuse(given, *writer, after.error());
  if (given.method == "HEAD") return respond(state, *writer, HttpResponse{200, {}, {}});
  const auto request = std::make_shared<HttpRequest>(std::move(given));
  with_lab(state, request, writer, [request, writer, after = *after](Bench& bench) {
    const auto last = after >= 0 ? Result<int64_t>(after) : bench.store.last_log_id();
    if (!last.ok()) return refuse(*request, *writer, last.error());
    if (bench.feed.add(writer, *last)) return;
    refuse(*request, *writer,
           make_error(ErrorCode::kExhausted, "{} listen to the laboratory already",
                      lab::kMaxListeners));
  });
}

Result<HttpResponse> artifact_response(ServerState& state, const std::string& folder,
                                       std::string_view rest) {
  const size_t slash = std::min(rest.find('/'), rest.size());
  const int64_t run_id = TRY(lab_number(rest.substr(0, slash), "the run"));
  const std::string_view name = rest.substr(std::min(slash + 1, rest.size()));
  HttpResponse response;
  response.body = TRY(lab::read_artifact(folder, run_id, name));
  response.memory = state.memory.lease();
  if (!response.memory.resize(response.body.size())) {
    return no_memory_for("the artifact", response.body.size());
  }
  response.content_type = lab::artifact_type(name);
  response.headers = {{"Cache-Control", "no-store"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Content-Disposition", "attachment"},
                      {"Content-Security-Policy", "default-src 'none'; sandbox"}};
  return response;
}

// On the laboratory's thread: one file is in memory at a time, before it is leased.
void handle_lab_artifact(ServerState& state, HttpRequest& given, Writer writer) {
  const auto request = std::make_shared<HttpRequest>(std::move(given));
  with_lab(state, request, writer, [&state, request, writer](Bench& bench) {
    auto response = artifact_response(state, bench.store.folder(), path_rest(*request));
    if (!response.ok()) return refuse(*request, *writer, response.error());
    writer->send(std::move(*response));
  });
}

// This server itself, in the form of the others.
object own_engine(ServerState& state) {
  auto status = parse_json(status_json(state), "the status");
  return {{"name", state.models.first()->info.name},
          {"url", ""},
          {"state", "ok"},
          {"error", ""},
          {"at_ms", wall_clock_us() / 1000},
          {"status", std::move(status).value()}};
}

void handle_lab_machine(ServerState& state, HttpRequest& request, Writer writer) {
  answer_from_lab(state, request, writer, [&state](Bench& bench) -> Result<object> {
    object view = bench.machine.at(now_us());
    boost::json::array engines;
    if (!state.models.is_empty()) engines.push_back(own_engine(state));
    for (object& each : state.lab->engines().look()) engines.push_back(std::move(each));
    view["engines"] = std::move(engines);
    view["read_limit_byte_s"] = lab::measured_read_rate(state.lab->folder());
    view["at_ms"] = wall_clock_us() / 1000;
    return view;
  });
}

void handle_lab_actions(ServerState& state, HttpRequest& request, Writer writer) {
  answer_from_lab(state, request, writer, [](Bench&) -> Result<object> {
    boost::json::array rows;
    for (const lab::Action& each : lab::actions()) {
      if (!each.writes) continue;
      rows.push_back(object{{"name", each.name},
                            {"help", each.help},
                            {"schema", TRY(parse_json(each.schema, "a schema"))}});
    }
    return object{{"actions", std::move(rows)}};
  });
}

// Who writes, for the log: as they say, with the name of their key.
Result<std::string> take_author(const HttpRequest& request, object& body) {
  const auto by = TRY(Fields(body).text("by"));
  if (!by || by->empty()) return bad_field("by", "missing", "a text: who does this");
  if (by->size() > kMaxAuthorBytes) return bad_field("by", "too long", "at most 200 bytes");
  std::string author(*by);
  if (!request.key_name.empty()) author += fmt::format(" (key {})", request.key_name);
  body.erase("by");
  return author;
}

Status check_action(const ServerState& state, std::string_view name) {
  std::string names;
  bool known = false;
  for (const lab::Action& each : lab::actions()) {
    if (!each.writes) continue;
    names += (names.empty() ? "" : ", ") + std::string(each.name);
    known = known || each.name == name;
  }
  if (!known) {
    return make_error(ErrorCode::kNotFound, "there is no action {}; the actions are {}",
                      quote(name), names);
  }
  const bool is_open = !state.access.has_keys() && !is_loopback_host(state.options.host);
  if (!is_open || name != "add_experiment") return {};
  return Error{ErrorCode::kPermission,
               "an experiment is commands that run here, and anyone may reach this server",
               "start it with --api-key-file, or add the experiment with headrace lab add",
               {}};
}

void handle_lab_action(ServerState& state, HttpRequest& request, Writer writer) {
  const std::string name(path_rest(request));
  const Status allowed = check_action(state, name);
  if (!allowed.ok()) return refuse(request, *writer, allowed.error());
  auto body = body_object(request);
  if (!body.ok()) return refuse(request, *writer, body.error());
  const auto author = take_author(request, *body);
  if (!author.ok()) return refuse(request, *writer, author.error());
  request.body = {};
  answer_from_lab(state, request, writer,
                  [name, author = *author, arguments = std::move(*body)](Bench& bench) {
                    return lab::run_action(bench.store, name, arguments, author);
                  });
}

void handle_lab_root(ServerState& state, HttpRequest&, Writer writer) {
  respond(state, *writer, HttpResponse{302, {}, {}, {{"Location", "/lab"}}});
}

void handle_lab_health(ServerState& state, HttpRequest&, Writer writer) {
  respond(state, *writer, HttpResponse{200, R"({"status":"ok"})"});
}

// clang-format off
const RouteRow kLabRows[] = {
    {"GET", "/api/lab/overview", Scope::kReading, &kOpenAi, handle_lab_overview, "The laboratory of --lab: hypotheses, experiments, learnings (docs/lab-api.md)."},
    {"GET", "/api/lab/queue", Scope::kReading, &kOpenAi, handle_lab_queue, "What runs there, what comes next and why."},
    {"GET", "/api/lab/experiments/*", Scope::kReading, &kOpenAi, handle_lab_experiment, "One experiment with its runs."},
    {"GET", "/api/lab/hypotheses/*", Scope::kReading, &kOpenAi, handle_lab_hypothesis, "One hypothesis with its experiments."},
    {"GET", "/api/lab/graph", Scope::kReading, &kOpenAi, handle_lab_graph, "How records rest on each other."},
    {"GET", "/api/lab/log", Scope::kReading, &kOpenAi, handle_lab_log, "What happened; ?after=N&limit=M or ?last=M."},
    {"GET", "/api/lab/events", Scope::kReading, &kOpenAi, handle_lab_events, "The same as it happens, as server-sent events."},
    {"GET", "/api/lab/artifacts/*", Scope::kReading, &kOpenAi, handle_lab_artifact, "A file of a run: RUN/NAME."},
    {"GET", "/api/lab/machine", Scope::kReading, &kOpenAi, handle_lab_machine, "The machine and the engines now."},
    {"GET", "/api/lab/actions", Scope::kReading, &kOpenAi, handle_lab_actions, "What may be posted there."},
    {"POST", "/api/lab/actions/*", Scope::kManaging, &kOpenAi, handle_lab_action, "Add, pin, move, conclude, ...; the body says by whom."},
    {"GET", "/lab", Scope::kPublic, &kOpenAi, handle_asset, "The page of the laboratory."},
};
const RouteRow kAloneRows[] = {
    {"GET", "/", Scope::kPublic, &kOpenAi, handle_lab_root, "Leads to /lab."},
    {"GET", "/assets/*", Scope::kPublic, &kOpenAi, handle_asset, "The page's files."},
    {"GET", "/licenses.txt", Scope::kPublic, &kOpenAi, handle_asset, "Licences of the libraries in the page."},
    {"GET", "/health", Scope::kPublic, &kOpenAi, handle_lab_health, "200."},
};
// clang-format on

}  // namespace

std::span<const RouteRow> lab_rows() { return kLabRows; }

std::vector<RouteRow> lab_rows_alone() {
  std::vector<RouteRow> rows(std::begin(kLabRows), std::end(kLabRows));
  rows.insert(rows.end(), std::begin(kAloneRows), std::end(kAloneRows));
  return rows;
}

}  // namespace headrace
