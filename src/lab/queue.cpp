#include "lab/queue.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace headrace::lab {
namespace {

constexpr double kBitsWithoutHypothesis = 0.05;  // a measurement that decides nothing
constexpr double kUsualRounds = 8;

double entropy(double p) {
  if (p <= 0 || p >= 1) return 0;
  return -(p * std::log2(p) + (1 - p) * std::log2(1 - p));
}

const Hypothesis* find(std::span<const Hypothesis> all, int64_t id) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Hypothesis& each) { return each.id == id; });
  return found == all.end() ? nullptr : &*found;
}

using Effects = std::map<int64_t, std::vector<Effect>>;  // by hypothesis

double believed_of(const Effects& effects, int64_t hypothesis_id) {
  const auto found = effects.find(hypothesis_id);
  return belief(found == effects.end() ? std::span<const Effect>() : found->second);
}

std::string why(const Experiment& experiment, std::span<const Question> questions,
                const Place& place, const Effects& effects) {
  if (experiment.pinned) return "pinned";
  if (experiment.place) return fmt::format("moved to place {}", *experiment.place);
  if (questions.empty()) return "measures only";
  const int64_t first = questions.front().hypothesis_id;
  const std::string about = questions.size() > 1
                                ? fmt::format("{} hypotheses", questions.size())
                                : fmt::format("hypothesis {} (believed {:.0f} %)", first,
                                              100 * believed_of(effects, first));
  return fmt::format("{:.2f} bits about {} in about {:.0f} s", place.bits, about, place.seconds);
}

Place place_of(const Experiment& experiment, std::span<const Hypothesis> hypotheses,
               const Effects& effects) {
  Place place;
  place.experiment_id = experiment.id;
  const double rounds = std::min<double>(kUsualRounds, experiment.max_rounds);
  place.seconds = experiment.cost_s * rounds * static_cast<double>(experiment.sides.size());
  const std::vector<Question> questions = questions_of(experiment);
  double worth = 0;  // of all bits
  for (const Question& each : questions) {
    const Hypothesis* about = find(hypotheses, each.hypothesis_id);
    const bool open = about == nullptr || about->state == "open";
    const double bits = open ? expected_bits(believed_of(effects, each.hypothesis_id)) : 0;
    place.bits += bits;
    worth += bits * (about == nullptr ? 1 : about->worth);
  }
  if (questions.empty()) place.bits = worth = kBitsWithoutHypothesis;
  place.value = worth / place.seconds;
  place.reason = why(experiment, questions, place, effects);
  return place;
}

}  // namespace

double belief(std::span<const Effect> effects) {
  double log_odds = 0;
  for (const Effect& effect : effects) log_odds += effect.log_ratio;
  return 1 / (1 + std::exp(-std::clamp(log_odds, -30.0, 30.0)));
}

double expected_bits(double believed, double error_rate) {
  const double says_yes = believed * (1 - error_rate) + (1 - believed) * error_rate;
  return std::max(0.0, entropy(says_yes) - entropy(error_rate));
}

std::vector<Place> order_queue(std::span<const Experiment> experiments,
                               std::span<const Hypothesis> hypotheses,
                               const std::map<int64_t, std::vector<Effect>>& effects) {
  // Pinned, moved, the rest; places; value; age.
  using Rank = std::tuple<int, double, double, int64_t>;
  std::vector<std::pair<Rank, Place>> ranked;
  for (const Experiment& experiment : experiments) {
    if (experiment.state != "queued" || experiment.paused) continue;
    Place place = place_of(experiment, hypotheses, effects);
    const int group = experiment.pinned ? 0 : experiment.place ? 1 : 2;
    ranked.push_back(
        {Rank(group, experiment.place.value_or(0), -place.value, experiment.id), std::move(place)});
  }
  std::sort(ranked.begin(), ranked.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Place> order;
  for (auto& [rank, place] : ranked) order.push_back(std::move(place));
  return order;
}

}  // namespace headrace::lab
