#include "cli/pull.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "base/strings.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/hub/hub.h"
#include "cli/command.h"
#include "cli/generate.h"
#include "cli/terminal.h"
#include "server/api/bundle.h"

namespace headrace {
namespace {

constexpr TimeUs kRedrawUs = 200'000;  // on a terminal
constexpr TimeUs kLineUs = 5'000'000;  // in a log
constexpr int kPullBarWidth = 24;

// Rate and time left come from this run's bytes: what an earlier run left is not counted.
class PullProgress {
 public:
  PullProgress(std::string title, bool quiet)
      : title_(std::move(title)), quiet_(quiet), terminal_(has_cursor(STDERR_FILENO)) {}

  void update(uint64_t done_bytes, uint64_t total_bytes) {
    if (quiet_) return;
    const TimeUs now = now_us();
    done_bytes_ = done_bytes;
    total_bytes_ = total_bytes;
    if (start_us_ < 0) {
      start_us_ = now;
      start_bytes_ = done_bytes;
    }
    if (drawn_us_ >= 0 && now - drawn_us_ < (terminal_ ? kRedrawUs : kLineUs)) return;
    drawn_us_ = now;
    drawn_bytes_ = done_bytes;
    draw(done_bytes, total_bytes, now);
  }

  // The last state, and the end of the bar's line. Draws nothing if nothing was transferred.
  void finish() {
    if (drawn_us_ < 0) return;
    if (drawn_bytes_ != done_bytes_) draw(done_bytes_, total_bytes_, now_us());
    if (terminal_) std::fputc('\n', stderr);
  }

 private:
  void draw(uint64_t done_bytes, uint64_t total_bytes, TimeUs now) const {
    const double seconds = static_cast<double>(now - start_us_) * 1e-6;
    const double rate = seconds > 0 && done_bytes > start_bytes_
                            ? static_cast<double>(done_bytes - start_bytes_) / seconds
                            : 0;
    std::string line = title_ + " ";
    if (total_bytes > 0) {
      const double share =
          std::min(1.0, static_cast<double>(done_bytes) / static_cast<double>(total_bytes));
      const int filled = static_cast<int>(share * kPullBarWidth);
      if (terminal_) line += fmt::format("[{:#<{}}{:{}}] ", "", filled, "", kPullBarWidth - filled);
      line += fmt::format("{:3.0f} % ", share * 100);
    }
    line += format_bytes(done_bytes);
    if (total_bytes > 0) line += " of " + format_bytes(total_bytes);
    if (rate > 0) line += fmt::format(", {}/s", format_bytes(static_cast<size_t>(rate)));
    if (rate > 0 && total_bytes > done_bytes) {
      line += fmt::format(", {:.0f} s left", static_cast<double>(total_bytes - done_bytes) / rate);
    }
    // "\x1b[K" clears what a longer line left behind.
    if (terminal_) line = cut_to_terminal(std::move(line));
    std::fprintf(stderr, terminal_ ? "\r%s\x1b[K" : "%s\n", line.c_str());
    std::fflush(stderr);
  }

  std::string title_;
  bool quiet_;
  bool terminal_;
  TimeUs start_us_ = -1;
  TimeUs drawn_us_ = -1;
  uint64_t start_bytes_ = 0;
  uint64_t done_bytes_ = 0;
  uint64_t drawn_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

// A model that cannot chat says so when it comes, not only when it is asked something. What else is
// odd about the files, the command that loads them says.
void say_if_base(const std::string& path) {
  const auto checkpoint = Checkpoint::open(path);
  if (!checkpoint.ok()) return;
  const auto text = TextBundle::load(**checkpoint);
  if (!text.ok() || text->chat_template != nullptr) return;
  std::fprintf(stderr, "note: %s\n", base_model_note().c_str());
}

}  // namespace

Result<std::string> pull_with_progress(const PullArgs& args) {
  PullOptions options = pull_options_from_environment(args.spec);
  options.store_dir = args.store_dir;
  PullProgress progress("pulling " + args.spec, args.quiet);
  options.progress = [&](uint64_t done, uint64_t total) { progress.update(done, total); };
  auto pulled = pull(options);
  progress.finish();
  if (!pulled.ok()) return std::move(pulled).error();
  if (!args.quiet) {
    std::fprintf(stderr, "%s is %s %s\n", args.spec.c_str(),
                 pulled->already_present ? "already in" : "now in", pulled->path.c_str());
  }
  return pulled->path;
}

Result<int> run_pull(const Options& options) {
  std::string spec = options.positionals().front();
  if (const std::string& revision = options.text("--revision"); !revision.empty()) {
    if (!spec.starts_with("hf:") || spec.find('@') != std::string::npos) {
      return make_error(ErrorCode::kInvalidArgument,
                        "--revision goes with hf:ORG/REPO, not with '{}'", spec);
    }
    const size_t file = spec.find(':', 3);
    spec.insert(file == std::string::npos ? spec.size() : file, "@" + revision);
  }
  const bool quiet = options.flag("--quiet");
  const std::string path = TRY(pull_with_progress({spec, options.text("--store"), quiet}));
  if (!quiet) say_if_base(path);
  return 0;
}

}  // namespace headrace
