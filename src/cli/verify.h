// What `headrace verify` is made of: one function per kind of check, one report row per item.
#pragma once

#include <string>
#include <vector>

#include "options.h"

namespace headrace {

struct VerifyRow {
  std::string item;  // folder, file, prompt or kernel
  bool passed = false;
  std::string details;  // figures: largest difference, tolerance, counts, or the error
};

// One row per item; an error only if nothing could be run at all. paths: the arguments after the
// kind.
Result<std::vector<VerifyRow>> verify_golden(const Options& options,
                                             const std::vector<std::string>& paths);
Result<std::vector<VerifyRow>> verify_tokenizer(const Options& options,
                                                const std::vector<std::string>& paths);
Result<std::vector<VerifyRow>> verify_template(const Options& options,
                                               const std::vector<std::string>& paths);
Result<std::vector<VerifyRow>> verify_model(const Options& options,
                                            const std::vector<std::string>& paths);
Result<std::vector<VerifyRow>> verify_kernels(const Options& options,
                                              const std::vector<std::string>& paths);

}  // namespace headrace
