#include "engine/tiers/segment_format.h"

#include <cstddef>
#include <cstring>

namespace headrace {
namespace {

Digest keyed_digest(const HashKey& key, uint32_t number, std::span<const std::byte> bytes) {
  KeyedDigest digest(key);
  digest.add(uint64_t{number});
  digest.add_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return digest.finish();
}

Digest check_of(const SegmentHeader& header, const HashKey& key) {
  return keyed_digest(key, header.number,
                      std::as_bytes(std::span(&header, 1)).first(offsetof(SegmentHeader, check)));
}

Digest check_of(const RecordHeader& header, const HashKey& key, uint32_t number) {
  constexpr size_t kBegin = offsetof(RecordHeader, column);
  return keyed_digest(
      key, number,
      std::as_bytes(std::span(&header, 1)).subspan(kBegin, offsetof(RecordHeader, check) - kBegin));
}

}  // namespace

SegmentHeader make_segment_header(const SegmentRules& rules, uint32_t number) {
  SegmentHeader header;
  header.number = number;
  header.block_bytes = rules.block_bytes;
  header.identity = rules.identity;
  header.check = check_of(header, rules.key);
  return header;
}

bool is_sound(const SegmentHeader& header, const SegmentRules& rules, uint32_t number) {
  const SegmentHeader expected = make_segment_header(rules, number);
  return std::memcmp(&header, &expected, sizeof(header)) == 0;
}

RecordHeader make_record_header(const SegmentRules& rules, uint32_t number,
                                const StoredBlock& block, std::span<const std::byte> bytes) {
  RecordHeader header;
  header.column = block.key.column;
  header.name = block.key.name;
  header.tokens = block.tokens;
  header.payload = checksum(bytes);
  header.check = check_of(header, rules.key, number);
  return header;
}

std::optional<StoredBlock> read_record(const RecordHeader& header, const SegmentRules& rules,
                                       uint32_t number) {
  if (header.state != kLiveRecord && header.state != kDeadRecord) return std::nullopt;
  if (header.check != check_of(header, rules.key, number)) return std::nullopt;
  StoredBlock block;
  block.key = {header.name, header.column};
  block.tokens = header.tokens;
  return block;
}

}  // namespace headrace
