// headrace key NAME: a fresh API key, and its line for the file of --api-key-file.

#include <cstdio>

#include "cli/command.h"
#include "server/api_keys.h"

namespace headrace {

// The key is shown once and kept nowhere, so standard output may go into the file.
Result<int> run_key(const Options& options) {
  const KeyScopes scopes = TRY(parse_scopes(options.text("--scopes")));
  const NewApiKey made = TRY(make_api_key(options.positionals()[0], scopes));
  std::fprintf(stderr, "key: %s\n", made.key.c_str());
  std::printf("%s\n", made.line.c_str());
  return 0;
}

}  // namespace headrace
