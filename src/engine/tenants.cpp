#include "engine/tenants.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace headrace {
namespace {

constexpr double kMaxWeight = 1e6;
constexpr double kMaxBurst = 86'400;        // seconds
constexpr double kLeastCreditUs = 100'000;  // that a guarantee saves up, whatever its burst

template <typename... Args>
Error wrong_tenant(const TenantSpec& spec, fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kInvalidArgument, "tenant '{}' {}", spec.name,
                    fmt::format(format, std::forward<Args>(args)...));
}

Status check_value(const TenantSpec& spec, std::string_view what, double value, double low,
                   double high) {
  if (std::isfinite(value) && value >= low && value <= high) return {};
  return wrong_tenant(spec, "has the {} {}, but it must be from {} to {}", what, value, low, high);
}

using SpecsByName = std::map<std::string_view, const TenantSpec*>;

Status check_parents(const SpecsByName& specs, const TenantSpec& spec) {
  const TenantSpec* each = &spec;
  size_t depth = 1;
  for (; !each->parent.empty(); ++depth) {
    const auto parent = specs.find(each->parent);
    if (parent == specs.end()) {
      return wrong_tenant(*each, "has the parent '{}', which is no tenant", each->parent);
    }
    if (depth > specs.size()) return wrong_tenant(*each, "is below itself");
    each = parent->second;
  }
  if (depth <= kMaxTenantDepth) return {};
  return wrong_tenant(spec, "stands on level {}, but there may be {}", depth, kMaxTenantDepth);
}

// What siblings are guaranteed together, their parent is guaranteed.
Status check_guarantees(const SpecsByName& specs) {
  constexpr double kRounding = 1e-9;
  std::map<std::string_view, double> sums;
  for (const auto& [name, spec] : specs) sums[spec->parent] += spec->guarantee;
  for (const auto& [parent, sum] : sums) {
    const double most = parent.empty() ? 1 : specs.at(parent)->guarantee;
    if (sum <= most + kRounding) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "the tenants below {} are guaranteed {} together, but it has {} to give",
                      parent.empty() ? "the root" : fmt::format("'{}'", parent), sum, most);
  }
  return {};
}

Status check_clients(const std::vector<TenantSpec>& specs) {
  std::map<uint64_t, const TenantSpec*> owners;
  for (const TenantSpec& spec : specs) {
    for (const uint64_t client : spec.clients) {
      const auto [owner, is_new] = owners.try_emplace(client, &spec);
      if (!is_new) {
        return wrong_tenant(spec, "has a client that '{}' has too", owner->second->name);
      }
    }
  }
  return {};
}

// Of siblings; what they run for their weight decides before what they were given, since that
// follows only when steps have run.
bool sibling_goes_before(const Share& a, const Share& b) {
  const auto order = [](const Share& share) {
    const bool has_credit = share.credit_us > 0;
    return std::tuple(share.num_running > 0, !has_credit, share.num_running / share.weight,
                      share.served_us);
  };
  return order(a) < order(b);
}

// Of two places of the tree, the siblings that they are below, or are.
std::pair<const Share*, const Share*> siblings_above(const Share& a, const Share& b) {
  const Share* left = &a;
  const Share* right = &b;
  while (left->depth > right->depth) left = left->parent;
  while (right->depth > left->depth) right = right->parent;
  while (left->parent != right->parent) {
    left = left->parent;
    right = right->parent;
  }
  return {left, right};
}

double part_of_all(int64_t part, int64_t all) {
  return all == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(all);
}

// Of a tenant: one that is below it is yet to come, or those below it take part.
void begin_part(Share* tenant) {
  tenant->num_present = 0;
  tenant->present_weight = tenant->present_guarantee = 0;
}
bool has_part(const Share& tenant) { return tenant.num_present > 0; }

// What a place has of all that is divided, while nobody has left; one that takes no part, what it
// would have beside those that do.
double quota_of(const Share& share, bool takes_part = true) {
  if (share.parent == nullptr) return 1;
  const Share& parent = *share.parent;
  const double guarantees = parent.present_guarantee + (takes_part ? 0 : share.guarantee);
  const double weights = parent.present_weight + (takes_part ? 0 : share.weight);
  return share.guarantee +
         std::max(0.0, quota_of(parent, has_part(parent)) - guarantees) * share.weight / weights;
}

void spare(Share* share, double num_rows) {
  share->spare_rows = std::clamp(share->spare_rows + num_rows, 0.0, kMostSpareRows);
}

constexpr double kRecentUs = 1e6;

// What a place and its siblings used of late.
void remember(Share* share, double keep) {
  share->recent_rows = share->recent_rows * keep + static_cast<double>(share->num_rows);
  if (share->parent != nullptr)
    share->parent->recent_squares += share->recent_rows * share->recent_rows;
}

// The step and all of its rows, and all blocks that there are.
struct StepCharge : ChargedStep {
  double took_us = 0;
  int64_t num_blocks = 0;
  int num_running = 0;  // sequences
};

void count_use(Share* share, int64_t num_rows, const StepCharge& step) {
  share->num_tokens += num_rows;
  share->step_us += step.took_us * part_of_all(num_rows, step.num_rows);
}

void charge_one(Share* share, const StepCharge& step, bool takes_part) {
  count_use(share, share->num_rows, step);
  const double took_us = step.took_us;
  const double given = took_us * std::max(part_of_all(share->num_rows, step.num_rows),
                                          part_of_all(share->num_blocks, step.num_blocks));
  share->served_us += given / share->weight;
  const double most = std::max(share->burst_us, kLeastCreditUs);
  const double credit = share->credit_us + took_us * share->guarantee - given;
  share->credit_us = share->guarantee > 0 ? std::clamp(credit, 0.0, most) : 0.0;
  const double quota = quota_of(*share, takes_part);
  share->runs_less = share->num_running < quota * step.num_running;
  spare(share, quota * static_cast<double>(step.num_rows) - static_cast<double>(share->num_rows));
  remember(share, step.keep);
  share->num_rows = share->num_blocks = 0;
  Share* parent = share->parent;
  if (share->num_running == 0 || parent == nullptr) return;
  parent->least_served_us =
      parent->has_least ? std::min(parent->least_served_us, share->served_us) : share->served_us;
  parent->has_least = true;
}

void advance_clock(Share* share) {
  if (share->has_least) share->clock_us = std::max(share->clock_us, share->least_served_us);
  share->has_least = false;
}

}  // namespace

Status check_tenants(const std::vector<TenantSpec>& specs) {
  if (specs.size() > kMaxTenants) {
    return make_error(ErrorCode::kInvalidArgument, "there are {} tenants, but at most {} may be",
                      specs.size(), kMaxTenants);
  }
  SpecsByName by_name;
  for (const TenantSpec& spec : specs) {
    if (!by_name.try_emplace(spec.name, &spec).second) {
      return wrong_tenant(spec, "is there twice");
    }
    TRY(check_value(spec, "weight", spec.weight, 1 / kMaxWeight, kMaxWeight));
    TRY(check_value(spec, "guarantee", spec.guarantee, 0, 1));
    TRY(check_value(spec, "burst", spec.burst_s, 0, kMaxBurst));
    if (spec.burst_s > 0 && spec.guarantee == 0) {
      return wrong_tenant(spec, "has a burst, but no guarantee that could be saved up");
    }
  }
  for (const TenantSpec& spec : specs) TRY(check_parents(by_name, spec));
  TRY(check_guarantees(by_name));
  return check_clients(specs);
}

void Tenants::set(const std::vector<TenantSpec>& specs) {
  std::map<std::string, Share> before;
  for (const Tenant& tenant : tenants_) before.emplace(tenant.name, tenant.share);
  tenants_.clear();
  tenant_of_.clear();
  root_.num_running = root_.num_waiting = 0;
  std::map<std::string, Share*> placed = {{"", &root_}};
  while (tenants_.size() < specs.size()) {
    const size_t num_before = tenants_.size();
    for (const TenantSpec& spec : specs) {
      const auto parent = placed.find(spec.parent);
      if (parent == placed.end() || placed.contains(spec.name)) continue;
      Share& share = tenants_.emplace_back(Tenant{spec.name, before[spec.name]}).share;
      share.parent = parent->second;
      share.depth = share.parent->depth + 1;
      share.weight = spec.weight;
      share.guarantee = spec.guarantee;
      share.burst_us = spec.burst_s * 1e6;
      share.num_running = share.num_waiting = 0;
      placed.emplace(spec.name, &share);
      for (const uint64_t client : spec.clients) tenant_of_.emplace(client, &share);
    }
    CHECK(tenants_.size() > num_before, "tenants that were not checked");
  }
}

Share Tenants::place(uint64_t client) {
  const auto tenant = tenant_of_.find(client);
  Share share;
  share.parent = tenant == tenant_of_.end() ? &root_ : tenant->second;
  share.depth = share.parent->depth + 1;
  return share;
}

bool Tenants::goes_before(const Share& a, const Share& b) {
  const auto [left, right] = siblings_above(a, b);
  return sibling_goes_before(*left, *right);
}

bool Tenants::may_take_from(const Share& taker, const Share& holder) {
  const auto [left, right] = siblings_above(taker, holder);
  return (left->num_running + 1) / left->weight <= right->num_running / right->weight;
}

void Tenants::count_waiting(Share* client, int change) {
  for (Share* share = client; share != nullptr; share = share->parent) {
    if (change > 0 && !share->is_active() && share->parent != nullptr) {
      share->served_us = std::max(share->served_us, share->parent->clock_us);
    }
    share->num_waiting += change;
  }
}

void Tenants::count_running(Share* client, int change) {
  for (Share* share = client; share != nullptr; share = share->parent) share->num_running += change;
}

void Tenants::add_step(Share* client, int64_t num_rows, int64_t num_blocks) {
  for (Share* share = client; share != nullptr; share = share->parent) {
    share->num_rows += num_rows;
    share->num_blocks += num_blocks;
  }
}

ChargedStep Tenants::charge(double took_us, int64_t all_blocks,
                            const std::vector<Share*>& clients) {
  const double keep = std::exp(-took_us / kRecentUs);
  const StepCharge step{{root_.num_rows, keep}, took_us, all_blocks, root_.num_running};
  remember(&root_, keep);
  root_.num_rows = root_.num_blocks = 0;
  root_.recent_squares = 0;
  for (Tenant& tenant : tenants_) tenant.share.recent_squares = 0;
  for (Tenant& tenant : tenants_) begin_part(&tenant.share);
  begin_part(&root_);
  begin_division(clients);
  for (Share* client : clients) {
    if (client->parent == &root_) count_use(&others_, client->num_rows, step);
    charge_one(client, step, /*takes_part=*/true);
  }
  for (Tenant& tenant : tenants_) charge_one(&tenant.share, step, has_part(tenant.share));
  for (Tenant& tenant : tenants_) advance_clock(&tenant.share);
  advance_clock(&root_);
  return {step.num_rows, step.keep};
}

void Tenants::rest(Share* client, const ChargedStep& step) {
  client->runs_less = true;
  spare(client, quota_of(*client, /*takes_part=*/false) * static_cast<double>(step.num_rows));
  remember(client, step.keep);
}

bool Tenants::is_light(const Share& client) {
  for (const Share* share = &client; share->parent != nullptr; share = share->parent) {
    const Share& parent = *share->parent;
    if (share->recent_rows * parent.recent_rows < kLightUse * parent.recent_squares) return true;
  }
  return false;
}

bool Tenants::asks_for_one(const Share& client) {
  for (const Share* share = &client; share->parent != nullptr; share = share->parent) {
    if (share->num_running + share->num_waiting > 1) return false;
  }
  return true;
}

void Tenants::begin_division(const std::vector<Share*>& clients) {
  for (const Share* client : clients) {
    for (Share* share = client->parent; share != nullptr; share = share->parent) begin_part(share);
  }
  for (const Share* client : clients) {
    for (const Share* share = client; share->parent != nullptr; share = share->parent) {
      share->parent->present_weight += share->weight;
      share->parent->present_guarantee += share->guarantee;
      if (share->parent->num_present++ > 0) break;  // the parent takes part already
    }
  }
  for (const Share* client : clients) {
    for (Share* share = client->parent; share != nullptr; share = share->parent) {
      share->left = quota_of(*share);
      share->left_guarantee = share->present_guarantee;
    }
  }
}

double Tenants::part_of(const Share& client) {
  double part = 1;
  for (const Share* share = &client; share->parent != nullptr; share = share->parent) {
    if (share->parent->num_present > 1) part *= quota_of(*share) / share->parent->left;
  }
  return part;
}

double Tenants::most_of(const Share& client) {
  double most = 1;
  for (const Share* share = &client; share->parent != nullptr; share = share->parent) {
    const Share& parent = *share->parent;
    if (parent.num_present > 1)
      most *= 1 - (parent.left_guarantee - share->guarantee) / parent.left;
  }
  return most;
}

double Tenants::spare_of(const Share& client) {
  double spare_rows = kMostSpareRows;
  for (const Share* share = &client; share->parent != nullptr; share = share->parent) {
    if (share->parent->num_present > 1) spare_rows = std::min(spare_rows, share->spare_rows);
  }
  return spare_rows;
}

bool Tenants::runs_less(const Share& client) {
  for (const Share* share = &client; share->parent != nullptr; share = share->parent) {
    if (share->num_running != share->parent->num_running && !share->runs_less) return false;
  }
  return true;
}

double Tenants::spare_beside(const Share& client) {
  if (!runs_less(client)) return 0;
  double spare_rows = 0;
  bool is_beside = false;
  for (const Share* share = &client; share->parent != nullptr; share = share->parent) {
    if (share->num_running == share->parent->num_running) continue;
    spare_rows = is_beside ? std::min(spare_rows, share->spare_rows) : share->spare_rows;
    is_beside = true;
  }
  return spare_rows;
}

void Tenants::leave_division(Share* client) {
  for (Share* share = client; share->parent != nullptr; share = share->parent) {
    share->parent->left -= quota_of(*share);
    share->parent->left_guarantee -= share->guarantee;
    if (--share->parent->num_present > 0) break;
  }
}

std::vector<TenantUse> Tenants::uses() const {
  std::vector<TenantUse> uses;
  if (tenants_.empty()) return uses;
  const auto use_of = [](std::string name, const Share& share) {
    return TenantUse{std::move(name), share.num_running, share.num_waiting, share.num_tokens,
                     share.step_us * 1e-6};
  };
  TenantUse others = use_of(kOthers, others_);
  others.num_running = root_.num_running;
  others.num_waiting = root_.num_waiting;
  for (const auto& [name, share] : tenants_) {
    uses.push_back(use_of(name, share));
    if (share.parent != &root_) continue;
    others.num_running -= share.num_running;
    others.num_waiting -= share.num_waiting;
  }
  uses.push_back(std::move(others));
  return uses;
}

}  // namespace headrace
