#include "server/api/structure.h"

#include <algorithm>

namespace headrace {
namespace {

struct StructureKindRow {
  Structure::Kind kind;
  GrammarKind grammar;
  std::string_view name;  // in messages
};

constexpr StructureKindRow kStructureKinds[] = {
    {Structure::Kind::kJsonObject, GrammarKind::kJsonObject, "JSON object"},
    {Structure::Kind::kJsonSchema, GrammarKind::kJsonSchema, "JSON schema"},
    {Structure::Kind::kRegex, GrammarKind::kRegex, "regular expression"},
    {Structure::Kind::kChoice, GrammarKind::kChoice, "choice"},
    {Structure::Kind::kGrammar, GrammarKind::kGrammar, "grammar"},
    {Structure::Kind::kTags, GrammarKind::kTags, "structural tag"},
};

void set_mask_bit(std::span<uint64_t> mask, int32_t id, bool value) {
  const auto word = static_cast<size_t>(id) / 64;
  const uint64_t bit = uint64_t{1} << (static_cast<size_t>(id) % 64);
  if (word >= mask.size()) return;
  mask[word] = value ? mask[word] | bit : mask[word] & ~bit;
}

Result<GrammarPtr> compile_structure(const ServingModel& model, const Structure& structure) {
  const auto row =
      std::find_if(std::begin(kStructureKinds), std::end(kStructureKinds),
                   [&](const StructureKindRow& each) { return each.kind == structure.kind; });
  CHECK(row != std::end(kStructureKinds), "a structure of kind {}",
        static_cast<int>(structure.kind));
  CHECK(model.text.grammars != nullptr, "no compiler of grammars for this model");
  auto grammar = model.text.grammars->compile(row->grammar, structure.text);
  if (grammar.ok() || grammar.error().code != ErrorCode::kInvalidArgument) return grammar;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("the {} cannot be enforced: {}", row->name, grammar.error().message),
               {},
               structure.param};
}

}  // namespace

Status apply_structure(const ServingModel& model, GenerationRequest& request) {
  if (request.form.structure.kind == Structure::Kind::kNone) return {};
  GrammarPtr grammar = TRY(compile_structure(model, request.form.structure));
  TRY(grammar->matcher());  // the first one shows whether there can be any
  TextEnds ends{model.text.grammars->end_ids(), request.prototype.stop_ids,
                request.prototype.ignore_eos};
  request.make_constraint = [grammar = std::move(grammar), ends = std::move(ends)] {
    auto matcher = grammar->matcher();
    CHECK(matcher.ok(), "a matcher failed that could be made before");
    return std::make_shared<GrammarConstraint>(std::move(matcher).value(), ends);
  };
  return {};
}

Status check_structure(const ServingModel& model, const Structure& structure) {
  TRY(compile_structure(model, structure));
  return {};
}

Status check_json_schema(const ServingModel& model, std::string_view schema) {
  return check_structure(model, {Structure::Kind::kJsonSchema, std::string(schema), {}});
}

bool GrammarConstraint::is_end(int32_t token_id) const {
  return std::find(ends_.end_ids.begin(), ends_.end_ids.end(), token_id) != ends_.end_ids.end();
}

void GrammarConstraint::fill_mask(std::span<uint64_t> mask) {
  // Asked for rows after guesses only: a guess past the end must not be taken for one that came.
  if (num_ends_ > 0 || (ends_.ignore_end_ids && is_finished())) {
    std::fill(mask.begin(), mask.end(), 0);
    return;
  }
  matcher_->fill_mask(mask);
  if (ends_.stop_ids.empty() && !ends_.ignore_end_ids) return;
  if (!matcher_->is_complete()) return;
  for (const int32_t id : ends_.stop_ids) set_mask_bit(mask, id, true);
  if (!ends_.ignore_end_ids) return;
  for (const int32_t id : ends_.end_ids) set_mask_bit(mask, id, false);
  const auto is_empty = [](uint64_t word) { return word == 0; };
  if (!std::all_of(mask.begin(), mask.end(), is_empty)) return;
  for (const int32_t id : ends_.end_ids) set_mask_bit(mask, id, true);
}

// After a failure masks are empty, so the request ends with its error.
void GrammarConstraint::accept(int32_t token_id) {
  if (num_ends_ > 0 || (is_end(token_id) && matcher_->is_complete())) {
    ++num_ends_;
  } else {
    (void)matcher_->accept(token_id);
  }
}

void GrammarConstraint::rollback(int32_t num_tokens) {
  const int32_t num_ends = std::min(num_tokens, num_ends_);
  num_ends_ -= num_ends;
  if (num_tokens > num_ends) (void)matcher_->rollback(num_tokens - num_ends);
}

bool GrammarConstraint::is_finished() const { return num_ends_ > 0 || matcher_->is_finished(); }

void GrammarConstraint::propose(int32_t max_tokens, std::vector<int32_t>* draft) {
  if (num_ends_ > 0) return;
  const size_t before = draft->size();
  draft->resize(before + static_cast<size_t>(max_tokens));
  const size_t count = matcher_->forced(std::span(*draft).subspan(before));
  draft->resize(before + count);
}

}  // namespace headrace
