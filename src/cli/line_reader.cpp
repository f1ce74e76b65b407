#include "cli/line_reader.h"

#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cwchar>
#include <string_view>
#include <utility>

#include "cli/terminal.h"

namespace headrace {
namespace {

// Bracketed paste: the terminal puts these around pasted text once it is asked to. libedit knows
// nothing of it, so the beginning is bound to a function that takes the text up to the end.
constexpr const char* kAskForBrackets = "\x1b[?2004h";
constexpr const char* kNoMoreBrackets = "\x1b[?2004l";
constexpr const char* kPasteBegin = "\x1b[200~";
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";
constexpr size_t kMaxPaste = size_t{4} << 20;  // characters; what is beyond is dropped
constexpr int kHistoryLines = 1000;

// Waits for bytes and takes at most `size`: their number, 0 at the end of the input, -1 with errno
// (EINTR: interrupted).
ssize_t read_bytes(int interrupt, char* bytes, size_t size) {
  while (true) {
    std::array<pollfd, 2> waiting{{{STDIN_FILENO, POLLIN, 0}, {interrupt, POLLIN, 0}}};
    if (poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR) return -1;
    if (waiting[1].revents != 0) {
      errno = EINTR;
      return -1;
    }
    if (waiting[0].revents != 0) return ::read(STDIN_FILENO, bytes, size);
  }
}

// Newlines as themselves, other control characters but tabs not at all.
void append_pasted(wchar_t c, std::wstring* text) {
  if (c == L'\r') c = L'\n';
  const bool is_control = c < L' ' || (c >= 0x7F && c < 0xA0);
  if (is_control && c != L'\n' && c != L'\t') return;
  if (text->size() < kMaxPaste) *text += c;
}

unsigned char take_paste(EditLine* editor, int) {
  std::wstring text, held;  // held: the part of kPasteEnd that has come so far
  while (held != kPasteEnd) {
    wchar_t c = 0;
    if (el_wgetc(editor, &c) != 1) return CC_EOF;
    held += c;
    while (!held.empty() && !kPasteEnd.starts_with(held)) {
      append_pasted(held.front(), &text);
      held.erase(0, 1);
    }
  }
  while (text.ends_with(L'\n')) text.pop_back();
  if (!text.empty() && el_winsertstr(editor, text.c_str()) != 0) return CC_ERROR;
  return CC_REFRESH;
}

}  // namespace

struct LineReader::State {
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string prompt;
  int interrupt;

  explicit State(int interrupt_descriptor) : interrupt(interrupt_descriptor) {
    editor = el_init("headrace", stdin, stdout, stderr);
    history = history_init();
    HistEvent event;
    ::history(history, &event, H_SETSIZE, kHistoryLines);
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_SIGNAL, 0);
    el_set(editor, EL_HIST, ::history, history);
    el_set(editor, EL_CLIENTDATA, this);
    el_set(editor, EL_GETCFN, read_character);
    el_set(editor, EL_ADDFN, "headrace-paste", "Take pasted text", take_paste);
    el_set(editor, EL_BIND, kPasteBegin, "headrace-paste", nullptr);
    char* (*show_prompt)(EditLine*) = [](EditLine* shown) {
      State* state = nullptr;
      el_get(shown, EL_CLIENTDATA, &state);
      return state->prompt.data();
    };
    el_set(editor, EL_PROMPT, show_prompt);
    if (has_cursor(STDOUT_FILENO)) std::fputs(kAskForBrackets, stdout);
  }
  // One character for the editor; bytes that are no character are left out.
  static int read_character(EditLine* editor, wchar_t* character) {
    State* state = nullptr;
    el_get(editor, EL_CLIENTDATA, &state);
    mbstate_t decoding{};
    while (true) {
      char byte = 0;
      const ssize_t count = read_bytes(state->interrupt, &byte, 1);
      if (count <= 0) return static_cast<int>(count);
      const size_t used = mbrtowc(character, &byte, 1, &decoding);
      if (used == static_cast<size_t>(-1)) decoding = {};
      if (used <= 1) return 1;
    }
  }

  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    history_end(history);
    el_end(editor);
    if (has_cursor(STDOUT_FILENO)) std::fputs(kNoMoreBrackets, stdout);
    std::fflush(stdout);
  }
};

LineReader::LineReader(int interrupt) : interrupt_(interrupt) {
  if (is_terminal(STDIN_FILENO)) state_ = std::make_unique<State>(interrupt);
}

LineReader::~LineReader() = default;

ReadLine LineReader::read_piped() {
  std::array<char, 65536> chunk{};
  while (true) {
    if (const size_t end = unread_.find('\n'); end != std::string::npos) {
      ReadLine line{ReadEnd::kLine, unread_.substr(0, end)};
      unread_.erase(0, end + 1);
      return line;
    }
    const ssize_t count = read_bytes(interrupt_, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) return {ReadEnd::kInterrupted, ""};
    if (count <= 0) break;
    unread_.append(chunk.data(), static_cast<size_t>(count));
  }
  const ReadEnd end = unread_.empty() ? ReadEnd::kEndOfInput : ReadEnd::kLine;
  return {end, std::exchange(unread_, {})};
}

ReadLine LineReader::read(const std::string& prompt) {
  if (state_ == nullptr) return read_piped();
  ReadLine line;
  state_->prompt = prompt;
  std::fflush(stdout);
  el_resize(state_->editor);
  // Before the prompt shows: libedit would do it after, and keys pressed in between would be taken
  // by the terminal's own line editing.
  el_set(state_->editor, EL_PREP_TERM, 1);
  int num_chars = 0;
  errno = 0;
  const char* text = el_gets(state_->editor, &num_chars);
  if (text == nullptr || num_chars <= 0) {
    line.end = errno == EINTR ? ReadEnd::kInterrupted : ReadEnd::kEndOfInput;
    if (line.end == ReadEnd::kInterrupted) el_reset(state_->editor);
    std::fputc('\n', stdout);
    return line;
  }
  line.text.assign(text, static_cast<size_t>(num_chars));
  while (!line.text.empty() && (line.text.back() == '\n' || line.text.back() == '\r')) {
    line.text.pop_back();
  }
  HistEvent event;
  if (!line.text.empty()) history(state_->history, &event, H_ENTER, line.text.c_str());
  return line;
}

}  // namespace headrace
