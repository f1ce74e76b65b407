// tool_use: what a request says of tools and of reasoning, in terms of the model: variables of its
// template, marks that take its answer apart, and what the answer is held to. Once for all
// dialects.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "server/api/generation.h"
#include "server/api/prompt.h"
#include "server/api/serving_model.h"

namespace headrace {

// How many tools a body may list: by most APIs, and by any.
inline constexpr size_t kUsualMaxTools = 128;
inline constexpr size_t kMaxTools = 1024;
// kInvalidArgument naming "tools".
Status check_tool_count(size_t num_tools, size_t limit);

// After a dialect's parse: fills the template's variables ("tools", and switches of reasoning,
// where the dialect left them out), make_parser, and form.structure where calls are held to it.
// Without a conversation it does nothing. kInvalidArgument: a tool is named that was not declared,
// a name that no format can write; kUnsupported names the keyword that a strict tool's schema asks
// for in vain.
Status fit_answer_form(const ServingModel& model, PromptSource& prompts,
                       GenerationRequest& request);

// The first of it: for prompts that no answer follows.
void add_template_variables(const ServingModel& model, const AnswerForm& form,
                            ChatPrompt& conversation);

// After form.structure became make_constraint: reasoning comes first, and has its budget.
void gate_reasoning(const ServingModel& model, GenerationRequest& request);

}  // namespace headrace
