// Routes of the Responses API: making one, and reading, erasing and listing those that are kept.

#include <algorithm>

#include "server/api/fields.h"
#include "server/api/responses/responses.h"
#include "server/routes.h"

namespace headrace {
namespace {

constexpr std::string_view kPrefix = "/v1/responses/";
constexpr int64_t kMostListed = 100, kUsuallyListed = 20;

void handle_create(ServerState& state, HttpRequest& request, Writer writer) {
  const ResponsesCaller caller = responses_caller(state, request);
  generate(state, request, std::move(writer),
           [caller](const boost::json::object& body, const ServingModel& model) {
             return parse_response(body, model, caller);
           });
}

void handle_input_count(ServerState& state, HttpRequest& request, Writer writer) {
  const ResponsesCaller caller = responses_caller(state, request);
  with_model(state, request, std::move(writer), [caller](ServerState& server, Asked& asked) {
    const auto parse = [&caller](const boost::json::object& body, const ServingModel& model) {
      return parse_response(body, model, caller);
    };
    answer_count(server, asked, parse, "response.input_tokens");
  });
}

// "resp_1/input_items" of the path: the id, and what of it.
struct Target {
  std::string id, part;
};

Target target_of(const HttpRequest& request) {
  const std::string rest = request.path.substr(kPrefix.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  return {rest.substr(0, slash), rest.substr(std::min(slash + 1, rest.size()))};
}

Problem no_response(const std::string& id) {
  return Problem{
      404, fmt::format("there is no response '{}'", valid_utf8(id)), "response_id", {}, {}};
}

void answer(ServerState& state, const HttpRequest& request, ResponseWriter& writer,
            Result<HttpResponse> response) {
  if (response.ok()) return respond(state, writer, std::move(response).value());
  writer.send(error_response(dialect_of(request.route), response.error()));
}

// The value of a parameter of the query; empty: it is not there.
std::string_view parameter(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view each = query.substr(0, end);
    if (each.starts_with(name) && each.substr(name.size()).starts_with('=')) {
      return each.substr(name.size() + 1);
    }
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return {};
}

struct Page {
  std::string_view after;  // the id of the item before the first
  size_t limit = kUsuallyListed;
  bool descends = true;
};

Result<Page> page_of(std::string_view query) {
  Page page;
  page.after = parameter(query, "after");
  const std::string_view limit = parameter(query, "limit");
  if (!limit.empty()) {
    const bool digits =
        limit.size() <= 4 && limit.find_first_not_of("0123456789") == std::string_view::npos;
    const int64_t count = digits ? std::stoll(std::string(limit)) : 0;
    if (count < 1 || count > kMostListed) {
      return bad_field("limit", valid_utf8(limit), fmt::format("from 1 to {}", kMostListed));
    }
    page.limit = static_cast<size_t>(count);
  }
  const std::string_view order = parameter(query, "order");
  if (!order.empty() && order != "asc" && order != "desc") {
    return bad_field("order", valid_utf8(order), "asc or desc");
  }
  page.descends = order != "asc";
  return page;
}

std::string_view id_of(const boost::json::value& item) {
  const boost::json::value* id = json_member(&item, "id");
  if (id == nullptr || !id->is_string()) return {};
  return {id->get_string().data(), id->get_string().size()};
}

Result<HttpResponse> list_items(const StoredResponse& kept, std::string_view query) {
  const Page page = TRY(page_of(query));
  boost::json::value parsed = TRY(parse_json(kept.items, "a stored response"));
  boost::json::array& items = parsed.as_array();
  if (page.descends) std::reverse(items.begin(), items.end());
  auto begin = items.begin();
  if (!page.after.empty()) {
    begin = std::find_if(items.begin(), items.end(),
                         [&page](const auto& each) { return id_of(each) == page.after; });
    if (begin == items.end()) {
      return bad_field("after", valid_utf8(page.after), "the id of one of the items");
    }
    ++begin;
  }
  const size_t count = std::min(page.limit, static_cast<size_t>(items.end() - begin));
  JsonWriter json;
  json.open_object().text("object", "list").key("data").open_array();
  for (size_t i = 0; i < count; ++i) json.raw(to_text(begin[static_cast<int64_t>(i)]));
  json.close_array();
  const auto last = begin + static_cast<int64_t>(count);
  json.text("first_id", count == 0 ? "" : id_of(*begin));
  json.text("last_id", count == 0 ? "" : id_of(*(last - 1)));
  json.boolean("has_more", last != items.end()).close_object();
  return HttpResponse{200, json.take()};
}

// GET of a response, or of its input items.
void handle_read(ServerState& state, HttpRequest& request, Writer writer) {
  const Target target = target_of(request);
  const auto kept = state.responses->find(target.id, responses_caller(state, request).owner);
  const bool is_list = target.part == "input_items";
  if (kept == nullptr || (!is_list && !target.part.empty())) {
    return writer->send(error_response(dialect_of(request.route), no_response(target.id)));
  }
  if (is_list) return answer(state, request, *writer, list_items(*kept, request.query));
  if (parameter(request.query, "stream") == "true") {
    Error error = bad_field("stream", "true", "false: a response that is kept is complete");
    return answer(state, request, *writer, error);
  }
  respond(state, *writer, HttpResponse{200, kept->body});
}

void handle_erase(ServerState& state, HttpRequest& request, Writer writer) {
  const Target target = target_of(request);
  const bool erased = target.part.empty() &&
                      state.responses->erase(target.id, responses_caller(state, request).owner);
  if (!erased) {
    return writer->send(error_response(dialect_of(request.route), no_response(target.id)));
  }
  JsonWriter json;
  json.open_object().text("id", target.id).text("object", "response").boolean("deleted", true);
  json.close_object();
  respond(state, *writer, HttpResponse{200, json.take()});
}

// A response is computed while its client waits, and ends when the client leaves: there is none to
// cancel from elsewhere.
void handle_cancel(ServerState& state, HttpRequest& request, Writer writer) {
  const Target target = target_of(request);
  const auto kept = state.responses->find(target.id, responses_caller(state, request).owner);
  if (kept == nullptr || target.part != "cancel") {
    return writer->send(error_response(dialect_of(request.route), no_response(target.id)));
  }
  Error error = make_error(ErrorCode::kInvalidArgument,
                           "the response '{}' is complete, but only one that is being made in the "
                           "background can be cancelled",
                           target.id);
  error.param = "response_id";
  answer(state, request, *writer, error);
}

// clang-format off
const RouteRow kResponseRoutes[] = {
    {"POST", "/v1/responses", Scope::kInference, &kResponses, handle_create, "Answer items of a conversation."},
    {"POST", "/v1/responses/input_tokens", Scope::kInference, &kResponses, handle_input_count, "How many tokens the prompt of such a body has."},
    {"GET", "/v1/responses/*", Scope::kInference, &kResponses, handle_read, "A response that is kept; with /input_items what it was given."},
    {"DELETE", "/v1/responses/*", Scope::kInference, &kResponses, handle_erase, "Forget a response."},
    {"POST", "/v1/responses/*", Scope::kInference, &kResponses, handle_cancel, "/cancel: a 400, since none is made in the background."},
};
// clang-format on

}  // namespace

std::span<const RouteRow> responses_rows() { return kResponseRoutes; }

// Without keys there is one owner: whoever reaches the server.
ResponsesCaller responses_caller(const ServerState& state, const HttpRequest& request) {
  return {state.responses, state.access.has_keys() ? request.client : 0};
}

}  // namespace headrace
