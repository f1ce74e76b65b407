// Latent attention through the back end: chunks, neighbours and threads do not change a bit, the
// index keeps what a plain search keeps, products per head equal products of the heads alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernel_cases.h"

namespace headrace {
namespace {

using Floats = std::vector<float>;

struct LatentCase {
  int num_heads, latent_dim, rope_dims;
  KvType type;
  int max_kept;  // 0: no index
};
constexpr int kIndexHeads = 3, kIndexDim = 20;

// What the tokens of one sequence bring along; whole numbers make scores of the index exact.
struct Tokens {
  int64_t count;
  Floats keys, q, index_keys, index_q, index_weights, cos, sin;

  Tokens(const LatentCase& setup, int64_t num_tokens, bool whole, uint32_t seed)
      : count(num_tokens) {
    Random random(seed);
    const auto width = static_cast<size_t>(setup.latent_dim + setup.rope_dims);
    const auto n = static_cast<size_t>(num_tokens);
    const auto draw = [&](size_t size) {
      return whole ? whole_floats(size, random) : random_floats(size, random);
    };
    keys = random_floats(n * width, random);
    q = random_floats(n * width * static_cast<size_t>(setup.num_heads), random);
    index_keys = draw(n * kIndexDim);
    index_q = draw(n * kIndexHeads * kIndexDim);
    index_weights = draw(n * kIndexHeads);
    for (size_t i = 0; i < n * static_cast<size_t>(setup.rope_dims) / 2; ++i) {
      const auto angle = static_cast<float>(i % 97) * 0.13f;
      cos.push_back(whole ? 1.0f : std::cos(angle));
      sin.push_back(whole ? 0.0f : std::sin(angle));
    }
  }
};

// A cache of two planes for some sequences, and steps over it.
class LatentModel {
 public:
  LatentModel(Backend& backend, const LatentCase& setup, int64_t num_blocks)
      : backend_(backend), setup_(setup), width_(setup.latent_dim + setup.rope_dims) {
    const KvPlane latent{"latent", setup.type, 1, width_};
    const KvPlane index{"index", setup.type, 1, kIndexDim};
    const size_t first = backend.kv_plane_bytes(latent);
    const size_t stride = (first + backend.kv_plane_bytes(index) + 127) / 64 * 64;
    memory_ = backend.allocate(stride * static_cast<size_t>(num_blocks), MemoryUse::kKv).value();
    latent_ = {latent, memory_.data(), stride, 0};
    index_ = {index, memory_.data() + static_cast<ptrdiff_t>(first), stride, 0};
    norm_.assign(static_cast<size_t>(setup.latent_dim), 0.75f);
    EXPECT_TRUE(backend.reserve(512).ok());
  }

  // Rows [first, end) of a sequence whose blocks begin at first_block.
  struct Piece {
    const Tokens* tokens;
    int64_t first, end;
    std::vector<int32_t> table;
  };

  // Computes the pieces as one step; their results one after the other.
  Floats step(const std::vector<Piece>& pieces) {
    std::vector<Span> spans;
    std::vector<const int32_t*> tables;
    Floats keys, q, index_keys, index_q, weights, cos, sin;
    tables.reserve(pieces.size());
    for (const Piece& piece : pieces) {
      tables.push_back(piece.table.data());
      Span span;
      span.first_row = static_cast<int32_t>(num_rows_of(spans));
      span.num_rows = static_cast<int32_t>(piece.end - piece.first);
      span.first_position = piece.first;
      span.tables = &tables.back();
      spans.push_back(span);
      const auto take = [&](const Floats& from, Floats* to) {
        const auto size = std::ssize(from) / piece.tokens->count;
        to->insert(to->end(), from.begin() + piece.first * size, from.begin() + piece.end * size);
      };
      take(piece.tokens->keys, &keys);
      take(piece.tokens->q, &q);
      take(piece.tokens->index_keys, &index_keys);
      take(piece.tokens->index_q, &index_q);
      take(piece.tokens->index_weights, &weights);
      take(piece.tokens->cos, &cos);
      take(piece.tokens->sin, &sin);
    }
    const int64_t num_rows = num_rows_of(spans);
    const StepGeometry* geometry = backend_.begin_step(spans);
    AppendRowArgs append;
    append.keys = on_device(keys.data());
    append.plane = latent_;
    append.by_position = true;
    append.num_rows = num_rows;
    append.step = geometry;
    append.norm_width = setup_.latent_dim;
    append.norm_weight = on_device(norm_.data());
    append.pairing = RopePairing::kInterleaved;
    append.rope_dims = setup_.rope_dims;
    append.rope_cos = on_device(cos.data());
    append.rope_sin = on_device(sin.data());
    append.key_rope = setup_.latent_dim;
    append.q = append.q_out = on_device(q.data());
    append.num_heads = setup_.num_heads;
    append.q_width = append.q_out_width = width_;
    append.q_rope = append.q_out_rope = setup_.latent_dim;
    append.q_dims = setup_.rope_dims;
    backend_.append_row(append);
    LatentAttentionArgs attention;
    if (setup_.max_kept > 0) {
      kept_.resize(static_cast<size_t>(num_rows * kept_words(setup_.max_kept)));
      select(index_keys, index_q, weights, num_rows, geometry);
      attention.kept = on_device(kept_.data());
      attention.max_kept = setup_.max_kept;
    }
    Floats out(static_cast<size_t>(num_rows * setup_.num_heads * setup_.latent_dim), NAN);
    attention.q = on_device(q.data());
    attention.out = on_device(out.data());
    attention.num_heads = setup_.num_heads;
    attention.value_dim = setup_.latent_dim;
    attention.plane = latent_;
    attention.num_rows = num_rows;
    attention.step = geometry;
    attention.scale = 0.2f;
    backend_.latent_attention(attention);
    return out;
  }

  // Of the last step: the positions that a row keeps; all of them as -1.
  std::vector<int32_t> kept(int64_t row) const {
    const int32_t* words = kept_.data() + row * kept_words(setup_.max_kept);
    if (words[0] < 0) return {-1};
    return {words + 1, words + 1 + words[0]};
  }

 private:
  static int64_t num_rows_of(const std::vector<Span>& spans) {
    return spans.empty() ? 0 : spans.back().first_row + spans.back().num_rows;
  }

  void select(const Floats& keys, const Floats& q, const Floats& weights, int64_t num_rows,
              const StepGeometry* geometry) {
    AppendRowArgs append;
    append.keys = on_device(keys.data());
    append.plane = index_;
    append.num_rows = num_rows;
    append.step = geometry;
    backend_.append_row(append);
    SelectKeysArgs args;
    args.q = on_device(q.data());
    args.weights = on_device(weights.data());
    args.num_heads = kIndexHeads;
    args.plane = index_;
    args.scale = 0.5f;
    args.max_kept = setup_.max_kept;
    args.num_rows = num_rows;
    args.step = geometry;
    args.kept = on_device(kept_.data());
    backend_.select_keys(args);
  }

  Backend& backend_;
  const LatentCase setup_;
  const int width_;
  DeviceMemory memory_;
  KvPlaneView latent_, index_;
  Floats norm_;
  std::vector<int32_t> kept_;
};

constexpr int64_t kTokens = 100;

std::vector<int32_t> blocks_from(int32_t first) {
  std::vector<int32_t> table(kTokens / 16 + 1);
  std::iota(table.begin(), table.end(), first);
  return table;
}

// The whole sequence in chunks, each alone.
Floats in_chunks(LatentModel& model, const Tokens& tokens, int64_t chunk) {
  Floats all;
  for (int64_t first = 0; first < tokens.count; first += chunk) {
    const Floats out =
        model.step({{&tokens, first, std::min(first + chunk, tokens.count), blocks_from(0)}});
    all.insert(all.end(), out.begin(), out.end());
  }
  return all;
}

constexpr LatentCase kCases[] = {
    {4, 24, 8, KvType::kF32, 0},  {3, 33, 6, KvType::kBF16, 0}, {16, 64, 16, KvType::kF16, 0},
    {5, 40, 8, KvType::kInt8, 0}, {4, 24, 8, KvType::kF32, 20}, {3, 48, 16, KvType::kBF16, 33},
    {2, 16, 8, KvType::kFp8, 7},
};

TEST(LatentAttention, ChunksAndThreadsDoNotChangeABit) {
  int num_cases = 0;
  for (const std::string& isa : available_isas()) {
    for (const LatentCase& setup : kCases) {
      const Tokens tokens(setup, kTokens, false, 3);
      Floats whole;
      for (const int threads : {1, 2, 3}) {
        const auto backend = make_backend(isa, threads);
        LatentModel model(*backend, setup, 20);
        if (whole.empty()) whole = in_chunks(model, tokens, kTokens);
        for (const int64_t chunk : threads == 1 ? std::vector<int64_t>{1, 7, 16, 33}
                                                : std::vector<int64_t>{33, kTokens}) {
          EXPECT_TRUE(same_bits(in_chunks(model, tokens, chunk), whole))
              << isa << ", " << threads << " threads, chunks of " << chunk << ", "
              << setup.num_heads << " heads, " << setup.max_kept << " kept";
          ++num_cases;
        }
      }
      EXPECT_TRUE(
          std::all_of(whole.begin(), whole.end(), [](float x) { return std::isfinite(x); }));
    }
  }
  EXPECT_GE(num_cases, 7 * 8);
}

TEST(LatentAttention, NeighboursDoNotChangeABit) {
  for (const std::string& isa : available_isas()) {
    for (const LatentCase& setup : kCases) {
      const auto backend = make_backend(isa, 2);
      LatentModel model(*backend, setup, 40);
      const Tokens mine(setup, kTokens, false, 3), other(setup, kTokens, false, 4);
      const Floats alone = in_chunks(model, mine, 50);
      Floats together;
      for (int64_t first = 0; first < kTokens; first += 50) {
        const Floats out = model.step({{&other, first, first + 50, blocks_from(20)},
                                       {&mine, first, first + 50, blocks_from(0)}});
        together.insert(together.end(), out.begin() + std::ssize(out) / 2, out.end());
      }
      EXPECT_TRUE(same_bits(together, alone)) << isa << ", " << setup.num_heads << " heads";
    }
  }
}

// What a plain search over exact scores keeps.
std::vector<int32_t> best_positions(const Tokens& tokens, int64_t row, int max_kept) {
  std::vector<std::pair<double, int32_t>> scored;  // the best first
  for (int64_t j = 0; j <= row; ++j) {
    double score = 0;
    for (int64_t h = 0; h < kIndexHeads; ++h) {
      double dot = 0;
      for (int64_t d = 0; d < kIndexDim; ++d) {
        dot +=
            double{tokens.index_q[static_cast<size_t>((row * kIndexHeads + h) * kIndexDim + d)]} *
            double{tokens.index_keys[static_cast<size_t>(j * kIndexDim + d)]};
      }
      score += double{tokens.index_weights[static_cast<size_t>(row * kIndexHeads + h)]} *
               std::max(0.0, 0.5 * dot);
    }
    scored.emplace_back(-score, static_cast<int32_t>(j));
  }
  if (row + 1 <= max_kept) return {-1};
  std::sort(scored.begin(), scored.end());
  std::vector<int32_t> kept;
  for (int i = 0; i < max_kept; ++i) kept.push_back(scored[static_cast<size_t>(i)].second);
  std::sort(kept.begin(), kept.end());
  return kept;
}

TEST(SelectKeys, KeepsTheBestAndOfEqualsTheFirst) {
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    for (const int max_kept : {1, 5, 24, 99, 100}) {
      const LatentCase setup{2, 16, 8, KvType::kF32, max_kept};
      LatentModel model(*backend, setup, 20);
      Tokens tokens(setup, kTokens, true, 9);
      // Every third key equals another: ties that only the position decides.
      for (size_t j = 3; j < kTokens; j += 3) {
        std::copy_n(tokens.index_keys.begin() + 40, kIndexDim,
                    tokens.index_keys.begin() + static_cast<ptrdiff_t>(j * kIndexDim));
      }
      model.step({{&tokens, 0, kTokens, blocks_from(0)}});
      for (int64_t row = 0; row < kTokens; ++row) {
        EXPECT_EQ(model.kept(row), best_positions(tokens, row, max_kept)) << isa << ", row " << row;
      }
    }
  }
}

TEST(SelectKeys, AttentionOverAllOfThemEqualsAttentionWithoutAnIndex) {
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    const LatentCase dense{4, 24, 8, KvType::kF32, 0}, all{4, 24, 8, KvType::kF32, kTokens};
    const Tokens tokens(dense, kTokens, false, 3);
    LatentModel without(*backend, dense, 20), with(*backend, all, 20);
    EXPECT_TRUE(same_bits(in_chunks(with, tokens, kTokens), in_chunks(without, tokens, kTokens)));
  }
}

TEST(HeadLinear, EqualsProductsOfTheHeadsAlone) {
  constexpr int64_t kHeads = 5, kOutputs = 72, kInputs = 256, kWide = 300, kOutWide = 80;
  int num_cases = 0;
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 3);
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4K}) {
      Random random(7);
      std::vector<std::unique_ptr<TestWeight>> weights;
      std::vector<WeightView> views;
      for (int64_t h = 0; h < kHeads; ++h) {
        weights.push_back(random_weight(dtype, kOutputs, kInputs, random));
        views.push_back(weights.back()->view);
      }
      const auto packed = backend->pack(views, {WeightRole::kLinear, kHeads}).value();
      ASSERT_TRUE(backend->reserve(128).ok());
      for (const int64_t rows : {1, 3, 100}) {
        const Floats x = random_floats(static_cast<size_t>(rows * kHeads * kWide), random);
        Floats out(static_cast<size_t>(rows * kHeads * kOutWide), -7.0f);
        const int64_t joins = backend->num_joins();
        backend->head_linear({packed.get(), on_device(x.data()), kWide, on_device(out.data()),
                              kOutWide, rows, static_cast<int>(kHeads)});
        EXPECT_EQ(backend->num_joins() - joins, 1);
        for (int64_t h = 0; h < kHeads; ++h) {
          Floats own, alone(static_cast<size_t>(rows * kOutputs)), found;
          for (int64_t m = 0; m < rows; ++m) {
            const auto from = x.begin() + (m * kHeads + h) * kWide;
            own.insert(own.end(), from, from + kInputs);
            const auto at = out.begin() + (m * kHeads + h) * kOutWide;
            found.insert(found.end(), at, at + kOutputs);
            EXPECT_EQ(*(at + kOutputs), -7.0f) << "beyond the head's outputs";
          }
          backend->linear(packed->expert(h), on_device(own.data()), rows, {},
                          on_device(alone.data()));
          EXPECT_TRUE(same_bits(found, alone)) << isa << " " << dtype_name(dtype) << " " << rows;
          ++num_cases;
        }
      }
    }
  }
  EXPECT_GE(num_cases, 4 * 3 * 5);
}

}  // namespace
}  // namespace headrace
