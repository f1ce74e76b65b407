// headrace lab: experiments on record: what was tried, why, what it showed, what comes next.

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <boost/json.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "base/json.h"
#include "base/quote.h"
#include "base/strings.h"
#include "build_info.h"
#include "checkpoint/text_file.h"
#include "cli/command.h"
#include "cli/generate.h"
#include "cli/input.h"
#include "cli/lab_tune.h"
#include "cli/output.h"
#include "cli/serve_operation.h"
#include "cli/start_signals.h"
#include "lab/actions.h"
#include "lab/forms.h"
#include "lab/mcp_server.h"
#include "lab/runner.h"

namespace headrace {
namespace {

namespace json = boost::json;

using Words = std::vector<std::string>;

struct LabCall {
  const Options& options;
  lab::Store& store;
  Words words;  // behind the verb
  std::string author;
};

struct LabVerb {
  std::string_view name, arguments;
  size_t min_words, max_words;
  Result<int> (*run)(const LabCall& call);
};

Result<int64_t> whole_number(const std::string& word, std::string_view what) {
  char* end = nullptr;
  const long long number = std::strtoll(word.c_str(), &end, 10);
  if (!word.empty() && *end == '\0' && number >= 0) return int64_t{number};
  return make_error(ErrorCode::kInvalidArgument, "{} is {}, and must be a whole number", what,
                    quote(word));
}

void print_json(const json::object& answer) {
  std::printf("%s\n", json::serialize(answer).c_str());
}

std::string text_at(const json::object& row, std::string_view name) {
  const json::value* found = row.if_contains(name);
  if (found == nullptr || found->is_null()) return "";
  if (found->is_string()) return std::string(found->get_string());
  if (found->is_double()) return fmt::format("{:g}", found->get_double());  // JSON has 2.5E-1
  return json::serialize(*found);
}

// One line for each row: the named members, two blanks between.
void print_rows(const json::object& answer, std::string_view list,
                std::initializer_list<std::string_view> names) {
  for (const json::value& row : answer.at(list).as_array()) {
    std::string line;
    for (const std::string_view name : names) {
      append_format(line, "{}{}", line.empty() ? "" : "  ", text_at(row.as_object(), name));
    }
    std::printf("%s\n", line.c_str());
  }
}

Result<json::object> act(const LabCall& call, std::string_view action,
                         const json::object& arguments) {
  return lab::run_action(call.store, action, arguments, call.author);
}

// The form in a file, or on standard input.
Result<json::object> read_form(const Words& words, size_t place) {
  std::string text;
  if (words.size() <= place || words[place] == "-") {
    text = TRY(read_input(false));
  } else {
    text = TRY(read_text_file(words[place], size_t{1} << 20));
  }
  json::value form = TRY(parse_json(text, "the form"));
  if (form.is_object()) return std::move(form.get_object());
  return make_error(ErrorCode::kInvalidArgument, "the form must be an object, {{...}}");
}

Result<int> lab_add(const LabCall& call) {
  const std::string& kind = call.words[0];
  if (kind != "hypothesis" && kind != "experiment" && kind != "learning") {
    return make_error(
        ErrorCode::kInvalidArgument,
        "there is no {}; what can be added is a hypothesis, an experiment or a learning",
        quote(kind));
  }
  const json::object made = TRY(act(call, "add_" + kind, TRY(read_form(call.words, 1))));
  if (call.options.flag("--json")) {
    print_json(made);
  } else {
    std::printf("%s %s\n", kind.c_str(), text_at(made, "id").c_str());
  }
  return 0;
}

Result<int> lab_queue(const LabCall& call) {
  const json::object answer = TRY(act(call, "queue", {}));
  if (call.options.flag("--json")) {
    print_json(answer);
    return 0;
  }
  for (const json::value& id : answer.at("running").as_array()) {
    std::printf("%s  runs now\n", json::serialize(id).c_str());
  }
  print_rows(answer, "queue", {"experiment", "reason"});
  return 0;
}

Result<int> lab_overview(const LabCall& call) {
  const json::object answer = TRY(act(call, "overview", {}));
  if (call.options.flag("--json")) {
    print_json(answer);
    return 0;
  }
  std::printf("hypotheses\n");
  print_rows(answer, "hypotheses", {"id", "state", "statement", "verdict"});
  std::printf("experiments\n");
  print_rows(answer, "experiments", {"id", "state", "title", "state_reason"});
  std::printf("learnings\n");
  print_rows(answer, "learnings", {"id", "text"});
  return 0;
}

Result<int> lab_log(const LabCall& call) {
  int64_t after = 0;
  if (!call.words.empty()) after = TRY(whole_number(call.words[0], "the entry to begin after"));
  const json::object answer = TRY(act(call, "log", {{"after", after}}));
  if (call.options.flag("--json")) {
    print_json(answer);
  } else {
    print_rows(answer, "log", {"id", "author", "subject", "text"});
  }
  return 0;
}

Result<int> lab_show(const LabCall& call) {
  const json::object answer =
      TRY(act(call, "show", {{"id", TRY(whole_number(call.words[0], "the experiment"))}}));
  if (call.options.flag("--json")) {
    print_json(answer);
    return 0;
  }
  for (const auto& member : answer) {
    if (member.key() == "runs" || member.key() == "effects" || member.key() == "sides") continue;
    std::printf("%s: %s\n", std::string(member.key()).c_str(),
                text_at(answer, member.key()).c_str());
  }
  std::printf("sides\n");
  print_rows(answer, "sides", {"name", "command"});
  std::printf("effects\n");
  print_rows(answer, "effects", {"side", "verdict", "improvement", "low", "high", "rounds"});
  std::printf("runs\n");
  print_rows(answer, "runs", {"id", "side", "round", "state", "seconds", "metrics", "error"});
  return 0;
}

// pin, unpin, pause, resume, cancel, rerun: verbs that are actions of one experiment.
template <const char* kAction>
Result<int> lab_change(const LabCall& call) {
  json::object arguments{{"id", TRY(whole_number(call.words[0], "the experiment"))}};
  if (call.words.size() > 1) arguments["place"] = TRY(whole_number(call.words[1], "the place"));
  const json::object answer = TRY(act(call, kAction, arguments));
  if (call.options.flag("--json")) print_json(answer);
  return 0;
}

Result<int> lab_conclude(const LabCall& call) {
  const json::object answer = TRY(act(call, "conclude",
                                      {{"id", TRY(whole_number(call.words[0], "the hypothesis"))},
                                       {"state", call.words[1]},
                                       {"verdict", call.words[2]}}));
  if (call.options.flag("--json")) print_json(answer);
  return 0;
}

Result<int> lab_export(const LabCall& call) {
  if (call.options.flag("--json")) {
    print_json(TRY(lab::export_json(call.store)));
  } else {
    std::printf("%s", TRY(lab::export_markdown(call.store)).c_str());
  }
  return 0;
}

Result<int> lab_run(const LabCall& call) {
  const InterruptGuard interrupt(/*hang_up_too=*/true);
  const auto runner =
      TRY(lab::Runner::create(call.store, runner_options(call.options, call.author,
                                                         [&] { return interrupt.signal() != 0; })));
  const int num_ended = TRY(runner->run());
  std::printf("%d experiments ended\n", num_ended);
  return interrupt.signal() == 0 ? 0 : 128 + interrupt.signal();
}

Result<int> lab_tune(const LabCall& call) {
  return tune(call.options, call.store, call.words[0], call.author);
}

// The API and the page, without a model.
Result<int> lab_serve(const LabCall& call) {
  begin_log(call.options);
  ServerOptions serve = TRY(network_options(call.options));
  serve.lab_folder = call.store.folder();
  const HangUp hang_up;
  block_stop_signals();
  const auto server = TRY(Server::create_lab(serve));
  tell_address(serve, server->port());
  run_until_stopped(*server, call.options, nullptr, hang_up);
  return 0;
}

Result<int> lab_mcp(const LabCall& call) {
  lab::McpServer server(call.store, HEADRACE_VERSION);
  for (std::string line; std::getline(std::cin, line);) {
    const auto answer = server.answer(line);
    if (answer && !write_output(*answer + "\n")) break;
  }
  return 0;
}

constexpr char kPin[] = "pin", kUnpin[] = "unpin", kPause[] = "pause", kResume[] = "resume";
constexpr char kCancel[] = "cancel", kRerun[] = "rerun", kMove[] = "move";

constexpr LabVerb kLabVerbs[] = {
    {"add", "hypothesis|experiment|learning [FILE.json]", 1, 2, lab_add},
    {"overview", "", 0, 0, lab_overview},
    {"queue", "", 0, 0, lab_queue},
    {"run", "", 0, 0, lab_run},
    {"show", "EXPERIMENT", 1, 1, lab_show},
    {"log", "[AFTER]", 0, 1, lab_log},
    {"conclude", "HYPOTHESIS STATE VERDICT", 3, 3, lab_conclude},
    {"pin", "EXPERIMENT", 1, 1, lab_change<kPin>},
    {"unpin", "EXPERIMENT", 1, 1, lab_change<kUnpin>},
    {"move", "EXPERIMENT PLACE", 2, 2, lab_change<kMove>},
    {"pause", "EXPERIMENT", 1, 1, lab_change<kPause>},
    {"resume", "EXPERIMENT", 1, 1, lab_change<kResume>},
    {"cancel", "EXPERIMENT", 1, 1, lab_change<kCancel>},
    {"rerun", "EXPERIMENT", 1, 1, lab_change<kRerun>},
    {"export", "", 0, 0, lab_export},
    {"serve", "", 0, 0, lab_serve},
    {"mcp", "", 0, 0, lab_mcp},
    {"tune", "MODEL", 1, 1, lab_tune},
};

Result<const LabVerb*> find_verb(const std::string& name) {
  const auto found = std::find_if(std::begin(kLabVerbs), std::end(kLabVerbs),
                                  [&](const LabVerb& each) { return each.name == name; });
  if (found != std::end(kLabVerbs)) return &*found;
  std::string names;
  for (const LabVerb& each : kLabVerbs) {
    append_format(names, "{}{}", names.empty() ? "" : ", ", each.name);
  }
  return make_error(ErrorCode::kInvalidArgument, "'lab' cannot {}; it knows {}", quote(name),
                    names);
}

std::string author_of(const Options& options) {
  if (!options.text("--by").empty()) return options.text("--by");
  const passwd* user = getpwuid(getuid());
  return user != nullptr ? user->pw_name : "somebody";
}

}  // namespace

Result<int> run_lab(const Options& options) {
  const Words& given = options.positionals();
  const LabVerb* verb = TRY(find_verb(given[0]));
  Words words(given.begin() + 1, given.end());
  if (words.size() < verb->min_words || words.size() > verb->max_words) {
    return make_error(ErrorCode::kInvalidArgument, "usage: headrace lab {}{}{}", verb->name,
                      verb->arguments.empty() ? "" : " ", verb->arguments);
  }
  const auto store = TRY(lab::Store::open(options.text("--lab")));
  return verb->run({options, *store, std::move(words), author_of(options)});
}

}  // namespace headrace
