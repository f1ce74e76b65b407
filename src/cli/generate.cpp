#include "cli/generate.h"

#include <csignal>
#include <memory>

#include "base/queue.h"
#include "text/stream_decoder.h"

namespace headrace {
namespace {

constexpr size_t kEventCapacity = 4096;
constexpr std::chrono::milliseconds kInterruptPoll{50};

using EventQueue = BoundedQueue<Event>;

std::atomic<bool> interrupt_flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal handler");

void on_signal(int) { interrupt_flag.store(true); }

void install(void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

// Turns events into text until the request ends.
class Listener {
 public:
  Listener(GenerateArgs& args, EventQueue& events)
      : args_(args), events_(events), decoder_(args.tokenizer, args.stop_strings, true) {}

  Result<Answer> listen(RequestId id) {
    while (true) {
      if (args_.interrupted != nullptr && args_.interrupted->load()) args_.engine.cancel(id);
      auto event = events_.pop_for(kInterruptPoll);
      if (!event) continue;
      if (event->kind == Event::Kind::kToken) take(decoder_.push(event->token_id), id);
      if (event->kind == Event::Kind::kFinished) return finish(std::move(*event));
    }
  }

 private:
  void take(const StreamPiece& piece, RequestId id) {
    if (stopped_) return;  // tokens computed before the cancel reached the engine
    answer_.text += piece.text;
    if (!piece.text.empty()) args_.write(piece.text);
    if (piece.stopped) {
      stopped_ = true;
      args_.engine.cancel(id);
    }
  }

  Result<Answer> finish(Event event) {
    if (event.reason == FinishReason::kError) return std::move(event.error);
    if (!stopped_) take(decoder_.finish(), event.request_id);
    answer_.reason = stopped_ ? FinishReason::kStop : event.reason;
    answer_.usage = event.usage;
    answer_.times = event.times;
    return std::move(answer_);
  }

  GenerateArgs& args_;
  EventQueue& events_;
  StreamDecoder decoder_;
  Answer answer_;
  bool stopped_ = false;
};

std::string unescape_newlines(std::string text) {
  for (size_t at = text.find("\\n"); at != std::string::npos; at = text.find("\\n", at + 1)) {
    text.replace(at, 2, 1, '\n');
  }
  return text;
}

}  // namespace

Result<Answer> generate(GenerateArgs args) {
  // Shared with the sink: the engine may still call it while this thread handles the last event.
  auto events =
      std::make_shared<EventQueue>(kEventCapacity + static_cast<size_t>(args.request.max_tokens));
  const RequestId id = TRY(args.engine.submit(
      args.request, [events](Event&& event) { return events->try_push(std::move(event)); }));
  return Listener(args, *events).listen(id);
}

Request request_from_options(const Options& options) {
  Request request;
  SamplingParams& sampling = request.sampling;
  sampling.temperature = static_cast<float>(options.number("--temperature"));
  sampling.top_k = static_cast<int32_t>(options.integer("--top-k"));
  sampling.top_p = static_cast<float>(options.number("--top-p"));
  sampling.min_p = static_cast<float>(options.number("--min-p"));
  sampling.repetition_penalty = static_cast<float>(options.number("--repetition-penalty"));
  sampling.presence_penalty = static_cast<float>(options.number("--presence-penalty"));
  sampling.frequency_penalty = static_cast<float>(options.number("--frequency-penalty"));
  sampling.seed = static_cast<uint64_t>(options.integer("--seed"));
  request.max_tokens = static_cast<int32_t>(options.integer("--max-tokens"));
  return request;
}

std::vector<std::string> stop_strings_from_options(const Options& options) {
  const std::string& stop = options.text("--stop");
  if (stop.empty()) return {};
  return {unescape_newlines(stop)};
}

std::string describe_speed(const Answer& answer) {
  const double first_ms =
      static_cast<double>(answer.times.first_token - answer.times.submitted) / 1e3;
  const double decode_s =
      static_cast<double>(answer.times.finished - answer.times.first_token) / 1e6;
  const int later_tokens = answer.usage.output_tokens - 1;
  const double rate = decode_s > 0 && later_tokens > 0 ? later_tokens / decode_s : 0.0;
  return fmt::format("{} prompt tokens, {} tokens, first after {:.0f} ms, then {:.1f} tok/s",
                     answer.usage.prompt_tokens, answer.usage.output_tokens, first_ms, rate);
}

InterruptGuard::InterruptGuard() {
  interrupt_flag.store(false);
  install(on_signal);
}

InterruptGuard::~InterruptGuard() { install(SIG_DFL); }

const std::atomic<bool>& InterruptGuard::flag() const { return interrupt_flag; }

void InterruptGuard::reset() { interrupt_flag.store(false); }

}  // namespace headrace
