#include "cli/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace headrace {
namespace {

constexpr int kBarWidth = 30;
constexpr int kTerminalSteps = 100;
constexpr int kLineSteps = 10;

}  // namespace

bool is_terminal(int descriptor) { return isatty(descriptor) == 1; }

ProgressBar::ProgressBar(std::string title, bool quiet)
    : title_(std::move(title)), quiet_(quiet), terminal_(is_terminal(STDERR_FILENO)) {}

ProgressBar::~ProgressBar() {
  if (drawn_ && terminal_) std::fputc('\n', stderr);
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
    const auto filled = static_cast<size_t>(share * kBarWidth);
    std::fprintf(stderr, "\r%s [%s%s] %3.0f %% of %s", title_.c_str(),
                 std::string(filled, '#').c_str(), std::string(kBarWidth - filled, ' ').c_str(),
                 share * 100, format_bytes(total).c_str());
  } else {
    std::fprintf(stderr, "%s %.0f %% of %s\n", title_.c_str(), share * 100,
                 format_bytes(total).c_str());
  }
  std::fflush(stderr);
  drawn_ = true;
}

std::string format_bytes(size_t num_bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(num_bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", num_bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace headrace
