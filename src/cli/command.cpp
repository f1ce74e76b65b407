#include "cli/command.h"

namespace headrace {
namespace {

// clang-format off
constexpr CommandRow kRows[] = {
    {"serve", "[MODEL]", 0, 1, "Serve a model over HTTP: page and OpenAI-compatible API.",
     "Loads MODEL (or --model) and listens until SIGTERM or Ctrl-C; running requests may then finish.\n"
     "Examples:\n"
     "  headrace serve smollm2:135m\n"
     "  headrace serve ./Qwen2.5-0.5B-Instruct --port 9000 --max-sequences 8\n"
     "  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}'",
     run_serve},
    {"run", "PROMPT", 1, 1, "Answer one prompt and exit.",
     "Prints the answer as it is made. PROMPT - reads standard input. A model with a chat template gets the\n"
     "prompt as a user message; --raw continues it as plain text.\n"
     "Examples:\n"
     "  headrace run \"Why is the sky blue?\"\n"
     "  headrace run --raw --temperature 0 --max-tokens 32 \"def fibonacci(n):\"",
     run_run},
    {"chat", "[MODEL]", 0, 1, "Talk to a model in the terminal.",
     "Keeps the history of the conversation. /help lists the commands inside; Ctrl-C stops the answer, Ctrl-D leaves.",
     run_chat},
    {"pull", "NAME", 1, 1, "Get a model: a named one, a hub repository or a URL.",
     "NAME is smollm2:135m, qwen2.5-coder:0.5b, gemma3:270m or qwen2.5-coder:1.5b; hf:ORG/REPO[@REV] or\n"
     "hf:ORG/REPO[@REV]:FILE.gguf; or an http(s) URL. Downloads resume, are checked against their digest and appear whole\n"
     "or not at all. HF_ENDPOINT and HF_TOKEN set the hub and the access token.",
     run_pull},
    {"inspect", "MODEL", 1, 1, "Show what a checkpoint holds and what it would need.",
     "Family, configuration, formats, tokenizer, chat template and memory plan, read from headers alone.",
     run_inspect},
    {"tokenize", "TEXT...", 1, -1, "Show the token ids of a text, or the text of ids.",
     "TEXT - reads standard input.\n"
     "Examples:\n"
     "  headrace tokenize --model qwen2.5-coder:0.5b \"Hello, world!\"\n"
     "  headrace tokenize --decode 9707 11 1879",
     run_tokenize},
    {"render", "MESSAGES.json", 1, 1, "Show the prompt that messages become.",
     "MESSAGES.json (- for standard input) is a list of messages, or an object with messages, tools and further template\n"
     "variables. Prints the prompt's text and its token ids.",
     run_render},
    {"eval", "perplexity MODEL TEXT", 3, 3, "Measure the perplexity of a model over a text file.",
     "Scores windows of --window tokens, each on its own, from its second token.",
     run_eval},
    {"verify", "golden|tokenizer|template|model|kernels ARGUMENTS...", 1, -1, "Check a checkpoint or this machine's kernels.",
     "  verify golden DIR...                     logits and greedy ids of checkpoints with expect.json\n"
     "  verify tokenizer MODEL EXPECT.json       token ids and decoded text of recorded texts\n"
     "  verify template EXPECT.json...           rendered prompts of recorded conversations\n"
     "  verify model MODEL EXPECT.json [TEXT]    greedy ids, log-probs and perplexity of a real model\n"
     "  verify kernels                           every kernel this processor runs, against float64\n"
     "verify kernels takes --isa NAME for the kernels of one unit and --quick for fewer shapes and values. The short form of\n"
     "it runs at every start; a unit that fails there is left out.\n"
     "Exit status 0 if everything agrees, 1 if something differs or nothing ran.",
     run_verify},
    {"bench", "machine|step MODEL|synth", 1, 2, "Measure speed beside the limits of this machine.",
     "  bench machine       cores and caches, read bandwidth by working set, peak of each instruction set\n"
     "  bench step MODEL    prefill, decode at depths and batches of a model, each beside its ceiling; no server\n"
     "  bench synth         write a GGUF of random weights: --shape, --format, --out\n"
     "Examples:\n"
     "  headrace bench machine --json\n"
     "  headrace bench step smollm2:135m --prefill 512 --depth 0,2048 --batch 16\n"
     "  headrace bench synth --shape llama-1b --format q4_0 --out llama-1b.gguf",
     run_bench},
    {"version", "", 0, 0, "Show version, build, processor and libraries.",
     "With --list-kernels every kernel, with --options every option.", run_version},
};
// clang-format on

}  // namespace

std::span<const CommandRow> command_rows() { return kRows; }

}  // namespace headrace
