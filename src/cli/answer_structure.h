// answer_structure: the form that `run` and `chat` hold answers to: --json-schema, --regex and
// --grammar.
#pragma once

#include <boost/json/object.hpp>

#include "base/result.h"
#include "options.h"
#include "server/api/answer_form.h"

namespace headrace {

// Kind kNone without any of them. Schemas and grammars are texts or names of files.
// kInvalidArgument where two are given or the schema is no JSON; kIo where a file cannot be read.
Result<Structure> structure_from_options(const Options& options);

// The same as members of a body in the OpenAI dialect.
void add_structure(const Structure& structure, boost::json::object& body);

}  // namespace headrace
