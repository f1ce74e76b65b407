// llamacpp: the dialect of llama.cpp's server: bodies of /completion and /infill to requests, and
// answers to JSON, whole or as server-sent events.
//
// Every refusal is an Error with `param`; which fields there are is the table of api_fields.h.
// Source: the README of llama.cpp's server.
#pragma once

#include <boost/json/object.hpp>
#include <memory>
#include <string>
#include <vector>

#include "server/api/api_fields.h"
#include "server/api/dialect.h"
#include "server/api/fields.h"
#include "server/api/generation.h"
#include "server/api/serving_model.h"

namespace headrace {

extern const Dialect kLlamaCpp;

Result<ParsedRequest> parse_llama_completion(const boost::json::object& body,
                                             const ServingModel& model);
Result<ParsedRequest> parse_llama_infill(const boost::json::object& body,
                                         const ServingModel& model);

// What the renderer is told of the request.
struct LlamaAnswer {
  std::string model_name;               // as the client calls the model
  int num_top = 0;                      // alternatives of each log-prob
  bool with_tokens = false;             // the ids of the answer
  std::string settings;                 // "generation_settings", as JSON
  std::vector<std::string> paths = {};  // of the members that an answer's end has; empty: all
};
std::unique_ptr<AnswerRenderer> make_llama_renderer(const ServingModel& model, LlamaAnswer answer);

// "generation_settings" of a request, and of one that says nothing.
std::string llama_settings(const GenerationRequest& request);
// The answer of /props.
std::string llama_props(const ServingModel& model, int num_slots, bool is_sleeping);

}  // namespace headrace
