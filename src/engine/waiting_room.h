// WaitingRoom: the clients of the scheduler, and whose request starts next.
//
// Clients take turns, by what they and the tenants above them run and were given (tenants.h).
// Within a client who arrived first is first, where each level of priority counts as so much later
// an arrival (SchedulerOptions::priority_age): so a request of low priority is passed by those that
// come a while after it, and by no others. A pure state machine, owned by the scheduler.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "engine/sequence.h"
#include "engine/tenants.h"

namespace headrace {

inline constexpr double kMostLent = 8;          // tokens beyond a part that finish what is wanted
inline constexpr TimeUs kReturnUs = 5'000'000;  // from start to start, of a client that comes again

struct Client {
  std::deque<Sequence*> waiting;  // in order (comes_before)
  Share share;
  double owed_tokens = 0;  // of chunks: what its part was more than it got, from -kMostLent to 1
  // Its newest prompt: when it started, and what it takes by itself. 0: no request started.
  TimeUs started = 0;
  double prompt_us = 0;
  bool is_back = false;  // it started within kReturnUs of the one before
  // Places kept for it, in the plan of that step alone.
  int num_kept = 0;
  uint64_t kept_step = 0;
  // Scratch of one plan.
  bool is_listed = false;
  int32_t num_ranked = 0;
  int64_t tokens_ranked = 0;
  int64_t num_wanted = 0;    // tokens of chunks
  int64_t num_favoured = 0;  // of them, that it may have whatever its part is
};

class WaitingRoom {
 public:
  // A new or pre-empted sequence waits, in its place.
  void add(Sequence* sequence);
  // It starts, and counts as running.
  void start(Sequence* sequence);
  // A running sequence stops; it may be added again.
  void stop(Sequence* sequence);
  // A waiting sequence is gone.
  void remove(Sequence* sequence);

  // A running sequence is about to end for good. Where its client is expected again and runs less
  // than its part, its places are kept from clients that run some in the plan of that step.
  void keep_place(const Sequence& sequence, TimeUs now, uint64_t step_idx);
  // Of the plan whose turns began: the places that are kept from the client of this one.
  int num_kept_from(const Sequence& sequence) const;

  // The turns of one plan: next_turn() takes the client whose turn it is from those that have
  // someone waiting (null: no more), return_turn() puts it back. Anew after a stop or an add.
  void begin_turns(uint64_t step_idx);
  Client* next_turn();
  void return_turn(Client* client);
  // Gives each of these running sequences its rank, how many earlier ones of its client run, and
  // its standing, the tokens of these by the part that its client has among those that run.
  void rank(const std::vector<Sequence*>& running);

  // A request starts for the first time; its prompt would take so long by itself.
  void note_prompt(const Sequence& sequence, double prompt_us, TimeUs now);
  // For the sake of those that come again and again, of the plan whose wants were sorted. How long
  // a step may be: the shortest of what their prompts take, among light clients (Tenants::is_light)
  // and those that ask for one thing at a time while others wait, and are absent; twice that while
  // they have an answer. Empty: there are none.
  std::optional<double> least_patience_us(TimeUs now) const;
  // Of how many rows of chunks the half, with what is favoured, is all that one of the latter
  // wants; the fewest. Empty: none of them wants some.
  std::optional<int64_t> rows_of_halves(TimeUs now) const;
  // Whether a client is expected that runs less than its part beside others, and has spared some.
  bool expects_who_spared(TimeUs now) const;

  bool has_none_running(const Sequence& sequence) const;
  // Running sequences by client, those first that are favoured, of these and of the others who
  // wants fewer for its part; within a client in order, as they are given. Begins a division of
  // tokens among these clients. Favoured are light clients that are expected, and who runs less
  // than its part beside others, as far as it has spared.
  void sort_by_wants(std::vector<Sequence*>* sequences, TimeUs now);
  // Of what these want, in that order: the tokens of favoured ones.
  int64_t num_favoured(const std::vector<Sequence*>& sequences);
  // What the client of this one may take of the tokens, and of the rows, that are left for it and
  // for num_others that have not left the division: its part, of tokens what it spared besides, or
  // what is favoured, and a few that finish what it wants (kMostLent); at least one, and one is
  // left for each of them. Parts of a token, and what was lent, are owed until the next plan.
  int32_t take_part(const Sequence& sequence, int32_t num_tokens, int32_t num_others);
  int32_t part_of(const Sequence& sequence, int32_t num_rows, int32_t num_others);
  void leave_division(const Sequence& sequence) { Tenants::leave_division(&of(sequence).share); }

  // Of this one, which waits or runs. It stays where it is while one of its sequences does.
  static Client& of(const Sequence& sequence);
  // A step computed so many rows for this one, which holds so many blocks; then what all were
  // given.
  static void add_step(Client* client, int64_t num_rows, int64_t num_blocks) {
    Tenants::add_step(&client->share, num_rows, num_blocks);
  }
  void charge(const std::vector<Sequence*>& running, TimeUs took_us, int64_t all_blocks);

  // Checked ones, from the next plan on.
  void set_tenants(const std::vector<TenantSpec>& specs);
  const Tenants& tenants() const { return tenants_; }

  int64_t num_waiting() const { return num_waiting_; }
  const std::map<uint64_t, Client>& clients() const { return clients_; }
  // As Tenants::may_take_from.
  bool may_take_from(const Sequence& taker, const Sequence& holder) {
    return Tenants::may_take_from(of(taker).share, of(holder).share);
  }

 private:
  static bool is_expected(const Client& client, TimeUs now);
  static bool is_light(const Client& client, TimeUs now);
  // Whether it is expected, and asks for one thing at a time while others wait.
  bool is_crowded_out(const Client& client, TimeUs now) const;
  // How long a step may be for the sake of this one.
  std::optional<double> patience_us(const Client& client, TimeUs now) const;
  void leave(Client* client, uint64_t id);
  void list_shares(const std::vector<Sequence*>& sequences);

  Tenants tenants_;
  std::map<uint64_t, Client> clients_;  // with something waiting or running, or not rested
  std::vector<Client*> turns_;          // a heap, unless
  bool turns_changed_ = false;          // somebody started or stopped since
  std::vector<Share*> shares_;          // of a division
  int num_kept_ = 0;                    // places, in the plan whose turns began
  int64_t num_waiting_ = 0;
};

}  // namespace headrace
