#include "cli/secrets.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace headrace {
namespace {

constexpr std::string_view kSecretOptions[] = {"--api-key"};

void blank(char* text) { std::fill(text, text + std::strlen(text), 'x'); }

}  // namespace

void hide_secrets(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    for (const std::string_view name : kSecretOptions) {
      if (word == name && i + 1 < argc) blank(argv[i + 1]);
      if (word.starts_with(name) && word.substr(name.size()).starts_with('=')) {
        blank(argv[i] + name.size() + 1);
      }
    }
  }
}

}  // namespace headrace
