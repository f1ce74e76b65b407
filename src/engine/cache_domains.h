// CacheDomains: names of cache domains as ids, for as long as anything belongs to them.
//
// Prefixes are shared inside a domain and never between two. The empty name is domain 0 and always
// there; another is forgotten when its last holder drops it, and its id is never used again, so
// names that come and go cost no memory. Engine thread only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>

#include "base/check.h"

namespace headrace {

class CacheDomains {
 public:
  // The id of the name, held once more.
  uint64_t open(const std::string& name) {
    if (name.empty()) return 0;
    const auto [entry, inserted] = by_name_.try_emplace(name);
    if (inserted) {
      entry->second.id = next_id_++;
      by_id_.emplace(entry->second.id, entry);
    }
    ++entry->second.num_holders;
    return entry->second.id;
  }
  void hold(uint64_t id) {
    if (id != 0) ++by_id_.at(id)->second.num_holders;
  }
  void drop(uint64_t id) {
    if (id == 0) return;
    const auto found = by_id_.find(id);
    CHECK(found != by_id_.end(), "cache domain {} is dropped twice", id);
    if (--found->second->second.num_holders > 0) return;
    by_name_.erase(found->second);
    by_id_.erase(found);
  }
  size_t size() const { return by_name_.size(); }

 private:
  struct Entry {
    uint64_t id = 0;
    int64_t num_holders = 0;
  };
  std::map<std::string, Entry> by_name_;  // a tree: no choice of names makes it slow
  std::unordered_map<uint64_t, std::map<std::string, Entry>::iterator> by_id_;
  uint64_t next_id_ = 1;
};

}  // namespace headrace
