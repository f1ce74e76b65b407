// The folder of pulled models: names to places, locks, digests, and files that appear whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "checkpoint/hub/named_models.h"

namespace headrace::hub {

enum class SpecKind : uint8_t { kNamed, kRepository, kUrl };

// A pull name, taken apart. Every part is safe as a file name.
struct Spec {
  SpecKind kind = SpecKind::kNamed;
  const NamedModel* named = nullptr;
  std::string organisation, repository, revision, file;  // kRepository
  std::string url;                                       // kUrl
  std::string place;  // path below the store: the model's file or folder
};

// kInvalidArgument says which forms are known.
Result<Spec> parse_spec(const std::string& text);

// The path below the store of a name, also of one that says its place itself ("url/DIGEST/FILE").
Result<std::string> place_of(const std::string& name);

// Path segments of letters, digits, '-', '_' and '.', none hidden and none a parent folder.
bool is_safe_path(std::string_view text);

std::string flattened(std::string path);  // "a/b" as one segment: "a--b"

// Held while one model is pulled; another process that pulls the same model waits. Released when
// the object goes, also when the process dies.
class StoreLock {
 public:
  // Creates the folder that `path` lies in.
  static Result<StoreLock> acquire(const std::string& path);
  ~StoreLock();
  StoreLock(StoreLock&& other) noexcept;
  StoreLock& operator=(StoreLock&&) = delete;

 private:
  explicit StoreLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(const void* data, size_t num_bytes);
  std::string hex();  // ends the computation; once

 private:
  void* context_;
};

Result<std::string> sha256_of_file(const std::string& path);
Status make_folder(const std::string& path);
// kExhausted if the disk of `folder` has less than this and a reserve of 64 MiB.
Status check_free_space(const std::string& folder, uint64_t num_bytes);
// Writes both names' state to disk: after a crash there is the whole file or none.
Status move_into_place(const std::string& from, const std::string& to);
uint64_t file_size_or_zero(const std::string& path);

}  // namespace headrace::hub
