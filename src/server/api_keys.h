// api_keys: who is known to the server, and what each may ask for.
//
// A key is kept as its SHA-256 digest only: a file of keys that leaks opens nothing, since keys
// made by make_api_key() have 256 random bits. A file has one key a line:
//   NAME SCOPE[,SCOPE...] sha256:HEX     as `headrace key` makes it
//   KEY                                  the key itself, with the scopes inference and metrics
// Empty lines and those that begin with # are left out. Two lines of one name are one client: a key
// is replaced without losing what is cached for its owner. Values; pure functions but for the
// randomness of a new key.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headrace {

using KeyScopes = uint8_t;  // a set of the bits below
inline constexpr KeyScopes kInferenceScope = 1;
inline constexpr KeyScopes kAdminScope = 2;
inline constexpr KeyScopes kMetricsScope = 4;
inline constexpr KeyScopes kAnyScope = kInferenceScope | kAdminScope | kMetricsScope;

using KeyDigest = std::array<unsigned char, 32>;

struct ApiKey {
  std::string name;  // empty: of a line that is the key itself
  KeyScopes scopes = kInferenceScope | kMetricsScope;
  KeyDigest digest{};
  // Keys that have the same share what is cached for them; empty: with nobody. Not of the file: it
  // is the tenant's choice.
  std::string cache_group = {};
};

// The number of a key's owner to the engine and the cache: of the name, so that an owner's new key
// is the same client, else of the key itself. Means nothing without the secret.
uint64_t client_of(const ApiKey& key, std::string_view secret);
// 32 random bytes.
std::string make_client_secret();

KeyDigest digest_of_key(std::string_view key);
// Equal as long as they are compared, whatever they hold.
bool same_digest(const KeyDigest& a, const KeyDigest& b);

// A key without a name.
ApiKey plain_api_key(std::string_view key);

// "inference,metrics". kInvalidArgument names the scopes there are.
Result<KeyScopes> parse_scopes(std::string_view text);
std::string scope_names(KeyScopes scopes);

// The keys of a file or an option; source names it in errors, which never repeat a line.
// kInvalidArgument: there is none, or a line is no key.
Result<std::vector<ApiKey>> parse_api_keys(std::string_view text, std::string_view source);

// A fresh key for its owner, and the line of a file that lets it in.
struct NewApiKey {
  std::string key, line;
};
// kInvalidArgument: the name is none; kInternal: the system has no randomness.
Result<NewApiKey> make_api_key(std::string_view name, KeyScopes scopes);

}  // namespace headrace
