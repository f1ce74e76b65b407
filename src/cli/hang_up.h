// hang_up: what SIGHUP means to a server.
#pragma once

namespace headrace {

// A terminal that closes ends its programs with SIGHUP; service managers and administrators send it
// to have files read again. Made before the signal is blocked.
class HangUp {
 public:
  enum class Meaning : unsigned char { kReload, kStop, kNothing };

  HangUp();
  // can_reload: there are files to read again.
  Meaning meaning(bool can_reload) const;
  // nohup and the like: the terminal's closing is to be outlived.
  bool is_ignored() const { return ignored_; }

 private:
  bool ignored_ = false;
  bool had_terminal_ = false;
};

}  // namespace headrace
