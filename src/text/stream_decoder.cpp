#include "text/stream_decoder.h"

#include <algorithm>
#include <utility>

#include "text/joiner.h"

namespace headrace {

namespace {

bool starts_inside_character(const std::string& text) {
  return (static_cast<unsigned char>(text[0]) & 0xC0) == 0x80;
}

// Stop strings that can occur in whole-character text.
std::vector<std::string> usable(std::vector<std::string> stops) {
  std::erase_if(
      stops, [](const std::string& stop) { return stop.empty() || starts_inside_character(stop); });
  return stops;
}

}  // namespace

struct StreamDecoder::State {
  State(const Tokenizer& tokenizer, std::vector<std::string> stop_strings, bool skip_special,
        bool include_stop_string)
      : joiner(tokenizer, skip_special),
        stops(usable(std::move(stop_strings))),
        include_stop(include_stop_string) {}

  // Moves out of `held` what can be shown; a completed stop string ends the stream.
  StreamPiece release(bool is_last) {
    const std::string* found = nullptr;
    size_t found_at = 0;
    size_t found_end = std::string::npos;
    // The stop string that completes first wins, so that the result does not depend on how the text
    // was cut into tokens; of those that end together, the longest.
    for (const std::string& stop : stops) {
      const size_t at = held.find(stop);
      if (at == std::string::npos) continue;
      const size_t end = at + stop.size();
      if (end < found_end || (end == found_end && at < found_at)) {
        found = &stop;
        found_at = at;
        found_end = end;
      }
    }
    if (found != nullptr) {
      last = {.text = "", .stopped = true, .stop = *found};
      StreamPiece piece = last;
      piece.text = held.substr(0, include_stop ? found_end : found_at);
      held.clear();
      return piece;
    }
    const size_t num_shown = is_last ? held.size() : hold_from();
    StreamPiece piece = {.text = held.substr(0, num_shown), .stopped = false, .stop = ""};
    held.erase(0, num_shown);
    return piece;
  }

  // Where the longest end of `held` begins that could still become a stop string.
  size_t hold_from() const {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      for (size_t length = std::min(held.size(), stop.size() - 1); length > longest; --length) {
        if (held.compare(held.size() - length, length, stop, 0, length) == 0) {
          longest = length;
          break;
        }
      }
    }
    return held.size() - longest;
  }

  TokenJoiner joiner;
  std::vector<std::string> stops;
  bool include_stop;
  std::string held;
  StreamPiece last;  // what every call after a stop returns
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, std::vector<std::string> stop_strings,
                             bool skip_special, bool include_stop_string,
                             std::vector<int32_t> context_ids)
    : state_(std::make_unique<State>(tokenizer, std::move(stop_strings), skip_special,
                                     include_stop_string)) {
  std::string before;
  for (const int32_t id : context_ids) state_->joiner.push(id, &before);
}

StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;

StreamPiece StreamDecoder::push(int32_t id) {
  if (state_->last.stopped) return state_->last;
  state_->joiner.push(id, &state_->held);
  return state_->release(false);
}

StreamPiece StreamDecoder::finish() {
  if (state_->last.stopped) return state_->last;
  state_->joiner.finish(&state_->held);
  return state_->release(true);
}

}  // namespace headrace
