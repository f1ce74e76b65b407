// Handover: what a thread posts to others is kept until it has all of it, so that each place is
// woken once.
#pragma once

#include <functional>
#include <memory>
#include <vector>

namespace headrace {

// Where tasks run: some threads that wait for them.
class HandoverPlace {
 public:
  virtual ~HandoverPlace() = default;
  // Any thread. They begin in this order, later, on a thread of the place.
  virtual void take(std::vector<std::function<void()>> tasks) = 0;
};

// From its construction to its end, what this thread posts waits in it. Of the thread that made it.
class Handover {
 public:
  Handover();
  ~Handover();  // as finish()
  Handover(const Handover&) = delete;
  Handover& operator=(const Handover&) = delete;

  // This thread's innermost one; null: whoever posts does so at once.
  static Handover* current();
  void add(std::shared_ptr<HandoverPlace> place, std::function<void()> task);
  // Hands over what came by now; how many places were woken.
  int finish();

 private:
  struct Load {
    std::shared_ptr<HandoverPlace> place;
    std::vector<std::function<void()>> tasks;
  };
  std::vector<Load> loads_;
  Handover* const outer_;
};

}  // namespace headrace
