#include "cli/line_reader.h"

#include <histedit.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <iostream>

#include "cli/terminal.h"

namespace headrace {

struct LineReader::State {
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string prompt;

  ~State() {
    history_end(history);
    el_end(editor);
  }
};

LineReader::LineReader() {
  if (!is_terminal(STDIN_FILENO)) return;
  state_ = std::make_unique<State>();
  state_->editor = el_init("headrace", stdin, stdout, stderr);
  state_->history = history_init();
  HistEvent event;
  history(state_->history, &event, H_SETSIZE, 1000);
  el_set(state_->editor, EL_EDITOR, "emacs");
  el_set(state_->editor, EL_SIGNAL, 0);
  el_set(state_->editor, EL_HIST, history, state_->history);
  el_set(state_->editor, EL_CLIENTDATA, state_.get());
  char* (*show_prompt)(EditLine*) = [](EditLine* editor) {
    State* state = nullptr;
    el_get(editor, EL_CLIENTDATA, &state);
    return state->prompt.data();
  };
  el_set(state_->editor, EL_PROMPT, show_prompt);
}

LineReader::~LineReader() = default;

std::optional<std::string> LineReader::read(const std::string& prompt) {
  std::string line;
  if (state_ == nullptr) {
    if (!std::getline(std::cin, line)) return std::nullopt;
    return line;
  }
  state_->prompt = prompt;
  int num_chars = 0;
  errno = 0;
  const char* text = el_gets(state_->editor, &num_chars);
  if (text == nullptr || num_chars <= 0) {
    if (errno != EINTR) return std::nullopt;
    el_reset(state_->editor);
    std::fputc('\n', stdout);
    return std::string();
  }
  line.assign(text, static_cast<size_t>(num_chars));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  HistEvent event;
  if (!line.empty()) history(state_->history, &event, H_ENTER, line.c_str());
  return line;
}

}  // namespace headrace
