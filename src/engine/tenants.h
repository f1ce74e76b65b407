// Tenants: who shares the machine with whom, by which weights, and what each was given of it.
//
// A tree: below the root stand tenants, below them further tenants and clients (Request::client); a
// client that no tenant has stands below the root with weight 1. What one is given of a step is the
// larger of its share of the step's rows and its share of the KV blocks (the dominant resource),
// times the time that the step took.
//
// Of siblings who starts next: who has nothing running; then who has credit; then who runs the
// fewest sequences for its weight; then who was given the least for its weight. Credit is what a
// guarantee, a share of all steps, has given and was not used, up to `burst`. Who comes back after
// an absence begins where its siblings are, so nobody saves up more than credit.
//
// Of what is divided in a step each of those that want some has its guarantee, and of the rest that
// its parent has a part by its weight; what one leaves goes to its siblings first. Who used less of
// past steps than its part of them may take more now, up to the rows that it spared, and all but
// the guarantees of others: a token bucket, filled by its part and full at first.
//
// A pure state machine, owned by the scheduler's waiting room. Times are microseconds of steps.
// Sources: dominant resource fairness (Ghodsi et al., NSDI 2011), start-time fair queueing.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace headrace {

// A tenant as it is configured.
struct TenantSpec {
  std::string name;
  std::string parent = {};  // empty: the root
  double weight = 1;        // > 0
  double guarantee = 0;     // of all steps' time, 0 to 1
  double burst_s = 0;       // what of it can be saved up, in seconds of steps
  std::vector<uint64_t> clients = {};
};

inline constexpr size_t kMaxTenants = 256;
inline constexpr size_t kMaxTenantDepth = 8;
inline constexpr double kMostSpareRows = 2048;  // a prompt of usual length at once
inline constexpr double kForgottenRows = 16;    // recent ones, below which they do not count
inline constexpr double kLightUse = 0.25;       // of what siblings use, that leaves one light

// Names are there once, parents exist and make no ring and no more than kMaxTenantDepth levels,
// guarantees fit into that of the parent, numbers are in range, a client is of one tenant.
// kInvalidArgument says which is not.
Status check_tenants(const std::vector<TenantSpec>& specs);

// One place of the tree. Its fields belong to Tenants and WaitingRoom.
struct Share {
  Share* parent = nullptr;
  int depth = 0;
  double weight = 1, guarantee = 0;
  double burst_us = 0;
  int num_running = 0, num_waiting = 0;  // sequences
  double served_us = 0;                  // by weight, in the clock of its siblings
  double clock_us = 0;                   // of its children: where those that run are at least
  double credit_us = 0;
  bool runs_less = true;               // sequences than its part of all, in the last step
  double spare_rows = kMostSpareRows;  // that its part of past steps was more than it used
  double recent_rows = 0;              // computed, those of a second ago counted as a third
  int64_t num_tokens = 0;              // computed since the start
  double step_us = 0;                  // of all steps' time, by its part of their rows
  // Scratch of a step and of a plan.
  int64_t num_rows = 0, num_blocks = 0;
  double least_served_us = 0;  // of the children that run
  bool has_least = false;
  double recent_squares = 0;                         // of the children's recent rows
  int num_present = 0;                               // children that take part and have not left
  double present_weight = 0, present_guarantee = 0;  // of those that took part at first
  double left = 0, left_guarantee = 0;               // what the present have together

  bool is_active() const { return num_running + num_waiting > 0; }
  bool has_rested() const { return spare_rows >= kMostSpareRows; }
  bool is_forgotten() const { return recent_rows < kForgottenRows; }
};

// What is told of a tenant, with those below it.
struct TenantUse {
  std::string name;
  int num_running = 0, num_waiting = 0;
  int64_t num_tokens = 0;  // computed since the start, of prompts and of answers
  double step_s = 0;       // of the engine's steps
};

// What Tenants::charge() counted.
struct ChargedStep {
  int64_t num_rows = 0;
  double keep = 1;  // of what recent rows were before
};

class Tenants {
 public:
  Tenants() = default;
  Tenants(const Tenants&) = delete;  // shares point to each other
  Tenants& operator=(const Tenants&) = delete;

  // Checked ones, instead of those there are. What a tenant was given stays with its name. Shares
  // of clients are void: they are placed and counted anew.
  void set(const std::vector<TenantSpec>& specs);
  // A share for this client, idle. Its counts change by count_*() below.
  Share place(uint64_t client);

  // Of two clients: whether a comes before b, by what they and the tenants above them run and were
  // given. Neither may come before the other.
  static bool goes_before(const Share& a, const Share& b);
  // Whether `taker` may start in the place of a sequence of `holder`: where their ways part, it
  // runs no more for its weight then than the other did before.
  static bool may_take_from(const Share& taker, const Share& holder);
  // So many more sequences of this client wait, or run. Who becomes active catches up.
  static void count_waiting(Share* client, int change);
  static void count_running(Share* client, int change);

  // What the step that charge() counts computed for a client, and what the client holds.
  static void add_step(Share* client, int64_t num_rows, int64_t num_blocks);
  // clients: those that were named by add_step(), each once.
  ChargedStep charge(double took_us, int64_t all_blocks, const std::vector<Share*>& clients);
  // A client that had nothing of the step that was charged last.
  static void rest(Share* client, const ChargedStep& step);
  // After charge(), and rest() of the others: whether of late this client, or a tenant above it,
  // used much less than its siblings did, each weighted by what it used itself.
  static bool is_light(const Share& client);
  // Whether in the last step it ran fewer sequences than its part, and so did each tenant above it
  // that others run beside.
  static bool runs_less(const Share& client);
  // Whether it has no more than one sequence, nor has a tenant above it.
  static bool asks_for_one(const Share& client);

  // Something is divided among these. part_of() is the part of one of them in what is left, for
  // those that have not left; most_of() what guarantees of the others leave it; spare_of() the rows
  // that it may take of the part of others.
  static void begin_division(const std::vector<Share*>& clients);
  static double part_of(const Share& client);
  static double most_of(const Share& client);
  static double spare_of(const Share& client);
  // The rows spared by a client that runs_less() beside others; 0: it does not.
  static double spare_beside(const Share& client);
  static void leave_division(Share* client);

  // Of each tenant, parents first, then of the clients without one, under the name kOthers. Empty
  // where there are no tenants.
  std::vector<TenantUse> uses() const;
  static constexpr const char* kOthers = "other";

 private:
  struct Tenant {
    std::string name;
    Share share;
  };
  Share root_;                            // of it counts, clock and recent rows alone
  Share others_;                          // of it what clients below the root were given
  std::deque<Tenant> tenants_;            // parents before their children; their places are kept
  std::map<uint64_t, Share*> tenant_of_;  // by client
};

}  // namespace headrace
