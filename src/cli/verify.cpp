// headrace verify KIND ...: the table of kinds and the report.

#include "cli/verify.h"

#include <boost/json.hpp>

#include <algorithm>
#include <cstdio>

#include "cli/command.h"

namespace headrace {
namespace {

struct VerifyKind {
  std::string_view name, arguments;
  size_t min_arguments, max_arguments;
  Result<std::vector<VerifyRow>> (*run)(const Options&, const std::vector<std::string>&);
};

constexpr size_t kAny = SIZE_MAX;
constexpr VerifyKind kKinds[] = {
    {"golden", "DIR...", 1, kAny, verify_golden},
    {"tokenizer", "MODEL EXPECT.json", 2, 2, verify_tokenizer},
    {"template", "EXPECT.json...", 1, kAny, verify_template},
    {"model", "MODEL EXPECT.json [TEXT]", 2, 3, verify_model},
    {"kernels", "[--isa NAME] [--quick]", 0, 0, verify_kernels},
};

void print_rows(const std::vector<VerifyRow>& rows) {
  size_t width = 0;
  for (const VerifyRow& row : rows) width = std::max(width, row.item.size());
  for (const VerifyRow& row : rows) {
    std::printf("%-4s %-*s  %s\n", row.passed ? "ok" : "FAIL", static_cast<int>(width),
                row.item.c_str(), row.details.c_str());
  }
}

void print_json(const std::vector<VerifyRow>& rows) {
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
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  if (rest.size() < kind->min_arguments || rest.size() > kind->max_arguments) {
    return make_error(ErrorCode::kInvalidArgument, "usage: headrace verify {} {}", kind->name,
                      kind->arguments);
  }
  const std::vector<VerifyRow> rows = TRY(kind->run(options, rest));
  options.flag("--json") ? print_json(rows) : print_rows(rows);
  const auto passed = std::count_if(rows.begin(), rows.end(), [](auto& row) { return row.passed; });
  std::fprintf(stderr, "%zu checked, %zd passed, %zd failed\n", rows.size(),
               static_cast<ssize_t>(passed), static_cast<ssize_t>(rows.size()) - passed);
  return !rows.empty() && passed == static_cast<ssize_t>(rows.size()) ? 0 : 1;
}

}  // namespace headrace
