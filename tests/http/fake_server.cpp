// A real server over a scripted engine: for tests of clients and for fuzzing over sockets, where no
// model is wanted. Prints its address like `headrace serve`; ends on SIGTERM or SIGINT.
//   fake_server [--reply TEXT] [--delay-us N] [--context N] [--max-waiting N] [--port N]

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "server/server.h"
#include "server/test_support.h"

namespace headrace {
namespace {

int serve(int argc, char** argv) {
  test::Script script;
  ServerOptions options;
  options.port = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--reply") script.reply = argv[i + 1];
    if (name == "--delay-us")
      script.token_delay = std::chrono::microseconds(std::atoi(argv[i + 1]));
    if (name == "--context") script.max_context = std::atoi(argv[i + 1]);
    if (name == "--max-waiting") script.max_waiting = std::atoi(argv[i + 1]);
    if (name == "--port") options.port = std::atoi(argv[i + 1]);
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const TextBundle bundle = test::make_bundle();
  test::ScriptedEngine engine(script);
  auto model = std::make_shared<ServedModel>(engine, bundle, test::make_model_info(),
                                             std::vector<std::string>{"gpt-4o-mini"});
  auto server = Server::create({std::move(model)}, options);
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.error().to_string().c_str());
    return 1;
  }
  std::printf("listening on http://127.0.0.1:%d\n", (*server)->port());
  std::fflush(stdout);
  std::thread watcher([&] {
    int signal = 0;
    sigwait(&signals, &signal);
    (*server)->drain(std::chrono::seconds(5));
  });
  (*server)->run();
  watcher.join();
  return 0;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) { return headrace::serve(argc, argv); }
