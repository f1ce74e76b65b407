#include "options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

namespace headrace {
namespace {

using enum OptionKind;
using enum OptionGroup;

constexpr std::string_view kGenerates = "run chat";  // commands that sample
constexpr std::string_view kLoads =
    "serve run chat eval verify bench profile";  // that pack weights
constexpr std::string_view kStores =             // that know the store
    "serve run chat pull list rm show doctor inspect tokenize render eval verify bench plan "
    "profile";

// clang-format off
constexpr OptionRow kRows[] = {
    // name, environment, kind, default, range, commands, help, heading, what no default means, letter
    {"--model", "HEADRACE_MODEL", kText, "smollm2:135m", "", "run chat tokenize render serve inspect show eval plan profile",
     "Model to use: a GGUF file, a safetensors file or folder, or the name of a pulled model. Naming it first does the same.", kModel, {}, 'm'},
    {"--server", "HEADRACE_SERVER", kText, "", "", "run chat ps stop",
     "Ask a running server at this address, such as http://127.0.0.1:8080, instead of loading a model; any that speaks the OpenAI API.", kServer},
    {"--ca", "HEADRACE_CA", kText, "", "", "run chat ps stop bench",
     "File with the certificates (PEM) that a server of --server with https must stem from, such as its own self-signed one; empty: those that this system trusts.", kServer},
    {"--store", "HEADRACE_STORE", kText, "", "", kStores,
     "Folder of pulled models; empty: models/ under HEADRACE_HOME, or headrace/models in the user's cache.", kModel},
    {"--isa", "HEADRACE_ISA", kChoice, "auto", "auto|reference|avx2|avx_vnni|avx512|avx512_vnni|avx512_bf16|amx|amx_integer", "serve run chat eval verify bench version profile",
     "Instruction set of the kernels; auto takes the fastest this processor has. amx_integer computes exact answers in tiles with the bits of processors without AMX, slower than amx.", kKernels},
    {"--activations", "HEADRACE_ACTIVATIONS", kChoice, "exact", "exact|fast|int8", "serve run chat eval verify bench version plan profile",
     "Arithmetic of quantised and bf16 weights: exact keeps 16 bits per activation or more; fast takes what the unit (--isa) multiplies faster, less accurately: 8 bits (with AMX bf16), and bf16 for bf16 weights. headrace version names the class of both. int8 is its earlier name.", kKernels},
    {"--threads", "HEADRACE_THREADS", kInteger, "0", "0..1024", "serve run chat eval verify bench version profile",
     "Compute threads; 0: one per core that affinity and cgroup quota allow, which is also the most.", kKernels},
    {"--kv-type", "HEADRACE_KV_TYPE", kChoice, "auto", "auto|f16|bf16|f32|fp8|int8|int16", "serve run chat eval verify bench inspect show version plan profile",
     "Storage of keys and values: f16 and bf16 take half the memory of f32, fp8 and int8 a quarter; f16 stays near exact. int16 takes as much as f16: whole numbers with a scale per position and head, which processors with AVX-512 VNNI or AMX multiply as such. auto: int16 with AMX, else f16.", kMemory},
    {"--context", "HEADRACE_CONTEXT", kInteger, "0", "0..1048576", "serve run chat inspect show plan profile",
     "Tokens per sequence, prompt and answer together; 0: the model's own limit, at most 32768.", kMemory},
    {"--kv-memory", "HEADRACE_KV_MEMORY", kBytes, "0", "0..", "serve run chat profile",
     "Memory for keys and values, such as 512M or 2G; 0: room for four full contexts within a quarter of the memory that this process can get, or for one within half.", kMemory},
    {"--kv-ram", "HEADRACE_KV_RAM", kBytes, "0", "0..", "serve",
     "Memory for keys and values that --kv-memory has no room for any more: brought back instead of computed again. With --kv-disk 256M at least, as what comes from there passes through it.", kMemory},
    {"--kv-disk", "HEADRACE_KV_DISK", kText, "", "", "serve",
     "Folder that keeps keys and values of prompts and answers beyond the end of the server, for this user alone; made if it is not there; empty: none are kept.", kMemory},
    {"--kv-disk-size", "HEADRACE_KV_DISK_SIZE", kBytes, "8G", "0..", "serve",
     "Most that the folder of --kv-disk may hold; the oldest go first.", kMemory},
    {"--batch-tokens", "HEADRACE_BATCH_TOKENS", kInteger, "512", "16..8192", "serve run chat eval verify bench inspect show plan profile",
     "Most tokens in one step; long prompts are computed in chunks of this size.", kMemory},
    {"--speculation", "HEADRACE_SPECULATION", kChoice, "ngram,mtp", "off|ngram|mtp|draft|ngram,mtp|ngram,draft", "serve run chat bench",
     "Guess tokens of an answer and check several in one step, wherever that makes answers faster; they stay the same. ngram: what followed in the prompt or the answer where the same tokens stood before; mtp: what the model's own head for further tokens says, if the checkpoint has one; draft: what --draft-model says; each where that is likelier. The default uses such a head where memory allows.", kKernels},
    {"--draft-model", "HEADRACE_DRAFT_MODEL", kText, "", "", "serve run chat bench lab",
     "A smaller model with the same vocabulary that guesses for --speculation, a path or the name of a pulled model; giving it alone means ngram,draft.", kModel},
    {"--weight-cache", "HEADRACE_WEIGHT_CACHE", kText, "", "", kLoads,
     "Folder that keeps packed weights, so that the next start reads them instead of packing; empty: none are kept.", kMemory},
    {"--weight-cache-size", "HEADRACE_WEIGHT_CACHE_SIZE", kBytes, "32G", "0..", kLoads,
     "Most that the folder of packed weights may hold; the least recently used files are removed first.", kMemory},
    {"--weight-cache-check", "HEADRACE_WEIGHT_CACHE_CHECK", kChoice, "stamp", "stamp|content", kLoads,
     "How a start sees that the model's files are those that were packed: by size, times and inode, or by reading them whole.", kMemory},
    {"--max-sequences", "HEADRACE_MAX_SEQUENCES", kInteger, "32", "1..1024", "serve",
     "Requests computed together; further ones wait.", kServer},
    {"--max-waiting", "HEADRACE_MAX_WAITING", kInteger, "4096", "0..1000000", "serve",
     "Requests that may wait; further ones are refused with status 429.", kServer},
    {"--inter-token-target", "HEADRACE_INTER_TOKEN_TARGET", kInteger, "50", "0..60000", "serve",
     "Milliseconds between two tokens of an answer: where prompts are computed beside it, they take as many tokens of a step as this allows on average over a second, twice in one step, and at least two fifths of the time; long ones take no more than that where it suffices; 0: as many as fit.", kServer},
    {"--max-prompt-tokens", "HEADRACE_MAX_PROMPT_TOKENS", kInteger, "0", "0..1000000000000", "serve",
     "Prompt tokens of all requests that run or wait; further requests are refused with status 429. 0: what the KV memory holds 32 times, at least 64 contexts and a million.", kServer},

    {"--content-tokens", "HEADRACE_CONTENT_TOKENS", kChoice, "plain", "plain|special", "serve run chat render",
     "What the name of a special token means inside messages: plain text, so that content cannot forge turns, or the token, as the reference implementations have it.", kAnswer},
    {"--tool-format", "HEADRACE_TOOL_FORMAT", kText, "auto", "", "serve",
     "How the model writes calls of tools: auto finds it in the chat template; none: calls are text; or a name, which an unknown one lists.", kAnswer},
    {"--reasoning-format", "HEADRACE_REASONING_FORMAT", kText, "auto", "", "serve",
     "How the model marks its reasoning: auto, none or a name, as --tool-format.", kAnswer},

    {"--host", "HEADRACE_HOST", kText, "127.0.0.1", "", "serve lab", "Address to listen on.", kServer},
    {"--port", "HEADRACE_PORT", kInteger, "8080", "0..65535", "serve doctor lab", "Port to listen on; 0 takes a free one and prints it.", kServer},
    {"--alias", "HEADRACE_ALIAS", kText, "", "", "serve", "Further names under which requests may ask for the model, separated by commas.", kServer},
    {"--adapter", "HEADRACE_ADAPTER", kText, "", "", "serve", "Adapters (LoRA, PEFT folders) to load at the start, NAME=FOLDER or NAME@MODEL=FOLDER separated by commas, without MODEL for the first one; requests ask for an adapter by its name as model.", kServer},
    {"--adapter-root", "HEADRACE_ADAPTER_ROOT", kText, "", "", "serve", "Folder below which POST /v1/load_lora_adapter may load adapters; empty: none may be loaded while the server runs.", kServer},
    {"--adapter-uploads", "HEADRACE_ADAPTER_UPLOADS", kFlag, "", "", "serve", "Let POST /v1/load_lora_adapter take adapters that clients send, of at most --max-body bytes.", kServer},
    {"--on-demand", "HEADRACE_ON_DEMAND", kText, "", "", "serve", "Models that are loaded when a request asks for them, separated by commas: names and paths of models, folders that hold models, and store for all that are pulled. Of --context, --draft-model and mtp each has what it can.", kServer},
    {"--on-demand-memory", "HEADRACE_ON_DEMAND_MEMORY", kBytes, "0", "0..", "serve", "Memory for the weights of the models of --on-demand together, such as 8G; 0: what the system has. The longest unused sleeps where another is wanted.", kServer},
    {"--keep-alive", "HEADRACE_KEEP_ALIVE", kInteger, "300", "-1..31536000", "serve", "Seconds after which an idle model of --on-demand sleeps; -1: never.", kServer},
    {"--embedding-ids", "HEADRACE_EMBEDDING_IDS", kText, "", "", "serve", "A tokenizer.json in whose ids clients send inputs of /v1/embeddings (LangChain sends those of cl100k); empty: in the model's own.", kServer},
    {"--http-threads", "HEADRACE_HTTP_THREADS", kInteger, "2", "1..64", "serve lab", "Threads that serve connections.", kServer},
    {"--drain-seconds", "HEADRACE_DRAIN_SECONDS", kInteger, "30", "0..3600", "serve lab",
     "How long running requests may finish after SIGTERM or Ctrl-C.", kServer},
    {"--step-deadline", "HEADRACE_STEP_DEADLINE", kInteger, "120", "0..86400", "serve", "Seconds in which nothing moves though there are requests, after which the engine counts as hung: the state is logged, all requests get an error, and the process ends with status 70. 0: never.", kServer},
    {"--api-key", "HEADRACE_API_KEY", kText, "", "", "serve run chat ps stop bench lab", "Key that requests must carry to serve, and that the other commands send; other users see it in the list of processes until the server has started, so better set the variable or a file.", kServer},
    {"--api-key-file", "HEADRACE_API_KEY_FILE", kText, "", "", "serve lab", "File of keys, one a line, as `headrace key` makes them, or keys as they are; lines that begin with # are left out. Read again on SIGHUP.", kServer},
    {"--tenants", "HEADRACE_TENANTS", kText, "", "", "serve", "File (TOML) that says who shares the engine with whom: a table for each tenant with parent, weight, guarantee, burst, keys (names of --api-key-file) and cache (separate, or shared by its keys). Empty: each key is a tenant of its own, of equal weight. Read again on SIGHUP.", kServer},
    {"--tls-cert", "HEADRACE_TLS_CERT", kText, "", "", "serve lab", "File with the certificate for HTTPS, and those between it and its root, as PEM; needs --tls-key. Read again on SIGHUP.", kServer},
    {"--tls-key", "HEADRACE_TLS_KEY", kText, "", "", "serve lab", "File with the key of the certificate, as PEM without a passphrase.", kServer},
    {"--admin-socket", "HEADRACE_ADMIN_SOCKET", kText, "", "", "serve", "Path of a Unix socket on which this user and root may list and end requests, empty the prefix cache, change the log level and see the newest steps; empty: none.", kServer},
    {"--kv-events", "HEADRACE_KV_EVENTS", kText, "", "", "serve", "Publish over ZeroMQ at this endpoint, such as tcp://127.0.0.1:5557, what the prefix cache holds, for routers: they learn the token ids of prompts. With one model alone; empty: nothing.", kServer},
    {"--kv-events-replay", "HEADRACE_KV_EVENTS_REPLAY", kText, "", "", "serve", "Endpoint where routers ask for what they missed; empty: none.", kServer},
    {"--kv-events-topic", "HEADRACE_KV_EVENTS_TOPIC", kText, "", "", "serve", "First frame of each message, such as kv@HOST@MODEL.", kServer},
    {"--kv-events-form", "HEADRACE_KV_EVENTS_FORM", kChoice, "maps", "maps|arrays", "serve", "How events are packed: maps as newer routers read them, arrays as older ones.", kServer},
    {"--otlp-endpoint", "HEADRACE_OTLP_ENDPOINT", kText, "", "", "serve", "Collector to which a span of each request goes, as OTLP over HTTP (JSON), such as http://127.0.0.1:4318; empty: none.", kServer},
    {"--insecure-no-keys", "HEADRACE_INSECURE_NO_KEYS", kFlag, "", "", "serve lab", "Listen beyond this machine without keys: whoever reaches the address may use the server.", kServer},
    {"--scopes", "", kText, "inference", "", "key", "What the key may ask for, with commas between: inference, metrics, admin.", kServer},
    {"--allowed-hosts", "HEADRACE_ALLOWED_HOSTS", kText, "", "", "serve lab",
     "Names under which clients reach the server, separated by commas; * allows any. Empty: any where it listens beyond loopback, else addresses, localhost and names without a dot.", kServer},
    {"--cors-origins", "HEADRACE_CORS_ORIGINS", kText, "", "", "serve lab", "Origins of web pages that may use the server, such as https://chat.example, separated by commas; * allows any. Empty: its own page alone.", kServer},
    {"--request-memory", "HEADRACE_REQUEST_MEMORY", kBytes, "0", "0..", "serve",
     "Memory that bodies, waiting requests and answers may hold together, such as 512M; 0: a quarter of free memory, from 64M to 1G.", kServer},
    {"--max-body", "HEADRACE_MAX_BODY", kBytes, "32M", "1..", "serve lab", "Longest body of a request; at most half of --request-memory.", kServer},
    {"--response-store", "HEADRACE_RESPONSE_STORE", kBytes, "64M", "0..", "serve", "Memory for answers of /v1/responses that clients may go on with; the longest unused goes first. 0: none are kept.", kServer},
    {"--response-seconds", "HEADRACE_RESPONSE_SECONDS", kInteger, "3600", "1..31536000", "serve", "How long an answer of /v1/responses is kept.", kServer},
    {"--max-connections", "HEADRACE_MAX_CONNECTIONS", kInteger, "12000", "1..1000000", "serve lab", "Connections at a time; further ones get status 503.", kServer},
    {"--max-connections-per-address", "HEADRACE_MAX_CONNECTIONS_PER_ADDRESS", kInteger, "512", "0..1000000", "serve lab",
     "Connections of one address at a time; this machine itself is not counted. 0: no limit.", kServer},
    {"--log-format", "HEADRACE_LOG_FORMAT", kChoice, "text", "text|json", "serve lab", "Form of log lines; json writes one object a line.", kServer},

    {"--temperature", "", kNumber, "", "0..100", kGenerates, "Randomness of the answer; 0 always takes the most likely token.", kAnswer, "the model's own, else 0.7"},
    {"--top-k", "", kInteger, "", "-1..1000000", kGenerates, "Sample among the k most likely tokens; 0: all.", kAnswer, "the model's own, else 0"},
    {"--top-p", "", kNumber, "", "0..1", kGenerates, "Sample among the most likely tokens that make up this probability.", kAnswer, "the model's own, else 0.95"},
    {"--min-p", "", kNumber, "", "0..1", kGenerates, "Leave out tokens less likely than this share of the most likely one.", kAnswer, "the model's own, else 0"},
    {"--repetition-penalty", "", kNumber, "", "0.01..10", kGenerates, "Above 1: makes tokens that occurred less likely.", kAnswer, "the model's own, else 1"},
    {"--presence-penalty", "", kNumber, "0", "-2..2", kGenerates, "Subtracted once from the logit of every token of the answer so far.", kAnswer},
    {"--frequency-penalty", "", kNumber, "0", "-2..2", kGenerates, "Subtracted from a token's logit each time it occurred in the answer.", kAnswer},
    {"--seed", "", kInteger, "", "0..9223372036854775807", kGenerates, "Seed of the sampler: equal seeds and settings give equal answers.", kAnswer, "random; --stats prints it"},
    {"--max-tokens", "", kInteger, "512", "1..1048576", kGenerates, "Most tokens of an answer; one that is cut says so.", kAnswer},
    {"--stop", "", kText, "", "", kGenerates, "End the answer at this text (\\n for a newline).", kAnswer},
    {"--json-schema", "", kText, "", "", kGenerates, "Hold the answer to a JSON schema: a file, or the schema itself.", kAnswer},
    {"--regex", "", kText, "", "", kGenerates, "Hold the answer to a regular expression, which it matches as a whole.", kAnswer},
    {"--grammar", "", kText, "", "", kGenerates, "Hold the answer to a grammar, a file or the text itself: Lark, or the EBNF of GGUF tools (GBNF).", kAnswer},
    {"--ignore-eos", "", kFlag, "", "", "run", "Go on past the model's end token.", kAnswer},
    {"--raw", "", kFlag, "", "", "run", "Continue the prompt as plain text: no chat template.", kAnswer},
    {"--system", "", kText, "", "", "run chat", "System message: how the model shall behave.", kAnswer},
    {"--attach", "", kText, "", "", "run", "Text files that follow the prompt, each under its name, separated by commas.", kAnswer},
    {"--stats", "", kFlag, "", "", kGenerates, "After the answer, print tokens, speed and seed on standard error.", kOutput},

    {"--json", "", kFlag, "", "", "list ps doctor inspect show tokenize render eval verify bench lab version plan profile", "Print JSON, for programs.", kOutput},
    {"--prefill", "", kText, "128,512,2048", "", "bench", "Prompts to time, in tokens, with commas between; empty: none.", kPoints},
    {"--depth", "", kText, "0,512,2048,8192", "", "bench", "Contexts at which to time decode, in tokens; empty: none. As far as the model's context reaches.", kPoints},
    {"--batch", "", kText, "1,4,16,64", "", "bench", "Sequences to decode together; empty: none.", kPoints},
    {"--batch-depth", "", kInteger, "128", "0..1048576", "bench", "Context of each sequence of a batch.", kPoints},
    {"--decode", "", kInteger, "32", "1..65536", "bench", "Steps of a timed decode.", kPoints},
    {"--with-adapter", "", kText, "", "", "bench", "Time every point once more with an adapter (a PEFT folder), of which each sequence has a copy of its own; empty: without.", kPoints},
    {"--bare", "", kFlag, "", "", "bench", "Measure alone: no limits of the machine are taken, and no forecast stands beside what was measured.", kPoints},
    {"--repeats", "", kInteger, "3", "1..1000", "bench", "Times that each point is run; the median counts.", kPoints},
    {"--load", "", kText, "sync", "", "bench", "When requests are sent: sync, one after the other; closed:N, N at a time; throughput, as many as --connections; constant:RATE and poisson:RATE, that many a second whatever the server does; trace; or sweep, which finds the rate that saturates, by random times or, as sweep:constant, by even ones.", kLoad},
    {"--duration", "", kNumber, "30", "0.05..86400", "bench", "Seconds in which requests are sent, of each rate; what runs then is waited for.", kLoad},
    {"--warmup", "", kNumber, "", "0..86400", "bench", "Seconds at the start that do not count.", kLoad, "a tenth of the load, none of a recording or of less than ten --requests"},
    {"--requests", "", kInteger, "0", "0..100000000", "bench", "Most requests of each rate; 0: as many as there is time for.", kLoad},
    {"--rates", "", kInteger, "6", "1..100", "bench", "Rates of a sweep, from what one client gets to somewhat more than many get.", kLoad},
    {"--connections", "", kInteger, "512", "1..20000", "bench", "Most requests that run at a time; one that is due and must wait counts its waiting.", kLoad},
    {"--prompt-tokens", "", kText, "128", "", "bench", "Lengths of prompts, about: a number, lognormal:MEDIAN,SIGMA, or sharegpt, as of recorded conversations.", kLoad},
    {"--answer-tokens", "", kText, "128", "", "bench", "Lengths of answers, in the same forms.", kLoad},
    {"--natural-end", "", kFlag, "", "", "bench", "Let answers end where the model ends them, instead of asking for ignore_eos.", kLoad},
    {"--profile", "", kText, "plain", "", "bench", "plain: every prompt is its own; prefix: all begin with the same text; agent: conversations that grow by the answers.", kLoad},
    {"--prefix-tokens", "", kInteger, "512", "1..1048576", "bench", "Length of the text that prompts share, or of an agent's instructions.", kLoad},
    {"--turns", "", kInteger, "8", "1..1000", "bench", "Turns of an agent's conversation.", kLoad},
    {"--trace", "", kText, "", "", "bench lab", "Recording to play: lines of JSON with time (seconds), prompt or prompt_tokens, and output_tokens. With --load sync or closed:N, and by lab tune for the goal answers, its requests are sent in order whatever their times.", kLoad},
    {"--slo", "", kText, "", "", "bench", "Limits of a good answer, such as ttft=300ms,itl=50ms,e2e=5s; requests within them are counted as goodput.", kLoad},
    {"--api", "", kChoice, "chat", "chat|completions", "bench", "Route to ask.", kLoad},
    {"--request-model", "", kText, "", "", "bench", "Model to ask for; empty: the first that the server lists.", kLoad},
    {"--request-timeout", "", kNumber, "600", "0.1..86400", "bench", "Seconds after which a request has failed.", kLoad},
    {"--save", "", kText, "", "", "bench", "File for the results as JSON, written anew after each rate.", kLoad},
    {"--html", "", kText, "", "", "bench", "File for a report with plots, one page that needs no other.", kLoad},
    {"--machine", "", kText, "", "", "plan bench profile", "Limits of a machine, as `headrace bench machine --json` printed them: that to plan for, or that on which bench serve MODEL and profile run; empty: they measure this one.", kPoints},
    {"--prefill", "", kInteger, "512", "1..1048576", "profile", "Tokens of each prompt.", kPoints},
    {"--decode", "", kInteger, "32", "1..1000", "profile", "Tokens of each answer.", kPoints},
    {"--batch", "", kInteger, "1", "1..256", "profile", "Requests at a time.", kPoints},
    {"--trace", "", kText, "", "", "profile", "File for a trace of every op, which ui.perfetto.dev and chrome://tracing show.", kOutput},
    {"--clients", "", kInteger, "1", "1..1048576", "plan", "Sequences at a time, each of --context tokens.", kPoints},
    {"--memory", "", kBytes, "0", "0..", "plan", "Memory that there is, such as 16G; 0: that of the machine.", kPoints},
    {"--speed", "", kNumber, "", "0.001..1000000000", "plan", "Tokens per second that each client is to get: which formats and types of keys and values would.", kPoints, "any"},
    {"--price-per-hour", "", kNumber, "", "0.000001..1000000", "plan", "What the machine costs, for the price of a million tokens.", kPoints, "no price"},
    {"--shape", "", kText, "llama-1b", "", "bench", "Shape of a random model: smollm2-135m, smollm2-360m, qwen2.5-0.5b, qwen2.5-1.5b, llama-1b, llama-3b, llama-8b, olmoe-1b-7b, qwen3-30b-a3b, gpt-oss-20b, deepseek-v2-lite, lfm2-1.2b, qwen3.5-0.8b or gemma-4-e2b.", kRandomModel},
    {"--format", "", kText, "q8_0", "", "bench", "Storage of a random model: f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q3_k, q4_k, q4_k_m, q5_k, q5_k_m, q6_k, iq4_nl, iq4_xs or mxfp4.", kRandomModel},
    {"--layers", "", kInteger, "0", "0..1024", "bench", "Layers of a random model, fewer than its shape has so that a file fits into memory; 0: as the shape has. Likewise the sizes below.", kRandomModel},
    {"--hidden", "", kInteger, "0", "0..131072", "bench", "Width of the residual stream.", kRandomModel},
    {"--heads", "", kInteger, "0", "0..1024", "bench", "Query heads.", kRandomModel},
    {"--kv-heads", "", kInteger, "0", "0..1024", "bench", "Key and value heads.", kRandomModel},
    {"--head-dim", "", kInteger, "0", "0..512", "bench", "Width of a head.", kRandomModel},
    {"--intermediate", "", kInteger, "0", "0..131072", "bench", "Width of the MLP.", kRandomModel},
    {"--vocab", "", kInteger, "0", "0..1048576", "bench", "Tokens of the vocabulary.", kRandomModel},
    {"--seed", "", kInteger, "0", "0..9223372036854775807", "bench", "Seed of the random weights, or of a load's prompts and times: equal seeds give equal ones.", kRandomModel},
    {"--out", "", kText, "", "", "bench", "File that a random model is written to.", kRandomModel},
    {"--tensors", "", kFlag, "", "", "inspect show", "List every tensor.", kOutput},
    {"--decode", "", kFlag, "", "", "tokenize", "The arguments are token ids; print their text."},
    {"--no-special", "", kFlag, "", "", "tokenize", "Do not add the begin and end tokens."},
    {"--no-generation-prompt", "", kFlag, "", "", "render", "Do not end the prompt with the assistant's header."},
    {"--window", "", kInteger, "512", "2..1048576", "eval verify", "Tokens per perplexity window."},
    {"--windows", "", kInteger, "0", "0..1000000", "eval verify", "Most perplexity windows; 0: all."},
    {"--reference", "", kText, "", "", "eval", "Model that compare compares with; empty: the same.", kPoints},
    {"--reference-activations", "", kChoice, "exact", "exact|fast|int8", "eval", "Arithmetic of that model.", kPoints},
    {"--reference-kv-type", "", kChoice, "f32", "f16|bf16|f32|fp8|int8|int16", "eval", "Storage of its keys and values.", kPoints},
    {"--tolerance", "", kNumber, "0", "0..1", "verify", "Largest allowed |difference| as a share of the largest |logit|; 0: 2e-4."},
    {"--quick", "", kFlag, "", "", "verify", "verify kernels: fewer shapes and values."},
    {"--lab", "HEADRACE_LAB", kText, "lab", "", "lab serve", "Folder of the laboratory; made where there is none. A server of models has one beside it only where this is given.", kOutput},
    {"--engine", "HEADRACE_ENGINE", kText, "", "", "lab serve", "Servers of headrace whose figures the page of the laboratory shows beside its own, http://host:port, separated by commas.", kServer},
    {"--by", "HEADRACE_LAB_BY", kText, "", "", "lab", "Who does this, for the log; empty: the user's name.", kOutput},
    {"--idle-share", "", kNumber, "0.1", "0..1", "lab", "Share of the cores that others may use beside a run; a run beside which they used more is repeated.", kPoints},
    {"--idle-patience", "", kInteger, "60", "0..86400", "lab", "Seconds that a run waits for an idle machine before it begins all the same.", kPoints},
    {"--goal", "", kChoice, "throughput", "ttft|throughput|answers|memory|start", "lab", "What lab tune makes better: prefill of 512 tokens, 16 sequences together, the answers of a server to one client, the memory of the process, or the time to load.", kPoints},
    {"--rounds", "", kInteger, "12", "5..1000", "lab", "Rounds after which lab tune leaves a question undecided.", kPoints},
    {"--list-kernels", "", kFlag, "", "", "version", "List every kernel, what it needs and which are in use.", kOutput},
    {"--options", "", kFlag, "", "", "version", "List every option with its environment variable, default and range.", kOutput},
    {"--revision", "", kText, "", "", "pull", "Revision of a hub repository, as after @.", kModel},
    {"--quiet", "", kFlag, "", "", "pull rm stop run chat serve", "No progress, no greeting and no notes; errors only. What serve logs is for --log-level.", kOutput},
    {"--log-level", "HEADRACE_LOG_LEVEL", kChoice, "info", "debug|info|warning|error|off", "serve lab", "Least important log lines to print.", kServer},
};
// clang-format on

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<uint64_t> parse_bytes(std::string_view text) {
  uint64_t unit = 1;
  constexpr std::string_view kUnits = "KMGT";
  if (!text.empty()) {
    const size_t index = kUnits.find(static_cast<char>(std::toupper(text.back())));
    if (index != std::string_view::npos) {
      unit = uint64_t{1} << (10 * (index + 1));
      text.remove_suffix(1);
    }
  }
  const auto count = parse_integer(text);
  if (!count || *count < 0 || static_cast<uint64_t>(*count) > UINT64_MAX / unit) {
    return std::nullopt;
  }
  return static_cast<uint64_t>(*count) * unit;
}

std::optional<double> parse_as_number(OptionKind kind, std::string_view text) {
  if (kind == kNumber) return parse_number(text);
  if (kind == kInteger) {
    const auto value = parse_integer(text);
    return value ? std::optional<double>(static_cast<double>(*value)) : std::nullopt;
  }
  const auto value = parse_bytes(text);
  return value ? std::optional<double>(static_cast<double>(*value)) : std::nullopt;
}

// "1..65535": both ends may be left out.
bool in_range(std::string_view range, double value) {
  const size_t dots = range.find("..");
  if (dots == std::string_view::npos) return true;
  const auto low = parse_number(range.substr(0, dots));
  const auto high = parse_number(range.substr(dots + 2));
  return (!low || value >= *low) && (!high || value <= *high);
}

bool is_choice(std::string_view choices, std::string_view text) {
  while (true) {
    const size_t bar = choices.find('|');
    if (choices.substr(0, bar) == text) return true;
    if (bar == std::string_view::npos) return false;
    choices.remove_prefix(bar + 1);
  }
}

// What the environment or a file says of a switch.
std::optional<bool> flag_value(std::string_view text) {
  if (text == "true" || text == "1") return true;
  if (text == "false" || text == "0") return false;
  return std::nullopt;
}

std::string_view kind_name(OptionKind kind) {
  switch (kind) {
    case kFlag:
      return "true, 1, false or 0";
    case kInteger:
      return "a whole number";
    case kNumber:
      return "a number";
    case kBytes:
      return "a size such as 512M or 2G";
    default:
      return "one of the choices";
  }
}

const OptionRow* find_row(std::string_view command, std::string_view name) {
  for (const OptionRow& row : kRows) {
    if (row.name == name && option_applies(row, command)) return &row;
  }
  return nullptr;
}

}  // namespace

std::span<const OptionRow> option_rows() { return kRows; }

std::string_view group_title(OptionGroup group) {
  constexpr std::string_view kTitles[kNumOptionGroups] = {
      "Answer", "Server",       "Options", "Model",  "Points to time",
      "Load",   "Random model", "Output",  "Memory", "Kernels",
  };
  return kTitles[static_cast<size_t>(group)];
}

bool option_applies(const OptionRow& row, std::string_view command) {
  std::string_view rest = row.commands;
  while (!rest.empty()) {
    const size_t space = rest.find(' ');
    if (rest.substr(0, space) == command) return true;
    if (space == std::string_view::npos) return false;
    rest.remove_prefix(space + 1);
  }
  return false;
}

Status check_option(const OptionRow& row, std::string_view text) {
  if (row.kind == kText) return {};
  const auto refuse = [&](std::string_view needed) {
    return make_error(ErrorCode::kInvalidArgument, "{} is '{}', but it must be {}{}{}", row.name,
                      text, needed, row.range.empty() ? "" : " in ", row.range);
  };
  if (row.kind == kChoice) {
    if (is_choice(row.range, text)) return {};
    return refuse("one of the choices");
  }
  if (row.kind == kFlag) return flag_value(text) ? Status() : refuse(kind_name(row.kind));
  const auto value = parse_as_number(row.kind, text);
  if (!value || !in_range(row.range, *value)) return refuse(kind_name(row.kind));
  return {};
}

Result<Options> Options::create(std::string_view command, const OptionTexts& given,
                                std::vector<std::string> positionals, const OptionTexts& file) {
  Options options;
  options.command_ = command;
  options.positionals_ = std::move(positionals);
  for (const auto& [name, text] : given) {
    CHECK(find_row(command, name) != nullptr, "option {} is not in the table", name);
  }
  for (const OptionRow& row : kRows) {
    if (!option_applies(row, command)) continue;
    const auto found = given.find(row.name);
    const char* environment = row.env.empty() ? nullptr : std::getenv(std::string(row.env).c_str());
    std::string text(row.value);
    if (const auto setting = file.find(row.name); setting != file.end()) {
      text = setting->second;
      options.set_.emplace(row.name);
    }
    if (environment != nullptr && *environment != '\0') {
      text = environment;
      options.set_.emplace(row.name);
    }
    if (found != given.end()) {
      text = found->second;
      options.set_.emplace(row.name);
      options.typed_.emplace(row.name);
    }
    const bool is_checked = options.is_set(row.name) || !row.value.empty();
    if (const Status status = check_option(row, text); is_checked && !status.ok()) {
      Error error = status.error();
      if (found == given.end()) error.hint = fmt::format("the value comes from {}", row.env);
      return error;
    }
    options.values_[std::string(row.name)] = std::move(text);
  }
  return options;
}

const std::string& Options::value_of(std::string_view name, OptionKind kind) const {
  const OptionRow* row = find_row(command_, name);
  CHECK(row != nullptr, "no option {} for command {}", name, command_);
  CHECK(row->kind == kind || (kind == kText && row->kind == kChoice), "kind of {}", name);
  return values_.find(name)->second;
}

Options Options::with(std::string_view name, std::string value) const {
  const OptionRow* row = find_row(command_, name);
  CHECK(row != nullptr && check_option(*row, value).ok(), "{} {}", name, value);
  Options changed = *this;
  changed.values_.insert_or_assign(std::string(name), std::move(value));
  return changed;
}

bool Options::flag(std::string_view name) const {
  return flag_value(value_of(name, kFlag)).value_or(false);
}

int64_t Options::integer(std::string_view name) const {
  const auto value = parse_integer(value_of(name, kInteger));
  CHECK(value.has_value(), "{} has no value", name);
  return *value;
}

double Options::number(std::string_view name) const {
  const auto value = parse_number(value_of(name, kNumber));
  CHECK(value.has_value(), "{} has no value", name);
  return *value;
}

const std::string& Options::text(std::string_view name) const { return value_of(name, kText); }

uint64_t Options::bytes(std::string_view name) const {
  return *parse_bytes(value_of(name, kBytes));
}

bool Options::is_set(std::string_view name) const { return set_.contains(name); }

bool Options::is_typed(std::string_view name) const { return typed_.contains(name); }

}  // namespace headrace
