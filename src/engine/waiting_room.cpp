#include "engine/waiting_room.h"

#include <algorithm>

#include "base/check.h"

namespace headrace {
namespace {

bool is_later_turn(const Client* a, const Client* b) {
  if (a->num_running != b->num_running) return a->num_running > b->num_running;
  if (a->num_given != b->num_given) return a->num_given > b->num_given;
  return b->waiting.front()->order < a->waiting.front()->order;
}

}  // namespace

Client& WaitingRoom::of(const Sequence& sequence) {
  const auto found = clients_.find(sequence.request.client);
  CHECK(found != clients_.end(), "request {} is of no client", sequence.id);
  return found->second;
}

void WaitingRoom::add(Sequence* sequence) {
  const auto [entry, is_new] = clients_.try_emplace(sequence->request.client);
  Client& client = entry->second;
  if (is_new) client.num_given = turn_;
  auto& waiting = client.waiting;
  waiting.insert(std::lower_bound(waiting.begin(), waiting.end(), sequence, comes_before),
                 sequence);
  ++num_waiting_;
}

void WaitingRoom::start(Sequence* sequence) {
  Client& client = of(*sequence);
  std::erase(client.waiting, sequence);
  --num_waiting_;
  ++client.num_running;
  turn_ = std::max(turn_, client.num_given);
  client.num_given += sequence->max_known - sequence->num_charged;
  sequence->num_charged = sequence->max_known;
}

void WaitingRoom::stop(Sequence* sequence) {
  Client& client = of(*sequence);
  --client.num_running;
  client.num_given -= sequence->num_charged - sequence->num_known();
  sequence->num_charged = sequence->num_known();
  leave(&client, sequence->request.client);
}

void WaitingRoom::remove(Sequence* sequence) {
  Client& client = of(*sequence);
  std::erase(client.waiting, sequence);
  --num_waiting_;
  leave(&client, sequence->request.client);
}

void WaitingRoom::leave(Client* client, uint64_t id) {
  if (client->waiting.empty() && client->num_running == 0) clients_.erase(id);
}

void WaitingRoom::begin_turns() {
  turns_.clear();
  for (auto& [id, client] : clients_) {
    if (!client.waiting.empty()) turns_.push_back(&client);
  }
  std::make_heap(turns_.begin(), turns_.end(), is_later_turn);
}

Client* WaitingRoom::next_turn() {
  if (turns_.empty()) return nullptr;
  std::pop_heap(turns_.begin(), turns_.end(), is_later_turn);
  Client* client = turns_.back();
  turns_.pop_back();
  return client;
}

void WaitingRoom::return_turn(Client* client) {
  if (client->waiting.empty()) return;
  turns_.push_back(client);
  std::push_heap(turns_.begin(), turns_.end(), is_later_turn);
}

void WaitingRoom::rank(const std::vector<Sequence*>& running) {
  for (auto& [id, client] : clients_) client.num_ranked = 0;
  for (Sequence* sequence : running) sequence->rank = of(*sequence).num_ranked++;
}

bool WaitingRoom::has_none_running(const Sequence& sequence) const {
  const auto found = clients_.find(sequence.request.client);
  return found == clients_.end() || found->second.num_running == 0;
}

void WaitingRoom::sort_by_wants(std::vector<Sequence*>* sequences) {
  for (const Sequence* sequence : *sequences) of(*sequence).num_wanted = 0;
  for (const Sequence* sequence : *sequences) of(*sequence).num_wanted += sequence->gap();
  std::sort(sequences->begin(), sequences->end(), [this](const Sequence* a, const Sequence* b) {
    const int64_t wanted_a = of(*a).num_wanted;
    const int64_t wanted_b = of(*b).num_wanted;
    if (wanted_a != wanted_b) return wanted_a < wanted_b;
    return a->request.client != b->request.client ? a->request.client < b->request.client
                                                  : comes_before(a, b);
  });
}

}  // namespace headrace
