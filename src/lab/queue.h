// Queue: in which order experiments run.
//
// An experiment is worth the information that its decision is expected to bring about an open
// hypothesis (bits: the answer of a test that errs at the stated rate, given what is believed now),
// times the hypothesis's worth, per second that it costs. What a person pinned goes first, then
// what a person moved, by place. A pure function of what is on record: the same record gives the
// same order.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lab/evidence.h"
#include "lab/records.h"

namespace headrace::lab {

struct Place {
  int64_t experiment_id = 0;
  double bits = 0;     // expected
  double seconds = 0;  // of all that is expected to run
  double value = 0;    // bits x worth / second
  std::string reason;  // why it stands there, one line
};

// What is believed of a hypothesis: the probability that its prediction holds, from even odds and
// all its experiments.
double belief(std::span<const Effect> effects);
// Of the answer of a test that errs at `error_rate`, when the truth is believed with this
// probability.
double expected_bits(double belief, double error_rate = kErrorRate);

// The queued ones that are not paused, first to run first. effects: of each hypothesis, from all
// its experiments.
std::vector<Place> order_queue(std::span<const Experiment> experiments,
                               std::span<const Hypothesis> hypotheses,
                               const std::map<int64_t, std::vector<Effect>>& effects);

}  // namespace headrace::lab
