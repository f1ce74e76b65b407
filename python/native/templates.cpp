// headrace-templates: the program in whose processes the Python package renders chat templates
// (text/render_process.h). All it does happens before main(); who starts it by hand gets a line.

#include <cstdio>

#include "text/render_process.h"

int main() {
  headrace::RenderProcess::set_program("");  // so that its file is part of this program
  std::fputs("headrace-templates is started by the Python package headrace, for chat templates\n",
             stderr);
  return 2;
}
