// ExpectedTimes: how long steps of a model will take on a machine, from what its ops reached when
// they were measured alone (op_rates.h). Where a limit says what is possible, this says what is to
// be expected; no factor is fitted to any model.
//
// Products of weights that lie in memory are expected to be as much slower or faster than measured
// as the model's own memory is read, where that is known.
//
// A step is its ops one after the other: for each weight the start, the norm and the form of the
// input, the products and the outputs; for each mixer the positions that its rows see. A state is
// expected at its limit: of these ops nothing is measured. Other ops and the time between ops are
// left out.
#pragma once

#include <optional>

#include "bench/machine_file.h"
#include "bench/step_work.h"

namespace headrace {

struct ExpectedStep {
  double products_s = 0;  // all that ops with weights do
  double attention_s = 0;
  double other_s = 0;  // rotations

  double seconds() const { return products_s + attention_s + other_s; }
  void repeat(double times) {
    products_s *= times;
    attention_s *= times;
    other_s *= times;
  }
};

class ExpectedTimes {
 public:
  // Refers to both.
  ExpectedTimes(const StepWork& work, const MachineFile& machine);

  // Nothing where the machine lacks the rates of something that the model has.
  // One step of `batch` sequences at `depth`, a token each.
  std::optional<ExpectedStep> decode(int64_t batch, int64_t depth) const;
  // The steps of a prompt.
  std::optional<ExpectedStep> prefill(int64_t num_tokens, int64_t chunk) const;

 private:
  struct Rows {
    double sequences, of_each;
    int64_t first_position;
    double logit_rows;
    double working_set = 0;

    double count() const { return sequences * of_each; }
  };
  std::optional<ExpectedStep> step(const Rows& rows) const;
  std::optional<double> op_seconds(const OpWork& op, const Rows& rows) const;
  std::optional<double> input_seconds(const OpWork& op, double num_rows) const;
  std::optional<double> output_seconds(const OpWork& op, double num_rows) const;
  double row_seconds(const OpWork& op, double num_rows) const;
  std::optional<double> mixer_seconds(const MixerWork& mixer, const Rows& rows) const;
  double state_seconds(const MixerWork& mixer, const Rows& rows) const;
  std::optional<double> rate(RatedOp op, std::string_view of, double size,
                             double working_set) const;
  double read_seconds(double working_set, bool is_models) const;
  // What `num_rows` rows share of work that each thread does for rows of its own.
  double shared(double num_rows) const;

  const StepWork& work_;
  const MachineFile& machine_;
  double row_bytes_ = 0;  // that a row takes in the buffers of a layer
};

}  // namespace headrace
