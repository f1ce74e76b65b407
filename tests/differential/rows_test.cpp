// Norms, elementary functions, choice of unit, team and topology.

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/registry.h"
#include "backend/cpu/team/team.h"
#include "backend/cpu/team/topology.h"
#include "kernel_cases.h"

namespace headrace {
namespace {

TEST(Norm, MatchesFloat64) {
  int num_cases = 0;
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    for (const int64_t width : {1, 15, 16, 17, 64, 259, 576}) {
      for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
        Random random(30);
        const int64_t rows = 5;
        const auto x = random_floats(static_cast<size_t>(rows * width), random);
        const auto weight = random_floats(static_cast<size_t>(width), random);
        const auto residual = random_floats(x.size(), random);
        GuardedFloats out(x.size());
        NormArgs args{kind,
                      on_device(x.data()),
                      on_device(weight.data()),
                      on_device(residual.data()),
                      nullptr,
                      on_device(out.data()),
                      rows,
                      width,
                      1e-5f,
                      0.5f};
        backend->norm(args);
        ASSERT_TRUE(out.intact());
        std::vector<float> alone(x.begin(), x.end());  // in place, row by row
        for (int64_t m = 0; m < rows; ++m) {
          args.x = args.out = on_device(alone.data() + m * width);
          args.residual = on_device(residual.data() + m * width);
          args.num_rows = 1;
          backend->norm(args);
        }
        EXPECT_TRUE(same_bits(alone, out.values())) << isa << " width " << width;
        for (int64_t m = 0; m < rows; ++m) {
          double mean = 0, squares = 0;
          for (int64_t i = 0; i < width; ++i) mean += double{x[static_cast<size_t>(m * width + i)]};
          mean = kind == NormKind::kLayer ? mean / static_cast<double>(width) : 0;
          for (int64_t i = 0; i < width; ++i) {
            const double v = double{x[static_cast<size_t>(m * width + i)]} - mean;
            squares += v * v;
          }
          const double factor = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
          for (int64_t i = 0; i < width; ++i) {
            const auto at = static_cast<size_t>(m * width + i);
            const double expected =
                double{residual[at]} +
                0.5 * (double{x[at]} - mean) * factor * double{weight[static_cast<size_t>(i)]};
            EXPECT_NEAR(double{out.values()[at]}, expected, 4e-6) << isa << " width " << width;
          }
        }
        ++num_cases;
      }
    }
  }
  EXPECT_GE(num_cases, 14);
}

// exp and tanh of the vector units through the ops that use them: silu and softcap of chosen
// values.
TEST(Elementary, ErrorsAreAsDocumented) {
  std::vector<float> points;
  for (float x = -100.0f; x <= 100.0f; x += 0.0173f) points.push_back(x);
  for (const float x : {0.0f, -0.0f, 1e-30f, -1e-7f, 88.3f, -87.3f, 500.0f, -500.0f})
    points.push_back(x);
  const auto count = static_cast<int64_t>(points.size());
  for (const std::string& isa : available_isas()) {
    const cpu::KernelSet set =
        cpu::select_kernels(**cpu::select_unit(isa, cpu::detect_isa()), cpu::detect_isa());
    std::vector<float> ones(points.size(), 1.0f), out(points.size());
    cpu::GateArgs gate{};
    gate.gate = points.data();
    gate.up = ones.data();
    gate.gate_stride = gate.up_stride = gate.out_stride = gate.num_outputs = count;
    gate.out = out.data();
    gate.num_rows = 1;
    gate.kind = cpu::GateKind::kSilu;
    set.gate->function.gate(gate);
    for (size_t i = 0; i < points.size(); ++i) {
      const double x = points[i], expected = x / (1 + std::exp(-x));
      EXPECT_NEAR(double{out[i]}, expected, 5e-7 * std::fabs(expected) + 1e-35) << isa << " " << x;
    }
    cpu::FinishArgs finish{};
    finish.sums = points.data();
    finish.sums_stride = finish.out_stride = finish.num_outputs = count;
    finish.out = out.data();
    finish.num_rows = 1;
    finish.scale = 1.0f;
    finish.softcap = 10.0f;
    set.finish->function.finish(finish);
    for (size_t i = 0; i < points.size(); ++i) {
      const double expected = 10 * std::tanh(double{points[i]} / 10);
      EXPECT_NEAR(double{out[i]}, expected, 6e-7 * std::fabs(expected) + 1e-35)
          << isa << " " << points[i];
    }
  }
}

TEST(Isa, ForcedUnitRuns) {
  int num_forced = 0;
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 1);
    EXPECT_EQ(backend->isa(), isa);
    int num_selected = 0;
    for (const KernelInfo& kernel : backend->kernels()) {
      if (!kernel.selected) continue;
      EXPECT_TRUE(kernel.available) << kernel.name;
      // A row that the unit lacks comes from another unit; the reference needs no other.
      EXPECT_TRUE(isa != "reference" || kernel.name.ends_with("_reference")) << kernel.name;
      ++num_selected;
    }
    EXPECT_GE(num_selected, 37);
    ++num_forced;
  }
  EXPECT_GE(num_forced, 1);
}

TEST(Isa, MissingInstructionsAreNamed) {
  for (const cpu::KernelUnit* unit : cpu::all_units()) {
    if (unit->isa == 0) continue;
    const auto result = cpu::select_unit(unit->name, 0);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(result.error().message.find("avx2+fma+f16c"), std::string::npos)
        << result.error().message;
    EXPECT_EQ(result.error().hint, "use --isa auto, or one of: reference");
  }
  EXPECT_EQ((*cpu::select_unit("auto", 0))->name, std::string("reference"));
  const auto unknown = create_cpu_backend({"sse9", 1});
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(create_cpu_backend({"auto", -1}).ok());
  EXPECT_FALSE(create_cpu_backend({"auto", 100000}).ok());
}

TEST(Isa, NumericsIdFollowsTheClass) {
  const std::string reference_id = make_backend("reference", 1)->numerics(KvType::kF16);
  std::set<std::string> ids;
  for (const std::string& isa : available_isas()) {
    const std::string id = make_backend(isa, 1)->numerics(KvType::kF16);
    EXPECT_EQ(id, make_backend(isa, 2)->numerics(KvType::kF16));
    EXPECT_EQ(id == reference_id, isa == "reference");
    if (takes_fixed_point(isa)) {  // quantised weights have a class of their own there
      EXPECT_FALSE(ids.contains(id));
    } else if (isa != "reference") {
      ids.insert(id);
    }
  }
  EXPECT_LE(ids.size(), 1u);  // the AVX units are one class
}

// Only who keeps keys and values as int16 gets another id where that is multiplied as whole
// numbers.
TEST(Isa, NumericsIdNamesTheAttentionOfTheKvType) {
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 1);
    const bool by_bytes = isa.starts_with("amx") || isa == "avx512_vnni" || isa == "avx512_bf16";
    EXPECT_EQ(backend->numerics(KvType::kInt16) != backend->numerics(KvType::kF16), by_bytes)
        << isa;
    EXPECT_EQ(backend->numerics(KvType::kInt8), backend->numerics(KvType::kF16)) << isa;
  }
}

TEST(Team, EveryItemRunsOnceEachTime) {
  for (const int num_threads : {1, 2, 5}) {
    cpu::Team team(num_threads, cpu::usable_cores());
    for (int i = 0; i < 2000; ++i) {
      const int64_t num_items = i % 7;
      std::vector<std::atomic<int>> counts(static_cast<size_t>(num_items));
      std::vector<std::atomic<int>> busy(static_cast<size_t>(num_threads));
      std::atomic<int> num_overlaps{0};
      team.run(num_items, [&](int64_t item, int member) {
        if (++busy[static_cast<size_t>(member)] != 1) ++num_overlaps;
        ++counts[static_cast<size_t>(item)];
        --busy[static_cast<size_t>(member)];
      });
      if (i % 500 == 150)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));  // workers sleep
      for (const auto& count : counts) ASSERT_EQ(count.load(), 1);
      ASSERT_EQ(num_overlaps.load(), 0);
    }
  }
}

// Writes of all members are seen by the caller after the join, and by members in the next job.
TEST(Team, JoinsPublishWrites) {
  cpu::Team team(3, cpu::usable_cores());
  std::vector<int64_t> values(64, 0);
  for (int64_t i = 0; i < 3000; ++i) {
    team.run(64, [&](int64_t item, int) {
      values[static_cast<size_t>(item)] += values[static_cast<size_t>(item)] == i ? 1 : 1000000;
    });
  }
  for (const int64_t value : values) EXPECT_EQ(value, 3000);
}

class FakeRoot {
 public:
  FakeRoot() {
    root_ =
        std::filesystem::temp_directory_path() /
        ("headrace_topology_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) +
         std::to_string(reinterpret_cast<uintptr_t>(this)));
  }
  ~FakeRoot() { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    const auto full = root_ / path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  int limit() const { return cpu::cgroup_core_limit(root_.string()); }

 private:
  std::filesystem::path root_;
};

TEST(Topology, CgroupQuotas) {
  FakeRoot none;
  EXPECT_EQ(none.limit(), 0);
  FakeRoot version_2;
  version_2.write("proc/self/cgroup", "0::/a/b\n");
  version_2.write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(version_2.limit(), 0);
  version_2.write("sys/fs/cgroup/a/cpu.max", "250000 100000\n");  // an ancestor binds
  EXPECT_EQ(version_2.limit(), 3);
  FakeRoot version_1;
  version_1.write("proc/self/cgroup", "3:memory:/x\n2:cpu,cpuacct:/docker/c\n");
  version_1.write("sys/fs/cgroup/cpu,cpuacct/docker/c/cpu.cfs_quota_us", "-1\n");
  version_1.write("sys/fs/cgroup/cpu,cpuacct/docker/c/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(version_1.limit(), 0);
  version_1.write("sys/fs/cgroup/cpu,cpuacct/docker/c/cpu.cfs_quota_us", "100000\n");
  EXPECT_EQ(version_1.limit(), 1);
  EXPECT_FALSE(cpu::usable_cores().empty());
}

}  // namespace
}  // namespace headrace
