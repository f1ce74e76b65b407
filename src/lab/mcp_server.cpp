#include "lab/mcp_server.h"

#include <algorithm>
#include <boost/json.hpp>
#include <iterator>

#include "base/json.h"
#include "base/quote.h"
#include "lab/actions.h"

namespace headrace::lab {
namespace {

using boost::json::object;
using boost::json::value;

// Codes of JSON-RPC 2.0.
constexpr int kParseError = -32700;
constexpr int kInvalidRequest = -32600;
constexpr int kMethodNotFound = -32601;
constexpr int kInvalidParams = -32602;

constexpr std::string_view kProtocols[] = {"2025-06-18", "2025-03-26", "2024-11-05"};

std::string reply(const value& id, object result) {
  return boost::json::serialize(
      object{{"jsonrpc", "2.0"}, {"id", id}, {"result", std::move(result)}});
}

std::string refusal(const value& id, int code, const std::string& message) {
  return boost::json::serialize(object{
      {"jsonrpc", "2.0"}, {"id", id}, {"error", object{{"code", code}, {"message", message}}}});
}

std::string text_member(const value* whole, std::string_view name) {
  const value* found = json_member(whole, name);
  return found != nullptr && found->is_string() ? std::string(found->get_string()) : std::string();
}

object describe_server(const value* params, const std::string& version) {
  const std::string asked = text_member(params, "protocolVersion");
  const bool is_known =
      std::find(std::begin(kProtocols), std::end(kProtocols), asked) != std::end(kProtocols);
  return {{"protocolVersion", is_known ? asked : std::string(kProtocols[0])},
          {"capabilities", object{{"tools", object()}}},
          {"serverInfo", object{{"name", "headrace-lab"}, {"version", version}}},
          {"instructions",
           "A laboratory: state hypotheses with a predicted effect, add experiments that test "
           "them, read the evidence, write down what was learnt. 'headrace lab run' works the "
           "queue off."}};
}

object list_tools() {
  boost::json::array tools;
  for (const Action& action : actions()) {
    tools.push_back(object{{"name", action.name},
                           {"description", action.help},
                           {"inputSchema", boost::json::parse(action.schema)},
                           {"annotations", object{{"readOnlyHint", !action.writes}}}});
  }
  return {{"tools", std::move(tools)}};
}

// What goes wrong in a tool is a result that says so: the agent reads it and goes on.
object tool_result(const Result<object>& result) {
  const std::string text =
      result.ok() ? boost::json::serialize(*result) : result.error().to_string();
  object answer{{"content", boost::json::array{object{{"type", "text"}, {"text", text}}}},
                {"isError", !result.ok()}};
  if (result.ok()) answer["structuredContent"] = *result;
  return answer;
}

bool has_tool(std::string_view name) {
  return std::any_of(actions().begin(), actions().end(),
                     [&](const Action& each) { return each.name == name; });
}

}  // namespace

std::optional<std::string> McpServer::answer(std::string_view line) {
  if (line.size() > kMaxMessageBytes) {
    return refusal(nullptr, kInvalidRequest,
                   fmt::format("a message has at most {} bytes", kMaxMessageBytes));
  }
  const Result<value> message = parse_json(line, "the message");
  if (!message.ok()) return refusal(nullptr, kParseError, message.error().to_string());
  const std::string method = text_member(&*message, "method");
  const value* id = json_member(&*message, "id");
  if (text_member(&*message, "jsonrpc") != "2.0" || method.empty()) {
    return refusal(id == nullptr ? value() : *id, kInvalidRequest,
                   "a message needs jsonrpc 2.0 and a method");
  }
  if (id == nullptr) return std::nullopt;
  const value* params = json_member(&*message, "params");
  if (method == "initialize") {
    const std::string name = text_member(json_member(params, "clientInfo"), "name");
    if (!name.empty()) author_ = "agent " + name.substr(0, 100);
    return reply(*id, describe_server(params, version_));
  }
  if (method == "ping") return reply(*id, {});
  if (method == "tools/list") return reply(*id, list_tools());
  if (method != "tools/call") {
    return refusal(*id, kMethodNotFound, fmt::format("there is no method {}", quote(method)));
  }
  const std::string tool = text_member(params, "name");
  if (!has_tool(tool)) {
    return refusal(*id, kInvalidParams, fmt::format("there is no tool {}", quote(tool)));
  }
  const value* arguments = json_member(params, "arguments");
  const value none = object();
  if (arguments == nullptr) arguments = &none;
  if (!arguments->is_object()) {
    return refusal(*id, kInvalidParams, "the arguments of a tool are an object");
  }
  return reply(*id, tool_result(run_action(store_, tool, arguments->get_object(), author_)));
}

}  // namespace headrace::lab
