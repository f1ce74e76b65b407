#include "lab/store.h"

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

#include "base/json.h"
#include "base/quote.h"

namespace headrace::lab {
namespace {

constexpr int64_t kSchemaVersion = 1;

constexpr const char* kSchema = R"sql(
CREATE TABLE IF NOT EXISTS hypotheses(
  id INTEGER PRIMARY KEY, statement TEXT NOT NULL, metric TEXT NOT NULL,
  more_is_better INTEGER NOT NULL, predicted REAL NOT NULL, reason TEXT NOT NULL,
  worth REAL NOT NULL, state TEXT NOT NULL, verdict TEXT NOT NULL, author TEXT NOT NULL,
  made_ms INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS experiments(
  id INTEGER PRIMARY KEY, hypothesis_id INTEGER REFERENCES hypotheses(id), title TEXT NOT NULL,
  rationale TEXT NOT NULL, metric TEXT NOT NULL, sides TEXT NOT NULL, cost_s REAL NOT NULL,
  max_rounds INTEGER NOT NULL, seconds REAL NOT NULL, memory_bytes INTEGER NOT NULL,
  output_bytes INTEGER NOT NULL, folder TEXT NOT NULL, state TEXT NOT NULL,
  state_reason TEXT NOT NULL, pinned INTEGER NOT NULL, paused INTEGER NOT NULL, place REAL,
  author TEXT NOT NULL, made_ms INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS runs(
  id INTEGER PRIMARY KEY, experiment_id INTEGER NOT NULL REFERENCES experiments(id),
  side_idx INTEGER NOT NULL, round INTEGER NOT NULL, state TEXT NOT NULL, metrics TEXT NOT NULL,
  machine TEXT NOT NULL, error TEXT NOT NULL, seconds REAL NOT NULL, started_ms INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS runs_of ON runs(experiment_id, round);
CREATE TABLE IF NOT EXISTS learnings(
  id INTEGER PRIMARY KEY, text TEXT NOT NULL, links TEXT NOT NULL, author TEXT NOT NULL,
  made_ms INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS log(
  id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, author TEXT NOT NULL,
  subject TEXT NOT NULL, text TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS log_of ON log(subject, id);
CREATE TRIGGER IF NOT EXISTS log_is_not_changed BEFORE UPDATE ON log
  BEGIN SELECT RAISE(ABORT, 'the log is only appended to'); END;
CREATE TRIGGER IF NOT EXISTS log_is_not_cut BEFORE DELETE ON log
  BEGIN SELECT RAISE(ABORT, 'the log is only appended to'); END;
)sql";

constexpr std::string_view kHypothesisColumns =
    "id, statement, metric, more_is_better, predicted, reason, worth, state, verdict, author, "
    "made_ms";
constexpr std::string_view kExperimentColumns =
    "id, coalesce(hypothesis_id, 0), title, rationale, metric, sides, cost_s, max_rounds, seconds, "
    "memory_bytes, "
    "output_bytes, folder, state, state_reason, pinned, paused, place IS NOT NULL, place, author, "
    "made_ms";

int64_t wall_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string subject_of(std::string_view kind, int64_t id) { return fmt::format("{}:{}", kind, id); }

Error wrong(std::string_view field, std::string message) {
  Error error = make_error(ErrorCode::kInvalidArgument, "{}: {}", field, message);
  error.param = field;
  return error;
}

Status check_text(std::string_view field, std::string_view text, bool may_be_empty) {
  if (text.empty() && !may_be_empty) return wrong(field, "is empty, and needs a text");
  if (text.size() > kMaxTextBytes) {
    return wrong(field, fmt::format("has {} bytes, and may have {}", text.size(), kMaxTextBytes));
  }
  return {};
}

Status check_number(std::string_view field, double value, double low, double high) {
  if (std::isfinite(value) && value >= low && value <= high) return {};
  return wrong(field, fmt::format("is {}, and needs {} to {}", value, low, high));
}

Status check_author(std::string_view author) { return check_text("author", author, false); }

std::string to_json(const std::vector<std::string>& texts) {
  boost::json::array array;
  for (const std::string& text : texts) array.emplace_back(text);
  return boost::json::serialize(array);
}

std::vector<std::string> texts_of(const boost::json::value& value) {
  std::vector<std::string> texts;
  for (const auto& each : value.as_array()) texts.emplace_back(each.as_string());
  return texts;
}

std::string to_json(const std::vector<Side>& sides) {
  boost::json::array array;
  for (const Side& side : sides) {
    boost::json::array command;
    for (const std::string& word : side.command) command.emplace_back(word);
    boost::json::object row{{"name", side.name}, {"command", std::move(command)}};
    if (side.hypothesis_id != 0) row["hypothesis"] = side.hypothesis_id;
    array.push_back(std::move(row));
  }
  return boost::json::serialize(array);
}

// What this class wrote itself.
std::vector<Side> sides_of(const std::string& text) {
  std::vector<Side> sides;
  const boost::json::value value = parse_json(text, "the sides of an experiment").value();
  for (const auto& each : value.as_array()) {
    const boost::json::value* about = json_member(&each, "hypothesis");
    sides.push_back({std::string(each.at("name").as_string()), texts_of(each.at("command")),
                     about == nullptr ? 0 : about->to_number<int64_t>()});
  }
  return sides;
}

Hypothesis hypothesis_of(const Row& row) {
  return {row.integer(0), row.text(1), row.text(2),    row.integer(3) != 0,
          row.number(4),  row.text(5), row.number(6),  row.text(7),
          row.text(8),    row.text(9), row.integer(10)};
}

Experiment experiment_of(const Row& row) {
  Experiment found;
  found.id = row.integer(0);
  found.hypothesis_id = row.integer(1);
  found.title = row.text(2);
  found.rationale = row.text(3);
  found.metric = row.text(4);
  found.sides = sides_of(row.text(5));
  found.cost_s = row.number(6);
  found.max_rounds = static_cast<int>(row.integer(7));
  found.limits = {row.number(8), row.integer(9), row.integer(10)};
  found.folder = row.text(11);
  found.state = row.text(12);
  found.state_reason = row.text(13);
  found.pinned = row.integer(14) != 0;
  found.paused = row.integer(15) != 0;
  if (row.integer(16) != 0) found.place = row.number(17);
  found.author = row.text(18);
  found.made_ms = row.integer(19);
  return found;
}

Run run_of(const Row& row) {
  return {row.integer(0), row.integer(1), row.integer(2), row.integer(3), row.text(4),
          row.text(5),    row.text(6),    row.text(7),    row.number(8),  row.integer(9)};
}

std::vector<LogEntry> entries_of(const std::vector<Row>& rows) {
  std::vector<LogEntry> all;
  for (const Row& row : rows) {
    all.push_back({row.integer(0), row.integer(1), row.text(2), row.text(3), row.text(4)});
  }
  return all;
}

// A folder below the laboratory, without a way out of it.
Status check_folder(const std::string& folder) {
  const std::filesystem::path path(folder);
  bool leaves = path.is_absolute();
  for (const auto& part : path) leaves = leaves || part == "..";
  if (!leaves) return {};
  return wrong("folder", fmt::format("is {}, and must lie inside the laboratory", quote(folder)));
}

Status check_sides(const std::vector<Side>& sides) {
  if (sides.size() < 2 || sides.size() > 16) {
    return wrong("sides", fmt::format("are {}, and must be 2 to 16", sides.size()));
  }
  for (size_t i = 0; i < sides.size(); ++i) {
    const std::string field = fmt::format("sides[{}]", i);
    TRY(check_text(field + ".name", sides[i].name, false));
    if (sides[i].command.empty() || sides[i].command.front().empty()) {
      return wrong(field + ".command", "is empty, and needs a program");
    }
    for (size_t other = 0; other < i; ++other) {
      if (sides[other].name == sides[i].name) {
        return wrong(field + ".name", fmt::format("{} is used twice", quote(sides[i].name)));
      }
    }
    TRY(check_text(field + ".command", to_json(sides[i].command), false));
  }
  return {};
}

// A hypothesis is the experiment's, or of its sides but the first.
Status check_questions(const Experiment& made) {
  for (size_t i = 0; i < made.sides.size(); ++i) {
    if (made.sides[i].hypothesis_id == 0) continue;
    const std::string field = fmt::format("sides[{}].hypothesis", i);
    if (i == 0) return wrong(field, "is there, but the first side is what others are beside");
    if (made.hypothesis_id != 0) {
      return wrong(field, fmt::format("is there, but so is the experiment's, {}: leave out one",
                                      made.hypothesis_id));
    }
  }
  return {};
}

Status check(const Hypothesis& made) {
  TRY(check_text("statement", made.statement, false));
  TRY(check_text("metric", made.metric, false));
  TRY(check_text("reason", made.reason, true));
  TRY(check_number("worth", made.worth, 0, 1e6));
  return check_number("predicted", made.predicted, 0.001, 100);
}

Status check(const Experiment& made) {
  TRY(check_text("title", made.title, false));
  TRY(check_text("rationale", made.rationale, true));
  TRY(check_text("metric", made.metric, false));
  TRY(check_sides(made.sides));
  TRY(check_number("cost_s", made.cost_s, 0.001, 1e7));
  TRY(check_number("max_rounds", made.max_rounds, 2, 10000));
  TRY(check_number("limits.seconds", made.limits.seconds, 0.01, 1e6));
  TRY(check_number("limits.memory_bytes", static_cast<double>(made.limits.memory_bytes), 0, 1e15));
  TRY(check_number("limits.output_bytes", static_cast<double>(made.limits.output_bytes), 1, 1e9));
  return check_folder(made.folder);
}

}  // namespace

Result<std::unique_ptr<Store>> Store::open(const std::string& folder, Durability durability) {
  std::error_code failed;
  std::filesystem::create_directories(std::filesystem::path(folder) / "artifacts", failed);
  if (failed) {
    return make_error(ErrorCode::kIo, "cannot make the laboratory's folder {}: {}", quote(folder),
                      failed.message());
  }
  auto database = TRY(Database::open((std::filesystem::path(folder) / "lab.sqlite").string()));
  const auto version = TRY(database->query("PRAGMA user_version")).front().integer(0);
  if (version > kSchemaVersion) {
    return make_error(ErrorCode::kUnsupported,
                      "the laboratory {} has version {}, and this program knows {}", quote(folder),
                      version, kSchemaVersion);
  }
  if (durability == Durability::kFast) TRY(database->script("PRAGMA synchronous=OFF"));
  Transaction whole = TRY(Transaction::begin(*database));
  TRY(database->script(kSchema));
  TRY(database->script(fmt::format("PRAGMA user_version={}", kSchemaVersion)));
  TRY(whole.commit());
  return std::unique_ptr<Store>(new Store(std::move(database), folder));
}

Status Store::append_log(std::string_view subject, std::string_view text, std::string_view author) {
  TRY(check_author(author));
  return database_->run("INSERT INTO log(at_ms, author, subject, text) VALUES(?, ?, ?, ?)",
                        {wall_ms(), std::string(author), std::string(subject), std::string(text)});
}

Result<int64_t> Store::add(const Hypothesis& made, std::string_view author) {
  TRY(check(made));
  TRY(check_author(author));
  Transaction whole = TRY(Transaction::begin(*database_));
  TRY(database_->run(
      "INSERT INTO hypotheses(statement, metric, more_is_better, predicted, reason, worth, state, "
      "verdict, author, made_ms) VALUES(?, ?, ?, ?, ?, ?, 'open', '', ?, ?)",
      {made.statement, made.metric, int64_t{made.more_is_better}, made.predicted, made.reason,
       made.worth, std::string(author), wall_ms()}));
  const int64_t id = database_->last_id();
  TRY(append_log(subject_of("hypothesis", id), "new: " + made.statement, author));
  TRY(whole.commit());
  return id;
}

Result<int64_t> Store::add(const Experiment& given, std::string_view author) {
  Experiment made = given;
  TRY(check_author(author));
  TRY(check_questions(made));
  Transaction whole = TRY(Transaction::begin(*database_));
  Value hypothesis;
  for (const Question& each : questions_of(made)) {
    const Hypothesis about = TRY(this->hypothesis(each.hypothesis_id));
    if (!made.metric.empty() && made.metric != about.metric) {
      return wrong("metric", fmt::format("is {}, but hypothesis {} is about {}", quote(made.metric),
                                         about.id, quote(about.metric)));
    }
    made.metric = about.metric;
    if (made.hypothesis_id == 0) made.hypothesis_id = about.id;
    hypothesis = made.hypothesis_id;
  }
  TRY(check(made));
  TRY(database_->run(
      "INSERT INTO experiments(hypothesis_id, title, rationale, metric, sides, cost_s, max_rounds, "
      "seconds, memory_bytes, output_bytes, folder, state, state_reason, pinned, paused, author, "
      "made_ms) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'queued', 'new', ?, 0, ?, ?)",
      {hypothesis, made.title, made.rationale, made.metric, to_json(made.sides), made.cost_s,
       int64_t{made.max_rounds}, made.limits.seconds, made.limits.memory_bytes,
       made.limits.output_bytes, made.folder, int64_t{made.pinned}, std::string(author),
       wall_ms()}));
  const int64_t id = database_->last_id();
  TRY(append_log(subject_of("experiment", id), "new: " + made.title, author));
  TRY(whole.commit());
  return id;
}

Result<int64_t> Store::add(const Learning& made, std::string_view author) {
  TRY(check_text("text", made.text, false));
  TRY(check_author(author));
  const std::string links = to_json(made.links);
  TRY(check_text("links", links, false));
  Transaction whole = TRY(Transaction::begin(*database_));
  TRY(database_->run("INSERT INTO learnings(text, links, author, made_ms) VALUES(?, ?, ?, ?)",
                     {made.text, links, std::string(author), wall_ms()}));
  const int64_t id = database_->last_id();
  TRY(append_log(subject_of("learning", id), "new: " + made.text, author));
  TRY(whole.commit());
  return id;
}

Result<std::vector<Hypothesis>> Store::hypotheses() {
  std::vector<Hypothesis> all;
  const auto rows = TRY(
      database_->query(fmt::format("SELECT {} FROM hypotheses ORDER BY id", kHypothesisColumns)));
  for (const Row& row : rows) all.push_back(hypothesis_of(row));
  return all;
}

Result<Hypothesis> Store::hypothesis(int64_t id) {
  const auto rows = TRY(database_->query(
      fmt::format("SELECT {} FROM hypotheses WHERE id = ?", kHypothesisColumns), {id}));
  if (rows.empty()) return make_error(ErrorCode::kNotFound, "there is no hypothesis {}", id);
  return hypothesis_of(rows.front());
}

Result<std::vector<Experiment>> Store::experiments() {
  std::vector<Experiment> all;
  const auto rows = TRY(
      database_->query(fmt::format("SELECT {} FROM experiments ORDER BY id", kExperimentColumns)));
  for (const Row& row : rows) all.push_back(experiment_of(row));
  return all;
}

Result<Experiment> Store::experiment(int64_t id) {
  const auto rows = TRY(database_->query(
      fmt::format("SELECT {} FROM experiments WHERE id = ?", kExperimentColumns), {id}));
  if (rows.empty()) return make_error(ErrorCode::kNotFound, "there is no experiment {}", id);
  return experiment_of(rows.front());
}

Result<std::vector<Run>> Store::runs(int64_t experiment_id) {
  std::vector<Run> all;
  const auto rows = TRY(database_->query(
      "SELECT id, experiment_id, side_idx, round, state, metrics, machine, error, seconds, "
      "started_ms FROM runs WHERE experiment_id = ? ORDER BY id",
      {experiment_id}));
  for (const Row& row : rows) all.push_back(run_of(row));
  return all;
}

Result<std::map<int64_t, int64_t>> Store::num_runs_done() {
  std::map<int64_t, int64_t> counts;
  const auto rows = TRY(database_->query(
      "SELECT experiment_id, count(*) FROM runs WHERE state = 'done' GROUP BY experiment_id"));
  for (const Row& row : rows) counts[row.integer(0)] = row.integer(1);
  return counts;
}

Result<std::vector<Learning>> Store::learnings() {
  std::vector<Learning> all;
  const auto rows =
      TRY(database_->query("SELECT id, text, links, author, made_ms FROM learnings ORDER BY id"));
  for (const Row& row : rows) {
    const auto links = TRY(parse_json(row.text(2), "links"));
    all.push_back({row.integer(0), row.text(1), texts_of(links), row.text(3), row.integer(4)});
  }
  return all;
}

Result<std::vector<LogEntry>> Store::log(int64_t after_id, int64_t max_entries) {
  return entries_of(TRY(database_->query(
      "SELECT id, at_ms, author, subject, text FROM log WHERE id > ? ORDER BY id LIMIT ?",
      {after_id, max_entries})));
}

Result<std::vector<LogEntry>> Store::newest_log(int64_t max_entries, std::string_view subject) {
  auto rows =
      subject.empty()
          ? TRY(database_->query(
                "SELECT id, at_ms, author, subject, text FROM log ORDER BY id DESC LIMIT ?",
                {max_entries}))
          : TRY(database_->query("SELECT id, at_ms, author, subject, text FROM log WHERE subject = "
                                 "? ORDER BY id DESC LIMIT ?",
                                 {std::string(subject), max_entries}));
  std::reverse(rows.begin(), rows.end());
  return entries_of(rows);
}

Result<int64_t> Store::last_log_id() {
  return TRY(database_->query("SELECT max(id) FROM log")).front().integer(0);
}

Status Store::conclude(int64_t id, std::string_view state, std::string_view verdict,
                       std::string_view author) {
  if (state != "open" && state != "validated" && state != "ruled out") {
    return wrong("state",
                 fmt::format("is {}, and must be open, validated or ruled out", quote(state)));
  }
  TRY(check_text("verdict", verdict, false));
  Transaction whole = TRY(Transaction::begin(*database_));
  TRY(write_conclusion(id, state, verdict, author));
  return whole.commit();
}

Status Store::write_conclusion(int64_t id, std::string_view state, std::string_view verdict,
                               std::string_view author) {
  TRY(hypothesis(id));
  TRY(database_->run("UPDATE hypotheses SET state = ?, verdict = ? WHERE id = ?",
                     {std::string(state), std::string(verdict), id}));
  return append_log(subject_of("hypothesis", id), fmt::format("{}: {}", state, verdict), author);
}

Status Store::change_experiment(int64_t id, std::string_view column, Value value,
                                std::string_view text, std::string_view author) {
  Transaction whole = TRY(Transaction::begin(*database_));
  TRY(experiment(id));
  TRY(database_->run(fmt::format("UPDATE experiments SET {} = ? WHERE id = ?", column),
                     {std::move(value), id}));
  TRY(append_log(subject_of("experiment", id), text, author));
  return whole.commit();
}

Status Store::set_state(int64_t id, std::string_view state, std::string_view reason,
                        std::string_view author) {
  Transaction whole = TRY(Transaction::begin(*database_));
  TRY(write_state(id, state, reason, author));
  return whole.commit();
}

Status Store::write_state(int64_t id, std::string_view state, std::string_view reason,
                          std::string_view author) {
  TRY(experiment(id));
  TRY(database_->run("UPDATE experiments SET state = ?, state_reason = ? WHERE id = ?",
                     {std::string(state), std::string(reason), id}));
  return append_log(subject_of("experiment", id), fmt::format("{}: {}", state, reason), author);
}

Status Store::finish(int64_t id, std::string_view found, std::span<const Finding> findings,
                     std::string_view author) {
  Transaction whole = TRY(Transaction::begin(*database_));
  TRY(write_state(id, "done", found, author));
  for (const Finding& each : findings) {
    if (each.hypothesis_id == 0 || each.decides.empty()) continue;
    if (TRY(hypothesis(each.hypothesis_id)).state != "open") continue;  // a person decided
    TRY(write_conclusion(each.hypothesis_id, each.decides,
                         fmt::format("experiment {}: {}", id, each.text), author));
    TRY(drop_pointless(each.hypothesis_id, author));
  }
  return whole.commit();
}

// What waits, asks about this hypothesis, and about no other that is open.
Status Store::drop_pointless(int64_t decided_id, std::string_view author) {
  std::set<int64_t> open;
  for (const Hypothesis& each : TRY(hypotheses())) {
    if (each.state == "open") open.insert(each.id);
  }
  for (const Experiment& each : TRY(experiments())) {
    if (each.state != "queued" || each.pinned || !asks_about(each, decided_id)) continue;
    const std::vector<Question> questions = questions_of(each);
    const bool still_asks = std::ranges::any_of(
        questions, [&](const Question& asked) { return open.contains(asked.hypothesis_id); });
    if (still_asks) continue;
    const std::string reason = questions.size() > 1
                                   ? "pointless: its hypotheses are decided"
                                   : fmt::format("pointless: hypothesis {} is decided", decided_id);
    TRY(write_state(each.id, "cancelled", reason, author));
  }
  return {};
}

Status Store::set_pinned(int64_t id, bool pinned, std::string_view author) {
  return change_experiment(id, "pinned", int64_t{pinned}, pinned ? "pinned" : "no longer pinned",
                           author);
}

Status Store::set_paused(int64_t id, bool paused, std::string_view author) {
  return change_experiment(id, "paused", int64_t{paused}, paused ? "paused" : "goes on", author);
}

Status Store::set_place(int64_t id, double place, std::string_view author) {
  return change_experiment(id, "place", place, fmt::format("moved to place {}", place), author);
}

Status Store::set_cost(int64_t id, double seconds, std::string_view author) {
  return change_experiment(id, "cost_s", seconds, fmt::format("a run takes {:.3g} s", seconds),
                           author);
}

Status Store::note(std::string_view subject, std::string_view text, std::string_view author) {
  TRY(check_text("text", text, false));
  return append_log(subject, text, author);
}

Result<int64_t> Store::begin_run(const Run& run, std::string_view author) {
  Transaction whole = TRY(Transaction::begin(*database_));
  TRY(database_->run(
      "INSERT INTO runs(experiment_id, side_idx, round, state, metrics, machine, error, seconds, "
      "started_ms) VALUES(?, ?, ?, 'running', '', '', '', 0, ?)",
      {run.experiment_id, run.side_idx, run.round, wall_ms()}));
  const int64_t id = database_->last_id();
  TRY(append_log(subject_of("experiment", run.experiment_id),
                 fmt::format("run {} begins: side {}, round {}", id, run.side_idx, run.round),
                 author));
  TRY(whole.commit());
  return id;
}

Status Store::end_run(const Run& run, std::string_view author) {
  Transaction whole = TRY(Transaction::begin(*database_));
  TRY(database_->run(
      "UPDATE runs SET state = ?, metrics = ?, machine = ?, error = ?, seconds = ? WHERE id = ?",
      {run.state, run.metrics, run.machine, run.error, run.seconds, run.id}));
  TRY(append_log(
      subject_of("experiment", run.experiment_id),
      fmt::format("run {} is {}{}{}", run.id, run.state, run.error.empty() ? "" : ": ", run.error),
      author));
  return whole.commit();
}

Result<int64_t> Store::recover(std::string_view author) {
  Transaction whole = TRY(Transaction::begin(*database_));
  TRY(database_->run(
      "UPDATE runs SET state = 'interrupted', error = 'the runner ended' WHERE state = 'running'"));
  const auto left =
      TRY(database_->query("SELECT id FROM experiments WHERE state = 'running' ORDER BY id"));
  for (const Row& row : left) {
    TRY(append_log(subject_of("experiment", row.integer(0)),
                   "interrupted: the runner ended; queued again", author));
  }
  TRY(
      database_->run("UPDATE experiments SET state = 'queued', state_reason = 'interrupted: the "
                     "runner ended' WHERE state = 'running'"));
  TRY(whole.commit());
  return static_cast<int64_t>(left.size());
}

Result<std::string> Store::artifacts(int64_t run_id) const {
  const auto path = std::filesystem::path(folder_) / "artifacts" / std::to_string(run_id);
  std::error_code failed;
  std::filesystem::create_directories(path, failed);
  if (failed) {
    return make_error(ErrorCode::kIo, "cannot make {}: {}", path.string(), failed.message());
  }
  return std::filesystem::absolute(path).string();
}

}  // namespace headrace::lab
