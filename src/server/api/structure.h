// structure: what an answer is held to becomes a constraint of the engine, for every dialect.
//
// A form is compiled once, on the worker thread that reads the request, and kept (text/grammar.h);
// each choice gets a matcher of its own.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "engine/constraint.h"
#include "server/api/generation.h"
#include "server/api/serving_model.h"
#include "text/grammar.h"

namespace headrace {

// Fills make_constraint where form.structure asks for one. kInvalidArgument names the structure's
// field and what is wrong with it.
Status apply_structure(const ServingModel& model, GenerationRequest& request);

// Whether answers can be held to it: an error names its field and, of a schema, the keyword that is
// not enforced.
Status check_structure(const ServingModel& model, const Structure& structure);
Status check_json_schema(const ServingModel& model, std::string_view schema);

// How a text ends, apart from its grammar.
struct TextEnds {
  std::vector<int32_t> end_ids;   // that the grammar's masks show
  std::vector<int32_t> stop_ids;  // of the request: they come where end ids do
  bool ignore_end_ids = false;    // these come only where nothing else may
};

// A grammar as the engine sees it.
class GrammarConstraint final : public Constraint {
 public:
  GrammarConstraint(std::unique_ptr<GrammarMatcher> matcher, TextEnds ends)
      : matcher_(std::move(matcher)), ends_(std::move(ends)) {}

  void fill_mask(std::span<uint64_t> mask) override;
  void accept(int32_t token_id) override;
  void rollback(int32_t num_tokens) override;
  bool is_finished() const override;
  void propose(int32_t max_tokens, std::vector<int32_t>* draft) override;

 private:
  bool is_end(int32_t token_id) const;

  const std::unique_ptr<GrammarMatcher> matcher_;
  const TextEnds ends_;
  int32_t num_ends_ = 0;  // end ids at the end of what was accepted
};

}  // namespace headrace
