#include "checkpoint/digest.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/descriptor.h"

namespace headrace {
namespace {

constexpr size_t kPieceBytes = size_t{8} << 20;
constexpr size_t kCachedBytes = size_t{256} << 10;  // read and summed while they are in the cache

struct FreeMac {
  void operator()(EVP_MAC* mac) const { EVP_MAC_free(mac); }
  void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
};

class Gmac {
 public:
  Gmac() {
    static const std::unique_ptr<EVP_MAC, FreeMac> mac(EVP_MAC_fetch(nullptr, "GMAC", nullptr));
    if (mac != nullptr) context_.reset(EVP_MAC_CTX_new(mac.get()));
    if (context_ == nullptr) throw std::bad_alloc();
    char cipher[] = "AES-128-GCM";
    unsigned char key[16] = {}, iv[12] = {};
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_CIPHER, cipher, 0),
        OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_IV, iv, sizeof(iv)),
        OSSL_PARAM_construct_end()};
    if (EVP_MAC_init(context_.get(), key, sizeof(key), params) != 1) throw std::bad_alloc();
  }

  void add(std::span<const std::byte> bytes) {
    CHECK(EVP_MAC_update(context_.get(), reinterpret_cast<const unsigned char*>(bytes.data()),
                         bytes.size()) == 1);
  }

  Checksum finish() {
    Checksum result;
    size_t num_bytes = 0;
    const bool done = EVP_MAC_final(context_.get(), reinterpret_cast<unsigned char*>(result.data()),
                                    &num_bytes, result.size()) == 1;
    CHECK(done && num_bytes == result.size(), "GMAC gave {} bytes", num_bytes);
    return result;
  }

 private:
  std::unique_ptr<EVP_MAC_CTX, FreeMac> context_;
};

// work(i) for all i below count; the calling thread takes part.
template <typename F>
void on_threads(size_t count, int num_threads, const F& work) {
  std::atomic<size_t> next{0};
  const auto claim = [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  };
  const size_t others = std::min(count, static_cast<size_t>(std::max(num_threads, 1)));
  std::vector<std::jthread> threads;
  try {
    for (size_t i = 1; i < others; ++i) threads.emplace_back(claim);
  } catch (const std::system_error&) {  // no more threads are to be had: fewer do it too
  }
  claim();
}

}  // namespace

FileDigest sha256(std::span<const std::byte> bytes) {
  FileDigest digest;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

FileDigest sha256(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }

Checksum checksum(std::span<const std::byte> bytes) {
  Gmac gmac;
  gmac.add(bytes);
  return gmac.finish();
}

FileDigest content_digest(std::span<const MappedFile> files, int num_threads) {
  std::vector<FileDigest> digests;
  for (const MappedFile& file : files) {
    const std::span<const std::byte> bytes = file.bytes();
    const size_t first = digests.size();
    const size_t count = (bytes.size() + kPieceBytes - 1) / kPieceBytes;
    digests.resize(first + count);
    on_threads(count, num_threads, [&](size_t i) {
      const size_t at = i * kPieceBytes, num_bytes = std::min(kPieceBytes, bytes.size() - at);
      digests[first + i] = sha256(bytes.subspan(at, num_bytes));
      file.release_pages(at, num_bytes);
    });
    const uint64_t size = bytes.size();  // where a file ends counts too
    digests.push_back(sha256(std::as_bytes(std::span(&size, 1))));
  }
  return sha256(std::as_bytes(std::span(digests)));
}

Status read_pieces(const FilePlace& file, std::span<std::byte> memory, size_t piece_bytes,
                   int num_threads, std::span<Checksum> checksums) {
  CHECK(checksums.size() == (memory.size() + piece_bytes - 1) / piece_bytes, "{} pieces",
        checksums.size());
  std::atomic<bool> failed = false;
  std::mutex mutex;
  Status first_failure;
  on_threads(checksums.size(), num_threads, [&](size_t i) {
    if (failed) return;
    Gmac gmac;
    const size_t end = std::min((i + 1) * piece_bytes, memory.size());
    for (size_t at = i * piece_bytes; at < end; at += kCachedBytes) {
      const auto bytes = memory.subspan(at, std::min(kCachedBytes, end - at));
      Status status = read_at(file.descriptor, file.offset + at, bytes, file.path);
      if (!status.ok()) {
        const std::lock_guard lock(mutex);
        if (!failed.exchange(true)) first_failure = std::move(status);
        return;
      }
      gmac.add(bytes);
    }
    checksums[i] = gmac.finish();
  });
  return first_failure;
}

void checksum_pieces(std::span<const std::byte> bytes, size_t piece_bytes, int num_threads,
                     std::span<Checksum> checksums) {
  CHECK(checksums.size() == (bytes.size() + piece_bytes - 1) / piece_bytes, "{} pieces",
        checksums.size());
  on_threads(checksums.size(), num_threads, [&](size_t i) {
    const size_t at = i * piece_bytes;
    checksums[i] = checksum(bytes.subspan(at, std::min(piece_bytes, bytes.size() - at)));
  });
}

}  // namespace headrace
