// Artifact files: what runs left in the laboratory's folder, to be listed and read by others.
//
// Names come from clients and the files from whatever ran: nothing outside a run's folder is
// reached, also not by links, and nothing that is no plain file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headrace::lab {

inline constexpr size_t kMaxArtifactBytes = size_t{32} << 20;  // that are read
inline constexpr size_t kMaxListedArtifacts = 200;

struct ArtifactFile {
  std::string name;  // below the run's folder: "stderr.txt", "plots/1.svg"
  int64_t num_bytes = 0;
};

// Of a run, by name; none where it left none. folder: of the laboratory.
std::vector<ArtifactFile> list_artifacts(const std::string& folder, int64_t run_id);
// kNotFound: no such file there; kInvalidArgument: a name that leads outside, or longer than may
// be.
Result<std::string> read_artifact(const std::string& folder, int64_t run_id, std::string_view name);
// By the end of its name, for a header; never a type that a browser runs.
std::string_view artifact_type(std::string_view name);

}  // namespace headrace::lab
