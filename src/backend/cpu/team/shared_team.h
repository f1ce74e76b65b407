// CpuTeam: a team of threads that several back ends compute on, one at a time, in turns.
#pragma once

#include "backend/cpu/team/team.h"
#include "base/turn_lock.h"

namespace headrace {

class CpuTeam {
 public:
  CpuTeam(int num_threads, const std::vector<int>& cores) : team(num_threads, cores) {}

  cpu::Team team;
  TurnLock turn;
};

}  // namespace headrace
