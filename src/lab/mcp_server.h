// McpServer: the laboratory as tools of the Model Context Protocol, for agents.
//
// JSON-RPC 2.0, one message a line, as the protocol's stdio transport has it; the tools are the
// actions (lab/actions.h). What an agent does is signed with its name from `initialize`. A line
// that is no JSON, or too long, is answered with an error and changes nothing. Source:
// modelcontextprotocol.io, versions 2024-11-05 to 2025-06-18.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lab/store.h"

namespace headrace::lab {

inline constexpr size_t kMaxMessageBytes = 1 << 20;

class McpServer {
 public:
  // version: of this program. The store outlives the server.
  McpServer(Store& store, std::string version) : store_(store), version_(std::move(version)) {}

  // The answer to a line, without its end; none to a notification.
  std::optional<std::string> answer(std::string_view line);

 private:
  Store& store_;
  const std::string version_;
  std::string author_ = "agent";
};

}  // namespace headrace::lab
