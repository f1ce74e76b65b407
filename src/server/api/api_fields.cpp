#include "server/api/api_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <unordered_map>

#include "base/edit_distance.h"
#include "base/strings.h"
#include "server/api/fields.h"

namespace headrace {
namespace {

using enum FieldUse;

constexpr size_t kMaxMembers = 1024;  // of one object
constexpr size_t kMaxShownFields = 16;
constexpr size_t kMaxShownBytes = 64;  // of one name

constexpr uint64_t kChat = kInChat;
constexpr uint64_t kText = kInCompletion;
constexpr uint64_t kBoth = kChat | kText;
constexpr uint64_t kPrompting = kChat | kInTokenize;  // what makes a prompt of messages
constexpr uint64_t kResp = kInResponses;
constexpr uint64_t kItem = kInResponseItem;
constexpr uint64_t kEverywhere = kBoth | kInTokenize | kInDetokenize | kInRender | kResp;
constexpr uint64_t kAll = kBoth | kResp;
// What the engine computes in a queue, in whatever dialect.
constexpr uint64_t kTimed = kAll | kInBlockMessages | kInOllamaChat | kInOllamaGenerate |
                            kInLlamaCompletion | kInInfill | kInEmbedding | kInRerank | kInScore;

// Sources: the published OpenAI API; the extensions of vLLM, SGLang, llama.cpp's server, Text
// Generation Inference and text-generation-webui; generation_config.json of transformers.
// clang-format off
constexpr FieldRow kRows[] = {
    // What to answer.
    {"model", kServed, kEverywhere, "", "the model's name or an alias; absent: the model that is served"},
    {"messages", kServed, kPrompting, "", "1 message or more; roles system, developer, user, assistant, tool; a later one of the system is the user's where the template would lose it"},
    {"messages", kRefused, kText, "[]", "use /v1/chat/completions for messages"},
    {"prompt", kServed, kText | kInTokenize, "", "text, list of texts, token ids or list of lists of ids (/tokenize: text)"},
    {"prompt", kRefused, kChat, "[\"\"]", "use /v1/completions for a prompt"},
    {"tokens", kServed, kInDetokenize, "", "token ids"},
    {"add_special_tokens", kServed, kText | kInTokenize, "", "default true; with messages the template places them"},
    {"add_special_tokens", kRefused, kChat, "[false]", "the chat template places them"},
    {"return_token_strs", kServed, kInTokenize | kInRender, "", "default false"},
    {"echo", kServed, kText, "", "the answer begins with the prompt"},
    {"echo", kRefused, kChat, "[false]", "leave it out"},
    {"suffix", kServed, kText, "", "the text after the answer, for models with fill-in-the-middle tokens; 400 for others"},
    {"suffix", kRefused, kChat | kResp, "[\"\"]", "use /v1/completions"},
    {"prompt_embeds", kRefused, kBoth, "[]", "send text or token ids"},
    // Chat templates.
    {"tools", kServed, kPrompting, "", "at most 128, of type function; 400 if the model's template has no place for them"},
    {"tools", kRefused, kText, "[[]]", "use /v1/chat/completions for tools"},
    {"tool_choice", kServed, kPrompting, "", "\"auto\", \"none\", \"required\" or {type, function: {name}}; calls hold to the declared names and schemas"},
    {"tool_choice", kRefused, kText, "[\"none\", \"auto\"]", "use /v1/chat/completions for tools"},
    {"parallel_tool_calls", kServed, kPrompting, "", "default true; false: at most one call in an answer"},
    {"parallel_tool_calls", kHarmless, kText, "", ""},
    {"functions", kRefused, kBoth, "[[]]", "use tools"},
    {"function_call", kRefused, kBoth, "[\"none\", \"auto\"]", "use tools and tool_choice"},
    {"documents", kServed, kPrompting, "", "given to the template; 400 if it has no place for them"},
    {"documents", kRefused, kText, "[[]]", "use /v1/chat/completions for documents"},
    {"chat_template_kwargs", kServed, kPrompting, "", "variables of the template; those that it does not read are named in the header"},
    {"chat_template_kwargs", kRefused, kText, "[{}]", "use /v1/chat/completions"},
    {"reasoning_effort", kServed, kPrompting, "", "a variable of the template, named in the header if it does not read it; \"none\": no reasoning"},
    {"reasoning_effort", kRefused, kText, "", "use /v1/chat/completions"},
    {"add_generation_prompt", kServed, kPrompting, "", "default true, or false with continue_final_message"},
    {"add_generation_prompt", kRefused, kText, "[true]", "use /v1/chat/completions"},
    {"continue_final_message", kServed, kPrompting, "", "the last message is continued"},
    {"continue_final_message", kRefused, kText, "[false]", "use /v1/chat/completions"},
    {"chat_template", kRefused, kPrompting | kText, "[\"\"]", "the model's own template is used"},
    {"enable_thinking", kServed, kPrompting, "", "whether the model reasons, where its template or its marks can say so"},
    {"enable_thinking", kRefused, kText, "", "use /v1/chat/completions"},
    {"thinking", kServed, kPrompting, "", "{type: \"enabled\" or \"disabled\", budget_tokens}"},
    {"thinking", kRefused, kText, "[{\"type\": \"disabled\"}]", "use /v1/chat/completions"},
    {"think", kServed, kPrompting, "", "as enable_thinking"},
    {"think", kRefused, kText, "[false]", "use /v1/chat/completions"},
    {"thinking_budget", kServed, kPrompting, "", "tokens of reasoning, then it is closed; -1: any number"},
    {"thinking_budget", kRefused, kText, "[-1]", "limit max_tokens"},
    {"thinking_budget_tokens", kServed, kPrompting, "", "as thinking_budget"},
    {"thinking_budget_tokens", kRefused, kText, "[-1]", "limit max_tokens"},
    {"thinking_token_budget", kServed, kPrompting, "", "as thinking_budget"},
    {"thinking_token_budget", kRefused, kText, "[-1]", "limit max_tokens"},
    {"reasoning_budget", kServed, kPrompting, "", "as thinking_budget"},
    {"reasoning_budget", kRefused, kText, "[-1]", "limit max_tokens"},
    {"max_reasoning_tokens", kServed, kPrompting, "", "as thinking_budget"},
    {"max_reasoning_tokens", kRefused, kText, "[-1]", "limit max_tokens"},
    {"reasoning", kServed, kPrompting, "", "{enabled, effort, max_tokens}"},
    {"reasoning", kRefused, kText, "[{}]", "use /v1/chat/completions"},
    {"include_reasoning", kRefused, kBoth, "[true]", "reasoning is sent apart from the text: leave it unread"},
    {"separate_reasoning", kServed, kPrompting, "", "default true: reasoning_content and reasoning; false: in the text, with its marks"},
    {"separate_reasoning", kRefused, kText, "[false]", "reasoning is part of the text"},
    {"stream_reasoning", kRefused, kBoth, "[true]", "reasoning is streamed as it comes"},
    {"reasoning_format", kServed, kPrompting, "", "\"none\": as separate_reasoning false"},
    {"reasoning_format", kRefused, kText, "[\"none\"]", "reasoning is part of the text"},
    {"thinking_forced_open", kRefused, kBoth, "[false]", "leave it out"},
    {"system", kRefused, kBoth, "[\"\"]", "send a message of the role system"},
    {"instructions", kRefused, kBoth, "[\"\"]", "send a message of the role system"},
    {"verbosity", kRefused, kBoth, "[\"medium\"]", "say it in a message"},
    {"modalities", kRefused, kBoth, "[[\"text\"], []]", "this server answers with text"},
    {"audio", kRefused, kBoth, "[{}]", "this server answers with text"},
    {"images", kRefused, kBoth, "[[]]", "this server reads text"},
    {"image_data", kRefused, kBoth, "[[]]", "this server reads text"},
    {"mm_processor_kwargs", kRefused, kPrompting | kText, "[{}]", "this server reads text"},
    {"media_io_kwargs", kRefused, kPrompting | kText, "[{}]", "this server reads text"},
    {"web_search_options", kRefused, kBoth, "", "this server has no search"},
    {"citation_options", kRefused, kBoth, "", "leave it out"},
    {"guideline", kRefused, kBoth, "[\"\"]", "send a message of the role system"},
    {"tool_prompt", kRefused, kBoth, "[\"\"]", "the model's own template is used"},
    // Sampling.
    {"temperature", kServed, kAll, "", "0 to 100; 0 is greedy"},
    {"top_p", kServed, kAll, "", "above 0, at most 1"},
    {"top_k", kServed, kAll, "", "-1 and 0: off"},
    {"min_p", kServed, kAll, "", "0 to 1"},
    {"repetition_penalty", kServed, kAll, "", "0.01 to 100, over prompt and answer"},
    {"presence_penalty", kServed, kAll, "", "-2 to 2, over the answer"},
    {"frequency_penalty", kServed, kAll, "", "-2 to 2, over the answer"},
    {"logit_bias", kServed, kAll, "", "at most 1024 token ids, each -100 to 100"},
    {"seed", kServed, kAll, "", "a whole number; absent: a random one"},
    {"n", kServed, kBoth, "", "1 to 16 answers to each prompt"},
    {"best_of", kServed, kBoth, "", "n to 16 answers are made and the n of the highest mean log-prob returned; equal to n in a stream; with use_beam_search the width of the beam"},
    {"typical_p", kServed, kAll, "", "0 to 1; 0 and 1: off"},
    {"typical", kRefused, kAll, "[1, 0]", "use typical_p"},
    {"top_a", kRefused, kAll, "[0]", "leave it out"},
    {"tfs", kRefused, kAll, "[1]", "leave it out"},
    {"tfs_z", kRefused, kAll, "[1]", "leave it out"},
    {"top_n_sigma", kServed, kAll, "", "up to 100; 0 and below: off"},
    {"nsigma", kRefused, kAll, "[-1, 0]", "use top_n_sigma"},
    {"epsilon_cutoff", kRefused, kAll, "[0]", "leave it out"},
    {"eta_cutoff", kRefused, kAll, "[0]", "leave it out"},
    {"min_keep", kRefused, kAll, "[0, 1]", "leave it out"},
    {"repeat_penalty", kRefused, kAll, "[1]", "use repetition_penalty"},
    {"rep_pen", kRefused, kAll, "[1]", "use repetition_penalty"},
    {"repeat_last_n", kRefused, kAll, "[-1, 0, 64]", "penalties look at the whole text"},
    {"repetition_penalty_range", kRefused, kAll, "[-1, 0]", "penalties look at the whole text"},
    {"rep_pen_range", kRefused, kAll, "[-1, 0]", "penalties look at the whole text"},
    {"encoder_repetition_penalty", kRefused, kAll, "[1]", "leave it out"},
    {"no_repeat_ngram_size", kRefused, kAll, "[0]", "leave it out"},
    {"encoder_no_repeat_ngram_size", kRefused, kAll, "[0]", "leave it out"},
    {"repetition_detection", kServed, kAll, "", "an object: max_pattern_size (up to 1024 tokens), min_pattern_size, min_count; ends an answer that repeats itself so often"},
    {"penalty_alpha", kRefused, kAll, "[0]", "leave it out"},
    {"penalize_nl", kRefused, kAll, "[false]", "leave it out"},
    {"dry_multiplier", kServed, kAll, "", "0 to 100; 0: off"},
    {"dry_base", kServed, kAll, "", "0 to 100; below 1: off"},
    {"dry_allowed_length", kServed, kAll, "", "1 to 64 tokens"},
    {"dry_penalty_last_n", kServed, kAll, "", "-1: prompt and answer; 0: off"},
    {"dry_range", kRefused, kAll, "[0]", "use dry_penalty_last_n"},
    {"dry_sequence_breakers", kServed, kAll, "", "at most 32 texts of 1 to 64 bytes; absent: newline, colon, quote and asterisk"},
    {"xtc_probability", kServed, kAll, "", "0 to 1"},
    {"xtc_threshold", kServed, kAll, "", "0 to 1, a share of what the other filters leave"},
    {"mirostat", kServed, kAll, "", "0, or 2 in place of top_n_sigma, top_k, typical_p, top_p, min_p and XTC"},
    {"mirostat_mode", kRefused, kAll, "[0]", "use mirostat"},
    {"mirostat_tau", kServed, kAll, "", "0 to 100 bits"},
    {"mirostat_eta", kServed, kAll, "", "0 to 1"},
    {"adaptive_target", kRefused, kAll, "[-1]", "leave it out"},
    {"adaptive_decay", kRefused, kAll, "[0.9]", "leave it out"},
    {"dynamic_temperature", kRefused, kAll, "[false]", "leave it out"},
    {"dynatemp_range", kRefused, kAll, "[0]", "leave it out"},
    {"dynatemp_low", kRefused, kAll, "[1]", "leave it out"},
    {"dynatemp_high", kRefused, kAll, "[1]", "leave it out"},
    {"dynatemp_exponent", kRefused, kAll, "[1]", "leave it out"},
    {"smoothing_factor", kRefused, kAll, "[0]", "leave it out"},
    {"smoothing_curve", kRefused, kAll, "[1]", "leave it out"},
    {"skew", kRefused, kAll, "[0]", "leave it out"},
    {"temperature_last", kRefused, kAll, "[false]", "the order of sampling steps is fixed"},
    {"sampler_order", kRefused, kAll, "[[]]", "the order of sampling steps is fixed"},
    {"sampler_priority", kRefused, kAll, "[[], \"\"]", "the order of sampling steps is fixed"},
    {"samplers", kRefused, kAll, "[[]]", "the order of sampling steps is fixed"},
    {"do_sample", kRefused, kAll, "[true]", "use temperature 0"},
    {"watermark", kRefused, kAll, "[false]", "leave it out"},
    {"use_beam_search", kServed, kBoth, "", "the n best outputs of a beam as wide as best_of, or n; without stream, stop, logprobs, tools or a form of the answer; temperature and filters have no effect; 400 where memory holds no max_tokens of each beam"},
    {"use_beam_search", kRefused, kResp, "[false]", "leave it out"},
    {"num_beams", kRefused, kBoth, "[1]", "use use_beam_search with n"},
    {"num_beams", kRefused, kResp, "[1]", "leave it out"},
    {"length_penalty", kServed, kBoth, "", "with use_beam_search: -10 to 10, default 1; a score is the log-prob by the length to this power"},
    {"length_penalty", kRefused, kResp, "[1, 0]", "leave it out"},
    {"early_stopping", kServed, kBoth, "", "with use_beam_search: true, false (the default) or \"never\", as in transformers"},
    {"early_stopping", kRefused, kResp, "[false]", "leave it out"},
    {"exponential_decay_length_penalty", kRefused, kAll, "", "leave it out"},
    {"guidance_scale", kRefused, kAll, "[1]", "leave it out"},
    {"negative_prompt", kRefused, kAll, "[\"\"]", "leave it out"},
    {"logits_processors", kRefused, kAll, "[[]]", "leave it out"},
    {"custom_logit_processor", kRefused, kAll, "[\"\"]", "leave it out"},
    {"custom_params", kRefused, kAll, "[{}]", "leave it out"},
    {"vllm_xargs", kRefused, kAll, "[{}]", "leave it out"},
    {"allowed_token_ids", kRefused, kAll, "[[]]", "leave it out"},
    {"bad_words", kServed, kAll, "", "at most 128 texts of 1 to 256 bytes whose tokens no answer completes"},
    {"custom_token_bans", kRefused, kAll, "[\"\"]", "use bad_words"},
    {"banned_tokens", kRefused, kAll, "[[], \"\"]", "use logit_bias with token ids"},
    {"options", kRefused, kAll, "[{}]", "put its members into the body"},
    {"parameters", kRefused, kAll, "[{}]", "put its members into the body"},
    {"sampling_params", kRefused, kAll, "[{}]", "put its members into the body"},
    {"extra_body", kRefused, kAll, "[{}]", "put its members into the body"},
    // Length and end.
    {"max_tokens", kServed, kBoth, "", "at most what the context leaves; 0 with echo: the prompt alone"},
    {"max_completion_tokens", kServed, kBoth, "", "as max_tokens, and goes before it"},
    {"min_tokens", kServed, kAll, "", "0 to max_tokens"},
    {"ignore_eos", kServed, kAll, "", "the model's end tokens do not end the answer"},
    {"stop", kServed, kAll, "", "at most 32 texts of 1 to 256 bytes"},
    {"stop_token_ids", kServed, kAll, "", "at most 128 ids"},
    {"include_stop_str_in_output", kServed, kBoth, "", "default false"},
    {"max_new_tokens", kRefused, kAll, "", "use max_tokens"},
    {"max_length", kRefused, kAll, "", "use max_tokens"},
    {"n_predict", kRefused, kAll, "[-1]", "use max_tokens"},
    {"num_predict", kRefused, kAll, "[-1]", "use max_tokens"},
    {"min_new_tokens", kRefused, kAll, "[0]", "use min_tokens"},
    {"min_length", kRefused, kAll, "[0]", "use min_tokens"},
    {"ban_eos_token", kRefused, kAll, "[false]", "use ignore_eos"},
    {"stop_sequence", kRefused, kAll, "[[], \"\"]", "use stop"},
    {"stop_sequences", kRefused, kAll, "[[], \"\"]", "use stop"},
    {"stop_strings", kRefused, kAll, "[[], \"\"]", "use stop"},
    {"stopping_strings", kRefused, kAll, "[[], \"\"]", "use stop"},
    {"custom_stopping_strings", kRefused, kAll, "[[], \"\"]", "use stop"},
    {"stop_regex", kRefused, kAll, "[[], \"\"]", "use stop"},
    {"no_stop_trim", kRefused, kAll, "[false]", "use include_stop_str_in_output"},
    {"truncate_prompt_tokens", kRefused, kPrompting | kText | kResp, "[-1]", "shorten the prompt"},
    {"truncate", kRefused, kAll, "[0]", "shorten the prompt"},
    {"truncation_length", kRefused, kAll, "", "shorten the prompt"},
    {"truncation_side", kRefused, kAll, "", "shorten the prompt"},
    {"num_ctx", kRefused, kAll, "", "the context is set when the server starts"},
    {"n_keep", kRefused, kAll, "[0]", "a context is never shifted"},
    {"n_discard", kRefused, kAll, "[0]", "a context is never shifted"},
    {"n_indent", kRefused, kAll, "[0]", "leave it out"},
    {"t_max_predict_ms", kRefused, kAll, "[0, -1]", "use max_tokens"},
    {"max_time", kRefused, kAll, "[0]", "use max_tokens"},
    // The form of the answer.
    {"response_format", kServed, kBoth, "", "type text, json_object, json_schema, regex, grammar or structural_tag"},
    {"structured_outputs", kServed, kBoth, "", "see below"},
    {"guided_json", kServed, kBoth, "", "a JSON schema, as JSON or as a string; 400 for numbers beyond 2^53 but bounds further out, and where other names may come for minProperties above 1 and the number of required ones"},
    {"guided_regex", kServed, kBoth, "", "a regular expression that the whole answer matches"},
    {"guided_choice", kServed, kBoth, "", "a list of strings, one of which is the answer"},
    {"guided_grammar", kServed, kBoth, "", "Lark, or the EBNF of GGUF tools"},
    {"guided_json_object", kServed, kBoth, "", "true: a JSON object"},
    {"json_schema", kServed, kBoth, "", "as guided_json"},
    {"json_object", kServed, kBoth, "", "as guided_json_object"},
    {"regex", kServed, kBoth, "", "as guided_regex"},
    {"choice", kServed, kBoth, "", "as guided_choice"},
    {"grammar", kServed, kBoth, "", "as guided_grammar"},
    {"grammar_string", kServed, kBoth, "", "as guided_grammar"},
    {"ebnf", kServed, kBoth, "", "as guided_grammar"},
    {"structural_tag", kServed, kBoth, "", "parts between marks that hold to schemas, as JSON or as a string"},
    {"guided_decoding_backend", kHarmless, kBoth, "", ""},
    {"guided_whitespace_pattern", kRefused, kBoth, "[\"\"]", "leave it out"},
    {"format", kRefused, kBoth, "[\"\", \"text\"]", "use response_format"},
    {"grammar_lazy", kRefused, kBoth, "[false]", "constrained answers are not supported"},
    {"grammar_triggers", kRefused, kBoth, "[[]]", "constrained answers are not supported"},
    {"preserved_tokens", kRefused, kBoth, "[[]]", "use skip_special_tokens"},
    {"stream", kServed, kBoth, "", "server-sent events"},
    {"stream_options", kServed, kBoth, "", "see below"},
    {"logprobs", kServed, kBoth, "", "chat: true or false; completions: 0 to 20"},
    {"top_logprobs", kServed, kChat, "", "0 to 20, with logprobs"},
    {"top_logprobs", kRefused, kText, "[0]", "use logprobs"},
    {"prompt_logprobs", kRefused, kBoth, "", "use echo and logprobs of /v1/completions"},
    {"top_n_tokens", kRefused, kBoth, "[0]", "use logprobs"},
    {"n_probs", kRefused, kBoth, "[0]", "use logprobs"},
    {"post_sampling_probs", kRefused, kBoth, "[false]", "use logprobs"},
    {"logprobs_mode", kRefused, kBoth, "[\"raw_logprobs\"]", "log-probs are those before sampling"},
    {"details", kRefused, kBoth, "[false]", "use logprobs"},
    {"decoder_input_details", kRefused, kBoth, "[false]", "use echo and logprobs of /v1/completions"},
    {"return_full_text", kRefused, kBoth, "[false]", "use echo of /v1/completions"},
    {"return_tokens_as_token_ids", kRefused, kBoth, "[false]", "leave it out"},
    {"return_token_ids", kRefused, kBoth, "[false]", "leave it out"},
    {"return_tokens", kRefused, kBoth, "[false]", "leave it out"},
    {"return_hidden_states", kRefused, kBoth, "[false]", "leave it out"},
    {"return_progress", kRefused, kBoth, "[false]", "leave it out"},
    {"timings_per_token", kRefused, kBoth, "[false]", "leave it out"},
    {"response_fields", kRefused, kBoth, "[[]]", "leave it out"},
    {"skip_special_tokens", kServed, kBoth, "", "default true"},
    {"spaces_between_special_tokens", kRefused, kBoth, "[true]", "leave it out"},
    {"parse_tool_calls", kRefused, kChat, "[true]", "leave tools out, or start the server with --tool-format none"},
    {"parse_tool_calls", kRefused, kText, "[false]", "calls are part of the text"},
    // The server's own business.
    {"cache_salt", kServed, kAll, "", "1 to 256 bytes: prompts share cached work only with prompts of the same salt and API key"},
    {"prompt_cache_key", kServed, kAll, "", "at most 1024 bytes: names the conversation; on a cache miss the usage says why, and which token differs"},
    {"parent_cache_key", kServed, kAll, "", "the conversation whose errand this is: what it has cached counts as used"},
    {"cache_priority", kServed, kAll, "", "\"low\": what it leaves in the cache goes first; \"high\": it stays for cache_seconds, within the client's share; default \"normal\""},
    {"cache_seconds", kServed, kAll, "", "1 to 86400, default 300; with cache_priority \"high\""},
    {"prompt_cache_retention", kServed, kAll, "", "\"24h\": as cache_priority \"high\" for a day; \"in_memory\": \"normal\""},
    {"extra_key", kRefused, kAll, "[\"\"]", "use cache_salt"},
    {"priority", kServed, kTimed, "", "-100 to 100, lower is earlier: among the requests of one client; default 0"},
    {"max_queue_ms", kServed, kTimed, "", "1 to 86400000: who has not begun by then gets a 503 that says when to try again"},
    {"deadline_ms", kServed, kTimed, "", "1 to 86400000: who is not complete so long after it came gets a 503"},
    {"lora", kRefused, kBoth, "[[]]", "ask for the adapter by its name as model"},
    {"lora_path", kRefused, kBoth, "[\"\"]", "ask for the adapter by its name as model"},
    {"adapter_id", kRefused, kBoth, "[\"\"]", "ask for the adapter by its name as model"},
    {"session_params", kRefused, kAll, "[{}]", "send the whole conversation"},
    {"previous_response_id", kRefused, kBoth, "", "send the whole conversation"},
    {"kv_transfer_params", kRefused, kAll, "[{}]", "leave it out"},
    {"id_slot", kRefused, kAll, "[-1]", "leave it out"},
    {"inputs", kRefused, kBoth, "", "use prompt or messages"},
    {"input", kRefused, kBoth, "", "use prompt or messages"},
    {"cache_prompt", kHarmless, kAll, "", ""},
    {"keep_alive", kHarmless, kAll, "", ""},
    {"metadata", kHarmless, kAll, "", ""},
    {"prediction", kServed, kChat, "", "{type: \"content\", content}: text, or parts of it, that the answer may repeat; where it does, the answer comes faster"},
    {"prediction", kHarmless, kText | kResp, "", ""},
    {"request_id", kHarmless, kEverywhere, "", ""},
    {"rid", kHarmless, kAll, "", ""},
    {"safety_identifier", kHarmless, kAll, "", ""},
    {"service_tier", kHarmless, kAll, "", ""},
    {"store", kHarmless, kBoth, "", ""},
    {"user", kHarmless, kEverywhere, "", ""},
    // The Responses API.
    {"input", kServed, kResp, "", "a text, or items: message, reasoning, function_call(_output), custom_tool_call(_output), item_reference"},
    {"instructions", kServed, kResp, "", "the system message; not carried over by previous_response_id"},
    {"previous_response_id", kServed, kResp, "", "of a response that is kept: its items come first; 400 if it is not"},
    {"store", kServed, kResp, "", "default true: kept in memory for a while (--response-seconds), within --response-store"},
    {"max_output_tokens", kServed, kResp, "", "at most what the context leaves"},
    {"tools", kServed, kResp, "", "at most 128; function, custom (a text that holds to its grammar) or namespace; other types are left out and named in the header"},
    {"tool_choice", kServed, kResp, "", "auto, none, required, {type: function | custom, name}, {type: allowed_tools}"},
    {"parallel_tool_calls", kServed, kResp, "", "default true"},
    {"text", kServed, kResp, "", "see below"},
    {"reasoning", kServed, kResp, "", "see below"},
    {"include", kServed, kResp, "", "message.output_text.logprobs; reasoning.encrypted_content: a copy of the text, not encrypted; others are named in the header"},
    {"stream", kServed, kResp, "", "server-sent events with names"},
    {"stream_options", kServed, kResp, "", "see below"},
    {"top_logprobs", kServed, kResp, "", "0 to 20"},
    {"truncation", kRefused, kResp, "[\"disabled\"]", "send what fits the context"},
    {"background", kRefused, kResp, "[false]", "responses are made while the client waits"},
    {"conversation", kRefused, kResp, "[\"\"]", "use previous_response_id, or send the items"},
    {"prompt", kRefused, kResp, "", "this server keeps no prompts: send instructions and input"},
    {"context_management", kRefused, kResp, "[[]]", "send what fits the context"},
    {"moderation", kRefused, kResp, "", "this server has none"},
    {"max_tokens", kRefused, kResp, "", "use max_output_tokens"},
    {"max_completion_tokens", kRefused, kResp, "", "use max_output_tokens"},
    {"response_format", kRefused, kResp, "[{\"type\": \"text\"}]", "use text.format"},
    {"messages", kRefused, kResp, "[]", "use input"},
    {"reasoning_effort", kRefused, kResp, "", "use reasoning.effort"},
    {"chat_template_kwargs", kRefused, kResp, "[{}]", "use reasoning"},
    {"chat_template", kRefused, kResp, "[\"\"]", "the model's own template is used"},
    {"logprobs", kRefused, kResp, "[false, 0]", "use include"},
    {"n", kRefused, kResp, "[1]", "ask again"},
    {"best_of", kRefused, kResp, "[1]", "ask again"},
    {"include_stop_str_in_output", kRefused, kResp, "[false]", "leave it out"},
    {"skip_special_tokens", kRefused, kResp, "[true]", "leave it out"},
    {"modalities", kRefused, kResp, "[[\"text\"], []]", "this server answers with text"},
    {"max_tool_calls", kHarmless, kResp, "", ""},
    {"role", kServed, kItem, "", "system, developer, user, assistant"},
    {"content", kServed, kItem, "", "text, or a list of parts"},
    {"type", kServed, kItem, "", "default message; what other servers' tools have left is named in the header"},
    {"name", kServed, kItem, "", "of a call"},
    {"call_id", kServed, kItem, "", "of a call and its output"},
    {"arguments", kServed, kItem, "", "of a call, JSON text"},
    {"input", kServed, kItem, "", "of a custom tool's call"},
    {"output", kServed, kItem, "", "text, or a list of parts"},
    {"summary", kServed, kItem, "", "of reasoning whose text is not there"},
    {"encrypted_content", kServed, kItem, "", "of reasoning: read if this server made it"},
    {"id", kHarmless, kItem, "", ""},
    {"status", kHarmless, kItem, "", ""},
    {"phase", kHarmless, kItem, "", ""},
    {"namespace", kServed, kItem, "", "of a call: that of its tool"},
    {"type", kServed, kInResponsePart, "", "input_text, output_text, summary_text, reasoning_text, refusal"},
    {"text", kServed, kInResponsePart, "", "joined by newlines"},
    {"refusal", kServed, kInResponsePart, "", "as text"},
    {"annotations", kHarmless, kInResponsePart, "", ""},
    {"logprobs", kHarmless, kInResponsePart, "", ""},
    {"type", kServed, kInResponseTool, "", "function, custom, namespace"},
    {"tools", kServed, kInResponseTool, "", "of a namespace: the model calls them NAMESPACE__NAME, the client sees both apart"},
    {"name", kServed, kInResponseTool, "", "given to the template"},
    {"description", kServed, kInResponseTool, "", "given to the template"},
    {"parameters", kServed, kInResponseTool, "", "given to the template; arguments hold to them"},
    {"strict", kServed, kInResponseTool, "", "a schema that cannot be held to is a 400"},
    {"format", kServed, kInResponseTool, "", "of a custom tool: {type: text | grammar, syntax: lark | regex, definition}; enforced"},
    {"cache_control", kHarmless, kInResponseTool, "", ""},
    {"format", kServed, kInResponseText, "", "see below"},
    {"verbosity", kRefused, kInResponseText, "[\"medium\"]", "say it in a message"},
    {"type", kServed, kInResponseFormat, "", "text, json_object, json_schema"},
    {"schema", kServed, kInResponseFormat, "", "the answer holds to it"},
    {"name", kHarmless, kInResponseFormat, "", ""},
    {"description", kHarmless, kInResponseFormat, "", ""},
    {"strict", kHarmless, kInResponseFormat, "", ""},
    {"effort", kServed, kInResponseReasoning, "", "none, minimal, low, medium, high, xhigh; what the template makes of it"},
    {"summary", kHarmless, kInResponseReasoning, "", ""},
    {"generate_summary", kHarmless, kInResponseReasoning, "", ""},
    {"include_obfuscation", kHarmless, kInResponseStream, "", ""},
    // Adapters.
    {"lora_name", kServed, kInLoadAdapter | kInUnloadAdapter, "", "the name that requests ask for as model"},
    {"lora_path", kServed, kInLoadAdapter, "", "folder below --adapter-root"},
    {"adapter_config", kServed, kInLoadAdapter, "", "in the place of lora_path, with --adapter-uploads: adapter_config.json"},
    {"adapter_weights", kServed, kInLoadAdapter, "", "beside it: adapter_model.safetensors in base64, as long as --max-body lets it be"},
    {"load_inplace", kServed, kInLoadAdapter, "", "true: may replace an adapter of this name"},
    {"model", kServed, kInLoadAdapter | kInUnloadAdapter, "", "the model it is for; default: the one that has an adapter of this name, else the first"},
    {"base_model_name", kHarmless, kInLoadAdapter, "", ""},
    {"is_3d_lora_weight", kHarmless, kInLoadAdapter, "", ""},
    {"lora_int_id", kHarmless, kInUnloadAdapter, "", ""},
    // Objects inside.
    {"include_usage", kServed, kInStreamOptions, "", "a last chunk with usage"},
    {"continuous_usage_stats", kServed, kInStreamOptions, "", "usage in every chunk, with include_usage"},
    {"include_obfuscation", kHarmless, kInStreamOptions, "", ""},
    {"type", kServed, kInFormat, "", "see response_format"},
    {"json_schema", kServed, kInFormat, "", "of type json_schema: its schema, in \"schema\""},
    {"schema", kServed, kInFormat | kInJsonSchema, "", "a JSON schema, as JSON or as a string"},
    {"strict", kServed, kInFormat | kInJsonSchema, "", "answers hold to the schema either way"},
    {"name", kHarmless, kInFormat | kInJsonSchema, "", ""},
    {"description", kHarmless, kInFormat | kInJsonSchema, "", ""},
    {"pattern", kServed, kInFormat, "", "of type regex"},
    {"grammar", kServed, kInFormat, "", "of type grammar"},
    {"json", kServed, kInStructuredOutputs, "", "as guided_json"},
    {"regex", kServed, kInStructuredOutputs, "", "as guided_regex"},
    {"choice", kServed, kInStructuredOutputs, "", "as guided_choice"},
    {"grammar", kServed, kInStructuredOutputs, "", "as guided_grammar"},
    {"json_object", kServed, kInStructuredOutputs, "", "as guided_json_object"},
    {"structural_tag", kServed, kInStructuredOutputs, "", "as structural_tag"},
    {"disable_fallback", kHarmless, kInStructuredOutputs, "", ""},
    {"disable_any_whitespace", kRefused, kInStructuredOutputs, "[false]", "leave it out"},
    {"disable_additional_properties", kRefused, kInStructuredOutputs, "[false]", "write additionalProperties into the schema"},
    {"whitespace_pattern", kRefused, kInStructuredOutputs, "[\"\"]", "leave it out"},
    {"role", kServed, kInMessage, "", "see messages"},
    {"content", kServed, kInMessage, "", "text, or a list of parts; null is empty"},
    {"name", kServed, kInMessage, "", "given to the template"},
    {"tool_calls", kServed, kInMessage, "", "given to the template; 400 if it has no place for them"},
    {"tool_call_id", kServed, kInMessage, "", "given to the template"},
    {"reasoning_content", kServed, kInMessage, "", "given to the template"},
    {"reasoning", kServed, kInMessage, "", "given to the template"},
    {"function_call", kRefused, kInMessage, "", "use tool_calls"},
    {"audio", kRefused, kInMessage, "", "this model reads text only"},
    {"images", kRefused, kInMessage, "[[]]", "this model reads text only"},
    {"prefix", kRefused, kInMessage, "[false]", "use continue_final_message"},
    {"partial", kRefused, kInMessage, "[false]", "use continue_final_message"},
    {"refusal", kHarmless, kInMessage, "", ""},
    {"annotations", kHarmless, kInMessage, "", ""},
    {"cache_control", kHarmless, kInMessage | kInPart | kInTool, "", ""},
    {"id", kHarmless, kInMessage, "", ""},
    {"type", kServed, kInPart, "", "\"text\", or \"refusal\" of an assistant; parts of type \"thinking\" are left out"},
    {"text", kServed, kInPart, "", "joined by newlines"},
    {"refusal", kServed, kInPart, "", "of type refusal, as text"},
    {"thinking", kHarmless, kInPart, "", ""},
    {"signature", kHarmless, kInPart, "", ""},
    {"annotations", kHarmless, kInPart, "", ""},
    {"type", kServed, kInTool, "", "\"function\""},
    {"function", kServed, kInTool, "", "given to the template"},
    {"name", kServed, kInFunction, "", "given to the template"},
    {"description", kServed, kInFunction, "", "given to the template"},
    {"parameters", kServed, kInFunction, "", "given to the template"},
    {"strict", kServed, kInFunction, "", "true: 400 for a schema that cannot be enforced; else it is then any object"},
};
// clang-format on

bool same_value(const boost::json::value& a, const boost::json::value& b) {
  if (a.is_number() && b.is_number()) return a.to_number<double>() == b.to_number<double>();
  return a == b;
}

bool is_neutral(const FieldRow& row, const boost::json::value& value) {
  if (row.neutral.empty()) return false;
  const boost::json::value values = boost::json::parse(row.neutral);
  return std::any_of(values.as_array().begin(), values.as_array().end(),
                     [&](const boost::json::value& each) { return same_value(each, value); });
}

// Edits from a to b; more than 2 counts as 3.
int distance(std::string_view a, std::string_view b) {
  constexpr size_t kFar = 3;
  const size_t longer = std::max(a.size(), b.size());
  if (longer - std::min(a.size(), b.size()) >= kFar || longer > kMaxShownBytes) return kFar;
  return static_cast<int>(std::min(edit_distance(a, b), kFar));
}

// The served field that was probably meant; empty if none is close.
std::string_view closest(std::string_view name, FieldPlace place) {
  std::string_view best;
  if (name.size() < 3) return best;
  int best_distance = name.size() < 5 ? 2 : 3;  // above what counts as close
  for (const FieldRow& row : field_rows()) {
    if ((row.places & place) == 0 || row.use == kHarmless) continue;
    const int found = distance(name, row.name);
    if (found >= best_distance) continue;
    best = row.name;
    best_distance = found;
  }
  return best;
}

// Bodies may hold many objects: rows are found by name at once.
const FieldRow* find_row(std::string_view name, FieldPlace place) {
  static const auto by_name = [] {
    std::unordered_multimap<std::string_view, const FieldRow*> rows;
    for (const FieldRow& row : field_rows()) rows.emplace(row.name, &row);
    return rows;
  }();
  const auto [begin, end] = by_name.equal_range(name);
  const auto found = std::find_if(
      begin, end, [&](const auto& entry) { return (entry.second->places & place) != 0; });
  return found == end ? nullptr : found->second;
}

// As much of a name as a header may show.
std::string header_form(std::string_view name) {
  std::string shown;
  for (const char c : name.substr(0, kMaxShownBytes)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '.' || c == '-' || c == '[' || c == ']';
    if (plain) {
      shown += c;
    } else {
      append_format(shown, "%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return name.size() > kMaxShownBytes ? shown + "..." : shown;
}

}  // namespace

std::span<const FieldRow> field_rows() {
  static const std::vector<FieldRow> rows = [] {
    std::vector<FieldRow> all(std::begin(kRows), std::end(kRows));
    for (const auto further : {dialect_field_rows(), vector_field_rows()}) {
      all.insert(all.end(), further.begin(), further.end());
    }
    return all;
  }();
  return rows;
}

void IgnoredFields::add(std::string_view path, std::string_view meant) {
  std::string shown = path.empty() ? "\"\"" : header_form(path);
  if (!meant.empty()) shown += fmt::format(" ({}?)", meant);
  if (std::find(shown_.begin(), shown_.end(), shown) != shown_.end()) return;
  if (is_full()) return count();
  shown_.push_back(std::move(shown));
}

bool IgnoredFields::is_full() const { return shown_.size() == kMaxShownFields; }

std::string IgnoredFields::text() const {
  const std::string text = fmt::format("{}", fmt::join(shown_, ", "));
  return num_more_ == 0 ? text : text + fmt::format(", and {} more", num_more_);
}

void name_ignored(const IgnoredFields& ignored, HttpHeaders& headers) {
  std::string text = ignored.text();
  if (!text.empty()) headers.emplace_back(kIgnoredHeader, std::move(text));
}

Status check_fields(const boost::json::object& object, FieldPlace place, std::string_view path,
                    IgnoredFields& ignored, std::string_view reader) {
  if (object.size() > kMaxMembers) {
    const std::string_view param = path.empty() ? path : path.substr(0, path.size() - 1);
    return bad_field(param.empty() ? "the body" : param,
                     fmt::format("an object of {} fields", object.size()),
                     fmt::format("one of at most {}", kMaxMembers));
  }
  for (const auto& [key, value] : object) {
    const std::string_view name(key.data(), key.size());
    const FieldRow* row = find_row(name, place);
    if (row == nullptr) {
      if (ignored.is_full()) {
        ignored.count();
      } else if (name.empty() || reader.find(name) == std::string_view::npos) {
        ignored.add(fmt::format("{}{}", path, name), closest(name, place));
      }
    } else if (row->use == kRefused && !value.is_null() && !is_neutral(*row, value)) {
      return Error{ErrorCode::kUnsupported,
                   fmt::format("{}{} is {}, which is not supported by this server", path, name,
                               show_value(value)),
                   std::string(row->note), fmt::format("{}{}", path, name)};
    }
  }
  return {};
}

}  // namespace headrace
