#include "engine/prefix_index.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace headrace {

PrefixIndex::PrefixIndex(int64_t num_blocks, int num_columns, const HashKey& key,
                         std::string numerics)
    : key_(key), numerics_(std::move(numerics)), num_columns_(static_cast<size_t>(num_columns)) {
  const auto count = static_cast<size_t>(num_blocks);
  nodes_.resize(count);
  blocks_.assign(count * num_columns_, -1);
  places_.resize(count);
  buckets_.assign(std::bit_ceil(count), -1);
  for (int64_t i = num_blocks - 1; i >= 0; --i) {
    nodes_[static_cast<size_t>(i)].next_in_bucket = free_node_;
    free_node_ = static_cast<int32_t>(i);
  }
}

Digest PrefixIndex::root(const PrefixRoot& root) const {
  KeyedDigest digest(key_);
  digest.add_text(numerics_);
  digest.add_text(root.domain);
  digest.add_text(root.adapter);
  digest.add_text(root.media);
  digest.add(static_cast<uint64_t>(root.rope_epoch));
  return digest.finish();
}

Digest PrefixIndex::extend(const Digest& parent, const int32_t* tokens) const {
  KeyedDigest digest(key_);
  digest.add(parent);
  for (int i = 0; i < kBlockTokens; i += 2) {
    digest.add(uint64_t{static_cast<uint32_t>(tokens[i])} << 32 |
               static_cast<uint32_t>(tokens[i + 1]));
  }
  return digest.finish();
}

Digest PrefixIndex::end_of(const Digest& parent) const {
  KeyedDigest digest(key_);
  digest.add(parent);  // shorter than any whole block
  return digest.finish();
}

int32_t PrefixIndex::find_end(const Digest& digest) const {
  int32_t node = buckets_[bucket_of(digest)];
  while (node >= 0 && node_at(node).digest != digest) node = node_at(node).next_in_bucket;
  return node;
}

int32_t PrefixIndex::find(const Digest& digest, const int32_t* tokens) const {
  int32_t node = buckets_[bucket_of(digest)];
  while (node >= 0) {
    const Node& candidate = node_at(node);
    if (candidate.digest == digest &&
        std::equal(candidate.tokens.begin(), candidate.tokens.end(), tokens)) {
      return node;
    }
    node = candidate.next_in_bucket;
  }
  return -1;
}

int32_t PrefixIndex::add(const Digest& digest, std::span<const int32_t> tokens) {
  const int32_t id = free_node_;
  CHECK(id >= 0, "more prefixes than blocks");
  Node& node = node_at(id);
  free_node_ = node.next_in_bucket;
  node.digest = digest;
  CHECK(tokens.size() <= kBlockTokens, "{} tokens of a block", tokens.size());
  node.num_tokens = static_cast<int32_t>(tokens.size());
  node.tokens.fill(0);
  std::copy(tokens.begin(), tokens.end(), node.tokens.begin());
  int32_t& head = buckets_[bucket_of(digest)];
  node.next_in_bucket = head;
  head = id;
  return id;
}

void PrefixIndex::attach(int32_t node, int column, int32_t block_id) {
  int32_t& place = blocks_[slot(node, column)];
  CHECK(place < 0 && !contains(block_id), "block {} of column {}, where {} is", block_id, column,
        place);
  place = block_id;
  at(block_id) = {node, column};
  ++node_at(node).num_blocks;
}

void PrefixIndex::remove(int32_t block_id) {
  const Place place = std::exchange(at(block_id), {});
  CHECK(place.node >= 0, "block {} is not in the index", block_id);
  blocks_[slot(place.node, place.column)] = -1;
  if (--node_at(place.node).num_blocks == 0) unlink(place.node);
}

void PrefixIndex::unlink(int32_t node) {
  int32_t* link = &buckets_[bucket_of(node_at(node).digest)];
  while (*link != node) {
    CHECK(*link >= 0, "node {} is not in its bucket", node);
    link = &node_at(*link).next_in_bucket;
  }
  *link = node_at(node).next_in_bucket;
  node_at(node).next_in_bucket = free_node_;
  free_node_ = node;
}

int64_t PrefixIndex::longest_chain() const {
  int64_t longest = 0;
  for (int32_t node : buckets_) {
    int64_t length = 0;
    for (; node >= 0; node = node_at(node).next_in_bucket) ++length;
    longest = std::max(longest, length);
  }
  return longest;
}

Status PrefixIndex::check() const {
  int64_t num_free = 0, num_linked = 0;
  for (int32_t node = free_node_; node >= 0; node = node_at(node).next_in_bucket) ++num_free;
  for (int32_t node : buckets_) {
    for (; node >= 0; node = node_at(node).next_in_bucket, ++num_linked) {
      const Node& own = node_at(node);
      int32_t num_blocks = 0;
      for (int column = 0; column < static_cast<int>(num_columns_); ++column) {
        const int32_t block_id = block(node, column);
        if (block_id < 0) continue;
        ++num_blocks;
        if (at(block_id).node != node || at(block_id).column != column) {
          return make_error(ErrorCode::kInternal, "block {} is not of node {}", block_id, node);
        }
      }
      if (num_blocks == 0 || num_blocks != own.num_blocks ||
          find(own.digest, own.tokens.data()) != node) {
        return make_error(ErrorCode::kInternal, "node {} has {} blocks, {} counted", node,
                          num_blocks, own.num_blocks);
      }
    }
  }
  const auto num_nodes = static_cast<int64_t>(nodes_.size());
  if (num_free + num_linked == num_nodes) return {};
  return make_error(ErrorCode::kInternal, "{} free and {} linked nodes of {}", num_free, num_linked,
                    num_nodes);
}

}  // namespace headrace
