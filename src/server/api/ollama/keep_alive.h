// keep_alive of Ollama's requests: how long a model stays loaded after the last of them.
#pragma once

#include <boost/json/object.hpp>
#include <chrono>
#include <optional>

#include "base/result.h"

namespace headrace {

// Seconds as a number, or a duration like "5m", "1h30m", "250ms", "-1"; below zero (any): for ever,
// as -1 ms. Nothing for what is neither.
std::optional<std::chrono::milliseconds> keep_alive_of(const boost::json::value& value);

// Of a body: nothing where it says nothing; kInvalidArgument naming the field for what is neither.
Result<std::optional<std::chrono::milliseconds>> asked_keep_alive(const boost::json::object& body);

}  // namespace headrace
