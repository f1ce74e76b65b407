#include "server/api/api_page.h"

#include <fmt/format.h>

namespace headrace {
namespace {

// clang-format off
constexpr PlaceRow kPlaces[] = {
    {kInChat, "POST /v1/chat/completions"},
    {kInCompletion, "POST /v1/completions"},
    {kInLoadAdapter, "POST /v1/load_lora_adapter"},
    {kInUnloadAdapter, "POST /v1/unload_lora_adapter"},
    {kInTokenize, "POST /tokenize"},
    {kInDetokenize, "POST /detokenize"},
    {kInRender, "POST /render, beside those of the request that is rendered"},
    {kInResponses, "POST /v1/responses"},
    {kInResponseItem, "input[] of /v1/responses"},
    {kInResponsePart, "input[].content[] of /v1/responses"},
    {kInResponseTool, "tools[] of /v1/responses"},
    {kInResponseText, "text of /v1/responses"},
    {kInResponseFormat, "text.format of /v1/responses"},
    {kInResponseReasoning, "reasoning of /v1/responses"},
    {kInResponseStream, "stream_options of /v1/responses"},
    {kInEmbedding, "POST /v1/embeddings"},
    {kInRerank, "POST /v1/rerank"},
    {kInScore, "POST /v1/score"},
    {kInStreamOptions, "stream_options"},
    {kInFormat, "response_format"},
    {kInJsonSchema, "response_format.json_schema"},
    {kInStructuredOutputs, "structured_outputs"},
    {kInMessage, "messages[]"},
    {kInPart, "messages[].content[]"},
    {kInTool, "tools[]"},
    {kInFunction, "tools[].function"},
    {kInBlockMessages, "POST /v1/messages"},
    {kInMessageCount, "POST /v1/messages/count_tokens"},
    {kInBlockMessage, "/v1/messages: messages[]"},
    {kInBlock, "/v1/messages: messages[].content[]"},
    {kInBlockTool, "/v1/messages: tools[]"},
    {kInThinking, "/v1/messages: thinking"},
    {kInOutputConfig, "/v1/messages: output_config"},
    {kInOllamaChat, "POST /api/chat"},
    {kInOllamaGenerate, "POST /api/generate"},
    {kInOllamaEmbed, "POST /api/embed"},
    {kInOllamaOptions, "/api: options"},
    {kInOllamaMessage, "/api/chat: messages[]"},
    {kInOllamaModel, "POST /api/show, POST /api/pull, DELETE /api/delete"},
    {kInLlamaCompletion, "POST /completion, POST /completions"},
    {kInInfill, "POST /infill"},
};
// clang-format on

constexpr std::string_view kIntroduction = R"(# Fields of request bodies

This page is the server's own table (`headrace help api` prints it); a test compares the two.

- A **served** field is read and obeyed; a value of the wrong type or out of range is a 400 that
  names the field, the value found and the value needed.
- A field that would change the answer and is **not served** is a 400 that names it, unless it has
  one of the values that ask for nothing. `null` always asks for nothing.
- Fields that **cannot change the answer** are accepted.
- A field that is **not in the table** is accepted and named in the answer's header
  `x-headrace-ignored`, with the field that was probably meant: `x-headrace-ignored: temprature
  (temperature?)`. The header names at most 16.
- A key that is given twice in one object, at any depth, is a 400 that names it.

A request that says nothing of sampling gets what the checkpoint recommends
(`generation_config.json`, or `general.sampling.*` of a GGUF file), and where that is silent
`temperature` 0.7, `top_p` 0.95 and nothing else. The command line and the page use the same rule;
`GET /api/headrace/status` shows the result as `sampling`.

Limits: 64 levels and 1,024 fields in one object; 1,024 answers (prompts times `n`) in one
request, of which 32 are computed at once; a prompt of at most the context, and all prompts
together 16 contexts (or 65,536 tokens). Log-probs and answers that wait to be sent count against
the server's memory for requests: a 429 if it is taken, a 400 if the request could never fit.
)";

// A cell of a table.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

void append_table(std::string& page, FieldPlace place) {
  const auto add_rows = [&](FieldUse use, std::string_view head, auto line) {
    std::string rows;
    for (const FieldRow& row : field_rows()) {
      if ((row.places & place) != 0 && row.use == use) rows += line(row);
    }
    if (!rows.empty()) page += fmt::format("\n{}\n{}", head, rows);
  };
  add_rows(FieldUse::kServed, "| served | what is taken |\n|---|---|", [](const FieldRow& row) {
    return fmt::format("| `{}` | {} |\n", row.name, cell(row.note));
  });
  add_rows(FieldUse::kRefused,
           "| not served | values that ask for nothing | instead |\n|---|---|---|",
           [](const FieldRow& row) {
             const std::string values =
                 row.neutral.empty()
                     ? std::string()
                     : fmt::format("`{}`", row.neutral.substr(1, row.neutral.size() - 2));
             return fmt::format("| `{}` | {} | {} |\n", row.name, cell(values), cell(row.note));
           });
  std::string harmless;
  for (const FieldRow& row : field_rows()) {
    if ((row.places & place) == 0 || row.use != FieldUse::kHarmless) continue;
    harmless += fmt::format("{}`{}`", harmless.empty() ? "" : ", ", row.name);
  }
  if (!harmless.empty())
    page += fmt::format("\nAccepted, cannot change the answer: {}.\n", harmless);
}

}  // namespace

std::span<const PlaceRow> place_rows() { return kPlaces; }

std::string api_page() {
  std::string page(kIntroduction);
  for (const PlaceRow& row : kPlaces) {
    page += fmt::format("\n## `{}`\n", row.title);
    append_table(page, row.place);
  }
  return page;
}

}  // namespace headrace
