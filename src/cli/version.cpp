// headrace version: build, processor, libraries; kernels and options on request.

#include <curl/curl.h>
#include <openssl/crypto.h>
#include <spdlog/version.h>
#include <boost/json.hpp>
#include <boost/version.hpp>

#include <cstdio>

#include "build_info.h"
#include "cli/command.h"
#include "cli/runtime.h"
#include "cli/terminal.h"
#include "engine/numerics.h"

namespace headrace {
namespace {

namespace json = boost::json;

json::object describe_build() {
  return {{"version", HEADRACE_VERSION},
          {"commit", HEADRACE_COMMIT},
          {"compiler", HEADRACE_COMPILER},
          {"build_type", HEADRACE_BUILD_TYPE},
          {"sanitizers", HEADRACE_SANITIZERS}};
}

json::object describe_libraries() {
  return {{"boost", BOOST_LIB_VERSION},
          {"openssl", OpenSSL_version(OPENSSL_VERSION)},
          {"curl", curl_version_info(CURLVERSION_NOW)->version},
          {"spdlog", fmt::format("{}.{}.{}", SPDLOG_VER_MAJOR, SPDLOG_VER_MINOR, SPDLOG_VER_PATCH)},
          {"fmt", fmt::format("{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100)}};
}

// The numerics class in use for weights of this format.
std::string class_of_weights(const Backend& backend, std::string_view weight_dtype) {
  for (const KernelInfo& row : backend.kernels()) {
    if (row.selected && row.op == "matmul" && row.weight_dtype == weight_dtype) {
      return row.numerics_class;
    }
  }
  return {};
}

json::object describe_machine(const Options& options, const Backend& backend) {
  const KvType kv_type = kv_type_from_options(options, backend.default_kv_type());
  return {{"isa", backend.isa()},
          {"threads", backend.num_threads()},
          {"coded_weights", class_of_weights(backend, "Q8_0")},
          {"bf16_weights", class_of_weights(backend, "BF16")},
          {"kv_type", kv_type_name(kv_type)},
          {"numerics_id", numerics_id(backend, kv_type)}};
}

const char* state_of(const KernelInfo& row) {
  return row.selected ? "in use" : row.available ? "available" : "not on this cpu";
}

void print_kernels(const Backend& backend) {
  std::printf("%-14s %-34s %-10s %-8s %-16s %-18s %s\n", "op", "kernel", "isa", "weights", "layout",
              "numerics class", "state");
  for (const KernelInfo& row : backend.kernels()) {
    std::printf("%-14s %-34s %-10s %-8s %-16s %-18s %s\n", row.op.c_str(), row.name.c_str(),
                row.isa.c_str(), row.weight_dtype.c_str(), row.layout.c_str(),
                row.numerics_class.c_str(), state_of(row));
  }
}

json::array list_kernels(const Backend& backend) {
  json::array list;
  for (const KernelInfo& row : backend.kernels()) {
    list.push_back({{"op", row.op},
                    {"kernel", row.name},
                    {"isa", row.isa},
                    {"weights", row.weight_dtype},
                    {"layout", row.layout},
                    {"numerics_class", row.numerics_class},
                    {"state", state_of(row)}});
  }
  return list;
}

std::string_view default_of(const OptionRow& row) {
  if (!row.value.empty()) return row.value;
  return row.unset.empty() ? "none" : row.unset;
}

// One option per paragraph: name, environment variable, default, range and commands.
void print_options() {
  for (const OptionRow& row : option_rows()) {
    const std::string_view value = default_of(row);
    std::printf("%-24s default %s%s%s%s%s; for %s\n", std::string(row.name).c_str(),
                std::string(value).c_str(), row.range.empty() ? "" : ", in ",
                std::string(row.range).c_str(), row.env.empty() ? "" : ", environment ",
                std::string(row.env).c_str(), std::string(row.commands).c_str());
  }
}

json::array list_options() {
  json::array list;
  for (const OptionRow& row : option_rows()) {
    list.push_back({{"name", row.name},
                    {"default", default_of(row)},
                    {"range", row.range},
                    {"environment", row.env},
                    {"commands", row.commands}});
  }
  return list;
}

void print_section(std::string_view title, const json::object& section) {
  std::printf("%s\n", std::string(title).c_str());
  for (const auto& [key, value] : section) {
    const std::string text = value.is_string() ? std::string(value.as_string())
                                               : format_count(value.to_number<int64_t>());
    std::printf("  %-14s %s\n", std::string(key).c_str(), text.empty() ? "none" : text.c_str());
  }
}

void print_json(const Options& options, const Backend& backend) {
  json::object report{{"build", describe_build()},
                      {"machine", describe_machine(options, backend)},
                      {"libraries", describe_libraries()}};
  if (options.flag("--options")) report["options"] = list_options();
  if (options.flag("--list-kernels")) report["kernels"] = list_kernels(backend);
  std::printf("%s\n", json::serialize(report).c_str());
}

void print_text(const Options& options, const Backend& backend) {
  const bool with_options = options.flag("--options"),
             with_kernels = options.flag("--list-kernels");
  if (with_options) print_options();
  if (with_options && with_kernels) std::printf("\n");
  if (with_kernels) print_kernels(backend);
  if (with_options || with_kernels) return;
  print_section("headrace", describe_build());
  print_section("this machine", describe_machine(options, backend));
  print_section("libraries", describe_libraries());
}

}  // namespace

Result<int> run_version(const Options& options) {
  const auto backend = TRY(create_backend(options));
  options.flag("--json") ? print_json(options, *backend) : print_text(options, *backend);
  return 0;
}

}  // namespace headrace
