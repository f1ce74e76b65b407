// Digests of files: who they are (SHA-256) and whether their bytes are still whole (GMAC).
//
// GMAC with a constant key is no proof of origin; as a checksum it misses a change of any bytes
// with a chance of 2^-128 and runs at memory speed. Both are OpenSSL's. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/buffer.h"
#include "base/result.h"

namespace headrace {

using FileDigest = std::array<std::byte, 32>;
using Checksum = std::array<std::byte, 16>;

FileDigest sha256(std::span<const std::byte> bytes);
FileDigest sha256(std::string_view text);
Checksum checksum(std::span<const std::byte> bytes);

// SHA-256 over the digests of fixed pieces of all files, on num_threads threads. Pages are released
// as it goes.
FileDigest content_digest(std::span<const MappedFile> files, int num_threads);

// A place in an open file; the path is for messages.
struct FilePlace {
  int descriptor = -1;
  size_t offset = 0;
  std::string path;
};

// Fills `memory` from the file; checksums as below, of the bytes as they arrived in memory: what is
// used is what was checked, whatever happens to the file. On num_threads threads.
Status read_pieces(const FilePlace& file, std::span<std::byte> memory, size_t piece_bytes,
                   int num_threads, std::span<Checksum> checksums);

// checksums[i] of the i-th piece of piece_bytes (the last may be shorter), on num_threads threads.
void checksum_pieces(std::span<const std::byte> bytes, size_t piece_bytes, int num_threads,
                     std::span<Checksum> checksums);

}  // namespace headrace
