#include "server/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>

#include "base/strings.h"

namespace headrace {
namespace {

constexpr size_t kMaxKeyBytes = 512;
constexpr size_t kMaxNameBytes = 64;
constexpr std::string_view kDigestPrefix = "sha256:";
constexpr std::string_view kKeyPrefix = "hr-";

struct ScopeName {
  KeyScopes scope;
  std::string_view name;
};
constexpr ScopeName kScopeNames[] = {
    {kInferenceScope, "inference"}, {kAdminScope, "admin"}, {kMetricsScope, "metrics"}};

std::string to_hex(const KeyDigest& digest) {
  std::string out;
  for (const unsigned char byte : digest) append_format(out, "{:02x}", byte);
  return out;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

std::optional<KeyDigest> parse_digest(std::string_view text) {
  KeyDigest digest{};
  if (!text.starts_with(kDigestPrefix)) return std::nullopt;
  text.remove_prefix(kDigestPrefix.size());
  if (text.size() != 2 * digest.size()) return std::nullopt;
  for (size_t i = 0; i < digest.size(); ++i) {
    const int high = hex_value(text[2 * i]), low = hex_value(text[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    digest[i] = static_cast<unsigned char>(high * 16 + low);
  }
  return digest;
}

bool is_key_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  std::string_view("-_.@").find(c) != std::string_view::npos;
         });
}

bool is_plain_key(std::string_view key) {
  return key.size() <= kMaxKeyBytes &&
         std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < 0x7F; });
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!(line = trim_spaces(line)).empty()) {
    const size_t end = std::min(line.find_first_of(" \t"), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
  return words;
}

// Nothing: the line is no key.
std::optional<ApiKey> parse_line(const std::vector<std::string_view>& words) {
  if (words.size() == 1 && is_plain_key(words[0]) && !words[0].starts_with(kDigestPrefix)) {
    return plain_api_key(words[0]);
  }
  if (words.size() != 3 || !is_key_name(words[0])) return std::nullopt;
  const auto scopes = parse_scopes(words[1]);
  const auto digest = parse_digest(words[2]);
  if (!scopes.ok() || !digest) return std::nullopt;
  return ApiKey{std::string(words[0]), *scopes, *digest};
}

}  // namespace

uint64_t client_of(const ApiKey& key, std::string_view secret) {
  const std::string_view digest(reinterpret_cast<const char*>(key.digest.data()),
                                key.digest.size());
  const std::string identity =
      key.name.empty() ? fmt::format("key {}", digest) : "name " + key.name;
  KeyDigest mac{};
  unsigned int length = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(identity.data()), identity.size(), mac.data(),
       &length);
  uint64_t client = 0;
  std::memcpy(&client, mac.data(), sizeof client);
  return client;
}

std::string make_client_secret() {
  std::random_device random;
  std::string secret(32, '\0');
  for (char& byte : secret) byte = static_cast<char>(random());
  return secret;
}

KeyDigest digest_of_key(std::string_view key) {
  KeyDigest digest{};
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

bool same_digest(const KeyDigest& a, const KeyDigest& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

ApiKey plain_api_key(std::string_view key) {
  return {{}, kInferenceScope | kMetricsScope, digest_of_key(key)};
}

Result<KeyScopes> parse_scopes(std::string_view text) {
  KeyScopes scopes = 0;
  for (const std::string_view word : split_list(text)) {
    const auto* row = std::find_if(std::begin(kScopeNames), std::end(kScopeNames),
                                   [&](const ScopeName& each) { return each.name == word; });
    if (row == std::end(kScopeNames)) scopes = 0;
    if (row == std::end(kScopeNames)) break;
    scopes = static_cast<KeyScopes>(scopes | row->scope);
  }
  if (scopes == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the scopes are '{}', but they must be some of inference, admin and metrics, "
                      "with commas between",
                      text);
  }
  return scopes;
}

std::string scope_names(KeyScopes scopes) {
  std::string names;
  for (const ScopeName& each : kScopeNames) {
    if ((scopes & each.scope) != 0) names += (names.empty() ? "" : ",") + std::string(each.name);
  }
  return names;
}

Result<std::vector<ApiKey>> parse_api_keys(std::string_view text, std::string_view source) {
  std::vector<ApiKey> keys;
  for (int line_number = 1; !text.empty(); ++line_number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const auto words = words_of(line);
    if (words.empty() || words[0].starts_with('#')) continue;
    auto key = parse_line(words);
    if (!key) {
      return make_error(ErrorCode::kInvalidArgument,
                        "{} holds in line {} what is no API key: a line is NAME SCOPES sha256:HEX "
                        "as `headrace key` prints it, or a key of at most {} letters, digits and "
                        "signs of ASCII, without spaces",
                        source, line_number, kMaxKeyBytes);
    }
    keys.push_back(std::move(*key));
  }
  if (keys.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "{} holds no API key", source);
  }
  return keys;
}

Result<NewApiKey> make_api_key(std::string_view name, KeyScopes scopes) {
  if (!is_key_name(name)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the name is '{}', but it must be at most {} letters, digits and signs of "
                      "-_.@",
                      name, kMaxNameBytes);
  }
  KeyDigest secret{};
  if (RAND_bytes(secret.data(), static_cast<int>(secret.size())) != 1) {
    return make_error(ErrorCode::kInternal, "the system gives no random bytes");
  }
  NewApiKey made;
  made.key = std::string(kKeyPrefix) + to_hex(secret);
  made.line = fmt::format("{} {} {}{}", name, scope_names(scopes), kDigestPrefix,
                          to_hex(digest_of_key(made.key)));
  return made;
}

}  // namespace headrace
