// Repositories of a model hub: which files a model needs, and getting them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/hub/pull_options.h"
#include "checkpoint/hub/store.h"

namespace headrace::hub {

struct RepositoryFile {
  std::string name;
  std::string place;       // path below the folder that it is fetched into
  uint64_t num_bytes = 0;  // 0: the hub does not say
  std::string sha256;      // empty: the hub does not say
};

struct RepositoryListing {
  std::string commit;  // what the revision stood for; empty if the hub does not say
  std::vector<RepositoryFile> files;
};

// Reads the hub's answer about a revision. kCorrupt if it is not what a hub says.
Result<RepositoryListing> parse_listing(std::string_view json);

// Gets the files of a safetensors model into the folder `target`, or one GGUF (with the other parts
// of a split one, beside it) to the file `target`. kNotFound, before anything is fetched, names a
// part that the repository lacks.
Status pull_repository(const Spec& spec, const PullOptions& options, const std::string& target);

}  // namespace headrace::hub
