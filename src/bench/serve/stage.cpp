#include "bench/serve/stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace headrace::loads {
namespace {

constexpr int kRefusalsInARow = 5;  // by which a server is gone
constexpr double kTurn = 0.1;       // seconds between looks at `stop`
constexpr double kTick = 1e-6;      // of the transport's clock
constexpr double kNever = std::numeric_limits<double>::infinity();

class Stage {
 public:
  Stage(const StageRule& rule, const RequestForm& form, Workload& workload, Transport& transport,
        const std::atomic<bool>* stop)
      : rule_(rule),
        form_(form),
        workload_(workload),
        transport_(transport),
        stop_(stop),
        arrivals_(rule.shape, rule.seed),
        begin_(transport.now()) {}

  StageRecord run() {
    const double cpu = transport_.cpu_seconds();
    plan_next();
    while (record_.ended_by.empty() && (next_ || !running_.empty())) {
      send_due();
      const double wake = next_ && has_room() ? std::min(next_due_, now() + kTurn) : now() + kTurn;
      for (Answered& answer :
           transport_.wait(begin_ + static_cast<TimeUs>(std::ceil(wake * 1e6)))) {
        take(std::move(answer));
      }
      if (stop_ != nullptr && *stop_) record_.ended_by = "it was interrupted";
    }
    give_up_running();
    record_.rule = rule_;
    record_.seconds = now();
    const double wall = std::max(record_.seconds, 1e-9);
    record_.cpu_share = (transport_.cpu_seconds() - cpu) / wall;
    return std::move(record_);
  }

 private:
  struct Running {
    size_t index;  // of its record
    int64_t session;
  };

  double seconds_of(TimeUs time) const { return 1e-6 * static_cast<double>(time - begin_); }
  double now() { return seconds_of(transport_.now()); }
  size_t room() const {
    return static_cast<size_t>(rule_.shape.is_open() ? rule_.connections : rule_.shape.clients);
  }
  bool has_room() const { return running_.size() < room(); }

  // What is to be sent next, and when. A closed load is always due; its moment is that at which it
  // finds room.
  void plan_next() {
    next_.reset();
    const auto sent = static_cast<int64_t>(record_.requests.size());
    if (rule_.max_requests > 0 && sent >= rule_.max_requests) return;
    if (rule_.shape.kind == ShapeKind::kTrace) {
      next_ = workload_.next();
      next_due_ = next_ ? next_->due.value_or(0) : kNever;
      return;
    }
    next_due_ = rule_.shape.is_open() ? arrivals_.next() : now();
    if (next_due_ >= rule_.seconds) return;
    waits_for_answers_ = true;
    next_ = Ask{};
  }

  void send_due() {
    while (next_ && has_room()) {
      const double time = now();
      if (!rule_.shape.is_open()) next_due_ = time;
      if (next_due_ > time + kTick) return;
      if (!rule_.shape.is_open() && time >= rule_.seconds) {
        next_.reset();
        return;
      }
      if (waits_for_answers_) next_ = workload_.next();
      send(*next_, next_due_);
      plan_next();
    }
  }

  void send(const Ask& ask, double due) {
    const size_t id = record_.requests.size();
    RequestRecord& request = record_.requests.emplace_back();
    request.due = due;
    running_.emplace(id, Running{id, ask.session});
    std::string body = request_body(ask, form_);
    record_.requests[id].sent = now();
    transport_.send(id, std::move(body));
  }

  void take(Answered answer) {
    const auto found = running_.find(answer.id);
    RequestRecord& request = record_.requests[found->second.index];
    request.ended = seconds_of(answer.ended);
    for (const TimeUs piece : answer.notes.pieces) request.pieces.push_back(seconds_of(piece));
    request.prompt_tokens = answer.notes.prompt_tokens;
    request.cached_tokens = answer.notes.cached_tokens;
    request.output_tokens = answer.notes.tokens();
    request.server_prompt_ms = answer.notes.server_prompt_ms;
    request.server_answer_ms = answer.notes.server_answer_ms;
    request.status = answer.status;
    request.error = std::move(answer.notes.error);
    workload_.answered(found->second.session,
                       request.ok() ? std::move(answer.notes.text) : std::string());
    running_.erase(found);
    refusals_ = answer.connected ? 0 : refusals_ + 1;
    if (refusals_ >= kRefusalsInARow) {
      record_.ended_by = fmt::format("the server is gone: {}", request.error);
    }
  }

  void give_up_running() {
    if (running_.empty()) return;
    transport_.drop_all();
    for (const auto& [id, running] : running_) {
      RequestRecord& request = record_.requests[running.index];
      request.ended = now();
      request.error = "not finished when the load ended";
    }
    running_.clear();
  }

  const StageRule rule_;
  const RequestForm& form_;
  Workload& workload_;
  Transport& transport_;
  const std::atomic<bool>* stop_;
  Arrivals arrivals_;
  const TimeUs begin_;
  StageRecord record_;
  std::map<size_t, Running> running_;
  std::optional<Ask> next_;
  double next_due_ = 0;
  bool waits_for_answers_ = false;  // the text of the next request is made when it is sent
  int refusals_ = 0;
};

}  // namespace

StageRecord run_stage(const StageRule& rule, const RequestForm& form, Workload& workload,
                      Transport& transport, const std::atomic<bool>* stop) {
  return Stage(rule, form, workload, transport, stop).run();
}

}  // namespace headrace::loads
