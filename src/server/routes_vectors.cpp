// The routes whose answers are made of vectors or labels of prompts.
#include "server/api/asked_model.h"
#include "server/api/openai/openai.h"
#include "server/api/pool_session.h"
#include "server/routes.h"

namespace headrace {
namespace {

// Room for all vectors and the answer's text, beside the prompts.
Status take_answer_memory(size_t bytes_per_prompt, GenerationRequest& request) {
  const size_t needed = bytes_per_prompt * request.prompts.size();
  if (needed > request.memory.limit() - request.memory.bytes()) {
    Error error =
        make_error(ErrorCode::kInvalidArgument,
                   "the answer needs {} MiB, more than this server lends", (needed >> 20) + 1);
    error.hint = "send fewer inputs at once, or ask for base64";
    return error;
  }
  if (request.memory.grow(needed)) return {};
  return no_memory_for("the answer", needed);
}

Result<ParsedPooled> read_pooled(ServerState& state, Asked& asked, const ParsePooled& parse) {
  const ServingModel& model = asked.model->serving;
  ParsedPooled parsed = TRY(parse(asked.body, model));
  parsed.request.prototype.adapter = TRY(asked_adapter(asked.body, model));
  TRY(read_prompts(std::move(parsed.prompts), model, caller_of(state, asked.request, asked.writer),
                   parsed.request));
  TRY(take_answer_memory(parsed.bytes_per_prompt, parsed.request));
  return parsed;
}

// clang-format off
const RouteRow kVectorRoutes[] = {
    {"POST", "/v1/embeddings", Scope::kInference, &kOpenAi, pool_with<parse_embedding>, "Vectors of texts."},
    {"POST", "/v1/rerank", Scope::kInference, &kOpenAi, pool_with<parse_rerank>, "Documents by how well they go with a query."},
    {"POST", "/v2/rerank", Scope::kInference, &kOpenAi, pool_with<parse_rerank>, "The same."},
    {"POST", "/rerank", Scope::kInference, &kOpenAi, pool_with<parse_rerank>, "The same."},
    {"POST", "/v1/score", Scope::kInference, &kOpenAi, pool_with<parse_score>, "How well pairs of texts go together."},
    {"POST", "/score", Scope::kInference, &kOpenAi, pool_with<parse_score>, "The same."},
};
// clang-format on

}  // namespace

std::span<const RouteRow> vector_rows() { return kVectorRoutes; }

void pool(ServerState& state, HttpRequest& request, std::shared_ptr<ResponseWriter> writer,
          const ParsePooled& parse) {
  with_model(state, request, std::move(writer), [parse](ServerState& server, Asked& asked) {
    auto parsed = read_pooled(server, asked, parse);
    if (!parsed.ok()) return refuse(asked.request, *asked.writer, parsed.error());
    const ServedModel& model = *asked.model;
    const SessionHost host{model.engine, model.serving, model.sessions, {}, now_us, asked.model};
    PoolSession::start(host, std::move(parsed->request), std::move(parsed->renderer), asked.writer);
  });
}

}  // namespace headrace
