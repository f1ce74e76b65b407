// The engine's core and the server's sessions together, from seeds: arrivals of both kinds, several
// choices, the best of several, beam searches, stop strings, masks, guesses, cancels and stops in
// every state, sinks that refuse, clients that leave or read nothing, too little memory, rows that
// are not finite, pre-emption, rope tables that change. After each step all invariants hold; each
// request has exactly one end, each response too; who was not disturbed says what it says alone.
//
// The digest of a run is the same in every build. HEADRACE_SIM_STEPS sets how many steps the long
// run has, HEADRACE_SIM_SEED its first seed; a failure names its seed (make sim ARGS="--seed N").

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <random>

#include "base/sanitizers.h"
#include "server/api/test_support.h"
#include "sim/sim_client.h"
#include "sim/sim_engine.h"

namespace headrace::sim {
namespace {

// How large a world is, from many small ones to few with 64 sequences and 4,096 blocks.
struct Size {
  uint64_t share;  // of 256 worlds
  int max_sequences, max_batch_tokens, max_logit_rows;
  int64_t num_blocks, max_context;
  int64_t max_prompt, max_tokens;
};
constexpr Size kSizes[] = {
    {250, 8, 48, 16, 24, 384, 60, 24},
    {5, 16, 160, 48, 160, 512, 150, 60},
    {1, 64, 512, 160, 4096, 1024, 400, 100},
};

struct Totals {
  uint64_t num_worlds = 0, num_steps = 0, num_requests = 0, num_responses = 0;
  uint64_t num_checked = 0, num_poisoned = 0, num_refused = 0, num_left = 0;
  uint64_t num_searches = 0, num_ranked = 0;
  uint64_t kept_with_state = 0;  // guesses that were right there
  SchedulerStats scheduler;
  void add(const SchedulerStats& stats) {
    scheduler.num_preemptions += stats.num_preemptions;
    scheduler.num_epoch_restarts += stats.num_epoch_restarts;
    scheduler.num_followed += stats.num_followed;
    scheduler.num_turns_given += stats.num_turns_given;
    scheduler.cached_tokens += stats.cached_tokens;
    scheduler.draft_tokens += stats.draft_tokens;
    scheduler.accepted_tokens += stats.accepted_tokens;
  }
};

class NoPackedAdapter final : public PackedAdapter {
 public:
  size_t num_bytes() const override { return 0; }
};

// What all worlds share: no state.
struct ServingMeans {
  TextBundle text = test::make_bundle(/*with_template=*/false);
  ModelInfo info = test::make_model_info();
  std::vector<std::string> names = {"sim"};
  SessionCounters counters;
  std::vector<std::shared_ptr<const Adapter>> adapters = {adapter_of("a"), adapter_of("aa")};

  static std::shared_ptr<const Adapter> adapter_of(std::string digest) {
    auto adapter = std::make_shared<Adapter>();
    adapter->packed = std::make_unique<NoPackedAdapter>();
    adapter->digest = std::move(digest);
    return adapter;
  }
};

// What is asked of the worlds of a run beside the rest.
struct Kind {
  bool drafts_must_pay = false;
  bool searches = false;  // beam searches, and the best of several choices
};

class World {
 public:
  World(uint64_t seed, ServingMeans* means, const Kind& kind)
      : random_(seed),
        kind_(kind),
        size_(choose_size()),
        rules_(choose_rules()),
        budget_(one_in(4) ? 20'000 : 100'000'000),
        // Braces: draws are made from left to right by every compiler.
        engine_{choose_options(), rules_, static_cast<size_t>(range(size_.max_sequences, 60)),
                random_(), &digest_},
        means_(*means),
        model_{means->text, means->info, means->names, engine_.max_context()} {
    limits_.max_queued_bytes = static_cast<size_t>(range(20, 2000));
    limits_.max_queued_events = static_cast<size_t>(range(4, 200));
    limits_.max_open_choices = static_cast<size_t>(range(1, 6));
    num_faults_per_64_ = range(0, 6);
    num_clients_ = one_in(3) ? 1 : static_cast<uint64_t>(range(2, 5));
  }

  // Faults and arrivals for some steps, then what is there until it is done.
  void run() {
    const int64_t num_busy = range(60, 400);
    for (int64_t i = 0; i < num_busy && !testing::Test::HasFailure(); ++i) {
      if (one_in(3)) arrive();
      disturb();
      turn();
    }
    num_faults_per_64_ = 0;
    for (SessionClient& client : sessions_) client.reads = true;
    int64_t num_turns = 0;
    while (!(engine_.idle() && sessions_.empty()) && !testing::Test::HasFailure()) {
      turn();
      ASSERT_LT(++num_turns, 200'000)
          << "requests do not finish: " << engine_.num_live() << " live, budget " << budget_.limit()
          << ", window " << limits_.max_open_choices << ", " << sessions_.size()
          << " responses, of the first " << (sessions_.empty() ? "" : sessions_[0].state());
    }
    if (!testing::Test::HasFailure()) check_end();
  }

  uint64_t digest() const { return digest_.value; }
  void add_to(Totals* totals) const {
    ++totals->num_worlds;
    totals->num_steps += engine_.num_steps();
    totals->num_requests += num_requests_;
    totals->num_responses += num_responses_;
    totals->num_checked += num_checked_;
    totals->num_poisoned += num_poisoned_;
    totals->num_refused += num_refused_;
    totals->num_left += num_left_;
    totals->num_searches += num_searches_;
    totals->num_ranked += num_ranked_;
    totals->add(engine_.stats());
    const bool has_state = !engine_.kv_cache().can_roll_back();
    totals->kept_with_state += has_state ? engine_.stats().accepted_tokens : 0;
  }

 private:
  int64_t range(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool one_in(uint64_t count) { return random_() % count == 0; }
  bool fault() { return range(0, 63) < num_faults_per_64_; }

  Size choose_size() {
    uint64_t share = random_() % 256;
    for (const Size& size : kSizes) {
      if (share < size.share) return size;
      share -= size.share;
    }
    return kSizes[0];
  }

  ModelRules choose_rules() {
    ModelRules rules;
    if (one_in(2)) rules.poisoned_of_4096 = static_cast<uint64_t>(range(1, 12));
    if (one_in(4)) rules.epoch_edge = range(1, 80);
    if (one_in(2)) rules.epoch_span = range(4, 40);
    return rules;
  }

  SchedulerOptions choose_options() {
    SchedulerOptions options;
    const bool small = size_.num_blocks < 100;
    options.max_sequences =
        small ? static_cast<int>(range(1, size_.max_sequences)) : size_.max_sequences;
    options.max_batch_tokens =
        small ? static_cast<int>(range(options.max_sequences, size_.max_batch_tokens))
              : size_.max_batch_tokens;
    options.max_logit_rows =
        small ? static_cast<int>(range(options.max_sequences, size_.max_logit_rows))
              : size_.max_logit_rows;
    const int64_t num_states = one_in(3) ? 2 : 0;  // blocks: where it was and where it will be
    if (num_states > 0) {
      options.cache_rules.push_back({CachePolicy::kState, 0, /*snapshot_blocks=*/range(1, 4), 1});
    }
    options.num_blocks = small ? num_states + range(2, size_.num_blocks) : size_.num_blocks;
    options.max_context =
        small ? range(8, (options.num_blocks - num_states) * kBlockTokens) : size_.max_context;
    options.max_preemptions = static_cast<int>(range(0, kMaxPreemptions));
    options.max_draft_tokens = one_in(2) ? static_cast<int32_t>(range(1, 4)) : 0;
    options.drafts_must_pay = kind_.drafts_must_pay;
    const uint64_t first = random_();
    options.hash_key = {first, random_()};
    return options;
  }

  // A request but its prompt.
  Request make_request() {
    Request request;
    request.max_tokens =
        static_cast<int32_t>(range(1, one_in(4) ? size_.max_tokens * 3 : size_.max_tokens));
    request.ignore_eos = one_in(2);
    if (one_in(4))
      request.stop_ids = {static_cast<int32_t>(kFirstLetter + range(0, kNumLetters - 1))};
    const uint64_t client = random_() % num_clients_;
    request.client = client * (random_() % 2);
    if (one_in(4)) request.cache_domain.assign(random_() % 3, 'd');
    if (one_in(8)) request.adapter = means_.adapters[random_() % means_.adapters.size()];
    return request;
  }

  std::vector<int32_t> make_prompt() {
    const int64_t longest = std::min<int64_t>(engine_.max_context() - 1, size_.max_prompt);
    const int64_t length = one_in(2) ? range(1, longest) : range(1, std::min<int64_t>(longest, 20));
    const bool shared = one_in(2);
    std::vector<int32_t> prompt;
    for (int64_t i = 0; i < length; ++i) {
      const int64_t letter = shared && i < 50 ? i % kNumLetters : range(0, kNumLetters - 1);
      prompt.push_back(static_cast<int32_t>(kFirstLetter + letter));
    }
    if (one_in(3) && std::ssize(last_prompt_) <= longest && !last_prompt_.empty()) {
      prompt = last_prompt_;  // the same again, maybe at the same time
    }
    last_prompt_ = prompt;
    return prompt;
  }

  BeamParams make_beams() {
    constexpr float kPenalties[] = {1, 0, 2, -1};
    BeamParams beams;
    const BeamLimits limits = engine_.beam_limits();
    beams.width = static_cast<int32_t>(range(1, std::min(6, limits.max_width)));
    beams.num_returned = static_cast<int32_t>(range(1, beams.width));
    beams.length_penalty = kPenalties[random_() % 4];
    beams.early_stopping = static_cast<EarlyStopping>(random_() % 3);
    return beams;
  }

  // A search as long as its blocks hold behind a prompt of that many tokens; none where they hold
  // none.
  void fit_search(int64_t num_prompt, Request* request) const {
    if (request->beams.width == 0) return;
    const int64_t wanted = std::min(engine_.max_context(), num_prompt + request->max_tokens);
    const int64_t longest = engine_.beam_limits().longest(request->beams.width, num_prompt, wanted);
    if (longest == wanted) return;
    if (longest == 0) request->beams = {};
    const auto room = static_cast<int32_t>(longest == 0 ? 1 : longest - num_prompt);
    request->max_tokens = std::min(request->max_tokens, room);
    request->min_tokens = std::min(request->min_tokens, room);
  }

  void arrive() {
    if (engine_.num_live() > static_cast<size_t>(2 * size_.max_sequences + 8)) return;
    if (one_in(3)) {
      submit_alone();
    } else {
      start_session();
    }
  }

  // A caller of the engine: scores, masks, a sink that may refuse.
  void submit_alone() {
    Request request = make_request();
    request.prompt_ids = make_prompt();
    if (kind_.searches && one_in(4)) {
      request.beams = make_beams();
      fit_search(std::ssize(request.prompt_ids), &request);
    }
    const bool searches = request.beams.width > 0;
    num_searches_ += searches ? 1 : 0;
    const int64_t salt = !searches && one_in(3) ? range(0, 5) : -1;
    if (salt >= 0) {
      request.constraint = std::make_shared<EveryThirdForbidden>(salt);
    } else if (!searches && one_in(4)) {
      request.num_prompt_logprobs = 1;
      if (one_in(2)) request.max_tokens = 0;
    }
    engine_.constrain_next(salt);
    const Result<RequestId> id = engine_.submit(std::move(request), [this](Event&& event) {
      if (event.kind == Event::Kind::kPromptLogprobs) check_scores(event);
      return !fault();
    });
    engine_.constrain_next(-1);
    if (!id.ok()) return refused(id.error());
    alone_.push_back(id.value());
    ++num_requests_;
  }

  void start_session() {
    GenerationRequest given;
    given.prototype = make_request();
    given.prompts.push_back({make_prompt(), {}});
    if (one_in(8)) given.prompts.push_back({make_prompt(), {}});
    given.num_choices = one_in(3) ? static_cast<int>(range(2, 5)) : 1;
    given.stream = one_in(2);
    SessionClient client;
    if (kind_.searches) choose_best_of(&given);
    if (!given.is_search() && one_in(3)) {
      for (int64_t i = range(1, 2); i > 0; --i) {
        client.stop += static_cast<char>(kFirstLetter + range(0, kNumLetters - 1));
      }
      given.stop = {client.stop};
    }
    for (size_t i = 0; i < given.total_choices(); ++i) {
      client.requests.push_back(given.engine_request(i, engine_.max_context()));
    }
    given.memory = budget_.lease();
    client.log = std::make_shared<ResponseLog>();
    client.num_choices = given.num_choices;
    client.num_best = given.num_best;
    client.log->texts.resize(given.total_choices());
    client.log->finishes.resize(given.total_choices());
    client.writer = std::make_shared<SimWriter>(client.log, &digest_);
    client.fragile = budget_.limit() < 1'000'000;
    client.streams = given.stream;
    const SessionHost host{engine_, model_, means_.counters, limits_, [] { return TimeUs{1}; }};
    Session::start(host, std::move(given), std::make_unique<SimRenderer>(client.log),
                   client.writer);
    ++num_responses_;
    sessions_.push_back(std::move(client));
  }

  // Some answers are of a search, or the best of several.
  void choose_best_of(GenerationRequest* given) {
    if (given->stream) return;
    if (one_in(3)) {
      given->prototype.beams = make_beams();
      // Two prompts of one request may differ in length.
      for (const Prompt& prompt : given->prompts) {
        fit_search(std::ssize(prompt.ids), &given->prototype);
      }
      if (!given->is_search()) return;
      given->num_choices = given->prototype.beams.num_returned;
      ++num_searches_;
    } else if (given->num_choices > 1) {
      given->num_best = static_cast<int>(range(1, given->num_choices - 1));
      ++num_ranked_;
    }
  }

  // Cancels, stops, clients that leave, stop reading or go on.
  void disturb() {
    if (!alone_.empty() && fault()) {
      const RequestId id = alone_[random_() % alone_.size()];
      if (one_in(2)) {
        engine_.cancel(id);
      } else {
        engine_.stop(id);
      }
    }
    if (sessions_.empty() || !fault()) return;
    SessionClient& client = sessions_[random_() % sessions_.size()];
    client.fragile = true;
    if (one_in(2)) {
      client.reads = !client.reads;
    } else if (!client.over()) {
      client.writer->leave();
      ++num_left_;
    }
  }

  // A turn of the engine, with some of the I/O thread's work before and while it computes.
  void turn() {
    run_io();
    engine_.step([this] { run_io(); });
    if (num_turns_++ % 8 == 0) settle();
  }

  void run_io() {
    for (size_t i = 0; i < sessions_.size(); ++i) {
      const SessionClient& client = sessions_[(i + num_turns_) % sessions_.size()];
      for (int64_t n = range(0, 3); n > 0 && client.writer->has_tasks(); --n) {
        client.writer->run_task();
      }
      if (client.reads) client.writer->read();
    }
  }

  // Checks and forgets what is over.
  void settle() {
    std::erase_if(sessions_, [this](SessionClient& client) {
      if (!client.over() || client.writer->has_tasks()) return false;
      client.writer->close();
      check_response(client);
      return true;
    });
    std::erase_if(alone_, [this](RequestId id) {
      const Record& record = engine_.record(id);
      if (record.num_terminal == 0) return false;
      check_record(record);
      engine_.forget(id);
      return true;
    });
  }

  void refused(const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kExhausted) << error.message;
    ++num_refused_;
  }

  Answer alone(const Request& request, const Identity& who) const {
    Oracle oracle(rules_, request, who, engine_.max_context());
    if (request.beams.width == 0) return oracle.answer();
    const auto num_prompt = std::ssize(request.prompt_ids);
    return oracle.search(std::min<int64_t>(engine_.max_context(), num_prompt + request.max_tokens));
  }

  void check_record(const Record& record) {
    // Whoever refused an event is not sent those that follow it.
    const auto num_heard = static_cast<int32_t>(record.output.size());
    EXPECT_TRUE(record.refused || record.last.usage.output_tokens == num_heard);
    EXPECT_EQ(record.last.usage.prompt_tokens,
              static_cast<int32_t>(record.request.prompt_ids.size()));
    if (record.ended || record.refused) return;
    const Answer answer = alone(record.request, record.who);
    std::vector<int32_t> output = answer.tokens;
    for (size_t i = 1; i < answer.hypotheses.size(); ++i) {
      const std::vector<int32_t>& ids = answer.hypotheses[i].token_ids;
      output.insert(output.end(), ids.begin(), ids.end());
    }
    EXPECT_EQ(record.output, output);
    EXPECT_EQ(record.last.reason, answer.reason);
    EXPECT_EQ(record.last.stop_id, answer.stop_id);
    if (answer.reason == FinishReason::kError) {
      EXPECT_EQ(record.last.error.code, ErrorCode::kUnprocessable);
      ++num_poisoned_;
    } else {
      EXPECT_EQ(record.num_prompt_events, record.request.num_prompt_logprobs ? 1 : 0);
    }
    ++num_checked_;
  }

  void check_scores(const Event& event) {
    const Record& record = engine_.record(event.request_id);
    const std::vector<int32_t>& prompt = record.request.prompt_ids;
    ASSERT_EQ(event.prompt_logprobs.size(), prompt.size());
    uint64_t hash = 0;
    for (size_t i = 0; i + 1 < prompt.size(); ++i) {
      hash = hash_after(hash, record.who, prompt[i], static_cast<int64_t>(i),
                        rules_.epoch(std::ssize(prompt)));
      EXPECT_EQ(event.prompt_logprobs[i + 1]->rank, score_after(hash));
    }
  }

  // One choice of a response.
  struct Said {
    std::string text;
    Finish::Kind finish = Finish::Kind::kEnd;
    double mean_logprob = -std::numeric_limits<double>::infinity();
    bool fails = false;
  };

  Said what_is_said(const SessionClient& client, size_t choice_idx) const {
    const Request& request = client.requests[choice_idx];
    Answer answer = alone(request, identity_of(request, -1));
    Said said;
    said.fails = answer.reason == FinishReason::kError;
    if (request.beams.width > 0 && !said.fails) {
      const auto n = static_cast<size_t>(client.num_choices);
      const BeamHypothesis& found = answer.hypotheses[choice_idx % n];
      answer.tokens = found.token_ids;
      answer.reason = found.stop_id < 0 ? FinishReason::kLength : FinishReason::kStop;
    }
    if (answer.reason == FinishReason::kLength) said.finish = Finish::Kind::kLength;
    double logprob = 0;
    for (size_t i = 0; i < answer.tokens.size(); ++i) {
      if (answer.tokens[i] != kEndToken) said.text += static_cast<char>(answer.tokens[i]);
      if (i < answer.logprobs.size()) logprob += double{answer.logprobs[i]};
      said.mean_logprob = logprob / static_cast<double>(i + 1);
      if (client.stop.empty() || !said.text.ends_with(client.stop)) continue;
      said.text.resize(said.text.size() - client.stop.size());
      said.finish = Finish::Kind::kStopString;
      said.fails = false;
      break;
    }
    return said;
  }

  static std::vector<Said> best_of(const std::vector<Said>& said, const SessionClient& client) {
    const auto n = static_cast<size_t>(client.num_choices);
    std::vector<Said> best;
    for (size_t first = 0; first < said.size(); first += n) {
      std::vector<bool> taken(n, false);
      for (int i = 0; i < client.num_best; ++i) {
        size_t highest = n;
        for (size_t k = 0; k < n; ++k) {
          const bool is_higher =
              !taken[k] &&
              (highest == n || said[first + k].mean_logprob > said[first + highest].mean_logprob);
          if (is_higher) highest = k;
        }
        taken[highest] = true;
        best.push_back(said[first + highest]);
      }
    }
    return best;
  }

  // Each response has one end. Whose client stayed and read says what its choices say alone.
  void check_response(const SessionClient& client) {
    const ResponseLog& log = *client.log;
    if (client.writer->disconnected()) return;
    EXPECT_EQ(log.num_ends, 1);
    if (client.fragile) return;
    bool fails = false;
    std::vector<Said> said;
    for (size_t i = 0; i < client.requests.size(); ++i) {
      said.push_back(what_is_said(client, i));
      fails |= said.back().fails;
    }
    if (client.num_best > 0) said = best_of(said, client);
    for (size_t i = 0; i < said.size() && !log.failed; ++i) {
      EXPECT_EQ(log.texts[i], said[i].text) << "choice " << i;
      EXPECT_EQ(log.finishes[i], said[i].finish) << "choice " << i;
    }
    if (fails) {
      EXPECT_TRUE(log.failed);
      ++num_poisoned_;
    } else if (log.failed) {
      EXPECT_TRUE(log.status == 0 || log.status == 429 || log.status == 503) << log.status;
      ++num_refused_;  // the engine was full
    }
    ++num_checked_;
  }

  void check_end() {
    settle();
    EXPECT_TRUE(alone_.empty());
    EXPECT_EQ(engine_.kv_cache().pool().num_used(), 0);
    EXPECT_EQ(engine_.num_live(), 0u);
    EXPECT_EQ(means_.counters.live_responses, 0) << "a session lives on";
    for (const auto& [id, record] : engine_.records()) {
      EXPECT_EQ(record.num_terminal, 1) << "request " << id;
    }
  }

  std::mt19937_64 random_;
  const Kind kind_;
  const Size size_;
  const ModelRules rules_;
  Digest digest_;
  ByteBudget budget_;
  SimEngine engine_;
  ServingMeans& means_;
  const ServingModel model_;
  SessionLimits limits_;
  std::vector<SessionClient> sessions_;
  std::vector<RequestId> alone_;
  std::vector<int32_t> last_prompt_;
  int64_t num_faults_per_64_ = 0;
  uint64_t num_clients_ = 1;
  uint64_t num_turns_ = 0;
  uint64_t num_requests_ = 0, num_responses_ = 0, num_checked_ = 0, num_poisoned_ = 0;
  uint64_t num_refused_ = 0, num_left_ = 0, num_searches_ = 0, num_ranked_ = 0;
};

// Worlds from first_seed on until there were num_steps; their digest.
uint64_t run_worlds(uint64_t first_seed, uint64_t num_steps, Totals* totals,
                    const Kind& kind = {}) {
  ServingMeans means;
  Digest digest;
  for (uint64_t seed = first_seed; totals->num_steps < num_steps; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    World world(seed, &means, kind);
    world.run();
    if (testing::Test::HasFailure()) return 0;
    world.add_to(totals);
    digest.add(world.digest());
  }
  return digest.value;
}

constexpr uint64_t kRecordedDigest = 0x9549a6b45bd7f8d0;
constexpr uint64_t kRecordedSteps = 20'000;

// In every build: release, g++, with sanitizers. Anew, when what is scheduled changes on purpose.
TEST(CoreSim, DigestIsTheRecordedOne) {
  Totals totals;
  const uint64_t digest = run_worlds(1, kRecordedSteps, &totals);
  EXPECT_EQ(digest, kRecordedDigest) << fmt::format("found {:#x}", digest);
}

TEST(CoreSim, EqualSeedsGiveEqualDigests) {
  Totals first, second, other;
  const uint64_t digest = run_worlds(500, 2000, &first);
  EXPECT_EQ(run_worlds(500, 2000, &second), digest);
  EXPECT_NE(run_worlds(501, 2000, &other), digest);
}

// Where times decide how many guesses a step verifies, the same is promised.
TEST(CoreSim, PromisesAreKeptWhereGuessesMustPay) {
  Totals totals;
  run_worlds(2'000, 40'000, &totals, {.drafts_must_pay = true});
  const SchedulerStats& stats = totals.scheduler;
  EXPECT_GT(stats.accepted_tokens, 1000u);
  EXPECT_GT(stats.draft_tokens, stats.accepted_tokens);
}

constexpr uint64_t kNumSteps = kIsInstrumented ? 40'000 : 5'200'000;
static_assert(kIsInstrumented || kNumSteps >= 5'000'000);

uint64_t number_of(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}
uint64_t num_steps() { return number_of("HEADRACE_SIM_STEPS", kNumSteps); }

// In four parts that can run beside each other; two of them with beam searches.
class CoreSimPart : public testing::TestWithParam<uint64_t> {};

TEST_P(CoreSimPart, EveryPromiseIsKept) {
  Totals totals;
  const uint64_t first_seed = number_of("HEADRACE_SIM_SEED", 1'000'000 * GetParam());
  const bool searches = GetParam() <= 2;
  run_worlds(first_seed, std::max<uint64_t>(1, num_steps() / 4), &totals, {.searches = searches});
  const SchedulerStats& stats = totals.scheduler;
  fmt::print(
      "{} worlds, {} steps, {} requests, {} responses ({} checked, {} poisoned, {} refused, {} "
      "left, {} searches, {} ranked); {} pre-emptions, {} followed, {} epoch restarts, {} cached, "
      "{} guessed, {} right, {} of them with state\n",
      totals.num_worlds, totals.num_steps, totals.num_requests, totals.num_responses,
      totals.num_checked, totals.num_poisoned, totals.num_refused, totals.num_left,
      totals.num_searches, totals.num_ranked, stats.num_preemptions, stats.num_followed,
      stats.num_epoch_restarts, stats.cached_tokens, stats.draft_tokens, stats.accepted_tokens,
      totals.kept_with_state);
  // A simulation that never meets what it is for proves nothing.
  if (num_steps() < 10'000) return;
  const uint64_t some = totals.num_steps / 4000;
  for (const uint64_t count :
       {totals.num_checked, totals.num_poisoned, totals.num_refused, totals.num_left,
        stats.num_preemptions, stats.num_followed, stats.num_epoch_restarts, stats.num_turns_given,
        stats.cached_tokens, stats.accepted_tokens, stats.draft_tokens - stats.accepted_tokens,
        totals.kept_with_state}) {
    EXPECT_GT(count, some);
  }
  EXPECT_EQ(totals.num_searches > some && totals.num_ranked > some, searches);
}

INSTANTIATE_TEST_SUITE_P(Parts, CoreSimPart, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace headrace::sim
