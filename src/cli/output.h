// Standard streams: what is printed arrives, or the program says that it did not.
//
// One rule for every command: print to stdout as usual; main asks finish_output() at the end.
#pragma once

#include <string_view>

#include "base/result.h"

namespace headrace {

// First thing in main: a closed standard stream becomes one that fails, so that no file or socket
// opened later takes its number.
void prepare_standard_streams();

// Writes a piece of an answer at once. False if it does not arrive: stop producing.
bool write_output(std::string_view piece);

// Flushes what was printed. kIo with the reason if something of it was lost; kUnavailable if the
// reader has gone (a closed pipe), which is nobody's mistake.
Status finish_output();

}  // namespace headrace
