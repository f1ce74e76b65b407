// call_structure: what an answer is held to where tools may or must be called: the names that were
// declared, and arguments that hold to their schemas, as the model's format writes them.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "server/api/answer_form.h"
#include "server/api/parts/output_format.h"

namespace headrace {

// As structural tags. schemas: of the functions' arguments, one each. The client's own structure
// holds for answers without a call; with a required or named call there are none.
// Formats that begin calls with no mark are only held where a call must come: kNone then.
// kInvalidArgument names the structure's field if it cannot stand beside calls. It is one that can
// be enforced alone.
Result<Structure> call_structure(const OutputFormats& formats, const ToolUse& tools,
                                 const std::vector<std::string>& schemas, const Structure& answer);

// The keyword of a schema that the format cannot hold text arguments to; empty: it can.
std::string unheld_keyword(const ToolFormat& format, const std::string& schema);

}  // namespace headrace
