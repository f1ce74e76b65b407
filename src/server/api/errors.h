// errors: how an error is answered: the status that its code stands for, and the body that OpenAI's
// clients read.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "server/http/http.h"

namespace headrace {

// {"error":{"message","type","param","code"}}: the body of every answer that is not a success.
std::string error_body(int status, std::string_view message, std::string_view param = {},
                       std::string_view code = {});
HttpResponse error_response(int status, std::string_view message, std::string_view param = {},
                            std::string_view code = {});
// The status that stands for an error's code (base/result.h), with Retry-After where it helps.
int status_of(ErrorCode code);
HttpResponse error_response(const Error& error);

}  // namespace headrace
