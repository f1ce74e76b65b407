// responses: the dialect of OpenAI's Responses API: items in, items out, named events.
//
// A response may go on with an earlier one that the server keeps (store.h); clients that send the
// whole conversation each time need no store. What is asked of the form of the answer goes into
// AnswerForm; calls and reasoning come back as parts of the answer, each of which is an item.
// Source: the published OpenAI API and the types of its client packages.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/api/api_fields.h"
#include "server/api/conversation.h"
#include "server/api/dialect.h"
#include "server/api/responses/store.h"

namespace headrace {

extern const Dialect kResponses;

// Who asks, and what is kept for them.
struct ResponsesCaller {
  std::shared_ptr<ResponseStore> store;
  uint64_t owner = 0;
};

Result<ParsedRequest> parse_response(const boost::json::object& body, const ServingModel& model,
                                     const ResponsesCaller& caller);

// The items of a body: those of the response that it goes on with, then its own. Every item is
// an object with a type and an id; references to kept items are replaced by the items.
Result<boost::json::array> collect_items(const boost::json::object& body,
                                         const ResponsesCaller& caller);
// Items as messages: neighbouring reasoning, text and calls of the assistant are one message, and
// instructions with the system messages that begin the conversation another. Other items that
// servers of this API make (searches ...) are left out and named in `ignored`.
Result<std::vector<ChatMessage>> read_items(const boost::json::array& items,
                                            std::string_view instructions, IgnoredFields& ignored);

// What the renderer is told of the request.
struct ResponseEcho {
  std::string id;     // "resp_..."
  std::string model;  // as the client calls it
  // Members of the response that repeat the request, in order: names and JSON.
  std::vector<std::pair<std::string, std::string>> members;
  std::vector<std::string> custom_tools;  // names of tools that take a text, not an object
  // Tools of namespaces, as the model calls them and as the client does.
  struct Placed {
    std::string called, name_space, name;
  };
  std::vector<Placed> placed_tools;
  std::optional<int> num_top;        // as OpenAiAnswer::num_top
  bool with_reasoning_copy = false;  // encrypted_content of reasoning was asked for
  // Kept when the answer is complete, unless store is null.
  std::shared_ptr<ResponseStore> store;
  uint64_t owner = 0;
  std::string items;  // JSON list of what the model was given
};
std::unique_ptr<AnswerRenderer> make_response_renderer(const ServingModel& model,
                                                       ResponseEcho echo);

// What a tool of a namespace is called in templates, which know one name: "NAMESPACE__NAME".
// Without a namespace the name.
std::string called_name(std::string_view name_space, std::string_view name);

// "resp_" and 24 random hexadecimal digits; items of the answer have the digits and their place.
std::string fresh_response_id();
std::string item_id(std::string_view prefix, std::string_view response_id, size_t item_idx);
// The response that an item was made in: "msg_DIGITS_0" is of "resp_DIGITS". Empty: none.
std::string response_of_item(std::string_view item_id);

// What begins `encrypted_content` of reasoning that this server made: the text follows as it is.
inline constexpr std::string_view kPlainReasoning = "plain:";

}  // namespace headrace
