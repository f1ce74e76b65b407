#include "cli/generate.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <random>

#include "base/queue.h"
#include "cli/terminal.h"
#include "text/stream_decoder.h"

namespace headrace {
namespace {

constexpr size_t kEventCapacity = 4096;
constexpr std::chrono::milliseconds kInterruptPoll{50};

using EventQueue = BoundedQueue<Event>;

std::atomic<bool> interrupt_flag{false};
std::atomic<int> interrupt_signal{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free,
              "set from a signal handler");

int interrupt_event = -1;  // eventfd

void on_signal(int number) {
  const int saved_errno = errno;
  if (interrupt_signal.load() != SIGTERM) interrupt_signal.store(number);
  interrupt_flag.store(true);
  const uint64_t one = 1;
  if (write(interrupt_event, &one, sizeof(one)) < 0) interrupt_flag.store(true);
  errno = saved_errno;
}

void install(void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

// What nohup has ignored stays ignored.
bool install_for_hang_up() {
  struct sigaction action{};
  if (sigaction(SIGHUP, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) return false;
  action.sa_handler = on_signal;
  return sigaction(SIGHUP, &action, nullptr) == 0;
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
    const bool arrives = piece.text.empty() || args_.write(piece.text);
    if (piece.stopped || !arrives) {
      stopped_ = true;
      args_.engine.cancel(id);
    }
  }

  Result<Answer> finish(Event event) {
    if (event.failed()) return std::move(event.error);
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

Request request_from_options(const Options& options, const SamplingDefaults& recommended) {
  Request request;
  request.sampling = default_sampling(recommended);
  SamplingParams& sampling = request.sampling;
  const auto set_number = [&](std::string_view name, float* value) {
    if (options.is_set(name)) *value = static_cast<float>(options.number(name));
  };
  set_number("--temperature", &sampling.temperature);
  set_number("--top-p", &sampling.top_p);
  set_number("--min-p", &sampling.min_p);
  set_number("--repetition-penalty", &sampling.repetition_penalty);
  sampling.presence_penalty = static_cast<float>(options.number("--presence-penalty"));
  sampling.frequency_penalty = static_cast<float>(options.number("--frequency-penalty"));
  if (options.is_set("--top-k")) sampling.top_k = static_cast<int32_t>(options.integer("--top-k"));
  sampling.seed = options.is_set("--seed") ? static_cast<uint64_t>(options.integer("--seed"))
                                           : std::random_device()();
  request.max_tokens = static_cast<int32_t>(options.integer("--max-tokens"));
  return request;
}

std::vector<std::string> stop_strings_from_options(const Options& options) {
  const std::string& stop = options.text("--stop");
  if (stop.empty()) return {};
  return {unescape_newlines(stop)};
}

std::string describe_speed(const Answer& answer, uint64_t seed) {
  const double first_ms =
      static_cast<double>(answer.times.first_token - answer.times.submitted) / 1e3;
  const double decode_s =
      static_cast<double>(answer.times.finished - answer.times.first_token) / 1e6;
  const int later_tokens = answer.usage.output_tokens - 1;
  const double rate = decode_s > 0 && later_tokens > 0 ? later_tokens / decode_s : 0.0;
  return fmt::format(
      "{} prompt tokens, {} tokens, first after {:.0f} ms, then {:.1f} tok/s, seed {}",
      answer.usage.prompt_tokens, answer.usage.output_tokens, first_ms, rate, seed);
}

std::string describe_cut(const Answer& answer, const ContextLimit& context) {
  if (answer.usage.prompt_tokens + answer.usage.output_tokens >= context.num_tokens) {
    const std::string cut =
        fmt::format("cut: the context of {} tokens is full", format_count(context.num_tokens));
    return context.option.empty() ? cut : fmt::format("{}; {} may allow more", cut, context.option);
  }
  return fmt::format("cut after {} tokens; --max-tokens allows more",
                     format_count(answer.usage.output_tokens));
}

std::string base_model_note() {
  return "this model has no chat template, it is a base model: it continues your text instead of "
         "answering";
}

InterruptGuard::InterruptGuard(bool hang_up_too) {
  interrupt_signal.store(0);
  interrupt_flag.store(false);
  interrupt_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  CHECK(interrupt_event >= 0, "no eventfd: {}", std::strerror(errno));
  install(on_signal);
  if (hang_up_too) takes_hang_up_ = install_for_hang_up();
}

InterruptGuard::~InterruptGuard() {
  install(SIG_DFL);
  if (takes_hang_up_) std::signal(SIGHUP, SIG_DFL);
  close(interrupt_event);
}

int InterruptGuard::descriptor() const { return interrupt_event; }

const std::atomic<bool>& InterruptGuard::flag() const { return interrupt_flag; }

int InterruptGuard::signal() const { return interrupt_signal.load(); }

void InterruptGuard::reset() {
  int interrupted = SIGINT;
  interrupt_signal.compare_exchange_strong(interrupted, 0);
  if (interrupt_signal.load() != 0) return;
  interrupt_flag.store(false);
  uint64_t count = 0;
  if (read(interrupt_event, &count, sizeof(count)) < 0) return;  // it was not set
}

}  // namespace headrace
