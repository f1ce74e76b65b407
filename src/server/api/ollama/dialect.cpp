// The error body of Ollama's dialect: {"error": "text"}.

#include "server/api/ollama/ollama.h"

namespace headrace {
namespace {

std::string error_body(const Problem& problem) {
  JsonWriter json;
  json.open_object().text("error", named_message(problem)).close_object();
  return json.take();
}

}  // namespace

const Dialect kOllama{"ollama", error_body, kJsonLines};

}  // namespace headrace
