// PrefixIndex: what is cached of which prefix.
//
// A prefix of whole blocks of tokens has a name: the keyed digest of its last 16 tokens and of the
// name of the prefix before them; at the beginning stands a root, the digest of everything else
// that the bytes depend on. Nobody without the key can choose names, so neither buckets nor
// collisions. A node is what is cached of the last 16 tokens of one prefix: a block for each
// column that has one. Tokens are compared on a hit all the same. Nothing allocates after
// construction. Engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "engine/keyed_digest.h"

namespace headrace {

// What the cached bytes of a prefix depend on beside its tokens and the store.
struct PrefixRoot {
  std::string_view domain;   // prefixes are shared inside a domain only
  int64_t rope_epoch = 0;    // Model::rope_epoch
  std::string_view adapter;  // digest of its content; empty: the model alone
  std::string_view media;    // digest of images and the like; empty: none
};

class PrefixIndex {
 public:
  // numerics: names the arithmetic behind the store (engine/numerics.h).
  PrefixIndex(int64_t num_blocks, int num_columns, const HashKey& key, std::string numerics);

  Digest root(const PrefixRoot& root) const;
  // The name of a prefix whose last kBlockTokens tokens these are.
  Digest extend(const Digest& parent, const int32_t* tokens) const;

  // The name of whatever follows a prefix in a block that is not full. One such end is kept.
  Digest end_of(const Digest& parent) const;

  // The node of a prefix, -1 when nothing of it is cached.
  int32_t find(const Digest& digest, const int32_t* tokens) const;
  // The node of an end, -1 when none is kept; and its tokens.
  int32_t find_end(const Digest& digest) const;
  std::span<const int32_t> tokens(int32_t node) const {
    return std::span(node_at(node).tokens).first(static_cast<size_t>(node_at(node).num_tokens));
  }
  // Its block of a column, or -1.
  int32_t block(int32_t node, int column) const { return blocks_[slot(node, column)]; }
  // A node without blocks: the caller attaches one at once. It goes with its last block.
  int32_t add(const Digest& digest, std::span<const int32_t> tokens);
  void attach(int32_t node, int column, int32_t block_id);
  bool contains(int32_t block_id) const { return at(block_id).node >= 0; }
  // Of a block that it contains.
  int column(int32_t block_id) const { return at(block_id).column; }
  int32_t node_of(int32_t block_id) const { return at(block_id).node; }
  const Digest& name(int32_t node) const { return node_at(node).digest; }
  void remove(int32_t block_id);

  // Nodes of the fullest bucket: what the slowest look-up passes. O(blocks); for tests.
  int64_t longest_chain() const;
  // Proves that nodes and blocks refer to each other and each is found by its name. For tests.
  Status check() const;

 private:
  struct Node {
    Digest digest;
    std::array<int32_t, kBlockTokens> tokens{};
    int32_t num_tokens = 0;
    int32_t num_blocks = 0;
    int32_t next_in_bucket = -1;  // or next free node
  };
  struct Place {  // of a block
    int32_t node = -1;
    int32_t column = -1;
  };

  size_t slot(int32_t node, int column) const {
    return static_cast<size_t>(node) * num_columns_ + static_cast<size_t>(column);
  }
  Node& node_at(int32_t node) { return nodes_[static_cast<size_t>(node)]; }
  const Node& node_at(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  Place& at(int32_t block_id) { return places_[static_cast<size_t>(block_id)]; }
  const Place& at(int32_t block_id) const { return places_[static_cast<size_t>(block_id)]; }
  size_t bucket_of(const Digest& digest) const {
    return static_cast<size_t>(digest.first) & (buckets_.size() - 1);
  }
  void unlink(int32_t node);

  const HashKey key_;
  const std::string numerics_;
  const size_t num_columns_;
  std::vector<Node> nodes_;      // as many as blocks: each has at least one
  std::vector<int32_t> blocks_;  // [node, column]
  std::vector<Place> places_;    // by block
  std::vector<int32_t> buckets_;
  int32_t free_node_ = -1;  // head of a list
};

}  // namespace headrace
