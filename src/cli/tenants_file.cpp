#include "cli/tenants_file.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "cli/suggest.h"

#include <toml++/toml.h>

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxTenantName = 64;  // bytes

bool is_tenant_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxTenantName && name != Tenants::kOthers &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 ||
                  std::string_view("-_.@").find(static_cast<char>(c)) != std::string_view::npos;
         });
}

// Reads one file.
class TenantsReader {
 public:
  TenantsReader(const std::string& path, const std::vector<ApiKey>& keys)
      : path_(path), keys_(keys) {}

  Result<std::vector<ConfiguredTenant>> read(const toml::table& table) {
    for (auto&& [name, node] : table) {
      if (!node.is_table()) {
        return wrong(node, fmt::format("{} is no table: a tenant begins with [{}]", name.str(),
                                       node.is_array() ? "name" : name.str()));
      }
      TRY(add(std::string(name.str()), *node.as_table()));
    }
    return std::move(tenants_);
  }

 private:
  Error wrong(const toml::node& node, std::string_view what) const {
    return make_error(ErrorCode::kInvalidArgument, "{}, line {}: {}", path_,
                      node.source().begin.line, what);
  }

  Error wrong_field(const toml::node& node, std::string_view field, std::string_view needed) const {
    return wrong(node, fmt::format("{} of tenant '{}' must be {}", field, tenants_.back().spec.name,
                                   needed));
  }

  Status add(std::string name, const toml::table& table) {
    if (!is_tenant_name(name)) {
      return wrong(table, fmt::format("'{}' is no name of a tenant: it needs 1 to {} letters, "
                                      "digits or any of - _ . @, and '{}' is taken",
                                      name, kMaxTenantName, Tenants::kOthers));
    }
    tenants_.push_back({TenantSpec{.name = std::move(name)}});
    for (auto&& [field, node] : table) TRY(set(field.str(), node));
    return {};
  }

  Status set(std::string_view field, const toml::node& node) {
    ConfiguredTenant& tenant = tenants_.back();
    if (field == "parent") return set_parent(node, &tenant.spec);
    if (field == "weight") return set_number(field, node, &tenant.spec.weight);
    if (field == "guarantee") return set_number(field, node, &tenant.spec.guarantee);
    if (field == "burst") return set_number(field, node, &tenant.spec.burst_s);
    if (field == "keys") return set_keys(node, &tenant);
    if (field == "cache") return set_cache(node, &tenant);
    const std::string near =
        nearest_name(field, {"parent", "weight", "guarantee", "burst", "keys", "cache"});
    return wrong(node, fmt::format("there is no field '{}' of a tenant{}", field,
                                   near.empty() ? "" : ", but " + near));
  }

  Status set_parent(const toml::node& node, TenantSpec* spec) {
    const auto text = node.value_exact<std::string>();
    if (!text || text->empty())
      return wrong_field(node, "parent", "the name of another, in quotes");
    spec->parent = *text;
    return {};
  }

  Status set_number(std::string_view field, const toml::node& node, double* value) {
    const auto whole = node.value_exact<int64_t>();
    const auto number = whole ? static_cast<double>(*whole) : node.value_exact<double>();
    if (!number) return wrong_field(node, field, "a number");
    *value = *number;
    return {};
  }

  Status set_cache(const toml::node& node, ConfiguredTenant* tenant) {
    const std::string text = node.value_exact<std::string>().value_or("");
    if (text != "shared" && text != "separate") {
      return wrong_field(node, "cache", "\"separate\" or \"shared\"");
    }
    tenant->shares_cache = text == "shared";
    return {};
  }

  Status set_keys(const toml::node& node, ConfiguredTenant* tenant) {
    if (!node.is_array()) return wrong_field(node, "keys", "a list of names in quotes");
    for (auto&& each : *node.as_array()) {
      const auto name = each.value_exact<std::string>();
      if (!name) return wrong_field(each, "keys", "a list of names in quotes");
      TRY(check_key(each, *name));
      tenant->keys.push_back(*name);
    }
    return {};
  }

  Status check_key(const toml::node& node, const std::string& name) {
    const std::string& tenant = tenants_.back().spec.name;
    const bool is_known = std::any_of(keys_.begin(), keys_.end(), [&](const ApiKey& key) {
      return !name.empty() && key.name == name;
    });
    if (!is_known) {
      return wrong(node, fmt::format("tenant '{}' has the key '{}', but no key of --api-key-file "
                                     "has that name",
                                     tenant, name));
    }
    const auto [owner, is_new] = owners_.try_emplace(name, tenant);
    if (is_new) return {};
    return wrong(node, fmt::format("tenant '{}' has the key '{}', which tenant '{}' has already",
                                   tenant, name, owner->second));
  }

  const std::string& path_;
  const std::vector<ApiKey>& keys_;
  std::vector<ConfiguredTenant> tenants_;
  std::map<std::string, std::string> owners_;  // of keys
};

Error at_file(const std::string& path, const Error& error) {
  return make_error(error.code, "{}: {}", path, error.message);
}

}  // namespace

Result<std::vector<ConfiguredTenant>> read_tenants_file(const std::string& path,
                                                        const std::vector<ApiKey>& keys) {
  std::error_code ignored;
  if (!fs::exists(path, ignored) || fs::is_directory(path, ignored)) {
    return make_error(ErrorCode::kNotFound, "there is no file '{}', where tenants should be", path);
  }
  const toml::parse_result parsed = toml::parse_file(path);
  if (!parsed) {
    return make_error(ErrorCode::kInvalidArgument, "{}, line {}: {}", path,
                      parsed.error().source().begin.line, parsed.error().description());
  }
  std::vector<ConfiguredTenant> tenants = TRY(TenantsReader(path, keys).read(parsed.table()));
  if (tenants.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "{} holds no tenant: each begins with [NAME]",
                      path);
  }
  std::vector<TenantSpec> specs;
  for (const ConfiguredTenant& tenant : tenants) specs.push_back(tenant.spec);
  const Status status = check_tenants(specs);
  if (!status.ok()) return at_file(path, status.error());
  return tenants;
}

Status ServedTenants::read(const std::string& path, const std::vector<ApiKey>& keys) {
  if (path.empty()) return {};
  const bool has_names =
      std::any_of(keys.begin(), keys.end(), [](const ApiKey& key) { return !key.name.empty(); });
  if (!has_names) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--tenants is '{}', but it needs --api-key-file with keys that have names "
                      "(headrace key makes them): tenants are made of those",
                      path);
  }
  tenants_ = TRY(read_tenants_file(path, keys));
  std::vector<TenantSpec> specs;
  for (const ConfiguredTenant& tenant : tenants_) {
    specs.push_back(tenant.spec);
    for (const std::string& name : tenant.keys) {
      specs.back().clients.push_back(client_of(ApiKey{.name = name}, secret_));
    }
  }
  book_.set(std::move(specs));
  return {};
}

void ServedTenants::mark(std::vector<ApiKey>* keys) const {
  std::map<std::string_view, std::string_view> groups;  // by key
  for (const ConfiguredTenant& tenant : tenants_) {
    for (const std::string& name : tenant.keys) {
      if (tenant.shares_cache) groups.emplace(name, tenant.spec.name);
    }
  }
  for (ApiKey& key : *keys) {
    const auto group = groups.find(key.name);
    key.cache_group = group == groups.end() ? "" : std::string(group->second);
  }
}

}  // namespace headrace
