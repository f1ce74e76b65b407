#include "cli/command.h"

namespace headrace {
namespace {

// clang-format off
constexpr CommandRow kRows[] = {
    {"run", "[MODEL] PROMPT...", 0, -1, "Answer one prompt.",
     "Prints the answer as it is made. Text that is piped in is the prompt, or follows the PROMPT after an empty line. In a terminal, a MODEL without PROMPT begins a conversation, as chat does. A model without a chat template continues the prompt; --raw makes every model do so.\n"
     "Examples:\n"
     "  headrace run \"Why is the sky blue?\"\n"
     "  headrace run qwen2.5-coder:0.5b \"Review this change:\" < change.diff\n"
     "  headrace run --raw --temperature 0 --max-tokens 32 \"def fibonacci(n):\"",
     run_run},
    {"chat", "[MODEL]", 0, 1, "Talk to a model in the terminal.",
     "Keeps the conversation; when the context is full the oldest turns are forgotten. /help lists the commands inside, Ctrl-C stops an answer, Ctrl-D leaves. Pasted lines are one message, and so is a block between lines of \"\"\".",
     run_chat},
    {"serve", "[MODEL...]", 0, -1, "Serve models: web page and OpenAI-compatible API.",
     "Listens until SIGTERM or Ctrl-C; running requests may then finish. Requests choose among several models by name; the first answers those that name none. The models of --on-demand are loaded when a request asks for them, and sleep when they are idle. headrace help api lists the fields of requests.\n"
     "Examples:\n"
     "  headrace serve smollm2:135m\n"
     "  headrace serve ./Qwen2.5-0.5B-Instruct --port 9000 --max-sequences 8\n"
     "  headrace serve smollm2:135m --on-demand store --keep-alive 60\n"
     "  curl http://127.0.0.1:8080/v1/chat/completions \\\n"
     "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}'",
     run_serve},
    {"key", "NAME", 1, 1, "Make an API key for a server.",
     "Prints the line for the file of serve --api-key-file on standard output, and the key itself, which is kept nowhere, on standard error. NAME stands in the log of requests; two keys of one name are one client. A server that runs reads its file again on SIGHUP.\n"
     "Examples:\n"
     "  headrace key ann >> keys.txt\n"
     "  headrace key prometheus --scopes metrics >> keys.txt\n"
     "  headrace serve --api-key-file keys.txt",
     run_key},
    {"pull", "NAME", 1, 1, "Get a model: a named one, a hub repository or a URL.",
     "NAME is smollm2:135m, qwen2.5-coder:0.5b, gemma3:270m (a base model) or qwen2.5-coder:1.5b; hf:ORG/REPO[@REV] or hf:ORG/REPO[@REV]:FILE.gguf; or an http(s) URL. Downloads resume, are checked against their digest and appear whole or not at all. HF_ENDPOINT and HF_TOKEN set the hub and the access token.",
     run_pull},
    {"list", "", 0, 0, "List the models that have been pulled.",
     "Name, size, day and place of each. Names are those that every command takes.",
     run_list},
    {"rm", "NAME...", 1, -1, "Remove pulled models, and what broken pulls left of them.",
     "NAME is one that list shows. Files outside the folder of pulled models are never touched.",
     run_rm},
    {"show", "[MODEL]", 0, 1, "Show what a model is and what it needs (as inspect).",
     "Family, configuration, formats, tokenizer, chat template and memory, read from headers alone.",
     run_inspect},
    {"ps", "", 0, 0, "Show the models that a running server holds.",
     "Asks the server at --server, without it the one at 127.0.0.1:8080.",
     run_ps},
    {"stop", "MODEL", 1, 1, "Have a running server let go of a model's memory.",
     "The model is loaded again when it is asked for. Running answers are finished first.",
     run_stop},
    {"doctor", "", 0, 0, "Check this machine: what it is, what is missing, what limits it.",
     "Exit status 1 if something is missing without which no model can run.",
     run_doctor},
    {"inspect", "[MODEL]", 0, 1, "Show what a model is and what it needs.",
     "Family, configuration, formats, tokenizer, chat template and memory, read from headers alone.",
     run_inspect},
    {"tokenize", "[MODEL] TEXT...", 0, -1, "Show the tokens of a text, or the text of ids.",
     "Without TEXT, or for -, the text is read from standard input.\n"
     "Examples:\n"
     "  headrace tokenize qwen2.5-coder:0.5b \"Hello, world!\"\n"
     "  headrace tokenize --decode 19556 28 905 17",
     run_tokenize},
    {"render", "[MODEL] MESSAGES.json", 0, 2, "Show the prompt that messages become.",
     "MESSAGES.json (standard input without it, or for -) is a list of messages, or an object with messages, tools and further template variables. Prints the prompt and its token ids.",
     run_render},
    {"eval", "perplexity|compare [MODEL] TEXT", 1, 3, "Measure a model's quality over a text file.",
     "Scores windows of --window tokens, each on its own, from its second token.\n"
     "  eval perplexity  how well it foresees the text\n"
     "  eval compare     how far it is from a reference: another file of it, or the\n"
     "                   same in other arithmetic; distributions are compared whole\n"
     "Examples:\n"
     "  headrace eval compare smollm2:135m book.txt --activations fast\n"
     "  headrace eval compare small-q4_0.gguf book.txt --reference small-f16.gguf",
     run_eval},
    {"verify", "KIND ARGUMENTS...", 1, -1, "Check a checkpoint or this machine's kernels.",
     "  verify golden DIR...                   logits and greedy ids of checkpoints\n"
     "                                         with expect.json\n"
     "  verify tokenizer MODEL EXPECT.json     token ids and text of recorded texts\n"
     "  verify template EXPECT.json...         prompts of recorded conversations\n"
     "  verify model MODEL EXPECT.json [TEXT]  greedy ids, log-probs and perplexity\n"
     "                                         of a real model\n"
     "  verify kernels                         every kernel that this processor\n"
     "                                         runs, against float64\n"
     "verify kernels takes --isa NAME for the kernels of one unit and --quick for fewer shapes and values. The short form of it runs at every start; a unit that fails there is left out.\n"
     "Exit status 0 if everything agrees, 1 if something differs or nothing ran.",
     run_verify},
    {"bench", "machine|step MODEL|serve URL|synth", 1, 2, "Measure speed, beside the limits of this machine or under load.",
     "  bench machine     cores and caches, read bandwidth, peak of the arithmetic,\n"
     "                    with AMX what sequences of tile instructions take;\n"
     "                    with --json also what each kind of op reaches\n"
     "  bench step MODEL  prefill, decode and batches of a model, without a server,\n"
     "                    each beside what is expected and beside its limit\n"
     "  bench serve URL   load on a server that speaks the OpenAI API: latencies,\n"
     "                    rates, goodput, and where it saturates; MODEL instead of\n"
     "                    URL starts a server of its own for it\n"
     "  bench synth       write a GGUF file of random weights\n"
     "Examples:\n"
     "  headrace bench machine --json\n"
     "  headrace bench step smollm2:135m --prefill 512 --depth 0,2048 --batch 16\n"
     "  headrace bench serve http://127.0.0.1:8080 --load sweep --html load.html\n"
     "  headrace bench serve smollm2:135m --load poisson:2 --slo ttft=300ms,itl=50ms\n"
     "  headrace bench synth --shape llama-1b --format q4_0 --out llama-1b.gguf",
     run_bench},
    {"plan", "[MODEL]", 0, 1, "Forecast a model's memory and speed on a machine.",
     "From headers, measured limits and what ops reach when each is measured alone, before anything is loaded: what fits, how fast prompts and answers are expected to be and can be at the best, what bounds them, and what other formats and types of keys and values would take. The machine is this one, or that of a file which `headrace bench machine --json` made elsewhere.\n"
     "Examples:\n"
     "  headrace plan smollm2:135m --clients 8 --context 4096\n"
     "  headrace bench machine --json > big.json\n"
     "  headrace plan llama-8b.gguf --machine big.json --price-per-hour 0.9",
     run_plan},
    {"profile", "[MODEL]", 0, 1, "Show where the time of a model's steps goes.",
     "Answers prompts of random tokens with the engine and records every step: each op with its time, what it reads and computes, and its share of what the machine's limits allow; what lies between ops, and between steps. Guesses are off. A running server does the same for its next steps with POST /api/headrace/profile; its page /profile draws them, and what --json printed.\n"
     "Examples:\n"
     "  headrace profile smollm2:135m --prefill 512 --decode 32\n"
     "  headrace profile smollm2:135m --batch 8 --trace steps.json\n"
     "  headrace bench machine --json > here.json\n"
     "  headrace profile smollm2:135m --machine here.json --json > profile.json",
     run_profile},
    {"lab", "add|run|queue|show ...", 1, -1, "Keep experiments: what was tried, why, what it showed, what comes next.",
     "A laboratory is a folder with one SQLite file and the artifacts of its runs.\n"
     "  lab add hypothesis|experiment|learning [FILE.json]\n"
     "                           state what is believed, or what is to be tried;\n"
     "                           standard input without a file\n"
     "  lab run                  work the queue off: sides in turn, on an idle\n"
     "                           machine, until a hypothesis is decided; Ctrl-C\n"
     "                           ends the run at hand, which is repeated\n"
     "  lab queue                what comes next, and why\n"
     "  lab overview             hypotheses, experiments and learnings\n"
     "  lab show EXPERIMENT      its sides, effects and runs\n"
     "  lab log [AFTER]          all that happened, in order\n"
     "  lab conclude HYPOTHESIS validated|\"ruled out\"|open VERDICT\n"
     "  lab pin|unpin|pause|resume|cancel|rerun EXPERIMENT\n"
     "  lab move EXPERIMENT PLACE\n"
     "  lab export               the whole as Markdown, or with --json\n"
     "  lab tune MODEL           options that suit this machine and model, found by\n"
     "                           experiments; written to tuned-GOAL.toml\n"
     "  lab serve                its page and API on --host and --port, for people and\n"
     "                           programs; beside a model: headrace serve MODEL --lab DIR\n"
     "  lab mcp                  a server of the Model Context Protocol on standard\n"
     "                           input and output, for agents\n"
     "A hypothesis: {\"statement\", \"metric\", \"more_is_better\", \"predicted\": 0.1, \"reason\", \"worth\"}. An experiment: {\"hypothesis\": 1, \"title\", \"rationale\", \"sides\": [{\"name\", \"command\": [...]}, ...], \"cost_s\", \"max_rounds\", \"limits\"}; each command prints a JSON object with the metric, alone or as its last line.\n"
     "Examples:\n"
     "  headrace lab add hypothesis faster.json\n"
     "  headrace lab run --lab ~/tuning\n"
     "  headrace lab export > report.md",
     run_lab},
    {"completion", "bash|zsh|fish", 1, 1, "Print shell completions.",
     "Examples:\n"
     "  headrace completion bash > ~/.local/share/bash-completion/completions/headrace\n"
     "  headrace completion zsh > ~/.zfunc/_headrace\n"
     "  headrace completion fish > ~/.config/fish/completions/headrace.fish",
     run_completion},
    {"manual", "", 0, 0, "Print the man page.",
     "Examples:\n"
     "  headrace manual | man -l -\n"
     "  headrace manual > ~/.local/share/man/man1/headrace.1",
     run_manual},
    {"version", "", 0, 0, "Show version, build, processor and libraries.",
     "With --list-kernels every kernel, with --options every option.", run_version},
};
// clang-format on

}  // namespace

std::span<const CommandRow> command_rows() { return kRows; }

}  // namespace headrace
