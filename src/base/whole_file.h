// WholeFile: output under a name that the user chose, there whole or not at all. It has a temporary
// name beside that one until publish(); through a symbolic link the file behind it is replaced, and
// the link stays.
//
// A stream (a FIFO, a device, standard output under whatever name) is no file to replace: it is
// written to as it stands.
#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace headrace {

class WholeFile {
 public:
  // kIo names the path and the reason. Waits for the reader of a FIFO.
  static Result<std::unique_ptr<WholeFile>> create(const std::string& path);
  ~WholeFile();  // what was not published disappears
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  Status write(std::span<const std::byte> bytes);
  Status publish();

 private:
  WholeFile(std::string path, std::string target, std::string partial, FILE* stream)
      : path_(std::move(path)),
        target_(std::move(target)),
        partial_(std::move(partial)),
        stream_(stream) {}
  Error failed(const char* what) const;

  std::string path_;     // for messages
  std::string target_;   // that the links of `path_` lead to
  std::string partial_;  // empty: a stream, or already published
  FILE* stream_;
};

// Whether `path` stands for what keeps all that was ever written to it, so that a later version of
// a file cannot take the place of an earlier one.
bool is_stream(const std::string& path);

}  // namespace headrace
