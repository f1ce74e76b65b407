#include "cli/terminal.h"

#include <fmt/format.h>
#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/strings.h"

namespace headrace {
namespace {

constexpr int kDefaultColumns = 80;
constexpr int kMinHelpColumns = 40;
constexpr int kMaxHelpColumns = 100;  // longer lines are hard to read
constexpr int kBarWidth = 30;
constexpr int kTerminalSteps = 100;
constexpr int kLineSteps = 10;

// Where every line is to be an object, a line of progress is one too.
void tell(const std::string& line) {
  if (log_format() == LogFormat::kJson) {
    LOG(kInfo, "{}", line);
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

}  // namespace

bool is_terminal(int descriptor) { return isatty(descriptor) == 1; }

bool has_cursor(int descriptor) {
  // tidy: environment because TERM belongs to the terminal, it is no option of the program
  const char* name = std::getenv("TERM");
  return is_terminal(descriptor) && name != nullptr && std::string_view(name) != "dumb";
}

EchoOff::EchoOff() {
  termios now{};
  if (!is_terminal(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &now) != 0) return;
  before_ = now;
  now.c_lflag &= ~static_cast<tcflag_t>(ECHO | ECHONL);
  tcsetattr(STDIN_FILENO, TCSANOW, &now);
}

EchoOff::~EchoOff() {
  if (before_) tcsetattr(STDIN_FILENO, TCSANOW, &*before_);
}

int terminal_columns(int descriptor) {
  winsize size{};
  const bool known = ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kDefaultColumns;
}

int help_width() {
  // tidy: environment because COLUMNS belongs to the terminal, it is no option of the program
  const char* text = std::getenv("COLUMNS");
  int columns = 0;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), columns);
  if (columns <= 0) columns = terminal_columns(STDOUT_FILENO);
  return std::clamp(columns, kMinHelpColumns, kMaxHelpColumns);
}

std::string cut_to_terminal(std::string line) {
  const auto most = static_cast<size_t>(std::max(1, terminal_columns(STDERR_FILENO) - 1));
  if (line.size() <= most) return line;
  size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0U) == 0x80) --end;
  line.resize(end);
  return line;
}

void use_utf8_locale() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

ProgressBar::ProgressBar(std::string title, bool quiet)
    : title_(std::move(title)),
      quiet_(quiet),
      terminal_(has_cursor(STDERR_FILENO) && log_format() == LogFormat::kText) {}

ProgressBar::~ProgressBar() {
  if (drawn_ && terminal_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::update(size_t done, size_t total) {
  if (quiet_ || total == 0) return;
  const int steps = terminal_ ? kTerminalSteps : kLineSteps;
  const int step =
      static_cast<int>(std::min<size_t>(done, total) * static_cast<size_t>(steps) / total);
  if (step == last_step_) return;
  last_step_ = step;
  draw(done, total);
}

void ProgressBar::draw(size_t done, size_t total) {
  const double share = static_cast<double>(done) / static_cast<double>(total);
  if (terminal_) {
    const auto filled = static_cast<int>(share * kBarWidth);
    const std::string line =
        fmt::format("{:3.0f} % of {} [{:#<{}}{:{}}] {}", share * 100, format_bytes(total), "",
                    filled, "", kBarWidth - filled, title_);
    std::fprintf(stderr, "\r%s\x1b[K", cut_to_terminal(line).c_str());
  } else {
    tell(fmt::format("{} {:.0f} % of {}", title_, share * 100, format_bytes(total)));
  }
  std::fflush(stderr);
  drawn_ = true;
}

std::string format_count(int64_t count) {
  std::string digits = std::to_string(count);
  const size_t first = count < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, ",");
  return digits;
}

}  // namespace headrace
