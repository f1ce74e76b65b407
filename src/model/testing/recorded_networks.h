// Every recorded network that is read, one after the other: of all families, and quantised ones.
#pragma once

#include <filesystem>
#include <string>

#include "base/testing/golden.h"
#include "model/model.h"

namespace headrace::testing {

// Calls body(name, checkpoint, config) of each; returns how many there were.
template <typename Body>
int each_recorded_network(const Body& body) {
  int num_read = 0;
  for (const char* kind : {"tiny", "quant"}) {
    for (const auto& entry : std::filesystem::directory_iterator(test::archive_root() / kind)) {
      const auto checkpoint = Checkpoint::open(entry.path().string());
      if (!checkpoint.ok()) continue;
      const auto config = Model::read_config(**checkpoint);
      if (!config.ok()) continue;  // recorded so that it is refused
      body(entry.path().filename().string(), **checkpoint, *config);
      ++num_read;
    }
  }
  return num_read;
}

}  // namespace headrace::testing
