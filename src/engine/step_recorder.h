// StepRecorder: what is told all that goes into the scheduler and comes out of it, in order.
#pragma once

#include <span>

#include "engine/scheduler.h"

namespace headrace {

class StepRecorder {
 public:
  virtual ~StepRecorder() = default;
  virtual void admitted(RequestId id, const Request& request, TimeUs submitted_us) = 0;
  virtual void ended(RequestId id, FinishReason reason, TimeUs now) = 0;
  virtual void planned(const StepPlan& plan, const Scheduler& scheduler, TimeUs now) = 0;
  // Ends the step that planned() began.
  virtual void committed(std::span<const SpanResult> results, TimeUs now) = 0;
};

}  // namespace headrace
