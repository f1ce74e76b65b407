// structure_fields: what OpenAI-like bodies say of an answer's form: response_format, and the names
// that vLLM, SGLang and llama.cpp have for the same. Only reads; whether a form can be enforced is
// seen when it is compiled (structure.h).
#pragma once

#include <boost/json/object.hpp>
#include <string_view>

#include "base/result.h"
#include "server/api/answer_form.h"
#include "server/api/api_fields.h"

namespace headrace {

// Kind kNone: the body asks for no form. An answer has one form: kInvalidArgument names two fields.
Result<Structure> parse_structure(const boost::json::object& body, IgnoredFields& ignored);

// One object that names a form by its type, `path` (with its dot) in messages: {"type": "text"},
// "json_object" (with an optional "schema"), "json_schema" (its parts inside "json_schema" or
// beside the type), "grammar", "regex", "structural_tag".
Result<Structure> parse_format(const boost::json::object& format, std::string_view path,
                               IgnoredFields& ignored);

}  // namespace headrace
