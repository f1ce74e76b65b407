#include "server/dashboard.h"

#include <fmt/format.h>
#include <zlib.h>

#include "server/api/json.h"
#include "server/assets.h"
#include "server/exposition.h"
#include "server/http/syntax.h"

namespace headrace {
namespace {

constexpr size_t kShownSteps = 64;
constexpr std::string_view kContentPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
constexpr std::string_view kNoPage =
    "headrace is running. This build has no web page (it was configured with HEADRACE_UI=OFF); "
    "the API is at /v1.\n";

#ifdef __clang__
constexpr std::string_view kBuild = "clang " __clang_version__;
#else
constexpr std::string_view kBuild = "g++ " __VERSION__;
#endif

const EmbeddedAsset* find_asset(std::string_view path) {
  for (const EmbeddedAsset& asset : embedded_assets()) {
    if (asset.path == path) return &asset;
  }
  return nullptr;
}

// The file as it was before gzip. The length stands in the last four bytes (RFC 1952).
std::string unpacked(const EmbeddedAsset& asset) {
  const auto& packed = asset.gzip;
  CHECK(packed.size() > 18, "{} is no gzip file", asset.path);
  size_t length = 0;
  for (size_t i = 4; i > 0; --i) length = length << 8 | packed[packed.size() - 5 + i];
  std::string out(length, '\0');
  z_stream stream{};
  stream.next_in = const_cast<unsigned char*>(packed.data());
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<unsigned char*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  CHECK(inflateInit2(&stream, 15 + 16) == Z_OK, "zlib finds no memory for {}", asset.path);
  const int status = inflate(&stream, Z_FINISH);
  inflateEnd(&stream);
  CHECK(status == Z_STREAM_END && stream.avail_out == 0, "{} is a broken gzip file", asset.path);
  return out;
}

enum class Coding : uint8_t { kGzip, kIdentity, kNone };

// gzip where the client names it and likes it no less than the plain file; a client that says
// nothing gets the plain file.
Coding choose_coding(std::string_view accepted) {
  const double gzip = coding_quality(accepted, "gzip").value_or(0);
  const auto named = coding_quality(accepted, "identity");
  const bool refuses_plain = named && *named == 0;
  if (gzip > 0 && gzip >= named.value_or(0)) return Coding::kGzip;
  return refuses_plain ? Coding::kNone : Coding::kIdentity;
}

// Does If-None-Match name this tag? Weak comparison.
bool matches_tag(std::string_view header, std::string_view etag) {
  for (std::string_view each : split_list(header)) {
    if (each.starts_with("W/")) each.remove_prefix(2);
    if (each == etag || each == "*") return true;
  }
  return false;
}

HttpResponse asset_response(const EmbeddedAsset& asset, const HttpRequest& request) {
  const Coding coding = choose_coding(request.header("accept-encoding"));
  if (coding == Coding::kNone) {
    return error_response(
        *request.route->dialect,
        Problem{406,
                "the page's files come as gzip or plain, and Accept-Encoding refuses both",
                {},
                {},
                {{"Vary", "Accept-Encoding"}}});
  }
  // Two representations, so two tags: "3f9a1c" and "3f9a1c-plain".
  std::string etag(asset.etag);
  if (coding == Coding::kIdentity) etag.insert(etag.size() - 1, "-plain");
  HttpResponse response;
  const bool hashed = asset.path.starts_with("/assets/");
  response.headers = {
      {"ETag", etag},
      {"Cache-Control", hashed ? "public, max-age=31536000, immutable" : "no-cache"},
      {"Content-Security-Policy", std::string(kContentPolicy)},
      {"X-Content-Type-Options", "nosniff"},
      {"Vary", "Accept-Encoding"},
  };
  if (matches_tag(request.header("if-none-match"), etag)) {
    response.status = 304;
    response.content_type.clear();
    return response;
  }
  response.content_type = asset.mime;
  if (coding == Coding::kGzip) {
    response.headers.emplace_back("Content-Encoding", "gzip");
    response.body.assign(reinterpret_cast<const char*>(asset.gzip.data()), asset.gzip.size());
  } else {
    response.body = unpacked(asset);
  }
  return response;
}

void write_model(JsonWriter& json, const ServedModel& served) {
  const ModelInfo& model = served.info;
  json.key("model").open_object().text("id", model.name).text("family", model.family);
  json.text("architecture", model.architecture).integer("parameters", model.num_parameters);
  json.integer("weight_bytes", model.weight_bytes).text("quantisation", model.quantisation);
  json.key("formats").open_object();
  for (const auto& [format, count] : model.formats) json.integer(format, count);
  json.close_object().integer("context", served.serving.max_context);
  json.integer("vocab_size", model.vocab_size).text("path", model.file).close_object();
}

// All of them, in a few words.
void write_models(JsonWriter& json, const ModelRegistry& models) {
  json.key("models").open_array();
  for (const ModelStatus& status : models.status()) {
    json.open_object().text("id", status.names.front()).text("state", name_of(status.state));
    json.boolean("stays", status.stays).boolean("failed", status.failed);
    if (status.state == ModelState::kLoading) json.number("progress", status.progress);
    json.integer("waiting_for_load", static_cast<int64_t>(status.num_waiting));
    if (status.model != nullptr) {
      const EngineSnapshot engine = status.model->engine.snapshot();
      json.integer("weight_bytes", status.model->info.weight_bytes);
      json.integer("running", engine.num_running).integer("waiting", engine.num_waiting);
    }
    json.close_object();
  }
  json.close_array();
}

void write_engine(JsonWriter& json, const ServerState& state, const ServedModel& model) {
  const EngineSnapshot engine = model.engine.snapshot();
  const auto count = [](uint64_t value) { return static_cast<int64_t>(value); };
  json.key("engine").open_object().text("isa", model.info.isa);
  json.integer("threads", model.info.num_threads).text("numerics_id", model.info.numerics_id);
  json.integer("kv_blocks_total", engine.kv_blocks_total);
  json.integer("kv_blocks_used", engine.kv_blocks_used);
  json.integer("kv_blocks_cached", engine.kv_blocks_cached);
  json.integer("running", engine.num_running).integer("waiting", engine.num_waiting);
  json.number("decode_tokens_per_s", engine.decode_tokens_per_s);
  json.number("prefill_tokens_per_s", engine.prefill_tokens_per_s);
  json.integer("prompt_tokens", count(engine.prompt_tokens));
  json.integer("generation_tokens", count(engine.generation_tokens));
  json.integer("requests", count(engine.num_requests));
  json.integer("preemptions", count(engine.num_preemptions));
  json.integer("steps", count(engine.num_steps));
  json.boolean("draining", state.draining);
  json.number("uptime_s", static_cast<double>(now_us() - state.started) * 1e-6).close_object();
}

// How a request samples that says nothing of it.
void write_sampling(JsonWriter& json, const SamplingParams& sampling) {
  json.key("sampling").open_object().key("temperature").number(sampling.temperature);
  json.key("top_p").number(sampling.top_p).integer("top_k", sampling.top_k);
  json.key("min_p").number(sampling.min_p);
  json.key("repetition_penalty").number(sampling.repetition_penalty).close_object();
}

void write_steps(JsonWriter& json, const Engine& engine) {
  json.key("steps").open_array();
  for (const StepRecord& step : engine.recent_steps(kShownSteps)) {
    json.open_object().integer("index", static_cast<int64_t>(step.step_idx));
    json.integer("duration_us", step.committed_us - step.planned_us);
    json.integer("predicted_us", step.predicted_us);
    json.integer("tokens", step.num_tokens).integer("prompt_tokens", step.num_prompt_tokens);
    json.integer("sequences", static_cast<int64_t>(step.spans.size()));
    json.integer("running", step.num_running).integer("waiting", step.num_waiting);
    json.integer("kv_blocks_used", step.kv_blocks_used).close_object();
  }
  json.close_array();
}

// How evenly experts are used, by layer; absent without experts.
void write_experts(JsonWriter& json, const Engine& engine) {
  const std::vector<ExpertRows> layers = engine.expert_rows();
  if (layers.empty()) return;
  json.key("experts").open_array();
  for (const ExpertRows& layer : layers) {
    const ExpertLoad load = expert_load(layer);
    json.open_object().integer("layer", layer.layer);
    json.integer("experts", static_cast<int64_t>(layer.rows.size()));
    json.number("largest", load.largest).number("smallest", load.smallest);
    json.integer("unused", load.num_unused).close_object();
  }
  json.close_array();
}

}  // namespace

void handle_asset(ServerState& state, HttpRequest& request,
                  std::shared_ptr<ResponseWriter> writer) {
  const EmbeddedAsset* asset = find_asset(request.path);
  if (asset != nullptr) {
    respond(state, *writer, asset_response(*asset, request));
  } else if (request.path == "/" || request.path == "/lab") {
    respond(state, *writer, HttpResponse{200, std::string(kNoPage), "text/plain; charset=utf-8"});
  } else {
    respond(state, *writer,
            error_response(*request.route->dialect, Problem{404, "the page has no such file"}));
  }
}

std::string status_json(ServerState& state) {
  JsonWriter json;
  json.open_object();
  const ModelPtr model = state.models.first();
  write_model(json, *model);
  write_models(json, state.models);
  write_engine(json, state, *model);
  write_sampling(json, default_sampling(model->text.sampling));
  write_steps(json, model->engine);
  write_experts(json, model->engine);
  json.key("version").open_object().text("headrace", server_version()).text("build", kBuild);
  json.close_object().close_object();
  return json.take();
}

void handle_status(ServerState& state, HttpRequest& /*request*/,
                   std::shared_ptr<ResponseWriter> writer) {
  HttpResponse response{200, status_json(state)};
  response.headers.emplace_back("Cache-Control", "no-store");
  respond(state, *writer, std::move(response));
}

}  // namespace headrace
