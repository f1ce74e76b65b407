#include "server/api/generation.h"

#include <algorithm>

namespace headrace {

Request GenerationRequest::engine_request(size_t choice_idx, int64_t max_context) const {
  const size_t n = static_cast<size_t>(num_choices);
  Request request = prototype;
  const Prompt& prompt = prompts[choice_idx / n];
  request.prompt_ids = prompt.ids;
  if (num_best > 0 && !request.num_logprobs) request.num_logprobs = 0;
  request.sampling.choice_idx = static_cast<uint32_t>(choice_idx % n);
  if (make_constraint) request.constraint = make_constraint();
  if (gate) request.constraint = gate(prompt, std::move(request.constraint));
  const int64_t room = max_context - static_cast<int64_t>(request.prompt_ids.size());
  request.max_tokens = static_cast<int32_t>(std::min<int64_t>(request.max_tokens, room));
  request.min_tokens = std::min(request.min_tokens, request.max_tokens);
  if (only_computes) {  // whatever token comes is left out
    request.max_tokens = 1;
    request.ignore_eos = true;
  }
  return request;
}

size_t score_bytes(int num_alternatives) {
  return 80 * (static_cast<size_t>(num_alternatives) + 2);
}

size_t ScoreText::bytes() const {
  size_t bytes = 0;
  for (const JsonWriter& list : lists) bytes += list.str().size();
  return bytes;
}

// Joined to the last part where it goes on with it.
void ChoiceDelta::add(OutputPart part) {
  const bool goes_on =
      !parts.empty() && parts.back().kind == part.kind && parts.back().call_idx == part.call_idx;
  if (!goes_on) {
    parts.push_back(std::move(part));
    return;
  }
  parts.back().text += part.text;
}

size_t ChoiceDelta::bytes() const {
  size_t bytes = 0;
  for (const OutputPart& part : parts) {
    bytes += part.text.size() + part.call_id.size() + part.call_name.size();
  }
  return bytes;
}

std::string ChoiceDelta::text_of(OutputPart::Kind kind) const {
  std::string text;
  for (const OutputPart& part : parts) {
    if (part.kind == kind) text += part.text;
  }
  return text;
}

}  // namespace headrace
