// request_log: one line for each request that has ended, in the format of the log.
//
// Never text of a prompt or an answer, never a key, never the query of a path. What a client chose
// is escaped, so that a line stays one line. Thread-safe.
#pragma once

#include <string>

#include "server/http/http.h"

namespace headrace {

// At info; good answers of rows that anyone may ask (the page, probes) at debug.
void log_request(const RequestRecord& record);

std::string_view name_of(RequestRecord::Ending ending);

// The two forms of a line.
std::string request_text(const RequestRecord& record);  // request POST /v1/completions 200 ...
std::string request_json(const RequestRecord& record);  // "event":"request","method":"POST",...

}  // namespace headrace
