// StoreFolder: the folder in which blocks outlive the process, confined and held by one writer.
//
// Below the folder that the operator names stand a secret key (16 bytes, which nobody else may
// read) and a folder for each identity: what the bytes of a block depend on beside its name. A
// server with another model or other options finds nothing here and leaves what it finds alone, but
// for the limit of size, which all of them share: the others may keep half of it, the newest.
// Links are not followed below the folder; what is made is for this user alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "base/result.h"
#include "engine/keyed_digest.h"

namespace headrace {

struct StoreFact {
  std::string label, value;  // a line of text each
};
using StoreIdentity = std::vector<StoreFact>;

class StoreFolder {
 public:
  // max_bytes: of all identities. kPermission when others may write there, kCorrupt when the key is
  // none, kIo with the system's reason.
  static Result<StoreFolder> open(const std::string& path, const StoreIdentity& identity,
                                  uint64_t max_bytes);

  // The secret of the folder, which is made if it is not there. Errors as of open().
  static Result<HashKey> key_of(const std::string& path);

  int descriptor() const { return folder_.get(); }
  const std::string& path() const { return path_; }  // of this identity, for messages
  // False: another process writes there; then nothing there is touched or read.
  bool is_writer() const { return is_writer_; }
  const HashKey& key() const { return key_; }
  Digest identity() const { return identity_; }
  uint64_t max_bytes() const { return max_bytes_; }  // what is left for this identity

 private:
  StoreFolder(std::string path, Descriptor folder, Descriptor lock)
      : path_(std::move(path)), folder_(std::move(folder)), lock_(std::move(lock)) {}

  std::string path_;
  Descriptor folder_;
  Descriptor lock_;
  bool is_writer_ = false;
  HashKey key_;
  Digest identity_;
  uint64_t max_bytes_ = 0;
};

// Names in a folder, sorted; nothing when it cannot be read.
std::vector<std::string> names_in(int folder);

}  // namespace headrace
