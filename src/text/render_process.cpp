#include "text/render_process.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>

#include "text/textkit_call.h"

extern char** environ;

namespace headrace {

namespace {

constexpr const char* kName = "headrace-template-renderer";  // argv[0] of the process
constexpr int kChildChannel = 0;
constexpr size_t kStackBytes = size_t{64} << 20;  // templates nest
// A conversation that no context holds; the server's limit of a body is far below.
constexpr size_t kMaxOptionsBytes = size_t{256} << 20;
// How long a call waits for the one before it. A template that runs into its limit must not hold a
// second thread of the caller meanwhile.
constexpr std::chrono::milliseconds kPatience{500};
// Longer than all of the process's own limits together: for one that does not even end itself.
constexpr int kSilenceMs = 60'000;
// Exit codes of textkit/src/sandbox.rs.
constexpr int kExitMemory = 71;
constexpr int kExitInputMemory = 72;

// Sizes of a question's texts; before an answer's text its status and size.
using Question = std::array<uint64_t, 3>;
using Answer = std::array<uint64_t, 2>;

bool send_all(int channel, const void* data, size_t size) {
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t count = send(channel, bytes, size, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

// False at the end of the stream, on an error, and after timeout_ms of silence (-1: never).
bool receive_all(int channel, void* data, size_t size, int timeout_ms) {
  char* bytes = static_cast<char*>(data);
  while (size > 0) {
    pollfd waited = {.fd = channel, .events = POLLIN, .revents = 0};
    const int ready = poll(&waited, 1, timeout_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t count = recv(channel, bytes, size, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

// ---- inside the process ----

bool receive_texts(std::array<std::string, 3>& texts) {
  Question sizes = {};
  if (!receive_all(kChildChannel, sizes.data(), sizeof sizes, -1)) return false;
  for (size_t i = 0; i < texts.size(); ++i) {
    texts[i].resize(sizes[i]);
    if (!receive_all(kChildChannel, texts[i].data(), texts[i].size(), -1)) return false;
  }
  return true;
}

bool answer(TkStatus status, TkBytes text) {
  const Answer header = {static_cast<uint64_t>(status), text.size};
  const bool sent = send_all(kChildChannel, header.data(), sizeof header) &&
                    send_all(kChildChannel, text.data, text.size);
  tk_free_bytes(text);
  return sent;
}

// Compiles what comes first, renders with what comes then, until the other side is gone.
void* serve_templates(void*) {
  std::array<std::string, 3> texts;
  TkTemplate* compiled = nullptr;
  while (receive_texts(texts)) {
    TkBytes text = {};
    TkBytes error = {};
    TkStatus status = kTkOk;
    if (compiled == nullptr) {
      status = tk_template_new(tk_view(texts[0]), tk_view(texts[1]), tk_view(texts[2]), &compiled,
                               &error);
    } else {
      status = tk_template_render(compiled, tk_view(texts[0]), tk_view(texts[1]), &text, &error);
    }
    if (!answer(status, status == kTkOk ? text : error)) break;
    // A request that was large once is no reason to keep its memory.
    if (texts[0].capacity() > (size_t{1} << 20)) texts[0] = {};
  }
  _exit(0);
}

// Runs before main, and before the program's other parts are ready: it uses none of them.
__attribute__((constructor)) void become_render_process(int argc, char** argv) {
  if (argc != 1 || std::strcmp(argv[0], kName) != 0) return;
  close_range(kChildChannel + 3, ~0U, 0);
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_t thread = {};
  if (pthread_attr_setstacksize(&attributes, kStackBytes) != 0 ||
      pthread_create(&thread, &attributes, serve_templates, nullptr) != 0) {
    _exit(kExitInputMemory);
  }
  pthread_join(thread, nullptr);
  _exit(0);
}

// ---- outside ----

std::string& program() {
  static std::string path = "/proc/self/exe";
  return path;
}

// The process's standard streams lead nowhere but to the channel; it gets default signals and a
// process group of its own, so that Ctrl-C is ours alone.
Result<pid_t> spawn(int channel) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&files, channel, kChildChannel);
  posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  char* const arguments[] = {const_cast<char*>(kName), nullptr};
  pid_t pid = -1;
  const int failure = posix_spawn(&pid, program().c_str(), &files, &attributes, arguments, environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (failure == 0) return pid;
  return Error{
      ErrorCode::kExhausted,
      fmt::format("the process for chat templates cannot be started: {}", std::strerror(failure)),
      "allow more processes and memory",
      {}};
}

}  // namespace

class RenderProcess::Turn {
 public:
  explicit Turn(RenderProcess& process) : process_(process) {
    std::unique_lock lock(process.mutex_);
    is_mine_ = process.is_free_.wait_for(lock, kPatience, [&] { return !process.is_taken_; });
    if (is_mine_) process.is_taken_ = true;
  }
  ~Turn() {
    if (!is_mine_) return;
    {
      const std::lock_guard lock(process_.mutex_);
      process_.is_taken_ = false;
    }
    process_.is_free_.notify_one();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool is_mine() const { return is_mine_; }

 private:
  RenderProcess& process_;
  bool is_mine_ = false;
};

void RenderProcess::set_program(std::string path) { program() = std::move(path); }

Status RenderProcess::start() {
  const Turn turn(*this);
  CHECK(turn.is_mine(), "a template that is not compiled yet is rendered");
  return start_in_turn();
}

Status RenderProcess::start_in_turn() {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return make_error(ErrorCode::kExhausted, "the process for chat templates gets no channel: {}",
                      std::strerror(errno));
  }
  channel_ = ends[0];
  auto pid = spawn(ends[1]);
  close(ends[1]);
  if (!pid.ok()) {
    end();
    return pid.error();
  }
  pid_ = *pid;
  auto compiled = call(source_, special_tokens_json_, plain_json_);
  if (compiled.ok()) return {};
  end();
  return compiled.error();
}

Result<std::string> RenderProcess::render(std::string_view options_json, std::string_view now) {
  if (options_json.size() > kMaxOptionsBytes) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the conversation has {} bytes, but at most {} are rendered",
                      options_json.size(), kMaxOptionsBytes);
  }
  const Turn turn(*this);
  if (!turn.is_mine()) {
    return Error{ErrorCode::kExhausted,
                 "the chat template is busy with another request",
                 "try again in a few seconds",
                 {}};
  }
  if (pid_ < 0) TRY(start_in_turn());
  return call(options_json, now, {});
}

Result<std::string> RenderProcess::call(std::string_view first, std::string_view second,
                                        std::string_view third) {
  const Question sizes = {first.size(), second.size(), third.size()};
  bool sent = send_all(channel_, sizes.data(), sizeof sizes);
  for (const std::string_view text : {first, second, third}) {
    sent = sent && send_all(channel_, text.data(), text.size());
  }
  Answer header = {};
  if (!sent || !receive_all(channel_, header.data(), sizeof header, kSilenceMs)) return ended();
  std::string text;
  try {
    text.resize(header[1]);
  } catch (const std::bad_alloc&) {
    end();  // its answer will not be read
    return make_error(ErrorCode::kExhausted, "there is not enough memory for a prompt of {} bytes",
                      header[1]);
  }
  if (!receive_all(channel_, text.data(), text.size(), kSilenceMs)) return ended();
  const auto status = static_cast<TkStatus>(header[0]);
  if (status == kTkOk) return text;
  return textkit_error(status, text);
}

Error RenderProcess::ended() {
  close(channel_);
  channel_ = -1;
  int status = 0;
  pid_t gone = 0;
  // The channel closes as the process ends; one that is merely silent is ended.
  for (int i = 0; i < 100 && gone == 0; ++i) {
    gone = waitpid(pid_, &status, WNOHANG);
    if (gone == 0) usleep(1000);
  }
  if (gone == 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &status, 0);
  }
  pid_ = -1;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the chat template ran for more than 2 seconds and was stopped");
  }
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  if (code == kExitMemory) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the chat template took more memory than it may and was stopped");
  }
  if (code == kExitInputMemory) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the values for the chat template take more memory than they may");
  }
  return make_error(ErrorCode::kExhausted,
                    "the process for chat templates ended (status {}), perhaps for lack of memory",
                    status);
}

void RenderProcess::end() {
  if (channel_ >= 0) close(channel_);
  channel_ = -1;
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
  pid_ = -1;
}

}  // namespace headrace
