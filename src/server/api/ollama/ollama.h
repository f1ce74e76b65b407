// ollama: the dialect of Ollama's API: bodies of /api/chat and /api/generate to requests, and
// answers to JSON, whole or line by line.
//
// Every refusal is an Error with `param`; which fields there are is the table of api_fields.h.
// Source: Ollama's docs/api.md, its types, and its Python and JavaScript client libraries.
#pragma once

#include <boost/json/object.hpp>
#include <memory>
#include <string>

#include "server/api/api_fields.h"
#include "server/api/dialect.h"
#include "server/api/fields.h"
#include "server/api/generation.h"
#include "server/api/pooled.h"
#include "server/api/serving_model.h"

namespace headrace {

extern const Dialect kOllama;

Result<ParsedRequest> parse_ollama_chat(const boost::json::object& body, const ServingModel& model);
Result<ParsedRequest> parse_ollama_generate(const boost::json::object& body,
                                            const ServingModel& model);

Result<ParsedPooled> parse_ollama_embed(const boost::json::object& body, const ServingModel& model);
// The older form: one text, and its vector as the model makes it.
Result<ParsedPooled> parse_ollama_embeddings(const boost::json::object& body,
                                             const ServingModel& model);

// Does the body ask for nothing but that the model is loaded? An empty list of messages or an empty
// prompt does, and so keep_alive alone.
bool is_load_request(const boost::json::object& body);

// What the renderer is told of the request.
struct OllamaAnswer {
  std::string model_name;     // as the client calls the model
  bool is_chat = true;        // a message; else "response"
  int num_top = 0;            // alternatives of each log-prob
  bool with_context = false;  // /api/generate: the ids of prompt and answer
};
std::unique_ptr<AnswerRenderer> make_ollama_renderer(const ServingModel& model,
                                                     OllamaAnswer answer);
// The answer to a load request: nothing was made.
std::string ollama_loaded(const std::string& model_name, bool is_chat, bool unloads);

// What a model can do, as /api/show says it: "completion", "tools", "insert", "thinking" ...
std::vector<std::string_view> ollama_capabilities(const ServingModel& model);
// "details" of a model, and its "digest": 64 digits that change with its weights.
void write_ollama_details(JsonWriter& json, const ModelInfo& info);
std::string ollama_digest(const ModelInfo& info);
// The answer of /api/show.
std::string ollama_show(const ServingModel& model, int64_t created_s);

}  // namespace headrace
