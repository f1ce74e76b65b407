// WaitingRoom: the clients of the scheduler, and whose request starts next.
//
// Clients take turns. Who has the fewest sequences running comes first; among equals, who was given
// the fewest tokens so far (prompt and all that a request may become, given back when it ends
// early). Who comes back after an absence begins where the others are, so nobody saves up turns.
// Within a client who arrived first is first, where each level of priority counts as so much later
// an arrival (SchedulerOptions::priority_age): so a request of low priority is passed by those that
// come a while after it, and by no others. A pure state machine, owned by the scheduler.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "engine/sequence.h"

namespace headrace {

struct Client {
  std::deque<Sequence*> waiting;  // in order (comes_before)
  int num_running = 0;
  int64_t num_given = 0;  // tokens
  // Scratch of one plan.
  int num_ranked = 0;
  int64_t num_wanted = 0;
};

class WaitingRoom {
 public:
  // A new or pre-empted sequence waits, in its place.
  void add(Sequence* sequence);
  // It starts: is charged, and counts as running.
  void start(Sequence* sequence);
  // A running sequence stops; it may be added again.
  void stop(Sequence* sequence);
  // A waiting sequence is gone.
  void remove(Sequence* sequence);

  // The turns of one plan: next_turn() takes the client whose turn it is from those that have
  // someone waiting (null: no more), return_turn() puts it back. Anew after a stop or an add.
  void begin_turns();
  Client* next_turn();
  void return_turn(Client* client);
  // Gives each of these running sequences its rank: how many earlier ones of its client run.
  void rank(const std::vector<Sequence*>& running);

  bool has_none_running(const Sequence& sequence) const;
  // Running sequences by client, who wants fewer tokens first; within a client in order, as
  // they are given.
  void sort_by_wants(std::vector<Sequence*>* sequences);

  int64_t num_waiting() const { return num_waiting_; }
  const std::map<uint64_t, Client>& clients() const { return clients_; }

 private:
  Client& of(const Sequence& sequence);
  void leave(Client* client, uint64_t id);

  std::map<uint64_t, Client> clients_;  // with something waiting or running
  std::vector<Client*> turns_;          // a heap
  int64_t num_waiting_ = 0;
  int64_t turn_ = 0;  // num_given of the client that started last, before that
};

}  // namespace headrace
