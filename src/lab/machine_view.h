// MachineView: the machine as it is now, from /proc and /sys: use and frequency of each core,
// memory, temperatures, devices. What cannot be read is left out, or null. One thread at a time.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "lab/machine_load.h"

namespace headrace::lab {

// Bytes per second that all threads read of the largest working set, as `headrace bench machine
// --json` printed it into a laboratory's machine.json; null where there is no such file or row.
boost::json::value measured_read_rate(const std::string& folder);

class MachineView {
 public:
  // root: what stands before /proc and /sys; for tests.
  explicit MachineView(std::string root = {});

  // The members of docs/lab-api.md, /machine, but the engines. Use is that since the last look,
  // which is kept while it is younger than a second: asking often costs nothing. now: a clock that
  // never goes back.
  const boost::json::object& at(TimeUs now);

 private:
  boost::json::object look();
  boost::json::array temperatures() const;
  boost::json::array devices() const;
  std::string path(std::string_view rest) const { return root_ + std::string(rest); }

  const std::string root_;
  std::vector<CoreTime> last_;
  TimeUs last_us_ = 0;
  boost::json::object view_;
};

}  // namespace headrace::lab
