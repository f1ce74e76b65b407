// keep_alive of Ollama's requests: how long a model stays loaded after the last of them.
#pragma once

#include <boost/json/value.hpp>
#include <chrono>
#include <optional>

namespace headrace {

// Seconds as a number, or a duration like "5m", "1h30m", "250ms", "-1"; below zero (any): for ever,
// as -1 ms. Nothing for what is neither.
std::optional<std::chrono::milliseconds> keep_alive_of(const boost::json::value& value);

}  // namespace headrace
