// The numeric rule's gate on the width of activation groups: quantising 256 activations together,
// as the formats of 256-value blocks do, may cost a model at most 1.1 times the divergence that
// groups of 32 cost it. The second arm is the references' own arithmetic with another trait of the
// format: FindFormat is wrapped at link time (CMakeLists.txt), so nothing of the product has a
// switch for it.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include "kernels-common/quant/quant.h"
#include "runtime/apps/tools/perplexity.h"
#include "runtime/apps/tools/quantise_file.h"
#include "runtime/model/gguf.h"
#include "tests/oracle/seat_fixture.h"
#include "tests/support/oracle_path.h"
#include "tests/support/temp_dir.h"

namespace bloomery::test {
namespace {

enum class Arm { kAsItIs, kGroups32, kFloat };

Arm& CurrentArm() {
  static Arm arm = Arm::kAsItIs;
  return arm;
}

// The format with other activations: in groups of 32, or as they are (N8).
const kernels::FormatTraits* WithArm(const kernels::FormatTraits& format) {
  static std::map<std::pair<int, Arm>, kernels::FormatTraits> changed;
  const auto [place, is_new] = changed.try_emplace({format.ggml_type, CurrentArm()}, format);
  if (is_new) {
    kernels::FormatTraits& other = place->second;
    other.activation_group = CurrentArm() == Arm::kGroups32 ? 32 : 0;
    if (CurrentArm() == Arm::kFloat) other.unpack_block = nullptr;
  }
  return &place->second;
}

}  // namespace
}  // namespace bloomery::test

extern "C" {
const bloomery::kernels::FormatTraits* __real__ZN8bloomery7kernels10FindFormatEi(int type);
const bloomery::kernels::FormatTraits* __wrap__ZN8bloomery7kernels10FindFormatEi(int type) {
  using bloomery::test::Arm;
  const auto* format = __real__ZN8bloomery7kernels10FindFormatEi(type);
  const bool changes = format != nullptr && format->activation_group == 256;
  return changes && bloomery::test::CurrentArm() != Arm::kAsItIs ? bloomery::test::WithArm(*format)
                                                                 : format;
}
}

namespace bloomery::test {
namespace {

using apps::IdRows;

constexpr double kGate = 1.1;
constexpr size_t kRows = 8;

// Holds while a seat is loaded and runs: programs look formats up when they are built.
class ArmScope {
 public:
  explicit ArmScope(Arm arm) { CurrentArm() = arm; }
  ~ArmScope() { CurrentArm() = Arm::kAsItIs; }
  ArmScope(const ArmScope&) = delete;
  ArmScope& operator=(const ArmScope&) = delete;
};

struct Divergence {
  double kl;   // mean over positions
  double nll;  // mean of the ids
};

class KlGate {
 public:
  KlGate(const std::string& base_model, IdRows rows) : rows_(std::move(rows)) {
    const LoadedSeat seat = Load(base_model, Arm::kAsItIs);
    apps::BaseWriter writer(base_, rows_, Vocabulary(seat));
    apps::PredictionSink* sinks[] = {&writer};
    Score(seat, sinks);
    writer.Finish();
  }

  Divergence Of(const std::string& path, Arm arm) const {
    const ArmScope scope(arm);
    const LoadedSeat seat = Load(path, arm);
    apps::BaseComparison comparison(base_, rows_, Vocabulary(seat));
    apps::PredictionSink* sinks[] = {&comparison};
    const double nll = Score(seat, sinks);
    return {comparison.mean(), nll};
  }

  // Encodes `source` as `mix` and compares the arms. Prints what docs/measurements/cpu.md holds.
  double Ratio(const std::string& source, const std::string& mix) const {
    const std::string path = folder_.File(mix + ".gguf");
    const model::ModelFile file = model::OpenGguf(RealFileSystem(), source);
    apps::QuantiseFile(apps::ModelFileSource(file), path, model::GetQuantMix(mix), 2,
                       [](uint64_t, uint64_t) {});
    const Divergence own = Of(path, Arm::kAsItIs);
    const Divergence narrow = Of(path, Arm::kGroups32);
    std::printf(
        "%s: mean KL with groups of 256 %.6g, of 32 %.6g; mean NLL %.6g, %.6g; ratio %.4f\n",
        mix.c_str(), own.kl, narrow.kl, own.nll, narrow.nll, own.kl / narrow.kl);
    std::fflush(stdout);
    // The arms are what they say: other activations give other predictions.
    EXPECT_NE(own.kl, narrow.kl) << mix;
    return own.kl / narrow.kl;
  }

 private:
  static size_t Vocabulary(const LoadedSeat& seat) {
    return static_cast<size_t>(seat.seat->limits().vocabulary);
  }

  LoadedSeat Load(const std::string& path, Arm arm) const {
    exec::SeatOptions options;
    options.slot_context = static_cast<int32_t>(rows_.width);
    options.rows_max = 256;
    options.k_type = options.v_type = BL_F32;
    // The kernels of an instruction set know the formats' own groups only.
    options.kernels = arm == Arm::kAsItIs ? "auto" : "reference";
    return LoadThroughPlugin(path, options);
  }

  double Score(const LoadedSeat& seat, std::span<apps::PredictionSink* const> sinks) const {
    return apps::RunPerplexity(*seat.seat, rows_, sinks, [](size_t, size_t) {}).mean_nll;
  }

  TempDir folder_;
  std::string base_ = folder_.File("base.safetensors");
  IdRows rows_;
};

IdRows EvalRows(const std::string& golden, size_t count) {
  IdRows rows = apps::ReadIdRows(model::SafetensorsFile(RealFileSystem(), golden), "eval.ids");
  rows.ids.resize(count * rows.width);
  return rows;
}

std::string SeedlingGolden() {
  return BLOOMERY_SOURCE_DIR "/tests/data/seedling/golden.safetensors";
}

// Seedling's weights as they decode are the full precision here. Six bits lose least of all
// formats of 256, so activations weigh most.
TEST(KlGate, GroupsOf256CostSeedlingNoMoreThanTheGateAllows) {
  TempDir folder;
  const std::string full = folder.File("full.gguf");
  const model::ModelFile seedling = model::OpenGguf(RealFileSystem(), SeedlingPath());
  apps::QuantiseFile(apps::ModelFileSource(seedling), full, model::GetQuantMix("F32"), 2,
                     [](uint64_t, uint64_t) {});
  EXPECT_LE(KlGate(full, EvalRows(SeedlingGolden(), 1)).Ratio(full, "Q6_K"), kGate);
}

// Every mix of formats of 256 against the bf16 model, all rows: docs/measurements/cpu.md.
TEST(KlGate, GroupsOf256CostTheLargeModelNoMoreThanTheGateAllows) {
  if (OraclePath().empty()) GTEST_SKIP() << "the large oracle set is not here";
  const std::string folder = OraclePath() + "/models/qwen3moe";
  const KlGate gate(folder + "/model.gguf", EvalRows(folder + "/golden.safetensors", kRows));
  for (const char* mix : {"Q4_K_M", "Q5_K_M", "Q6_K"}) {
    EXPECT_LE(gate.Ratio(folder + "/model.gguf", mix), kGate) << mix;
  }
}

}  // namespace
}  // namespace bloomery::test
