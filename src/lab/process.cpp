#include "lab/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/quote.h"
#include "base/strings.h"

namespace headrace::lab {
namespace {

constexpr int kLookMs = 50;

// Group and resident bytes of a process; false when it is gone. The name in /proc/PID/stat may hold
// anything, so what follows its last bracket is read.
bool read_stat(const std::string& pid, pid_t* group, int64_t* bytes) {
  std::ifstream in("/proc/" + pid + "/stat");
  std::string line;
  if (!std::getline(in, line)) return false;
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return false;
  char state = 0;
  int parent = 0, found_group = 0;
  if (std::sscanf(line.c_str() + end + 1, " %c %d %d", &state, &parent, &found_group) != 3) {
    return false;
  }
  *group = found_group;
  std::ifstream pages_in("/proc/" + pid + "/statm");
  int64_t whole = 0, resident = 0;
  pages_in >> whole >> resident;
  *bytes = resident * sysconf(_SC_PAGESIZE);
  return true;
}

int64_t memory_of_group(pid_t group) {
  int64_t total = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    pid_t of = 0;
    int64_t bytes = 0;
    if (read_stat(name, &of, &bytes) && of == group) total += bytes;
  }
  return total;
}

// The caller's environment with some variables set.
std::vector<std::string> environment_with(const std::map<std::string, std::string>& added) {
  std::vector<std::string> all;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view line(*each);
    if (!added.contains(std::string(line.substr(0, line.find('='))))) all.emplace_back(line);
  }
  for (const auto& [name, value] : added) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

struct SpawnPlan {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  SpawnPlan() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
};

Result<pid_t> start(std::vector<std::string> command, const std::string& folder,
                    std::vector<std::string> environment, int output, int errors) {
  SpawnPlan plan;
  posix_spawn_file_actions_addopen(&plan.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&plan.files, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&plan.files, errors, STDERR_FILENO);
  posix_spawn_file_actions_addchdir_np(&plan.files, folder.c_str());
  posix_spawnattr_setflags(&plan.attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&plan.attributes, 0);
  pid_t pid = 0;
  const int failed = posix_spawnp(&pid, command.front().c_str(), &plan.files, &plan.attributes,
                                  pointers_to(command).data(), pointers_to(environment).data());
  if (failed != 0) {
    return make_error(ErrorCode::kNotFound, "cannot start {}: {}", quote(command.front()),
                      std::strerror(failed));
  }
  return pid;
}

// What a process writes to one of its ends, up to a limit.
class Stream {
 public:
  Stream(int pipe, int64_t limit) : pipe_(pipe), limit_(limit) {}

  int pipe() const { return is_open_ ? pipe_ : -1; }
  // Gives what is there to sink(text). False: it is more than may be.
  template <typename Sink>
  bool drain(const Sink& sink) {
    char buffer[65536];
    while (is_open_) {
      const ssize_t count = read(pipe_, buffer, sizeof buffer);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return true;  // nothing there now
      if (count == 0) is_open_ = false;
      const int64_t kept = std::min<int64_t>(count, limit_ - num_bytes_);
      sink(std::string_view(buffer, static_cast<size_t>(kept)));
      num_bytes_ += kept;
      if (kept < count) return false;
    }
    return true;
  }

 private:
  const int pipe_;
  const int64_t limit_;
  int64_t num_bytes_ = 0;
  bool is_open_ = true;
};

// Reads what a process prints until it ends or goes beyond a limit.
class Watch {
 public:
  // errors_file: for what it writes to standard error.
  Watch(pid_t pid, int output, int errors, int errors_file, const Limits& limits,
        const std::function<bool()>& stops)
      : pid_(pid),
        output_(output, limits.output_bytes),
        errors_(errors, limits.output_bytes),
        errors_file_(errors_file),
        limits_(limits),
        stops_(stops),
        start_us_(now_us()) {}

  ProcessResult run() {
    while (!ended_ && result_.problem.empty()) {
      look();
    }
    kill(-pid_, SIGKILL);
    if (!ended_) waitpid(pid_, &status_, 0);
    if (result_.problem.empty()) read_all();
    if (result_.problem.empty()) result_.problem = end_of(status_);
    result_.seconds = seconds();
    return std::move(result_);
  }

 private:
  double seconds() const { return static_cast<double>(now_us() - start_us_) * 1e-6; }

  void look() {
    pollfd waiting[] = {{output_.pipe(), POLLIN, 0}, {errors_.pipe(), POLLIN, 0}};
    poll(waiting, 2, kLookMs);
    read_all();
    ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
    if (ended_ || !result_.problem.empty()) return;
    if (seconds() > limits_.seconds) {
      result_.problem = fmt::format("it ran longer than {:g} s, its limit", limits_.seconds);
    }
    if (limits_.memory_bytes > 0 && now_us() >= next_memory_us_) look_at_memory();
    if (result_.problem.empty() && stops_ && stops_()) {
      result_.problem = "it was stopped";
      result_.was_stopped = true;
    }
  }

  void look_at_memory() {
    next_memory_us_ = now_us() + kLookMs * 1000;
    const int64_t bytes = memory_of_group(pid_);
    if (bytes <= limits_.memory_bytes) return;
    result_.problem =
        fmt::format("it took {}, and may take {}", format_bytes(static_cast<size_t>(bytes)),
                    format_bytes(static_cast<size_t>(limits_.memory_bytes)));
  }

  void read_all() {
    if (!output_.drain([&](std::string_view text) { result_.output += text; })) {
      too_much("");
    }
    // A full disk shows when the run's result is kept.
    const auto keep = [&](std::string_view text) {
      while (!text.empty()) {
        const ssize_t count = write(errors_file_, text.data(), text.size());
        if (count <= 0) return;
        text.remove_prefix(static_cast<size_t>(count));
      }
    };
    if (!errors_.drain(keep)) too_much(" to standard error");
  }

  void too_much(std::string_view where) {
    if (!result_.problem.empty()) return;
    result_.problem = fmt::format("it printed more than {}{}, its limit",
                                  format_bytes(static_cast<size_t>(limits_.output_bytes)), where);
  }

  static std::string end_of(int status) {
    if (WIFSIGNALED(status)) return fmt::format("it was ended by signal {}", WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
      return fmt::format("it ended with status {}", WEXITSTATUS(status));
    return {};
  }

  const pid_t pid_;
  Stream output_, errors_;
  const int errors_file_;
  const Limits limits_;
  const std::function<bool()>& stops_;
  const TimeUs start_us_;
  TimeUs next_memory_us_ = 0;
  bool ended_ = false;
  int status_ = 0;
  ProcessResult result_;
};

Error no_pipe() {
  return make_error(ErrorCode::kIo, "no pipe for a run: {}", std::strerror(errno));
}

}  // namespace

Result<ProcessResult> run_process(const std::vector<std::string>& command,
                                  const std::string& folder,
                                  const std::map<std::string, std::string>& environment,
                                  const std::string& errors_path, const Limits& limits,
                                  const std::function<bool()>& stops) {
  const Descriptor errors_file(
      ::open(errors_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!errors_file.ok()) return open_error(errors_path);
  int output[2], errors[2];
  if (pipe2(output, O_CLOEXEC | O_NONBLOCK) != 0) return no_pipe();
  const Descriptor output_reading(output[0]);
  Descriptor output_writing(output[1]);
  if (pipe2(errors, O_CLOEXEC | O_NONBLOCK) != 0) return no_pipe();
  const Descriptor errors_reading(errors[0]);
  pid_t pid = 0;
  {
    const Descriptor output_end(std::move(output_writing)), errors_end(errors[1]);
    // Their own reads and writes wait, as programs expect.
    fcntl(output_end.get(), F_SETFL, 0);
    fcntl(errors_end.get(), F_SETFL, 0);
    pid = TRY(
        start(command, folder, environment_with(environment), output_end.get(), errors_end.get()));
  }
  return Watch(pid, output_reading.get(), errors_reading.get(), errors_file.get(), limits, stops)
      .run();
}

}  // namespace headrace::lab
