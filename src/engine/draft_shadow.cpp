#include "engine/draft_shadow.h"

namespace headrace {

SchedulerOptions drafter_options(const Model& model, const Backend& backend,
                                 const SchedulerOptions& target) {
  SchedulerOptions options;
  options.max_batch_tokens = std::min(target.max_batch_tokens, model.options().max_batch_tokens);
  options.max_logit_rows = model.options().max_logit_rows;
  options.max_sequences =
      std::min({target.max_sequences, options.max_batch_tokens, options.max_logit_rows});
  options.max_context = target.max_context;
  options.end_ids = target.end_ids;
  options.hash_key = target.hash_key;
  options.numerics = target.numerics;
  options.cache_rules = plan_cache(model.cache_groups(), backend).rules;
  // Of each sequence that fits into the target's, the same tokens.
  options.num_blocks =
      std::max(target.num_blocks,
               most_blocks(options.cache_rules, options.max_context, options.max_batch_tokens));
  options.vocab_size = model.config().vocab_size;
  return options;
}

Request drafted_request(const Request& request) {
  Request made;
  made.sampling = request.sampling;
  made.max_tokens = request.max_tokens;
  made.min_tokens = request.min_tokens;
  made.stop_ids = request.stop_ids;
  made.ignore_eos = request.ignore_eos;
  made.cache_domain = request.cache_domain;
  return made;
}

bool ends_answer(const Request& request, const std::vector<int32_t>& end_ids, int32_t token_id) {
  const auto is_in = [token_id](const std::vector<int32_t>& ids) {
    return std::ranges::find(ids, token_id) != ids.end();
  };
  return is_in(request.stop_ids) || (!request.ignore_eos && is_in(end_ids));
}

}  // namespace headrace
