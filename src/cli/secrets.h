// What the list of processes must not show.
#pragma once

namespace headrace {

// Blanks the values of options that are secrets in the program's own arguments, once they have been
// copied: /proc and ps show other users what stands there.
void hide_secrets(int argc, char** argv);

}  // namespace headrace
