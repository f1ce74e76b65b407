// Ops over streams beside the residual one, against sums in double precision; any cut of the rows
// gives the same bits.
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/verify/problem.h"
#include "backend/device_access.h"

namespace headrace {
namespace cpu_streams_test {

constexpr int64_t kRows = 37, kWidth = 29;
constexpr int kStreams = 3;
using Values = std::vector<float>;

Values values_from(uint32_t seed, int64_t count) {
  cpu::Random random(seed);
  Values values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
  return values;
}

class StreamsTest : public ::testing::Test {
 protected:
  StreamArgs args_of(StreamMix mix) {
    return {.mix = mix,
            .num_streams = kStreams,
            .hidden = on_device(hidden_.data()),
            .streams = on_device(streams_.data()),
            .stream_stride = kStride,
            .num_rows = kRows,
            .width = kWidth,
            .routed = on_device(routed_.data()),
            .coefs = on_device(coefs_.data()),
            .activated = on_device(activated_.data()),
            .scale = on_device(scale_.data()),
            .scaled = on_device(scaled_.data())};
  }
  double mode(int64_t row, int p) const {
    return std::tanh(double{routed_[static_cast<size_t>(row * kStreams + p)]});
  }
  double coefficient(int64_t row, int idx) const {
    double sum = 0;
    for (int p = 0; p < kStreams; ++p) {
      sum += coefs_[static_cast<size_t>(idx * kStreams + p)] * mode(row, p);
    }
    return sum;
  }
  // Stream i of the row, as it was at the start.
  double before(int i, int64_t row, int64_t n) const {
    const auto at = static_cast<size_t>(row * kWidth + n);
    return i == 0 ? hidden_before_[at] : streams_before_[at + (i == 2 ? kStride : 0)];
  }
  double now(int i, int64_t row, int64_t n) const {
    const auto at = static_cast<size_t>(row * kWidth + n);
    return i == 0 ? hidden_[at] : streams_[at + (i == 2 ? kStride : 0)];
  }
  template <typename Fn>
  void for_all(const Fn& fn) const {
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t n = 0; n < kWidth; ++n) fn(row, n);
    }
  }

  static constexpr int64_t kStride = (kRows + 4) * kWidth;
  std::unique_ptr<Backend> backend_ = create_cpu_backend({.num_threads = 3}).value();
  Values hidden_ = values_from(1, kRows* kWidth), hidden_before_ = hidden_;
  Values streams_ = values_from(2, 2 * kStride), streams_before_ = streams_;
  Values routed_ = values_from(3, kRows* kStreams);
  Values coefs_ = values_from(4, kStreams* kStreams* kStreams);
  Values activated_ = values_from(5, kRows* kWidth);
  Values scale_ = values_from(6, kWidth), scaled_ = values_from(7, kRows* kWidth);
};

TEST_F(StreamsTest, APredictionIsASumOverAllStreams) {
  backend_->mix_streams(args_of(StreamMix::kPredict));
  for_all([&](int64_t row, int64_t n) {
    for (int j = 0; j < kStreams; ++j) {
      double expected = before(j, row, n);
      for (int i = 0; i < kStreams; ++i) {
        expected += coefficient(row, j * kStreams + i) * before(i, row, n);
      }
      ASSERT_NEAR(now(j, row, n), expected, 1e-5) << row << " " << n << " " << j;
    }
  });
}

TEST_F(StreamsTest, ACorrectionIsByWhatTheLayerMadeOfTheFirst) {
  backend_->mix_streams(args_of(StreamMix::kCorrect));
  for_all([&](int64_t row, int64_t n) {
    const auto at = static_cast<size_t>(row * kWidth + n);
    const double innovation = activated_[at] - before(0, row, n);
    for (int j = 0; j < kStreams; ++j) {
      const double expected = before(j, row, n) + innovation * (coefficient(row, j) + 1);
      ASSERT_NEAR(now(j, row, n), expected, 1e-5);
    }
    ASSERT_EQ(scaled_[at], hidden_[at] * scale_[static_cast<size_t>(n)]);
  });
  StreamArgs unscaled = args_of(StreamMix::kCorrect);
  unscaled.scale = nullptr;
  backend_->mix_streams(unscaled);
  EXPECT_EQ(scaled_, hidden_);
}

TEST_F(StreamsTest, LevelledStreamsAreAsLargeAsTheResidualOne) {
  // One that is nothing is not divided by nothing.
  for (int64_t n = 0; n < kWidth; ++n) streams_[static_cast<size_t>(3 * kWidth + n)] = 0;
  backend_->mix_streams(args_of(StreamMix::kLevel));
  EXPECT_EQ(hidden_, hidden_before_);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int i = 1; i < kStreams; ++i) {
      double squares = 0, target = 0;
      for (int64_t n = 0; n < kWidth; ++n) {
        squares += now(i, row, n) * now(i, row, n);
        target += before(0, row, n) * before(0, row, n);
      }
      const bool is_nothing = row == 3 && i == 1;
      EXPECT_NEAR(squares, is_nothing ? 0 : target, 1e-4) << row;
    }
  }
}

TEST_F(StreamsTest, TheAverageIsOfLevelledStreams) {
  backend_->mix_streams(args_of(StreamMix::kLevel));
  const Values levelled = streams_;
  streams_ = streams_before_;
  backend_->mix_streams(args_of(StreamMix::kAverage));
  EXPECT_EQ(streams_, levelled);
  for_all([&](int64_t row, int64_t n) {
    const double sum = before(0, row, n) + now(1, row, n) + now(2, row, n);
    ASSERT_NEAR(now(0, row, n), sum / kStreams, 1e-6);
  });
}

TEST_F(StreamsTest, WhatIsSpreadLeavesTheResidualStream) {
  backend_->mix_streams(args_of(StreamMix::kSpread));
  EXPECT_EQ(hidden_, hidden_before_);
  for_all([&](int64_t row, int64_t n) {
    const float added = activated_[static_cast<size_t>(row * kWidth + n)];
    for (int i = 1; i < kStreams; ++i) {
      ASSERT_EQ(static_cast<float>(now(i, row, n)), static_cast<float>(before(i, row, n)) + added);
    }
  });
}

TEST_F(StreamsTest, RowsThatAreNotTheStepsAreLeftAlone) {
  for (const StreamMix mix : {StreamMix::kLevel, StreamMix::kPredict, StreamMix::kCorrect,
                              StreamMix::kSpread, StreamMix::kAverage}) {
    StreamArgs args = args_of(mix);
    args.num_rows = 5;
    backend_->mix_streams(args);
    const auto end = static_cast<ptrdiff_t>(5 * kWidth);
    EXPECT_TRUE(std::equal(hidden_.begin() + end, hidden_.end(), hidden_before_.begin() + end));
    EXPECT_TRUE(std::equal(streams_.begin() + end, streams_.begin() + kStride,
                           streams_before_.begin() + end));
  }
}

// Row by row or at once: the same bits.
TEST_F(StreamsTest, RowsDoNotDependOnTheirNeighbours) {
  for (const StreamMix mix :
       {StreamMix::kLevel, StreamMix::kPredict, StreamMix::kCorrect, StreamMix::kAverage}) {
    hidden_ = hidden_before_, streams_ = streams_before_;
    backend_->mix_streams(args_of(mix));
    const Values hidden = hidden_, streams = streams_;
    hidden_ = hidden_before_, streams_ = streams_before_;
    for (int64_t row = 0; row < kRows; ++row) {
      StreamArgs args = args_of(mix);
      args.hidden += row * kWidth;
      args.streams += row * kWidth;
      args.routed += row * kStreams;
      args.activated += row * kWidth;
      args.scaled += row * kWidth;
      args.num_rows = 1;
      backend_->mix_streams(args);
    }
    EXPECT_EQ(hidden_, hidden);
    EXPECT_EQ(streams_, streams);
  }
}

TEST_F(StreamsTest, ASparseGateKeepsWhatStandsOut) {
  const Values up = values_from(8, kRows * kWidth);
  for (const float deviations : {-0.5f, 0.0f, 1.5f}) {
    Values gate = values_from(9, kRows * kWidth), out(up.size());
    const Values before = gate;
    backend_->sparse_gate({.gate = on_device(gate.data()),
                           .up = on_device(up.data()),
                           .out = on_device(out.data()),
                           .num_rows = kRows,
                           .width = kWidth,
                           .deviations = deviations,
                           .activation = Activation::kSilu});
    int num_kept = 0;
    for (int64_t row = 0; row < kRows; ++row) {
      const float* g = before.data() + row * kWidth;
      double mean = 0, squares = 0;
      for (int64_t n = 0; n < kWidth; ++n) mean += g[n] / double{kWidth};
      for (int64_t n = 0; n < kWidth; ++n) squares += (g[n] - mean) * (g[n] - mean);
      const double cutoff = mean + deviations * std::sqrt(squares / kWidth);
      for (int64_t n = 0; n < kWidth; ++n) {
        const auto at = static_cast<size_t>(row * kWidth + n);
        const double kept = std::max(0.0, g[n] - cutoff);
        EXPECT_NEAR(out[at], kept / (1 + std::exp(-kept)) * up[at], 1e-6);
        num_kept += kept > 0;
      }
    }
    EXPECT_GT(num_kept, kRows);
    EXPECT_LT(num_kept, kRows * kWidth);
  }
}

}  // namespace cpu_streams_test
}  // namespace headrace
