#include "server/access.h"

#include <arpa/inet.h>

#include <algorithm>

#include "server/http/syntax.h"

namespace headrace {
namespace {

// What pages of other origins may read beside the body; request-id is Anthropic's name.
constexpr std::string_view kExposedHeaders =
    "x-request-id, request-id, retry-after, x-headrace-ignored";
constexpr std::string_view kPreflightSeconds = "600";

std::vector<std::string> lowered(const std::vector<std::string>& texts) {
  std::vector<std::string> out;
  for (const std::string& text : texts) out.push_back(to_lower(text));
  return out;
}

bool holds(const std::vector<std::string>& texts, std::string_view text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

bool is_ip_address(std::string_view name) {
  in_addr address{};
  return name.starts_with('[') || inet_pton(AF_INET, std::string(name).c_str(), &address) == 1;
}

// Does this origin, "scheme://host[:port]", name the server that the Host header names?
bool is_same_origin(std::string_view origin, std::string_view host_header) {
  const bool is_https = origin.starts_with("https://");
  if (!is_https && !origin.starts_with("http://")) return false;
  auto from = parse_host(origin.substr(is_https ? 8 : 7));
  auto to = parse_host(host_header);
  if (!from || !to) return false;
  const std::string usual_port = is_https ? "443" : "80";
  if (from->port.empty()) from->port = usual_port;
  if (to->port.empty()) to->port = usual_port;
  return from->name == to->name && from->port == to->port;
}

std::string_view media_type(std::string_view content_type) {
  return trim_spaces(content_type.substr(0, content_type.find(';')));
}

std::string_view presented_key(const HttpRequest& request) {
  std::string_view given = request.header("authorization");
  const std::string_view scheme = given.substr(0, given.find(' '));
  if (!equals_ignoring_case(scheme, "bearer")) return request.header("x-api-key");
  given.remove_prefix(scheme.size());
  return trim_spaces(given);
}

// scheme://host[:port], with nothing behind it. Applications have schemes of their own.
bool is_origin(std::string_view text) {
  const std::string origin = to_lower(text);
  const size_t end = origin.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789+-.");
  if (end == 0 || end == std::string::npos || origin.compare(end, 3, "://") != 0) return false;
  const bool is_pattern = origin.find('*') != std::string::npos;  // it would be taken literally
  return !is_pattern && !origin.ends_with(':') && parse_host(origin.substr(end + 3));
}

}  // namespace

Status check_origins(const std::vector<std::string>& origins) {
  for (const std::string& origin : origins) {
    if (origin == "*" || origin == "null" || is_origin(origin)) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "--cors-origins holds '{}', but must hold * or origins as browsers send "
                      "them: scheme://host or scheme://host:port, with no path behind it",
                      origin);
  }
  return {};
}

Access::Access(const ServerOptions& options)
    : secret_(options.client_secret.empty() ? make_client_secret() : options.client_secret),
      hosts_(lowered(options.allowed_hosts)),
      origins_(lowered(options.cors_origins)),
      any_host_(holds(hosts_, "*") || (hosts_.empty() && !is_loopback_host(options.host))),
      any_origin_(holds(origins_, "*")) {
  set_keys(options.api_keys);
}

void Access::set_keys(std::vector<ApiKey> keys) {
  auto known = std::make_shared<std::vector<KnownKey>>();
  for (ApiKey& key : keys) {
    const uint64_t client = client_of(key, secret_);
    known->push_back({std::move(key), client});
  }
  std::lock_guard lock(mutex_);
  keys_ = std::move(known);
}

std::shared_ptr<const std::vector<Access::KnownKey>> Access::keys() const {
  std::lock_guard lock(mutex_);
  return keys_;
}

bool Access::has_keys() const { return !keys()->empty(); }

bool Access::is_allowed_host(std::string_view header) const {
  if (any_host_ || header.empty()) return true;
  const auto host = parse_host(header);
  if (!host) return false;
  const std::string& name = host->name;
  return is_ip_address(name) || name.find('.') == std::string::npos ||
         name.ends_with(".localhost") || holds(hosts_, name) || holds(hosts_, to_lower(header));
}

bool Access::is_listed_origin(std::string_view origin) const {
  return any_origin_ || holds(origins_, to_lower(origin));
}

std::optional<Problem> Access::check_source(const HttpRequest& request) const {
  const std::string_view host = request.header("host");
  if (!is_allowed_host(host)) {
    return Problem{403,
                   fmt::format("this server is not known as '{}'; start it with "
                               "--allowed-hosts {} to serve that name",
                               host, host),
                   {},
                   "host_not_allowed",
                   {}};
  }
  const std::string_view origin = request.header("origin");
  if (!origin.empty()) {
    if (is_same_origin(to_lower(origin), host) || is_listed_origin(origin)) return std::nullopt;
    return Problem{403,
                   "web pages of this origin may not use the server; start it with "
                   "--cors-origins and the origin to allow them",
                   {},
                   "origin_not_allowed",
                   {}};
  }
  const std::string_view site = request.header("sec-fetch-site");
  const bool is_read = request.method == "GET" || request.method == "HEAD";
  if (is_read || site.empty() || site == "same-origin" || site == "none") return std::nullopt;
  return Problem{
      403, "web pages of other sites may not use the server", {}, "origin_not_allowed", {}};
}

// Every key is compared, to the last byte: how long it takes tells nothing of a key.
std::optional<Problem> Access::check_key(HttpRequest& request, KeyScopes scopes) const {
  const auto known = keys();
  if (known->empty()) {
    if (scopes != kAdminScope) return std::nullopt;
    return Problem{
        403,
        "this needs an API key with the scope admin, and the server was started without keys",
        {},
        "insufficient_scope",
        {}};
  }
  const KeyDigest given = digest_of_key(presented_key(request));
  const KnownKey* found = nullptr;
  for (const KnownKey& each : *known) {
    found = same_digest(each.key.digest, given) ? &each : found;
  }
  if (found == nullptr) {
    return Problem{
        401, "a valid API key is needed", {}, "invalid_api_key", {{"WWW-Authenticate", "Bearer"}}};
  }
  request.client = found->client;
  request.key_name = found->key.name;
  request.cache_group = found->key.cache_group;
  if ((found->key.scopes & scopes) != 0) return std::nullopt;
  return Problem{
      403,
      fmt::format("this API key may not ask for that: it needs the scope {}", scope_names(scopes)),
      {},
      "insufficient_scope",
      {}};
}

std::optional<Problem> Access::check_content(const HttpRequest& request) const {
  const std::string_view type = media_type(request.header("content-type"));
  if (type.empty() || equals_ignoring_case(type, "application/json")) return std::nullopt;
  const bool is_browser =
      !request.header("origin").empty() || !request.header("sec-fetch-site").empty();
  const bool is_form = equals_ignoring_case(type, "application/x-www-form-urlencoded");
  if (is_form && !is_browser) return std::nullopt;
  return Problem{
      415, fmt::format("Content-Type is '{}', but it must be application/json", type), {}, {}, {}};
}

HttpHeaders Access::cors_headers(const HttpRequest& request) const {
  if (origins_.empty()) return {};
  HttpHeaders headers;
  if (!any_origin_) headers.emplace_back("Vary", "Origin");
  const std::string_view origin = request.header("origin");
  if (origin.empty() || !is_listed_origin(origin)) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", any_origin_ ? "*" : std::string(origin));
  headers.emplace_back("Access-Control-Expose-Headers", kExposedHeaders);
  return headers;
}

HttpHeaders Access::preflight_headers(const HttpRequest& request, std::string_view methods) const {
  const std::string_view origin = request.header("origin");
  if (origin.empty() || !is_listed_origin(origin)) return {};
  HttpHeaders headers{{"Access-Control-Allow-Methods", std::string(methods)},
                      {"Access-Control-Max-Age", std::string(kPreflightSeconds)},
                      {"Vary", "Access-Control-Request-Headers"}};
  std::string names;
  for (const std::string_view name : split_list(request.header("access-control-request-headers"))) {
    if (is_http_token(name)) names += (names.empty() ? "" : ", ") + std::string(name);
  }
  if (!names.empty()) headers.emplace_back("Access-Control-Allow-Headers", names);
  if (request.header("access-control-request-private-network") == "true") {
    headers.emplace_back("Access-Control-Allow-Private-Network", "true");
  }
  return headers;
}

bool is_loopback_host(std::string_view host) {
  return host == "localhost" || host == "::1" || (is_ip_address(host) && host.starts_with("127."));
}

}  // namespace headrace
