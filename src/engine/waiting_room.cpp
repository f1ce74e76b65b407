#include "engine/waiting_room.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace headrace {
namespace {

constexpr double kRounding = 1e-6;

bool has_later_turn(const Client* a, const Client* b) {
  if (Tenants::goes_before(a->share, b->share)) return false;
  if (Tenants::goes_before(b->share, a->share)) return true;
  return a->waiting.front()->order > b->waiting.front()->order;
}

int32_t whole_part(double part, int32_t num_all, int32_t num_others) {
  const auto whole = static_cast<int32_t>(part + kRounding);
  return std::min(std::max(1, whole), std::max(0, num_all - num_others));
}

}  // namespace

Client& WaitingRoom::of(const Sequence& sequence) {
  CHECK(sequence.client != nullptr, "request {} neither waits nor runs", sequence.id);
  return *sequence.client;
}

void WaitingRoom::add(Sequence* sequence) {
  const auto [entry, is_new] = clients_.try_emplace(sequence->request.client);
  Client& client = entry->second;
  if (is_new) client.share = tenants_.place(sequence->request.client);
  for (size_t i = 0; i < sequence->num_beams(); ++i) sequence->beam(i).client = &client;
  Tenants::count_waiting(&client.share, 1);
  auto& waiting = client.waiting;
  waiting.insert(std::lower_bound(waiting.begin(), waiting.end(), sequence, comes_before),
                 sequence);
  ++num_waiting_;
}

void WaitingRoom::start(Sequence* sequence) {
  Client& client = of(*sequence);
  std::erase(client.waiting, sequence);
  --num_waiting_;
  Tenants::count_running(&client.share, 1);
  Tenants::count_waiting(&client.share, -1);
  const int num_taken = std::min(client.num_kept, static_cast<int>(sequence->num_slots()));
  client.num_kept -= num_taken;
  num_kept_ -= num_taken;
  turns_changed_ = true;
}

void WaitingRoom::stop(Sequence* sequence) {
  Client& client = of(*sequence);
  Tenants::count_running(&client.share, -1);
  turns_changed_ = true;
  sequence->client = nullptr;
  leave(&client, sequence->request.client);
}

void WaitingRoom::remove(Sequence* sequence) {
  Client& client = of(*sequence);
  std::erase(client.waiting, sequence);
  --num_waiting_;
  Tenants::count_waiting(&client.share, -1);
  sequence->client = nullptr;
  leave(&client, sequence->request.client);
}

void WaitingRoom::leave(Client* client, uint64_t id) {
  const Share& share = client->share;
  if (!share.is_active() && share.has_rested() && share.is_forgotten()) clients_.erase(id);
}

void WaitingRoom::keep_place(const Sequence& sequence, TimeUs now, uint64_t step_idx) {
  Client& client = of(sequence);
  if (!is_expected(client, now) || !Tenants::runs_less(client.share)) return;
  if (std::exchange(client.kept_step, step_idx) != step_idx) client.num_kept = 0;
  client.num_kept += static_cast<int>(sequence.num_slots());
}

int WaitingRoom::num_kept_from(const Sequence& sequence) const {
  return num_kept_ - of(sequence).num_kept;
}

void WaitingRoom::begin_turns(uint64_t step_idx) {
  turns_.clear();
  num_kept_ = 0;
  for (auto& [id, client] : clients_) {
    if (client.kept_step != step_idx) client.num_kept = 0;
    num_kept_ += client.num_kept;
    if (!client.waiting.empty()) turns_.push_back(&client);
  }
  turns_changed_ = true;
}

// A start changes the turns of all clients of its tenants.
Client* WaitingRoom::next_turn() {
  if (std::exchange(turns_changed_, false)) {
    std::make_heap(turns_.begin(), turns_.end(), has_later_turn);
  }
  if (turns_.empty()) return nullptr;
  std::pop_heap(turns_.begin(), turns_.end(), has_later_turn);
  Client* client = turns_.back();
  turns_.pop_back();
  return client;
}

void WaitingRoom::return_turn(Client* client) {
  if (client->waiting.empty()) return;
  turns_.push_back(client);
  if (!turns_changed_) std::push_heap(turns_.begin(), turns_.end(), has_later_turn);
}

void WaitingRoom::rank(const std::vector<Sequence*>& running) {
  list_shares(running);
  Tenants::begin_division(shares_);
  for (auto& [id, client] : clients_) {
    client.num_ranked = 0;
    client.tokens_ranked = 0;
  }
  for (Sequence* sequence : running) {
    Client& client = of(*sequence);
    sequence->rank = client.num_ranked++;
    sequence->standing = static_cast<double>(client.tokens_ranked) / Tenants::part_of(client.share);
    client.tokens_ranked += sequence->num_known();
  }
}

// Each client of these once, in their order.
void WaitingRoom::list_shares(const std::vector<Sequence*>& sequences) {
  for (const Sequence* sequence : sequences) of(*sequence).is_listed = false;
  shares_.clear();
  for (const Sequence* sequence : sequences) {
    Client& client = of(*sequence);
    if (!std::exchange(client.is_listed, true)) shares_.push_back(&client.share);
  }
}

void WaitingRoom::note_prompt(const Sequence& sequence, double prompt_us, TimeUs now) {
  Client& client = of(sequence);
  client.is_back = client.started != 0 && now - client.started < kReturnUs;
  client.started = now;
  client.prompt_us = prompt_us;
}

bool WaitingRoom::is_expected(const Client& client, TimeUs now) {
  return client.is_back && now - client.started < kReturnUs;
}

bool WaitingRoom::is_light(const Client& client, TimeUs now) {
  return is_expected(client, now) && Tenants::is_light(client.share);
}

bool WaitingRoom::is_crowded_out(const Client& client, TimeUs now) const {
  return num_waiting_ > 0 && is_expected(client, now) && Tenants::asks_for_one(client.share);
}

std::optional<double> WaitingRoom::patience_us(const Client& client, TimeUs now) const {
  if (is_light(client, now)) return client.prompt_us;
  if (client.num_wanted > 0 || !is_crowded_out(client, now)) return std::nullopt;
  return client.share.is_active() ? 2 * client.prompt_us : client.prompt_us;
}

std::optional<double> WaitingRoom::least_patience_us(TimeUs now) const {
  std::optional<double> least;
  for (const auto& [id, client] : clients_) {
    const std::optional<double> us = patience_us(client, now);
    if (us && (!least || *us < *least)) least = us;
  }
  return least;
}

std::optional<int64_t> WaitingRoom::rows_of_halves(TimeUs now) const {
  std::optional<int64_t> least;
  for (const auto& [id, client] : clients_) {
    if (client.num_wanted == 0 || !is_crowded_out(client, now)) continue;
    const int64_t rows = std::max(client.num_wanted, 2 * (client.num_wanted - client.num_favoured));
    least = least ? std::min(*least, rows) : rows;
  }
  return least;
}

bool WaitingRoom::expects_who_spared(TimeUs now) const {
  return std::any_of(clients_.begin(), clients_.end(), [&](const auto& entry) {
    const Client& client = entry.second;
    return is_expected(client, now) && Tenants::spare_beside(client.share) > 0;
  });
}

bool WaitingRoom::has_none_running(const Sequence& sequence) const {
  return of(sequence).share.num_running == 0;
}

void WaitingRoom::sort_by_wants(std::vector<Sequence*>* sequences, TimeUs now) {
  for (auto& [id, client] : clients_) client.num_wanted = client.num_favoured = 0;
  for (const Sequence* sequence : *sequences) of(*sequence).num_wanted += sequence->gap();
  for (auto& [id, client] : clients_) {
    if (client.num_wanted == 0) continue;
    const auto spared = static_cast<int64_t>(Tenants::spare_beside(client.share));
    client.num_favoured =
        is_light(client, now) ? client.num_wanted : std::min(client.num_wanted, spared);
  }
  list_shares(*sequences);
  Tenants::begin_division(shares_);
  const auto wanted = [](const Sequence* sequence) {
    const Client& client = of(*sequence);
    return static_cast<double>(client.num_wanted) / Tenants::part_of(client.share);
  };
  std::sort(sequences->begin(), sequences->end(), [&](const Sequence* a, const Sequence* b) {
    if (a->request.client == b->request.client) return comes_before(a, b);
    const bool favours_a = of(*a).num_favoured > 0, favours_b = of(*b).num_favoured > 0;
    if (favours_a != favours_b) return favours_a;
    const double wanted_a = wanted(a), wanted_b = wanted(b);
    return wanted_a != wanted_b ? wanted_a < wanted_b : a->request.client < b->request.client;
  });
}

int64_t WaitingRoom::num_favoured(const std::vector<Sequence*>& sequences) {
  int64_t num_tokens = 0;
  const Client* last = nullptr;
  for (const Sequence* sequence : sequences) {
    const Client& client = of(*sequence);
    if (std::exchange(last, &client) == &client) continue;
    num_tokens += client.num_favoured;
  }
  return num_tokens;
}

int32_t WaitingRoom::take_part(const Sequence& sequence, int32_t num_tokens, int32_t num_others) {
  Client& client = of(sequence);
  client.owed_tokens += num_tokens * Tenants::part_of(client.share);
  const double most = num_tokens * Tenants::most_of(client.share);
  const auto wanted = static_cast<double>(client.num_wanted);
  const double more =
      std::max(Tenants::spare_of(client.share), static_cast<double>(client.num_favoured));
  double part = client.owed_tokens + more;
  // A few tokens that are left over would cost a step of their own.
  if (part < wanted && wanted - part <= kMostLent) part = wanted;
  const int32_t whole = whole_part(std::min(part, most), num_tokens, num_others);
  client.owed_tokens = std::clamp(client.owed_tokens - whole, -kMostLent, 1.0);
  return whole;
}

int32_t WaitingRoom::part_of(const Sequence& sequence, int32_t num_rows, int32_t num_others) {
  return whole_part(num_rows * Tenants::part_of(of(sequence).share), num_rows, num_others);
}

void WaitingRoom::charge(const std::vector<Sequence*>& running, TimeUs took_us,
                         int64_t all_blocks) {
  list_shares(running);
  const auto step_us = static_cast<double>(std::max<TimeUs>(1, took_us));
  const ChargedStep step = tenants_.charge(step_us, all_blocks, shares_);
  for (auto entry = clients_.begin(); entry != clients_.end();) {
    Client& client = entry->second;
    const uint64_t id = entry->first;
    ++entry;
    if (client.share.num_running > 0) continue;
    Tenants::rest(&client.share, step);
    leave(&client, id);
  }
}

void WaitingRoom::set_tenants(const std::vector<TenantSpec>& specs) {
  tenants_.set(specs);
  for (auto& [id, client] : clients_) {
    const int num_running = client.share.num_running, num_waiting = client.share.num_waiting;
    const double spare_rows = client.share.spare_rows, recent_rows = client.share.recent_rows;
    client.share = tenants_.place(id);
    client.share.spare_rows = spare_rows;
    client.share.recent_rows = recent_rows;
    Tenants::count_waiting(&client.share, num_waiting);
    Tenants::count_running(&client.share, num_running);
  }
}

}  // namespace headrace
