#include "checkpoint/hub/store.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "base/log.h"
#include "checkpoint/split_name.h"

namespace headrace::hub {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kDiskReserveBytes = uint64_t{64} << 20;
constexpr size_t kReadBytes = size_t{1} << 20;
constexpr size_t kMaxNameLength = 96;

// One path segment: letters, digits, '-', '_', '.'; neither hidden nor a parent folder.
bool is_segment(std::string_view text) {
  if (text.empty() || text.size() > kMaxNameLength || text.front() == '.') return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

Error bad_name(const std::string& text, std::string_view reason) {
  std::string names;
  for (const NamedModel& row : named_models()) names += fmt::format("{}, ", row.name);
  Error error =
      make_error(ErrorCode::kInvalidArgument, "'{}' is not a model name: {}", text, reason);
  error.hint = fmt::format("known: {}hf:ORG/REPO[@REV][:FILE.gguf], or an http(s) URL", names);
  return error;
}

Result<Spec> parse_repository(const std::string& text) {
  Spec spec;
  spec.kind = SpecKind::kRepository;
  std::string rest = text.substr(3);
  if (const size_t colon = rest.find(':'); colon != std::string::npos) {
    spec.file = rest.substr(colon + 1);
    rest.resize(colon);
    if (!is_safe_path(spec.file) || !spec.file.ends_with(".gguf")) {
      return bad_name(text, "what follows the second colon must be a .gguf file of the repository");
    }
    if (const auto split = parse_split_name(spec.file); split && split->part > 0) {
      return bad_name(text,
                      fmt::format("it is a part of a split model, which goes by its first one, "
                                  "'{}'",
                                  split->of_part(0)));
    }
  }
  spec.revision = "main";
  if (const size_t at = rest.find('@'); at != std::string::npos) {
    spec.revision = rest.substr(at + 1);
    rest.resize(at);
  }
  if (!is_safe_path(spec.revision)) return bad_name(text, "the revision after @ is malformed");
  const size_t slash = rest.find('/');
  if (slash == std::string::npos || !is_segment(rest.substr(0, slash)) ||
      !is_segment(rest.substr(slash + 1))) {
    return bad_name(text, "a repository is written hf:ORG/REPO");
  }
  spec.organisation = rest.substr(0, slash);
  spec.repository = rest.substr(slash + 1);
  spec.place =
      fmt::format("hf/{}--{}@{}", spec.organisation, spec.repository, flattened(spec.revision));
  if (!spec.file.empty()) spec.place += ".gguf/" + flattened(spec.file);
  return spec;
}

Result<Spec> parse_url(const std::string& text) {
  Spec spec;
  spec.kind = SpecKind::kUrl;
  spec.url = text;
  std::string path = text.substr(0, text.find_first_of("?#"));
  const std::string file = path.substr(path.rfind('/') + 1);
  if (!is_segment(file) || !(file.ends_with(".gguf") || file.ends_with(".safetensors"))) {
    return bad_name(text, "a URL must end in a .gguf or .safetensors file name");
  }
  Sha256 digest;
  digest.update(text.data(), text.size());
  spec.place = fmt::format("url/{}/{}", digest.hex().substr(0, 16), file);
  return spec;
}

Error system_error(std::string_view action, const std::string& path) {
  return make_error(ErrorCode::kIo, "cannot {} '{}': {}", action, path, std::strerror(errno));
}

Status sync_path(const std::string& path, int flags) {
  const int descriptor = open(path.c_str(), flags | O_CLOEXEC);
  if (descriptor < 0) return system_error("open", path);
  const bool synced = fsync(descriptor) == 0;
  Error error = system_error("write", path);
  close(descriptor);
  if (!synced) return error;
  return {};
}

}  // namespace

std::string flattened(std::string text) {
  for (size_t at = text.find('/'); at != std::string::npos; at = text.find('/', at)) {
    text.replace(at, 1, "--");
  }
  return text;
}

bool is_safe_path(std::string_view text) {
  while (true) {
    const size_t slash = text.find('/');
    if (!is_segment(text.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    text.remove_prefix(slash + 1);
  }
}

Result<Spec> parse_spec(const std::string& text) {
  for (const NamedModel& row : named_models()) {
    if (row.name != text) continue;
    Spec spec;
    spec.named = &row;
    spec.place = std::string(row.name) + ".gguf";
    std::replace(spec.place.begin(), spec.place.end(), ':', '-');
    return spec;
  }
  if (text.starts_with("hf:")) return parse_repository(text);
  if (text.starts_with("http://") || text.starts_with("https://")) return parse_url(text);
  return bad_name(text, "there is no such name");
}

Result<std::string> place_of(const std::string& name) {
  if (name.starts_with("url/") && is_safe_path(name)) return name;
  return TRY(parse_spec(name)).place;
}

Result<StoreLock> StoreLock::acquire(const std::string& path) {
  TRY(make_folder(fs::path(path).parent_path()));
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) return system_error("create", path);
  StoreLock lock(descriptor);
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    LOG(kInfo, "another process is getting this model: waiting for it");
    while (flock(descriptor, LOCK_EX) != 0) {
      if (errno != EINTR) return system_error("lock", path);
    }
  }
  return lock;
}

StoreLock::~StoreLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

StoreLock::StoreLock(StoreLock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  CHECK(EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_), EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_)); }

void Sha256::update(const void* data, size_t num_bytes) {
  CHECK(EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_), data, num_bytes) == 1);
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int length = 0;
  CHECK(EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_), digest.data(), &length) == 1);
  std::string text;
  for (unsigned int i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

Result<std::string> sha256_of_file(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "rbe"), fclose);
  if (!file) return system_error("open", path);
  Sha256 digest;
  std::vector<char> buffer(kReadBytes);
  while (const size_t num_read = fread(buffer.data(), 1, buffer.size(), file.get())) {
    digest.update(buffer.data(), num_read);
  }
  if (ferror(file.get())) return system_error("read", path);
  return digest.hex();
}

Status make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    return make_error(ErrorCode::kIo, "cannot create the folder '{}': {}", path, error.message());
  }
  return {};
}

Status check_free_space(const std::string& folder, uint64_t num_bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.available >= num_bytes + kDiskReserveBytes) return {};
  Error full = make_error(ErrorCode::kExhausted, "'{}' has {} MiB free, {} MiB are needed", folder,
                          space.available >> 20, (num_bytes + kDiskReserveBytes) >> 20);
  full.hint = "free space, or choose another folder with --store or HEADRACE_HOME";
  return full;
}

Status move_into_place(const std::string& from, const std::string& to) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(from, ignored);
  TRY(sync_path(from, is_folder ? O_RDONLY | O_DIRECTORY : O_RDONLY));
  if (rename(from.c_str(), to.c_str()) != 0) return system_error("create", to);
  return sync_path(fs::path(to).parent_path(), O_RDONLY | O_DIRECTORY);
}

uint64_t file_size_or_zero(const std::string& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  return error ? 0 : size;
}

}  // namespace headrace::hub
