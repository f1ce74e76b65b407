// headrace verify KIND ...: the table of kinds and the report.

#include <boost/json.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/registry.h"
#include "cli/command.h"
#include "cli/runtime.h"
#include "verify/verify.h"

namespace headrace {
namespace {

using Paths = std::vector<std::string>;  // the arguments after the kind

Result<VerifyRows> verify_golden(const Options& options, const Paths& folders) {
  const auto backend = TRY(create_backend(options));
  // What is recorded has float32 keys and values; the tolerance has no room for rounding them.
  ModelOptions model = model_options(options, *backend);
  if (!options.is_set("--kv-type")) model.kv_type = KvType::kF32;
  VerifyRows rows;
  for (const std::string& folder : folders) {
    rows.push_back(golden_row(folder, *backend, model, options.number("--tolerance")));
  }
  return rows;
}

// A tokenizer.json itself, or the tokenizer of a checkpoint.
Result<std::unique_ptr<Tokenizer>> open_tokenizer(const Options& options, const std::string& spec) {
  if (spec.ends_with(".json")) return Tokenizer::from_json(TRY(read_text(spec)));
  const auto checkpoint = TRY(open_checkpoint(options, spec));
  TextBundle text = TRY(TextBundle::load(*checkpoint));
  return std::move(text.tokenizer);
}

Result<VerifyRows> verify_tokenizer(const Options& options, const Paths& paths) {
  const auto tokenizer = TRY(open_tokenizer(options, paths[0]));
  return tokenizer_rows(*tokenizer, {paths[1], TRY(read_text(paths[1]))});
}

Result<VerifyRows> verify_template(const Options&, const Paths& paths) {
  VerifyRows rows;
  for (const std::string& path : paths) {
    if (std::filesystem::path(path).filename() == "conversations.json") continue;
    const VerifyRows more = TRY(template_rows({path, TRY(read_text(path))}));
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return rows;
}

Result<VerifyRows> verify_model(const Options& options, const Paths& paths) {
  ModelRecord record{{paths[1], TRY(read_text(paths[1]))}, {}, options.integer("--windows")};
  if (paths.size() > 2) record.text = TRY(read_text(paths[2]));
  const Runtime runtime = TRY(open_runtime(options, paths[0]));
  return model_rows(*runtime.model, *runtime.backend, *runtime.text.tokenizer, record);
}

Result<VerifyRows> verify_kernels(const Options& options, const Paths&) {
  const uint32_t available = cpu::detect_isa();
  const std::string& isa = options.text("--isa");
  const cpu::KernelUnit* unit = TRY(cpu::select_unit(isa, available));
  const std::span<const cpu::KernelUnit* const> units =
      isa == "auto" ? cpu::all_units() : std::span<const cpu::KernelUnit* const>(&unit, 1);
  return kernel_rows(units, available,
                     options.flag("--quick") ? cpu::Depth::kQuick : cpu::Depth::kFull);
}

struct VerifyKind {
  std::string_view name, arguments;
  size_t min_arguments, max_arguments;
  Result<VerifyRows> (*run)(const Options&, const Paths&);
};

constexpr size_t kAny = SIZE_MAX;
constexpr VerifyKind kKinds[] = {
    {"golden", "DIR...", 1, kAny, verify_golden},
    {"tokenizer", "MODEL EXPECT.json", 2, 2, verify_tokenizer},
    {"template", "EXPECT.json...", 1, kAny, verify_template},
    {"model", "MODEL EXPECT.json [TEXT]", 2, 3, verify_model},
    {"kernels", "[--isa NAME] [--quick]", 0, 0, verify_kernels},
};

void print_rows(const VerifyRows& rows) {
  size_t width = 0;
  for (const VerifyRow& row : rows) width = std::max(width, row.item.size());
  for (const VerifyRow& row : rows) {
    std::printf("%-4s %-*s  %s\n", row.passed ? "ok" : "FAIL", static_cast<int>(width),
                row.item.c_str(), row.details.c_str());
  }
}

void print_json(const VerifyRows& rows) {
  boost::json::array list;
  for (const VerifyRow& row : rows) {
    list.push_back({{"item", row.item}, {"passed", row.passed}, {"details", row.details}});
  }
  std::printf("%s\n", boost::json::serialize(list).c_str());
}

}  // namespace

Result<int> run_verify(const Options& options) {
  const auto& arguments = options.positionals();
  const auto kind = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const VerifyKind& row) {
    return row.name == arguments.front();
  });
  if (kind == std::end(kKinds)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "cannot verify '{}'; the kinds are golden, tokenizer, template, model and "
                      "kernels",
                      arguments.front());
  }
  const Paths rest(arguments.begin() + 1, arguments.end());
  if (rest.size() < kind->min_arguments || rest.size() > kind->max_arguments) {
    return make_error(ErrorCode::kInvalidArgument, "usage: headrace verify {} {}", kind->name,
                      kind->arguments);
  }
  const VerifyRows rows = TRY(kind->run(options, rest));
  options.flag("--json") ? print_json(rows) : print_rows(rows);
  const auto passed = std::count_if(rows.begin(), rows.end(), [](auto& row) { return row.passed; });
  std::fprintf(stderr, "%zu checked, %zd passed, %zd failed\n", rows.size(),
               static_cast<ssize_t>(passed), static_cast<ssize_t>(rows.size()) - passed);
  return !rows.empty() && passed == static_cast<ssize_t>(rows.size()) ? 0 : 1;
}

}  // namespace headrace
