// dialect: one client's language over HTTP. A dialect is a folder of its own beside openai/: it
// parses bodies to a GenerationRequest (generation.h), renders answers, and has one row here for
// what holds for all its routes: the form of its errors and the framing of its streams. Nothing
// outside its folder asks which dialect it is.
#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/api/generation.h"
#include "server/api/prompt.h"
#include "server/http/http.h"

namespace headrace {

// Why there is no answer. The status and the headers are the same in every dialect.
struct Problem {
  int status = 500;
  std::string message;
  std::string param = {};  // the field at fault, if any
  std::string code = {};   // a name for programs, if there is one
  HttpHeaders headers = {};
  std::string request_id = {};  // x-request-id, where it is known
};

int status_of(ErrorCode code);
// The message, after the field at fault where it does not name it: for forms of errors that have no
// place for the field.
std::string named_message(const Problem& problem);
// With Retry-After where trying again helps.
Problem problem_of(const Error& error);

// How the events of a stream are told apart. An event is one JSON text on one line.
struct Framing {
  std::string_view content_type;
  std::string_view before, after;  // of each event
  // Sent where a stream is silent for long, and to find out whether a client that sends no more
  // still reads; empty: the framing has nothing that clients skip.
  std::string_view heartbeat;

  std::string frame(std::string_view json) const;
};

// Source: WHATWG HTML section 9.2. A dialect whose events have names writes them before.
inline constexpr Framing kServerSentEvents{"text/event-stream; charset=utf-8", "data: ", "\n\n",
                                           ": still here\n\n"};
// A line for each event, and nothing that is no event.
inline constexpr Framing kJsonLines{"application/x-ndjson", "", "\n", ""};

struct Dialect {
  std::string_view name;                              // "openai"
  std::string (*error_body)(const Problem& problem);  // JSON
  const Framing& framing;
  // A further header with the request's id, for clients that do not read x-request-id.
  std::string_view id_header = {};
};

HttpResponse error_response(const Dialect& dialect, Problem problem);
HttpResponse error_response(const Dialect& dialect, const Error& error,
                            std::string_view request_id = {});

// What a dialect makes of a body.
struct ParsedRequest {
  GenerationRequest request;  // all but its prompts
  PromptSource prompts;       // views the body
  std::unique_ptr<AnswerRenderer> renderer;
};
using ParseFunction = Result<ParsedRequest>(const boost::json::object& body,
                                            const ServingModel& model);
using ParseRequest = std::function<ParseFunction>;  // a function, and what it was given before

}  // namespace headrace
