// A model that checks the KV protocol instead of computing: for tests of scheduler and engine.
//
// Its "K and V" of a position are a hash of all tokens up to it, stored by (block, slot). A row's
// hash is made from what the block table says stands before it, so a wrong, stale, shared or early
// block changes it; the whole chain before each span is verified as well. Logits are a function of
// the hash alone: equal prefixes give equal bits however they were batched.
#pragma once

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "backend/device_access.h"
#include "backend/host_backend.h"
#include "model/model.h"

namespace headrace {

inline uint64_t mix_bits(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

inline uint64_t extend_hash(uint64_t before, int32_t token, int64_t position, int64_t epoch) {
  const uint64_t own = mix_bits(static_cast<uint64_t>(token) + 1) ^
                       mix_bits(static_cast<uint64_t>(position) << 20) ^
                       mix_bits(~static_cast<uint64_t>(epoch));
  return mix_bits(before * 0x9E3779B97F4A7C15u + own);
}

// The hash of a whole prefix, computed without any cache: the oracle.
inline uint64_t prefix_hash(const std::vector<int32_t>& tokens, size_t count, int64_t epoch) {
  uint64_t hash = 0;
  for (size_t i = 0; i < count; ++i) {
    hash = extend_hash(hash, tokens[i], static_cast<int64_t>(i), epoch);
  }
  return hash;
}

// The slots of a pool of blocks, holding prefix hashes: its own, or those of a KV store.
class HashKv {
 public:
  explicit HashKv(int64_t num_blocks = 0)
      : own_(static_cast<size_t>(num_blocks) * kBlockTokens * sizeof(Slot)),
        base_(own_.data()),
        block_stride_(kBlockTokens * sizeof(Slot)) {}
  void bind(const KvPlaneView& plane) {
    base_ = raw(plane.base);
    block_stride_ = plane.block_stride;
  }

  // Verifies positions [0, first), then stores positions [first, first + count); returns the hash
  // after each. Counts what does not fit in num_errors().
  std::vector<uint64_t> run(const int32_t* block_table, int64_t first,
                            std::span<const int32_t> tokens, int64_t epoch) {
    uint64_t hash = 0;
    for (int64_t p = 0; p < first; ++p) {
      const Slot& slot = at(block_table, p);
      hash = extend_hash(hash, slot.token, p, epoch);
      if (slot.hash != hash) ++num_errors_;
    }
    std::vector<uint64_t> hashes;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const int64_t p = first + static_cast<int64_t>(i);
      hash = extend_hash(hash, tokens[i], p, epoch);
      at(block_table, p) = {tokens[i], hash};
      hashes.push_back(hash);
    }
    return hashes;
  }
  int64_t num_errors() const { return num_errors_; }
  void copy_block(int32_t from, int32_t to) {
    std::memcpy(base_ + static_cast<size_t>(to) * block_stride_,
                base_ + static_cast<size_t>(from) * block_stride_, block_stride_);
  }

 private:
  struct Slot {
    int32_t token;
    uint64_t hash;
  };
  Slot& at(const int32_t* block_table, int64_t position) {
    const auto block_id = static_cast<size_t>(block_table[position / kBlockTokens]);
    auto* slots = reinterpret_cast<Slot*>(base_ + block_id * block_stride_);
    return slots[position % kBlockTokens];
  }

  std::vector<std::byte> own_;
  std::byte* base_;
  size_t block_stride_;
  int64_t num_errors_ = 0;
};

// Memory and sizes are asked of it: no op is ever called.
class FakeBackend final : public HostBackend {
 public:
  Result<std::unique_ptr<PackedWeight>> pack(std::span<const WeightView>, PackForm) override {
    return make_error(ErrorCode::kUnsupported, "the fake backend packs nothing");
  }
  Result<std::unique_ptr<PackedWeight>> pack_into(std::span<const WeightView>, PackForm,
                                                  DevicePtr<std::byte>) override {
    return make_error(ErrorCode::kUnsupported, "a fake packs nothing");
  }
  Result<std::unique_ptr<PackedWeight>> adopt(std::span<const WeightView>, PackForm,
                                              DevicePtr<const std::byte>) override {
    return make_error(ErrorCode::kUnsupported, "a fake packs nothing");
  }
  Result<std::unique_ptr<PackedAdapter>> pack_adapter(std::span<const WeightDelta>) override {
    return make_error(ErrorCode::kUnsupported, "a fake packs nothing");
  }
  std::string packing_id() const override { return "fake"; }
  Status reserve(int64_t) override { return {}; }
  size_t packed_bytes(std::span<const WeightView>, PackForm) const override { return 0; }
  size_t kv_plane_bytes(const KvPlane& plane) const override {
    return static_cast<size_t>(plane.num_heads) * static_cast<size_t>(plane.width) * 4 *
           kBlockTokens;
  }
  const StepGeometry* begin_step(std::span<const Span>) override {
    unused();
    return nullptr;
  }
  void embed(const PackedWeight&, std::span<const int32_t>, float, DevicePtr<const float>,
             DevicePtr<float>) override {
    unused();
  }
  void norm(const NormArgs&) override { unused(); }
  void linear(const PackedWeight&, const Input&, int64_t, const Epilogue&,
              DevicePtr<float>) override {
    unused();
  }
  void gated_linear(const PackedWeight&, const Input&, int64_t, Activation, DevicePtr<const float>,
                    DevicePtr<float>) override {
    unused();
  }
  void activated_linear(const PackedWeight&, const Input&, int64_t, const ActivatedArgs&,
                        DevicePtr<float>) override {
    unused();
  }
  void qkv_linear(const PackedWeight&, const Input&, DevicePtr<const float>, DevicePtr<float>,
                  const QkvArgs&) override {
    unused();
  }
  void head(const PackedWeight&, const Input&, const HeadArgs&) override { unused(); }
  void finish_qkv(const QkvArgs&) override { unused(); }
  void experts(const ExpertsArgs&) override { unused(); }
  void attention(const AttentionArgs&) override { unused(); }
  void causal_conv(const CausalConvArgs&) override { unused(); }
  void scan(const ScanArgs&) override { unused(); }
  void delta(const DeltaArgs&) override { unused(); }
  void append_row(const AppendRowArgs&) override { unused(); }
  void head_linear(const HeadLinearArgs&) override { unused(); }
  void select_keys(const SelectKeysArgs&) override { unused(); }
  void latent_attention(const LatentAttentionArgs&) override { unused(); }
  void mix_streams(const StreamArgs&) override { unused(); }
  void sparse_gate(const SparseGateArgs&) override { unused(); }
  void run_on_team(int64_t num_items, ItemWork work) override {
    for (int64_t item = 0; item < num_items; ++item) work(item, 0);
  }
  int num_threads() const override { return 1; }
  int64_t num_joins() const override { return 0; }
  std::string_view isa() const override { return "fake"; }
  std::string numerics(KvType) const override { return "fake\n"; }
  std::vector<KernelInfo> kernels() const override { return {}; }

 private:
  static void unused() { CHECK(false, "an op of the fake backend"); }
};

struct FakeModelOptions {
  int64_t vocab_size = 50;
  int64_t max_positions = 512;
  int max_batch_tokens = 64;
  int max_logit_rows = 16;
  int64_t short_context = INT64_MAX;  // rope epoch 1 past this many tokens
  std::chrono::microseconds step_time{0};
  int32_t poison_token = -1;  // rows of this token have one NaN among their logits
  int32_t broken_token = -1;  // rows of this token are not finite before there are logits
  int64_t hidden_size = 0;    // of states, which are all -1
};

class FakeModel final : public Model {
 public:
  explicit FakeModel(const FakeModelOptions& fake) : fake_(fake) {
    config_.vocab_size = fake.vocab_size;
    config_.hidden_size = fake.hidden_size;
    config_.max_position_embeddings = fake.max_positions;
    options_.max_batch_tokens = fake.max_batch_tokens;
    options_.max_logit_rows = fake.max_logit_rows;
  }

  const ModelConfig& config() const override { return config_; }
  const ModelOptions& options() const override { return options_; }
  std::vector<CacheGroup> cache_groups() const override {
    return {CacheGroup{{CacheLayer{0, {{"hashes", KvType::kF32, 1, 4}}}}}};
  }
  int64_t rope_epoch(int64_t num_tokens) const override {
    return num_tokens > fake_.short_context ? 1 : 0;
  }

  void forward(const Batch& batch, KvStore& store, const StepOutput& output,
               const HiddenTap&) override {
    kv_.bind(store.plane(0, 0));
    if (fake_.step_time.count() > 0) std::this_thread::sleep_for(fake_.step_time);
    CHECK(batch.token_ids.size() <= static_cast<size_t>(fake_.max_batch_tokens));
    CHECK(batch.logit_rows.size() + batch.best_rows.size() <=
          static_cast<size_t>(fake_.max_logit_rows));
    std::vector<uint64_t> hashes;
    for (const Span& span : batch.spans) {
      CHECK(static_cast<size_t>(span.first_row) == hashes.size());
      const auto tokens = batch.token_ids.subspan(static_cast<size_t>(span.first_row),
                                                  static_cast<size_t>(span.num_rows));
      for (const uint64_t hash :
           kv_.run(span.tables[0], span.first_position, tokens, span.rope_epoch)) {
        hashes.push_back(hash);
      }
    }
    CHECK(hashes.size() == batch.token_ids.size());
    for (size_t i = 0; output.finite != nullptr && i < hashes.size(); ++i) {
      output.finite[i] = batch.token_ids[i] != fake_.broken_token;
    }
    num_tokens_ += std::ssize(batch.token_ids);
    if (fake_.hidden_size > 0) {
      std::fill_n(raw(output.hidden), std::ssize(batch.hidden_rows) * fake_.hidden_size, -1.0f);
    }
    float* logits = raw(output.logits);
    for (const int32_t row : batch.logit_rows) {
      fill_row(batch, hashes, row, logits);
      logits += fake_.vocab_size;
    }
    std::vector<float> unwritten(static_cast<size_t>(fake_.vocab_size));
    for (size_t i = 0; i < batch.best_rows.size(); ++i) {
      fill_row(batch, hashes, batch.best_rows[i], unwritten.data());
      output.best[i] = best_of(unwritten);
    }
    num_best_rows_ += std::ssize(batch.best_rows);
    num_errors_ = kv_.num_errors();
    ++num_steps_;
  }

  void fill_logits(uint64_t hash, float* logits) const {
    for (int64_t i = 0; i < fake_.vocab_size; ++i) {
      const uint64_t bits = mix_bits(hash + static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15u);
      logits[i] = static_cast<float>(bits >> 40) * 0x1p-21f - 4.0f;  // [-4, 4)
    }
  }

  int64_t num_best_rows() const { return num_best_rows_; }
  // Positions whose K and V were not what the sequence's tokens say.
  int64_t num_errors() const { return num_errors_; }
  int64_t num_steps() const { return num_steps_; }
  int64_t num_tokens() const { return num_tokens_; }  // computed since the beginning

 private:
  void fill_row(const Batch& batch, const std::vector<uint64_t>& hashes, int32_t row,
                float* logits) const {
    fill_logits(hashes[static_cast<size_t>(row)], logits);
    if (batch.token_ids[static_cast<size_t>(row)] == fake_.poison_token) logits[3] = NAN;
  }

  static BestOutput best_of(const std::vector<float>& logits) {
    BestOutput best{0, true, logits[0]};
    for (size_t i = 0; i < logits.size(); ++i) {
      const auto output = static_cast<int32_t>(i);
      if (!std::isfinite(logits[i])) return {output, false, logits[i]};
      if (logits[i] > best.value) best = {output, true, logits[i]};
    }
    return best;
  }

  const FakeModelOptions fake_;
  ModelConfig config_;
  ModelOptions options_;
  HashKv kv_;
  std::atomic<int64_t> num_errors_{0};
  std::atomic<int64_t> num_steps_{0};
  std::atomic<int64_t> num_tokens_{0};
  std::atomic<int64_t> num_best_rows_{0};
};

}  // namespace headrace
