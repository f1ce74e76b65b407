#include "cli/own_server.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

namespace headrace {
namespace {

constexpr std::string_view kListening = "listening on ";

// In the child, between fork and exec: calls of the system alone.
[[noreturn]] void become(char* const* arguments, int output) {
  ::dup2(output, STDOUT_FILENO);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // no server stays behind
  ::setpgid(0, 0);                     // Ctrl-C is the parent's alone
  ::execv("/proc/self/exe", arguments);
  ::_exit(127);
}

}  // namespace

Result<OwnServer> OwnServer::start(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"headrace", "serve"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return make_error(ErrorCode::kIo, "no pipe for a server: {}", std::strerror(errno));
  }
  const pid_t process = ::fork();
  if (process == 0) become(pointers.data(), ends[1]);
  const int reason = errno;
  ::close(ends[1]);  // so that reading ends when the server does
  OwnServer server(process, Descriptor(ends[0]));
  if (process < 0) {
    return make_error(ErrorCode::kIo, "no process for a server: {}", std::strerror(reason));
  }
  TRY(server.wait_until_it_listens());
  return server;
}

Status OwnServer::wait_until_it_listens() {
  std::string printed;
  std::array<char, 1024> chunk{};
  while (true) {
    const size_t at = printed.find(kListening);
    const size_t end = printed.find('\n', at);
    if (at != printed.npos && end != printed.npos) {
      url_ = printed.substr(at + kListening.size(), end - at - kListening.size());
      return {};
    }
    const ssize_t count = ::read(output_.get(), chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    printed.append(chunk.data(), static_cast<size_t>(count));
  }
  return make_error(ErrorCode::kUnavailable,
                    "the server that was started for this ended before it listened: its reason "
                    "stands above");
}

OwnServer::OwnServer(OwnServer&& other) noexcept
    : process_(std::exchange(other.process_, -1)),
      output_(std::move(other.output_)),
      url_(std::move(other.url_)) {}

OwnServer::~OwnServer() {
  if (process_ < 0) return;
  ::kill(process_, SIGTERM);
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) continue;
}

}  // namespace headrace
