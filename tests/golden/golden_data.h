// Recorded results for the golden tests, and the back ends they run on. Test-only.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/testing/golden.h"
#include "model/config/families.h"

namespace headrace::golden {

// Folders (or files) directly under root/kind, sorted by name; empty if there is no such folder.
std::vector<std::string> entries(const std::filesystem::path& root, const std::string& kind);
std::string file_name(const std::string& path);  // last component

// The row of the family table that reads this folder's config.json; null: none does.
const Family* family_of(const std::string& folder);
// Of entries(root, kind), those that a family reads, and those that none does.
std::vector<std::string> folders_run(const std::filesystem::path& root, const std::string& kind);
std::vector<std::string> folders_refused(const std::filesystem::path& root,
                                         const std::string& kind);

// A folder in tiny/ whose longest prompt has equal scores where its index cuts. The reference takes
// any of them (which, depends on the length of the whole run), we the lowest positions.
inline constexpr std::string_view kTiedAtTheCut = "deepseek_v32";
// folders_run() without it: what can be matched as a whole.
std::vector<std::string> folders_matched(const std::filesystem::path& root,
                                         const std::string& kind);

// A fresh temporary folder, removed at exit.
std::string temporary_folder(const std::string& name);

// The instruction sets that back ends are asked for by name.
std::vector<std::string> instruction_sets();
inline std::string name_of_isa(const ::testing::TestParamInfo<std::string>& isa) {
  return isa.param;
}
// Null where this processor lacks the instruction set; any other failure fails the test.
std::unique_ptr<Backend> backend_for(const std::string& isa, int num_threads = 0);

}  // namespace headrace::golden
