// The bytes of a segment, a file of the store of KV blocks.
//
// A segment is a header and records one behind the other; a record is a header and a block's bytes.
// Everything is as this machine has it in memory: whose bytes may be read at all is decided by the
// identity in the header, which names model, arithmetic and layout (store_folder.h). A header ends
// with the keyed digest of what stands before it, so nobody without the store's key writes one that
// is taken; the block's bytes have a checksum at memory speed (checkpoint/digest.h). A record may
// be marked dead in place: the mark is outside the digest.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "checkpoint/digest.h"
#include "engine/tiers/stored_block.h"

namespace headrace {

inline constexpr uint32_t kStoreVersion = 1;

struct SegmentHeader {
  std::array<char, 8> magic{'H', 'R', 'K', 'V', 'S', 'E', 'G', '\n'};
  uint32_t version = kStoreVersion;
  uint32_t number = 0;       // in the file's name too
  uint64_t block_bytes = 0;  // of each record
  Digest identity;
  Digest check;
};
static_assert(sizeof(SegmentHeader) == 56);

inline constexpr uint32_t kLiveRecord = 0x564b5248, kDeadRecord = 0x444b5248;  // "HRKV", "HRKD"

struct RecordHeader {
  uint32_t state = kLiveRecord;  // not in the check
  int32_t column = 0;
  Digest name;
  std::array<int32_t, kBlockTokens> tokens{};
  Checksum payload{};
  Digest check;
};
static_assert(sizeof(RecordHeader) == 120);

// For a store's files.
struct SegmentRules {
  HashKey key;
  Digest identity;
  uint64_t block_bytes = 0;

  uint64_t record_bytes() const { return sizeof(RecordHeader) + block_bytes; }
};

SegmentHeader make_segment_header(const SegmentRules& rules, uint32_t number);
// Whether this is the header of segment `number` of this store.
bool is_sound(const SegmentHeader& header, const SegmentRules& rules, uint32_t number);

RecordHeader make_record_header(const SegmentRules& rules, uint32_t number,
                                const StoredBlock& block, std::span<const std::byte> bytes);
// What the record holds; nothing if it is none of this segment.
std::optional<StoredBlock> read_record(const RecordHeader& header, const SegmentRules& rules,
                                       uint32_t number);

}  // namespace headrace
