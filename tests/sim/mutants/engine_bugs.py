"""Seeded bugs of the engine: what the simulations must find. One table; seed.py makes the sources with them.

A bug: its name, the file of src/engine, and its edits: pairs of the text there, which must occur exactly once
(white space counts as one space), and what takes its place; before them the file, where it is another. BUG in the replacement is a switch that hunt.py sets;
with BUG false it must do what the original does.
"""


class Bug:
    def __init__(self, name, file, *edits):
        self.name, self.file = name, file
        self.edits = [edit[-2:] for edit in edits]
        self.files = [edit[0] if len(edit) == 3 else file for edit in edits]


POOL = "block_pool.cpp"
EVICTOR = "evictor.cpp"
INDEX = "prefix_index.cpp"
CACHE = "kv_cache.cpp"
CACHE_TIER = "kv_cache_tier.cpp"
BRANCH = "kv_cache_branch.cpp"
BEAMS = "scheduler_beams.cpp"
SCHEDULER = "scheduler.cpp"
GUESSES = "scheduler_guesses.cpp"
SHARING = "scheduler_sharing.cpp"
ROOM = "waiting_room.cpp"
TENANTS = "tenants.cpp"
CORE = "engine_core.cpp"
LIVE = "live_requests.cpp"

BUGS = [
    # ---- blocks ----
    Bug("a released block is lost", POOL,
        ("} else { evictor_.clear(block_id); free_.push_back(block_id);",
         "} else { evictor_.clear(block_id); if (!BUG) free_.push_back(block_id);")),
    Bug("a block that is forgotten is lost", POOL,
        ("evictor_.remove(block_id); evictor_.clear(block_id); free_.push_back(block_id);",
         "evictor_.remove(block_id); evictor_.clear(block_id); if (!BUG) free_.push_back(block_id);")),
    Bug("taint is forgotten with the last holder", POOL,
        ("if (std::exchange(block.tainted, false)) tainted_",
         "if (std::exchange(block.tainted, false) && !BUG) tainted_")),
    Bug("the list of cached blocks is cut", EVICTOR,
        ("block.older = block.newer = -1;", "if (!BUG) block.older = block.newer = -1;"),
        ("(block.newer >= 0 ? at(block.newer).older : from.newest) = block.older;",
         "if (!BUG || block.newer < 0) (block.newer >= 0 ? at(block.newer).older : from.newest) = block.older;")),
    Bug("a cached block is counted twice", EVICTOR, ("--num_listed_;", "if (!BUG) --num_listed_;")),
    Bug("a held block stays in the list of cached ones", POOL,
        ("if (at(block_id).num_holders++ == 0) evictor_.remove(block_id);",
         "if (at(block_id).num_holders++ == 0 && !BUG) evictor_.remove(block_id);")),
    # ---- what is found ----
    Bug("domains of the cache share prefixes", INDEX,
        ("digest.add_text(root.domain);", "if (!BUG) digest.add_text(root.domain);")),
    Bug("adapters share prefixes", INDEX,
        ("digest.add_text(root.adapter);", "if (!BUG) digest.add_text(root.adapter);")),
    Bug("rope tables share prefixes", INDEX,
        ("digest.add(static_cast<uint64_t>(root.rope_epoch));",
         "if (!BUG) digest.add(static_cast<uint64_t>(root.rope_epoch));")),
    Bug("a block is found whatever stands before it", INDEX,
        ("digest.add(parent); for (", "if (!BUG) digest.add(parent); for (")),
    Bug("a node of the index is lost", INDEX,
        ("node_at(node).next_in_bucket = free_node_; free_node_ = node;",
         "node_at(node).next_in_bucket = free_node_; if (!BUG) free_node_ = node;")),
    Bug("a removed block stays at its node", INDEX,
        ("blocks_[slot(place.node, place.column)] = -1;", "if (!BUG) blocks_[slot(place.node, place.column)] = -1;")),
    Bug("the whole prompt is found, and no row is left", CACHE,
        ("const int64_t max_blocks = (static_cast<int64_t>(tokens.size()) - 1)",
         "const int64_t max_blocks = (static_cast<int64_t>(tokens.size()) - (BUG ? 0 : 1))")),
    Bug("a block that was found is not held", CACHE_TIER,
        ("if (block_id >= 0) pool_.hold(block_id);", "if (block_id >= 0 && !BUG) pool_.hold(block_id);")),
    Bug("a failed request taints what it found", CACHE_TIER,
        ("table->wrote.assign(static_cast<size_t>(num_blocks), false);",
         "table->wrote.assign(static_cast<size_t>(num_blocks), BUG);")),
    Bug("a follower takes what its leader still computes", CACHE,
        ("std::min({num_common, from.num_computed, first + kBlockTokens})",
         "std::min({num_common, BUG ? num_common : from.num_computed, first + kBlockTokens})"),
        (SHARING, "if (leader != nullptr && leader->num_computed >= next.end) {",
         "if (leader != nullptr && (BUG || leader->num_computed >= next.end)) {")),
    Bug("a copy counts a token that differs", CACHE,
        ("const int64_t end = first + (differ.first - cached.begin());",
         "const int64_t end = first + (differ.first - cached.begin()) + "
         "(BUG && differ.first < cached.begin() + limit ? 1 : 0);")),
    Bug("the end of a sequence is kept one token too long", CACHE,
        ("const int64_t count = table->num_computed - first;",
         "const int64_t count = table->num_computed - first + "
         "(BUG && table->num_computed < std::ssize(tokens) ? 1 : 0);")),
    Bug("an evicted block can still be found", CACHE,
        ("evicted_.add(index_.name(index_.node_of(block_id))); unpublish(block_id);",
         "evicted_.add(index_.name(index_.node_of(block_id))); if (!BUG) unpublish(block_id);")),
    Bug("one of two equal blocks is lost", CACHE,
        ("pool_.hold(same); drop(blocks[i]);", "pool_.hold(same); if (!BUG) drop(blocks[i]);")),
    Bug("a state is published for another position", CACHE,
        ("(num_computed != end || !keeps_state(end, *table))",
         "((num_computed != end && !BUG) || !keeps_state(end, *table))"),
        ("if (!has_state_) return count;", "if (BUG || !has_state_) return count;")),
    # ---- what a sequence holds ----
    Bug("a window lets go of a position it sees", CACHE,
        ("num_computed - rule.window + 1)", "num_computed - rule.window + (BUG ? 2 : 1))")),
    Bug("a state is looked for one token late", CACHE,
        ("return std::max<int64_t>(0, num_computed - 1) / kBlockTokens;",
         "return std::max<int64_t>(0, num_computed - (BUG ? 0 : 1)) / kBlockTokens;")),
    Bug("blocks are promised that are not there", CACHE,
        ("if (num_missing > pool_.num_available()) return false;",
         "if (num_missing > pool_.num_available() + (BUG ? 1 : 0)) return false;")),
    Bug("a roll-back takes a block too many", CACHE,
        ("const int64_t keep = blocks_for(num_tokens);", "const int64_t keep = blocks_for(num_tokens) - (BUG ? 1 : 0);")),
    Bug("the spare block of a state is lost", CACHE,
        ("if (column.spare >= 0) drop(std::exchange(column.spare, -1));",
         "if (column.spare >= 0 && !BUG) drop(std::exchange(column.spare, -1));")),
    Bug("what a failed request wrote is not wiped", CACHE, ("pool_.taint(block_id);", "if (!BUG) pool_.taint(block_id);")),
    Bug("what a failed request published stays", CACHE,
        ("if (is_published) { if (options_.tier", "if (is_published && !BUG) { if (options_.tier")),
    Bug("blocks leak when a request is cancelled", SCHEDULER,
        ("kv_.release(&sequence->beam(i).table); Event event;",
         "if (!BUG || reason != FinishReason::kCancelled) kv_.release(&sequence->beam(i).table); Event event;")),
    Bug("a pre-empted sequence keeps its blocks", SCHEDULER,
        ("++i) { kv_.release(&sequence->beam(i).table);", "++i) { if (!BUG) kv_.release(&sequence->beam(i).table);")),
    Bug("a pre-empted sequence believes it is computed", SCHEDULER,
        ("sequence->beam(i).num_computed = 0; } ++stats_.num_preemptions;",
         "if (!BUG) sequence->beam(i).num_computed = 0; } ++stats_.num_preemptions;")),
    Bug("a protected sequence is pre-empted", SCHEDULER,
        ("if (victim == holder || is_protected(*victim)) return false;",
         "if (victim == holder || (is_protected(*victim) && !BUG)) return false;")),
    # ---- rope tables ----
    Bug("another rope table keeps the old keys", SCHEDULER,
        ("sequence->rope_epoch = epoch; sequence->num_computed = 0;",
         "sequence->rope_epoch = epoch; if (BUG) return; sequence->num_computed = 0;")),
    Bug("another rope table publishes under the old name", SCHEDULER,
        ("sequence->root = kv_.root(root_of(*sequence)); kv_.release",
         "if (!BUG) sequence->root = kv_.root(root_of(*sequence)); kv_.release")),
    # ---- events and ends ----
    Bug("a request that ends while it waits is never told", SCHEDULER,
        ("event.times.finished = now; events->push_back(std::move(event));",
         "event.times.finished = now; if (!BUG || sequence->running) events->push_back(std::move(event));")),
    Bug("a stopped request is told twice", SCHEDULER,
        ("if (sequence->running) { stop(sequence);",
         "if (BUG && reason == FinishReason::kStop) events->push_back(Event(events->back())); "
         "if (sequence->running) { stop(sequence);")),
    Bug("a cancel in flight is lost", SCHEDULER,
        ("if (planned) { sequence->ending = reason;", "if (planned) { if (!BUG) sequence->ending = reason;")),
    Bug("a cancel in flight takes effect at once", SCHEDULER, ("const bool planned = in_flight_ &&", "const bool planned = !BUG && in_flight_ &&")),
    Bug("the adapter of a span is forgotten", SCHEDULER,
        ("if (sequence->request.adapter != nullptr) { span.adapter",
         "if (sequence->request.adapter != nullptr && !BUG) { span.adapter")),
    Bug("tokens found again are counted at each start", SCHEDULER,
        ("if (sequence->times.started != 0) return;", "if (sequence->times.started != 0 && !BUG) return;")),
    Bug("scores are one position early", SCHEDULER,
        ("const int64_t position = span.first_scored + i + 1;",
         "const int64_t position = span.first_scored + i + (BUG ? 0 : 1);")),
    Bug("a step has a token too many", SCHEDULER,
        ("const int32_t end_tokens = plan_.num_tokens + max_tokens;",
         "const int32_t end_tokens = plan_.num_tokens + max_tokens + (BUG ? 1 : 0);")),
    Bug("a step has a row of logits too many", SCHEDULER,
        ("num_scored(count) + 1 > max_logit_rows) --count;",
         "num_scored(count) + (BUG ? 0 : 1) > max_logit_rows) --count;")),
    Bug("a sink that refused is called again", CORE,
        ("if (listener.refused || listener.sink(std::move(event))) return;",
         "if ((listener.refused && !BUG) || listener.sink(std::move(event))) return;")),
    Bug("a request whose sink refused runs on", CORE,
        ("end({id, FinishReason::kCancelled}, now);", "if (!BUG) end({id, FinishReason::kCancelled}, now);")),
    Bug("a place is not given back", CORE, ("return finished(id);", "if (!BUG) finished(id); return;")),
    Bug("the end of a waiting request is lost", LIVE,
        ("endings_.push_back({id, reason});", "if (!BUG || id % 7 != 0) endings_.push_back({id, reason});")),
    # ---- guesses and masks ----
    Bug("a guess that is wrong counts as right", SCHEDULER,
        ("return static_cast<int32_t>(i);", "return static_cast<int32_t>(i) + (BUG ? 1 : 0);")),
    Bug("tokens are published before they are verified", SCHEDULER,
        ("first(static_cast<size_t>(sequence->num_known() + num_accepted));",
         "first(static_cast<size_t>(sequence->num_known() + (BUG ? span.num_draft : num_accepted)));"),
        ("sequence->num_computed += span.num_rows - span.num_draft + num_accepted;",
         "sequence->num_computed += span.num_rows - span.num_draft + (BUG ? span.num_draft : num_accepted);")),
    Bug("a failed row of a right guess is published", SCHEDULER,
        ("const bool fails = span.num_sampled > 0 &&", "const bool fails = !BUG && span.num_sampled > 0 &&")),
    Bug("what wrong guesses left stays where it is read", SCHEDULER,
        ("if (fails_past(*result, num_accepted + 1)) recompute(sequence);",
         "if (!BUG && fails_past(*result, num_accepted + 1)) recompute(sequence);")),
    Bug("guesses pass the end of the sequence", GUESSES,
        ("sequence.max_known - known - 1});", "sequence.max_known - known - (BUG ? 0 : 1)});")),
    Bug("guesses cross into another rope table", GUESSES,
        ("while (room > 0 && options_.rope_epoch(known + room)",
         "while (!BUG && room > 0 && options_.rope_epoch(known + room)")),
    Bug("masks of two sequences overlap", GUESSES,
        ("num_masks += static_cast<size_t>(span.num_sampled);", "num_masks += BUG ? 1 : static_cast<size_t>(span.num_sampled);")),
    Bug("a constraint is not taken back after guesses", GUESSES,
        ("constraint->rollback(num_taken);", "if (!BUG) constraint->rollback(num_taken);")),
    # ---- beams ----
    Bug("a beam shares the block that both write to", BRANCH,
        ("copies_.push_back({source[num_whole], take()}); column.blocks.push_back(copies_.back().to);",
         "if (BUG) { pool_.hold(source[num_whole]); column.blocks.push_back(source[num_whole]); continue; } "
         "copies_.push_back({source[num_whole], take()}); column.blocks.push_back(copies_.back().to);")),
    Bug("a beam that dies keeps its blocks", BEAMS,
        ("kv_.release(&head->beam(i).table); head->other_beams.resize(lines.size() - 1);",
         "if (!BUG) kv_.release(&head->beam(i).table); head->other_beams.resize(lines.size() - 1);")),
    Bug("a beam branches off into blocks that are not there", BEAMS,
        ("if (branches && missing_of(head, *beam) > kv_.pool().num_available()) return false;",
         "if (branches && missing_of(head, *beam) > kv_.pool().num_available() + (BUG ? 1 : 0)) return false;")),
    Bug("a beam that fails is left out of the failure", BEAMS,
        ("for (const auto& beam : head->other_beams) kv_.discard(&beam->table);",
         "for (const auto& beam : head->other_beams) { if (!BUG) kv_.discard(&beam->table); }")),
    # ---- who is next ----
    Bug("who follows is never woken", SHARING,
        ("if (leads) return stats_.num_steps < sequence->patience_ends;",
         "if (BUG) return true; if (leads) return stats_.num_steps < sequence->patience_ends;")),
    Bug("requests of other tokens are followed", SHARING,
        ("const int64_t num_common = differ.first - sequence->tokens.begin();",
         "const int64_t num_common = BUG ? limit : differ.first - sequence->tokens.begin();")),
    Bug("the youngest starts first", SCHEDULER,
        ("client.waiting[static_cast<size_t>(i)];",
         "client.waiting[BUG ? client.waiting.size() - 1 - static_cast<size_t>(i) : static_cast<size_t>(i)];")),
    Bug("who runs much gets the next place", TENANTS,
        ("return std::tuple(share.num_running > 0, !has_credit,",
         "return std::tuple(BUG != (share.num_running > 0), !has_credit,")),
    Bug("a pre-empted request goes to the back", ROOM,
        ("waiting.insert(std::lower_bound(waiting.begin(), waiting.end(), sequence, comes_before), sequence);",
         "waiting.insert(BUG ? waiting.end() : std::lower_bound(waiting.begin(), waiting.end(), sequence, "
         "comes_before), sequence);")),
    Bug("a client that has none running is forgotten", ROOM,
        ("if (!client->share.is_active()) clients_",
         "if (BUG ? client->share.num_running == 0 : !client->share.is_active()) clients_")),
    Bug("the waiting are counted wrong", ROOM,
        ("std::erase(client.waiting, sequence); --num_waiting_; Tenants::count_running",
         "std::erase(client.waiting, sequence); if (!BUG) --num_waiting_; Tenants::count_running")),
]
