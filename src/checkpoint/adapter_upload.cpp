#include "checkpoint/adapter_upload.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace headrace {
namespace {

Error keep_error(const std::string& folder) {
  const ErrorCode code =
      errno == ENOSPC || errno == EDQUOT ? ErrorCode::kExhausted : ErrorCode::kIo;
  return make_error(code, "an adapter that was sent cannot be kept in {}: {}", folder,
                    std::strerror(errno));
}

// Not every file system makes files without a name: then it has one for a moment.
Result<Descriptor> open_unnamed(const std::string& folder) {
  Descriptor file(open(folder.c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600));
  if (file.ok()) return file;
  std::string path = folder + "/headrace-adapter-XXXXXX";
  Descriptor named(mkostemp(path.data(), O_CLOEXEC));
  if (!named.ok()) return keep_error(folder);
  unlink(path.c_str());
  return named;
}

Status write_all(int file, std::span<const std::byte> bytes, const std::string& folder) {
  while (!bytes.empty()) {
    const ssize_t count = write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return keep_error(folder);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return {};
}

Status check_size(const char* what, size_t num_bytes, size_t most) {
  if (num_bytes <= most) return {};
  return make_error(ErrorCode::kInvalidArgument, "the {} of the adapter has {} bytes, at most {}",
                    what, num_bytes, most);
}

}  // namespace

Result<std::shared_ptr<const AdapterUpload>> AdapterUpload::keep(
    const std::string& folder, std::string config, std::span<const std::byte> weights) {
  TRY(check_size("configuration", config.size(), kMaxAdapterConfigBytes));
  TRY(check_size("file", weights.size(), kMaxAdapterBytes));
  Descriptor file = TRY(open_unnamed(folder));
  TRY(write_all(file.get(), weights, folder));
  return std::shared_ptr<const AdapterUpload>(
      new AdapterUpload(std::move(config), std::move(file), weights.size()));
}

Result<AdapterFolder> AdapterUpload::read() const {
  AdapterFolder files;
  files.config = config_;
  files.weights = TRY(Buffer::allocate(std::max<size_t>(num_bytes_, 1)));
  files.num_bytes = num_bytes_;
  TRY(read_at(file_.get(), 0, {files.weights.data(), num_bytes_}, "the adapter that was sent"));
  return files;
}

}  // namespace headrace
