// The fake plugin's description with one thing changed at a time: every field of every core struct
// is either understood or refused by name.
#include "runtime/plugin/description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "runtime/model/gguf.h"
#include "runtime/plugin/host_model.h"
#include "runtime/plugin/host_services.h"
#include "tests/abi/fake/fake.h"
#include "tests/abi/fake_model.h"
#include "tests/support/memory_files.h"
#include "tests/support/refusal.h"

namespace bloomery::plugin {
namespace {

using test::RefusalOf;
using testing::HasSubstr;

constexpr uint32_t kQ = 5;       // "blk.0.q.weight" in the fake plugin's order
constexpr uint32_t kRouter = 9;  // "blk.0.router.weight"
constexpr uint32_t kGate = 10;   // "blk.0.gate.weight"

// A description in host memory whose parts can be changed.
struct RawSeat {
  explicit RawSeat(const bl_seat& s)
      : weights(s.weights, s.weights + s.n_weights),
        banks(s.banks, s.banks + s.n_banks),
        planes(s.planes, s.planes + s.n_planes),
        ops(s.ops, s.ops + s.n_ops),
        kernels(s.ops->kernels, s.ops->kernels + s.ops->n_kernels),
        entries(s.entries, s.entries + s.n_entries),
        seat(s) {
    source.size = sizeof(source);
    table.size = sizeof(table);
    attr.size = sizeof(attr);
    attr.key = "head_order";
    plane_port = {sizeof(bl_plane_port), BL_READ, "k"};
  }

  const bl_seat& Finish() {
    seat.weights = weights.data();
    seat.n_weights = static_cast<uint32_t>(weights.size());
    seat.banks = banks.data();
    seat.n_banks = static_cast<uint32_t>(banks.size());
    seat.planes = planes.data();
    seat.n_planes = static_cast<uint32_t>(planes.size());
    if (!ops.empty() && !kernels.empty()) ops[0].kernels = kernels.data();
    seat.ops = ops.data();
    seat.n_ops = static_cast<uint32_t>(ops.size());
    seat.entries = entries.data();
    seat.n_entries = static_cast<uint32_t>(entries.size());
    return seat;
  }
  // Weight i now comes from this one source.
  bl_source& Source(uint32_t i, bl_verb verb) {
    source.verb = verb;
    source.pattern = weights[i].pattern;
    weights[i].sources = &source;
    weights[i].n_sources = 1;
    return source;
  }

  std::vector<bl_weight> weights;
  std::vector<bl_bank> banks;
  std::vector<bl_plane> planes;
  std::vector<bl_op> ops;
  std::vector<bl_kernel> kernels;
  std::vector<bl_entry> entries;
  bl_source source{};
  bl_table table{};
  bl_attr attr{};
  bl_plane_port plane_port{};
  std::vector<bl_dtype> types = {BL_F16};
  std::vector<bl_encoding> encodings = {BL_ENC_INT8_256};
  bl_seat seat;
};

class DescriptionTest : public testing::Test {
 protected:
  explicit DescriptionTest(const test::GgufWriter& model = test::FakeModel())
      : files_("m.gguf", model.Bytes()),
        file_(model::OpenGguf(files_, "m.gguf")),
        host_model_(file_),
        host_("fake", 1 << 20, {}) {
    params_.size = sizeof(params_);
    fake_ = std::make_unique<test::Fake>(
        sdk::Context{sdk::Host(&host_.raw()), sdk::Model(&host_model_.raw()), &params_});
    fake_->Describe(described_);
    raw_ = std::make_unique<RawSeat>(*described_.Finish());
  }

  Description Check(std::vector<bl_plane_type> types = {}) {
    return CheckDescription(raw_->Finish(), "fake", file_, types);
  }

  test::MemoryFileSystem files_;
  model::ModelFile file_;
  HostModel host_model_;
  HostServices host_;
  bl_params params_{};
  std::unique_ptr<test::Fake> fake_;
  sdk::Seat described_;
  std::unique_ptr<RawSeat> raw_;
};

TEST_F(DescriptionTest, IsCopiedAndResolved) {
  const Description d = Check();
  EXPECT_EQ(d.layers, 2u);
  EXPECT_EQ(d.vocabulary, 48u);
  ASSERT_EQ(d.weights.size(), 22u);
  EXPECT_EQ(d.weights[0].name, "token_embd.weight");
  EXPECT_EQ(d.weights[0].role, BL_ROLE_TABLE);
  EXPECT_FALSE(d.weights[0].alias);
  EXPECT_TRUE(d.weights[1].alias);
  EXPECT_EQ(d.weights[1].tensor, d.weights[0].tensor);
  EXPECT_FALSE(d.weights[2].present);  // ignored
  const Weight& q = d.weights[kQ];
  EXPECT_EQ(q.name, "blk.0.q.weight");
  EXPECT_EQ(file_.tensors()[q.tensor].name, "blk.0.q.weight");
  EXPECT_EQ(q.ne, (std::array<uint64_t, 4>{64, 64, 1, 1}));
  EXPECT_EQ(q.n_dims, 2u);
  EXPECT_EQ(q.offset, 0u);
  EXPECT_EQ(q.bytes, 64u * 64 * 4);
  ASSERT_EQ(d.banks.size(), 2u);
  EXPECT_EQ(d.banks[0].gate, kGate);
  EXPECT_EQ(d.banks[0].up, kGate + 1);
  EXPECT_EQ(d.banks[0].down, kGate + 2);
  EXPECT_EQ(d.weights[kGate].bank, 0u);
  EXPECT_EQ(d.banks[1].layer, 1);
  ASSERT_EQ(d.planes.size(), 4u);
  EXPECT_EQ(d.planes[3].name, "v");
  EXPECT_EQ(d.planes[3].width, 32u);
  EXPECT_EQ(d.planes[3].type, BL_F16);
  ASSERT_EQ(d.operators.size(), 2u);
  EXPECT_EQ(d.operators[0].name, "fake.scale");
  EXPECT_EQ(d.operators[0].attrs, std::vector<std::string>{"factor"});
  ASSERT_EQ(d.operators[0].kernels.size(), 1u);
  EXPECT_NE(d.operators[0].kernels[0].run, nullptr);
  ASSERT_EQ(d.entries.size(), 1u);
  EXPECT_EQ(d.entries[0].name, "main");
}

TEST_F(DescriptionTest, CacheTypeFlagsTouchOnlyTheirClass) {
  const Description d = Check({{BL_CLASS_K, BL_Q8_0}});
  EXPECT_EQ(d.planes[0].type, BL_Q8_0);
  EXPECT_EQ(d.planes[1].type, BL_F16);
}

TEST_F(DescriptionTest, ACacheTypeThatThePlaneForbidsNamesWhatItAllows) {
  const auto refusal = RefusalOf([&] { Check({{BL_CLASS_V, BL_Q4_0}}); });
  EXPECT_EQ(refusal.kind, ErrorKind::kUsage);
  EXPECT_THAT(refusal.message, HasSubstr("Q4_0 for planes of class V"));
  EXPECT_THAT(refusal.message, HasSubstr("allows F16, F32, Q8_0"));
}

TEST_F(DescriptionTest, ARowThatIsNoWholeNumberOfBlocksIsRefusedForItsType) {
  raw_->planes[0].width = 48;
  EXPECT_EQ(Check().planes[0].width, 48u);
  const auto refusal = RefusalOf([&] { Check({{BL_CLASS_K, BL_Q8_0}}); });
  EXPECT_EQ(refusal.kind, ErrorKind::kUsage);
  EXPECT_THAT(refusal.message, HasSubstr("48 values, no multiple of its block of 32"));
}

TEST_F(DescriptionTest, ARowRangeIsAPartOfItsTensor) {
  bl_source& source = raw_->Source(kQ, BL_VERB_ROW_RANGE);
  source.row0 = 16;
  source.rows = 48;
  raw_->weights[kQ].ne[1] = 48;
  const Description d = Check();
  EXPECT_EQ(d.weights[kQ].offset, 16u * 64 * 4);
  EXPECT_EQ(d.weights[kQ].bytes, 48u * 64 * 4);
  EXPECT_EQ(d.weights[kQ].ne[1], 48u);
}

TEST_F(DescriptionTest, DisjointRangesShareATensorAndOverlappingOnesDoNot) {
  // The whole of q as two weights: rows 0 … 31 and, added, rows 32 … 63.
  raw_->Source(kQ, BL_VERB_ROW_RANGE).rows = 32;
  raw_->weights[kQ].ne[1] = 32;
  bl_weight second = raw_->weights[kQ];
  bl_source rest = raw_->source;
  rest.row0 = 32;
  second.sources = &rest;
  raw_->weights.push_back(second);
  EXPECT_EQ(Check().weights.back().offset, 32u * 64 * 4);
  rest.row0 = 31;
  EXPECT_THAT(RefusalOf([&] { Check(); }).message, HasSubstr("claimed by weight 5 already"));
}

TEST_F(DescriptionTest, AnOptionalWeightMayBeAbsent) {
  bl_weight weight = raw_->weights[kQ];
  weight.pattern = "blk.{l}.bias";
  weight.flags = BL_WEIGHT_OPTIONAL;
  raw_->weights.push_back(weight);
  const Description d = Check();
  EXPECT_FALSE(d.weights.back().present);
  EXPECT_EQ(d.weights.back().name, "blk.0.bias");
}

TEST_F(DescriptionTest, AZeroLeavesADimUnchecked) {
  raw_->weights[kQ].ne[1] = 0;
  EXPECT_EQ(Check().weights[kQ].ne[1], 64u);
}

TEST_F(DescriptionTest, AKernelForAnotherDeviceIsLeftOut) {
  bl_kernel cuda = raw_->kernels[0];
  cuda.device = BL_DEVICE_CUDA;
  cuda.cc_min = 80;
  cuda.cc_max = 90;
  cuda.launch = [](const bl_args*, void*) -> bl_status { return BL_OK; };
  raw_->kernels.push_back(cuda);
  raw_->ops[0].n_kernels = 2;
  EXPECT_EQ(Check().operators[0].kernels.size(), 1u);
}

TEST_F(DescriptionTest, KernelsAreOrderedByPriorityAndThenByRegistration) {
  for (const int32_t priority : {5, 9, 5}) {
    raw_->kernels.push_back(raw_->kernels[0]);
    raw_->kernels.back().priority = priority;
    raw_->kernels.back().numeric_class = raw_->kernels.size() == 4 ? BL_BAND : BL_EXACT;
  }
  raw_->ops[0].n_kernels = 4;
  const auto kernels = Check().operators[0].kernels;
  ASSERT_EQ(kernels.size(), 4u);
  EXPECT_EQ(kernels[0].priority, 9);
  EXPECT_EQ(kernels[1].priority, 5);
  EXPECT_EQ(kernels[1].numeric_class, BL_EXACT);
  EXPECT_EQ(kernels[2].numeric_class, BL_BAND);
  EXPECT_EQ(kernels[3].priority, 0);
}

struct BadCase {
  const char* name;
  std::function<void(RawSeat&)> change;
  ErrorKind kind;
  const char* what;   // the item
  const char* field;  // the field, value or tensor
};

void PrintTo(const BadCase& c, std::ostream* out) { *out << c.name; }

class BadDescription : public DescriptionTest, public testing::WithParamInterface<BadCase> {};

TEST_P(BadDescription, IsRefusedByName) {
  GetParam().change(*raw_);
  const auto refusal = RefusalOf([&] { Check(); });
  EXPECT_EQ(refusal.kind, GetParam().kind);
  EXPECT_THAT(refusal.message, HasSubstr("fake"));
  EXPECT_THAT(refusal.message, HasSubstr(GetParam().what));
  EXPECT_THAT(refusal.message, HasSubstr(GetParam().field));
}

constexpr ErrorKind kBad = ErrorKind::kBadModel;
constexpr ErrorKind kNot = ErrorKind::kUnsupported;
const double kNan = std::numeric_limits<double>::quiet_NaN();
const std::string kLong(300, 'x');

constexpr bl_dtype kHalf = BL_F16;
constexpr bl_dtype kFull = BL_F32;

// A state that rows overwrite, sound.
bl_plane& Fix(bl_plane& plane) {
  plane.rule = BL_PLANE_FIXED;
  plane.plane_class = BL_CLASS_RECURRENT;
  plane.lanes = 1;
  plane.init = BL_INIT_ZERO;
  plane.types_allowed = &kFull;
  plane.n_types = 1;
  return plane;
}

// The last rows alone, sound.
bl_plane& Turn(bl_plane& plane) {
  plane.rule = BL_PLANE_RING;
  plane.window = 16;
  return plane;
}

#define CASE(name, change, kind, what, field)            \
  BadCase {                                              \
    #name, [](RawSeat& s) { change; }, kind, what, field \
  }

INSTANTIATE_TEST_SUITE_P(
    Seat, BadDescription,
    testing::Values(CASE(Size, s.seat.size = 8, kBad, "seat", "field size: 8"),
                    CASE(NoLayers, s.seat.layers = 0, kBad, "seat", "field layers"),
                    CASE(ManyLayers, s.seat.layers = 4097, kBad, "seat", "field layers"),
                    CASE(NoVocabulary, s.seat.vocabulary = 0, kBad, "seat", "field vocabulary"),
                    CASE(HugeVocabulary, s.seat.vocabulary = 1ull << 31, kBad, "seat",
                         "field vocabulary"),
                    CASE(NoEntry, s.entries.clear(), kBad, "seat", "0 main entries"),
                    CASE(
                        TwoEntries,
                        {
                          s.entries.push_back(s.entries[0]);
                          s.entries[1].name = "again";
                        },
                        kBad, "seat", "2 main entries"),
                    CASE(
                        Tables,
                        {
                          s.seat.tables = &s.table;
                          s.seat.n_tables = 1;
                        },
                        kNot, "table 0", "field tables"),
                    CASE(
                        TableWeight,
                        {
                          s.seat.tables = &s.table;
                          s.seat.n_tables = 1;
                          s.table.weight = 99;
                        },
                        kBad, "table 0", "field weight: 99"),
                    CASE(
                        TableOrigin,
                        {
                          s.seat.tables = &s.table;
                          s.seat.n_tables = 1;
                          s.table.id_origin = 2;
                        },
                        kBad, "table 0", "field id_origin"),
                    CASE(TablesNull, s.seat.n_tables = 1, kBad, "table", "null")),
    [](const auto& i) { return i.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Weight, BadDescription,
    testing::Values(
        CASE(Size, s.weights[0].size = 8, kBad, "weight 0", "field size: 8"),
        CASE(MixedSize, s.weights[3].size += 8, kBad, "weight 3", "field size"),
        CASE(Flags, s.weights[kQ].flags = 8, kBad, "weight 5 'blk.{l}.q.weight'", "field flags"),
        CASE(PatternNull, s.weights[kQ].pattern = nullptr, kBad, "weight 5", "field pattern"),
        CASE(PatternEmpty, s.weights[kQ].pattern = "", kBad, "weight 5", "field pattern: empty"),
        CASE(PatternLong, s.weights[kQ].pattern = kLong.c_str(), kBad, "weight 5", "longer"),
        CASE(PatternBytes, s.weights[kQ].pattern = "\xff", kBad, "weight 5", "not printable"),
        CASE(PatternBrace, s.weights[kQ].pattern = "{x}", kBad, "weight 5", "brace"),
        CASE(PatternExpert, s.weights[kQ].pattern = "a.{e}", kBad, "weight 5", "STACK verb"),
        CASE(PatternNoLayer, s.weights[kQ].layer = -1, kBad, "weight 5", "layer -1"),
        CASE(Role, s.weights[kQ].role = 7, kBad, "weight 5", "field role: 7"),
        CASE(RoleNegative, s.weights[kQ].role = -1, kBad, "weight 5", "field role: -1"),
        CASE(Owner, s.weights[kQ].owner = 4, kBad, "weight 5", "field owner: 4"),
        CASE(OwnerDraft, s.weights[kQ].owner = BL_OWNER_DRAFT, kBad, "weight 5",
             "no entry of the kind"),
        CASE(OwnerEncoder, s.weights[kQ].owner = BL_OWNER_ENCODER, kNot, "weight 5", "encoder"),
        CASE(OwnerTask, s.weights[kQ].owner = BL_OWNER_TASK, kNot, "weight 5", "task"),
        CASE(Layer, s.weights[kQ].layer = 2, kBad, "weight 5", "field layer: 2"),
        CASE(LayerNegative, s.weights[kQ].layer = -2, kBad, "weight 5", "field layer: -2"),
        CASE(Dims, s.weights[kQ].n_dims = 5, kBad, "weight 5", "field n_dims"),
        CASE(NoDims, s.weights[kQ].n_dims = 0, kBad, "weight 5", "field n_dims"),
        CASE(Shape, s.weights[kQ].ne[1] = 65, kBad, "blk.0.q.weight",
             "gives shape [64, 64, 1, 1], expected [64, 65, 1, 1]"),
        CASE(FewerDims, s.weights[kQ].n_dims = 1, kBad, "blk.0.q.weight", "expected [64, 1, 1, 1]"),
        CASE(Missing, s.weights[kQ].pattern = "nothing", kBad, "weight 5",
             "tensor 'nothing' is missing in m.gguf"),
        CASE(
            Attribute,
            {
              s.weights[kQ].attrs = &s.attr;
              s.weights[kQ].n_attrs = 1;
            },
            kNot, "weight 5", "attribute 'head_order'"),
        CASE(AttributesNull, s.weights[kQ].n_attrs = 1, kBad, "weight 5", "attribute: null"),
        CASE(Twice, s.weights.push_back(s.weights[kQ]), kBad, "weight 22",
             "claimed by weight 5 already"),
        CASE(Unclaimed, s.weights.pop_back(), kBad, "tensor 'blk.1.down.weight'",
             "claimed by no weight"),
        CASE(
            BankWithoutDown,
            {
              s.weights.back().flags = BL_WEIGHT_IGNORED;
              s.weights.back().bank = -1;
            },
            kBad, "bank 1", "no weight of the file is its down"),
        CASE(AliasOfNothing, std::swap(s.weights[0], s.weights[1]), kBad, "weight 0", "ALIAS"),
        CASE(NoBank, s.weights[kGate].bank = -1, kBad, "weight 10", "field part"),
        CASE(BankIndex, s.weights[kGate].bank = 2, kBad, "weight 10", "field bank: 2"),
        CASE(BankNegative, s.weights[kGate].bank = -2, kBad, "weight 10", "field bank: -2"),
        CASE(RoutedOutside, s.weights[kQ].role = BL_ROLE_ROUTED, kBad, "weight 5", "field role"),
        CASE(DenseInBank, s.weights[kGate].role = BL_ROLE_DENSE, kBad, "weight 10", "field role"),
        CASE(PartNone, s.weights[kGate].part = BL_PART_NONE, kBad, "weight 10", "field part"),
        CASE(PartEnum, s.weights[kGate].part = 8, kBad, "weight 10", "field part: 8"),
        CASE(PartFused, s.weights[kGate].part = BL_PART_GATE_UP, kNot, "weight 10", "GATE_UP"),
        CASE(PartGateBias, s.weights[kGate].part = BL_PART_GATE_BIAS, kNot, "weight 10",
             "GATE_BIAS"),
        CASE(PartUpBias, s.weights[kGate].part = BL_PART_UP_BIAS, kNot, "weight 10", "UP_BIAS"),
        CASE(PartDownBias, s.weights[kGate].part = BL_PART_DOWN_BIAS, kNot, "weight 10",
             "DOWN_BIAS"),
        CASE(IgnoredAlias, s.weights[2].flags |= BL_WEIGHT_ALIAS, kBad, "weight 2", "field flags"),
        CASE(IgnoredBank, s.weights[2].bank = 0, kBad, "weight 2", "field bank"),
        CASE(IgnoredSource, s.weights[2].n_sources = 1, kBad, "weight 2", "field n_sources"),
        CASE(IgnoredAndClaimed, s.weights[2].pattern = "blk.{l}.q.weight", kBad,
             "tensor 'blk.0.q.weight'", "claimed by weight 5 and matched by an IGNORED")),
    [](const auto& i) { return i.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Source, BadDescription,
    testing::Values(
        CASE(Size, s.Source(kQ, BL_VERB_WHOLE).size = 4, kBad, "weight 5", "field size"),
        CASE(Null, s.weights[kQ].n_sources = 1, kBad, "weight 5", "source: null"),
        CASE(Verb, s.Source(kQ, 11), kBad, "source 0", "field verb: 11"),
        CASE(Stack, s.Source(kQ, BL_VERB_STACK), kNot, "source 0", "STACK"),
        CASE(Extents, s.Source(kQ, BL_VERB_EXTENTS), kNot, "source 0", "EXTENTS"),
        CASE(Transpose, s.Source(kQ, BL_VERB_TRANSPOSE), kNot, "source 0", "TRANSPOSE"),
        CASE(TakeRows, s.Source(kQ, BL_VERB_TAKE_ROWS), kNot, "source 0", "TAKE_ROWS"),
        CASE(AddOne, s.Source(kQ, BL_VERB_ADD_ONE), kNot, "source 0", "ADD_ONE"),
        CASE(MinusExp, s.Source(kQ, BL_VERB_MINUS_EXP), kNot, "source 0", "MINUS_EXP"),
        CASE(Product, s.Source(kQ, BL_VERB_PRODUCT), kNot, "source 0", "PRODUCT"),
        CASE(AsF32, s.Source(kQ, BL_VERB_AS_F32), kNot, "source 0", "AS_F32"),
        CASE(Callback, s.Source(kQ, BL_VERB_CALLBACK), kNot, "source 0", "CALLBACK"),
        CASE(Arg, s.Source(kQ, BL_VERB_WHOLE).arg = 1, kBad, "source 0", "field arg"),
        CASE(
            Transform,
            s.Source(kQ, BL_VERB_WHOLE).transform = [](bl_instance*, const float*, uint64_t, float*,
                                                       uint64_t) -> bl_status { return BL_OK; },
            kBad, "source 0", "field transform"),
        CASE(WholeRows, s.Source(kQ, BL_VERB_WHOLE).rows = 4, kBad, "source 0", "field rows"),
        CASE(NoRows, s.Source(kQ, BL_VERB_ROW_RANGE), kBad, "source 0", "field rows"),
        CASE(
            RowsPastTheEnd,
            {
              s.Source(kQ, BL_VERB_ROW_RANGE).rows = 32;
              s.source.row0 = 33;
            },
            kBad, "blk.{l}.q.weight", "32 rows from row 33 of tensor 'blk.0.q.weight'"),
        CASE(
            RowsOverflow,
            {
              s.Source(kQ, BL_VERB_ROW_RANGE).rows = 2;
              s.source.row0 = UINT64_MAX;
            },
            kBad, "weight 5", "2 rows from row 18446744073709551615"),
        CASE(RowsOfABank, s.Source(kGate, BL_VERB_ROW_RANGE).rows = 1, kBad, "weight 10",
             "of shape [64, 32, 4, 1]"),
        CASE(Pattern, s.Source(kQ, BL_VERB_WHOLE).pattern = "{", kBad, "source 0",
             "field pattern")),
    [](const auto& i) { return i.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Bank, BadDescription,
    testing::Values(
        CASE(Size, s.banks[0].size = 8, kBad, "bank 0", "field size: 8"),
        CASE(Layer, s.banks[1].layer = 2, kBad, "bank 1", "field layer: 2"),
        CASE(NoLayer, s.banks[1].layer = -1, kBad, "bank 1", "field layer: -1"),
        CASE(LayerTwice, s.banks[1].layer = 0, kBad, "bank 1", "field layer"),
        CASE(OwnerDraft, s.banks[0].owner = BL_OWNER_DRAFT, kBad, "bank 1",
             "main entry come before"),
        CASE(NoExperts, s.banks[0].experts = 0, kBad, "bank 0", "field experts"),
        CASE(ManyExperts, s.banks[0].experts = 65537, kBad, "bank 0", "field experts"),
        CASE(NoneUsed, s.banks[0].used = 0, kBad, "bank 0", "field used"),
        CASE(MoreUsed, s.banks[0].used = 5, kBad, "bank 0", "field used: 5 of 4"),
        CASE(Activation, s.banks[0].activation = 4, kBad, "bank 0", "field activation: 4"),
        CASE(Gelu, s.banks[0].activation = BL_ACT_GELU, kNot, "bank 0", "GELU"),
        CASE(GeluTanh, s.banks[0].activation = BL_ACT_GELU_TANH, kNot, "bank 0", "GELU_TANH"),
        CASE(Relu2, s.banks[0].activation = BL_ACT_RELU2, kNot, "bank 0", "RELU2"),
        CASE(Parameter, s.banks[0].act_params[3] = 1.0, kBad, "bank 0", "field act_params"),
        CASE(Clamp, s.banks[0].clamp = 7.0, kNot, "bank 0", "field clamp"),
        CASE(ClampNan, s.banks[0].clamp = kNan, kNot, "bank 0", "field clamp"),
        CASE(Place, s.banks[0].weight_place = 2, kBad, "bank 0", "field weight_place: 2"),
        CASE(BeforeDown, s.banks[0].weight_place = BL_BEFORE_DOWN, kNot, "bank 0", "BEFORE_DOWN"),
        CASE(KnownAhead, s.banks[0].ids_known_ahead = 1, kNot, "bank 0", "ids_known_ahead"),
        CASE(KnownAheadValue, s.banks[0].ids_known_ahead = 2, kBad, "bank 0", "ids_known_ahead"),
        CASE(NoWidth, s.banks[0].width = 0, kBad, "bank 0", "field width"),
        CASE(NoFf, s.banks[0].ff = 0, kBad, "bank 0", "field ff"),
        CASE(OtherFf, s.banks[0].ff = 33, kBad, "bank 0", "must have the shape [64, 33, 4]"),
        CASE(OtherExperts, s.banks[0].experts = 3, kBad, "bank 0",
             "must have the shape [64, 32, 3]"),
        CASE(TwoGates, s.weights[kGate + 1].part = BL_PART_GATE, kBad, "bank 0",
             "two weights are its gate"),
        CASE(PartsOfAnotherLayer, std::swap(s.banks[0].layer, s.banks[1].layer), kBad, "bank 0",
             "is of another layer")),
    [](const auto& i) { return i.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Plane, BadDescription,
    testing::Values(
        CASE(Size, s.planes[0].size = 8, kBad, "plane 0", "field size: 8"),
        CASE(NameNull, s.planes[0].name = nullptr, kBad, "plane 0", "field name"),
        CASE(NameTwice, s.planes[1].name = "k", kBad, "plane 1", "field name"),
        CASE(OwnerDraft, s.planes[0].owner = BL_OWNER_DRAFT, kBad, "plane 0",
             "no entry of the kind"),
        CASE(Layer, s.planes[0].layer = 2, kBad, "plane 0", "field layer: 2"),
        CASE(Rule, s.planes[0].rule = 3, kBad, "plane 0", "field rule: 3"),
        CASE(RingOfNoRows, s.planes[0].rule = BL_PLANE_RING, kBad, "plane 0", "field window: 0"),
        CASE(RingTooLong, Turn(s.planes[0]).window = 1ull << 40, kBad, "plane 0", "field window"),
        CASE(RingRate, Turn(s.planes[0]).rate = 2, kNot, "plane 0", "field rate: 2"),
        CASE(RingLanes, Turn(s.planes[0]).lanes = 1, kBad, "plane 0", "in a ring plane"),
        CASE(RingTap, Turn(s.planes[0]).plane_class = BL_CLASS_TAP, kNot, "plane 0", "TAP"),
        CASE(FixedKeys, s.planes[0].rule = BL_PLANE_FIXED, kNot, "plane 0", "K for a fixed plane"),
        CASE(FixedNoLane, Fix(s.planes[0]).lanes = 0, kBad, "plane 0", "field lanes: 0"),
        CASE(FixedLanes, Fix(s.planes[0]).lanes = 2, kNot, "plane 0", "field lanes: 2"),
        CASE(FixedWindow, Fix(s.planes[0]).window = 4, kBad, "plane 0", "field window"),
        CASE(FixedRate, Fix(s.planes[0]).rate = 2, kBad, "plane 0", "field rate"),
        CASE(FixedInit, Fix(s.planes[0]).init = BL_INIT_NONE, kNot, "plane 0", "NONE for a fixed"),
        CASE(FixedHalf, Fix(s.planes[0]).types_allowed = &kHalf, kNot, "plane 0",
             "F16 for a fixed"),
        CASE(Class, s.planes[0].plane_class = 7, kBad, "plane 0", "field plane_class: 7"),
        CASE(Latent, s.planes[0].plane_class = BL_CLASS_LATENT, kNot, "plane 0", "LATENT"),
        CASE(Index, s.planes[0].plane_class = BL_CLASS_INDEX, kNot, "plane 0", "INDEX"),
        CASE(Raw, s.planes[0].plane_class = BL_CLASS_RAW, kNot, "plane 0", "RAW"),
        CASE(Recurrent, s.planes[0].plane_class = BL_CLASS_RECURRENT, kNot, "plane 0", "RECURRENT"),
        CASE(Tap, s.planes[0].plane_class = BL_CLASS_TAP, kNot, "plane 0", "TAP"),
        CASE(NoRate, s.planes[0].rate = 0, kBad, "plane 0", "field rate: 0"),
        CASE(Rate, s.planes[0].rate = 4, kNot, "plane 0", "field rate: 4"),
        CASE(Window, s.planes[0].window = 128, kBad, "plane 0", "field window"),
        CASE(Lanes, s.planes[0].lanes = 1, kBad, "plane 0", "field lanes"),
        CASE(Init, s.planes[0].init = 2, kBad, "plane 0", "field init: 2"),
        CASE(InitZero, s.planes[0].init = BL_INIT_ZERO, kNot, "plane 0", "field init"),
        CASE(Reserved, s.planes[0].reserved = 1, kBad, "plane 0", "field reserved: 1"),
        CASE(NoWidth, s.planes[0].width = 0, kBad, "plane 0", "field width"),
        CASE(HugeWidth, s.planes[0].width = 1ull << 31, kBad, "plane 0", "field width"),
        CASE(NoTypes, s.planes[0].n_types = 0, kBad, "plane 0", "field n_types"),
        CASE(TypesNull, s.planes[0].types_allowed = nullptr, kBad, "plane 0", "types_allowed"),
        CASE(
            TypeEnum,
            {
              s.types = {4};
              s.planes[0].types_allowed = s.types.data();
              s.planes[0].n_types = 1;
            },
            kBad, "plane 0", "types_allowed: 4"),
        CASE(
            TypeNotOffered,
            {
              s.types = {BL_Q4_0};
              s.planes[0].types_allowed = s.types.data();
              s.planes[0].n_types = 1;
            },
            kNot, "plane 0", "Q4_0")),
    [](const auto& i) { return i.param.name; });

bl_status NoExpansion(const bl_builder*, const bl_node*, bl_value*, uint32_t) { return BL_OK; }

INSTANTIATE_TEST_SUITE_P(
    Operator, BadDescription,
    testing::Values(
        CASE(Size, s.ops[0].size = 8, kBad, "operator 0", "field size: 8"),
        CASE(NameNull, s.ops[0].name = nullptr, kBad, "operator 0", "field name"),
        CASE(StandardName, s.ops[0].name = "linear", kBad, "operator 0 'linear'",
             "'fake.<something>'"),
        CASE(ForeignName, s.ops[0].name = "other.scale", kBad, "operator 0", "'fake.<something>'"),
        CASE(BareName, s.ops[0].name = "fake.", kBad, "operator 0", "'fake.<something>'"),
        CASE(Version, s.ops[0].version = 0, kBad, "operator 0", "field version"),
        CASE(Twice, s.ops.push_back(s.ops[0]), kBad, "operator 2", "registered twice"),
        CASE(
            NoOutput,
            {
              s.ops[0].n_outputs = 0;
              s.kernels[0].n_out = 0;
            },
            kBad, "operator 0", "field n_outputs"),
        CASE(Ports, s.ops[0].n_inputs = 65, kBad, "operator 0", "65 ports"),
        CASE(
            PlanePort,
            {
              s.ops[0].planes = &s.plane_port;
              s.ops[0].n_planes = 1;
            },
            kNot, "operator 0", "field planes"),
        CASE(
            PlaneAccess,
            {
              s.ops[0].planes = &s.plane_port;
              s.ops[0].n_planes = 1;
              s.plane_port.access = 4;
            },
            kBad, "operator 0", "field access: 4"),
        CASE(AttrsNull, s.ops[0].attrs = nullptr, kBad, "operator 0", "field attrs: null"),
        CASE(Infer, s.ops[0].infer = nullptr, kBad, "operator 0", "field infer"),
        CASE(NoDefinition, s.ops[0].n_kernels = 0, kBad, "operator 0", "neither a CPU kernel"),
        CASE(KernelSize, s.kernels[0].size = 8, kBad, "kernel 0", "field size: 8"),
        CASE(KernelOp, s.kernels[0].op = "fake.other", kBad, "kernel 0", "field op"),
        CASE(KernelVersion, s.kernels[0].op_version = 2, kBad, "kernel 0", "field op"),
        CASE(KernelReserved, s.kernels[0].reserved = 1, kBad, "kernel 0", "field reserved"),
        CASE(KernelDevice, s.kernels[0].device = 2, kBad, "kernel 0", "field device: 2"),
        CASE(KernelClass, s.kernels[0].numeric_class = 3, kBad, "kernel 0", "field numeric_class"),
        CASE(KernelCc, s.kernels[0].cc_max = 90, kBad, "kernel 0", "field cc_min"),
        CASE(
            KernelLaunch,
            s.kernels[0].launch = [](const bl_args*, void*) -> bl_status { return BL_OK; }, kBad,
            "kernel 0", "field launch"),
        CASE(KernelTasks, s.kernels[0].tasks = nullptr, kBad, "kernel 0", "field tasks"),
        CASE(KernelRun, s.kernels[0].run = nullptr, kBad, "kernel 0", "field run"),
        CASE(KernelInputs, s.kernels[0].n_in = 2, kBad, "kernel 0", "field in_enc"),
        CASE(KernelOutputs, s.kernels[0].out_enc = nullptr, kBad, "kernel 0", "field out_enc"),
        CASE(KernelInt8, s.kernels[0].in_enc = s.encodings.data(), kNot, "kernel 0", "INT8_256"),
        CASE(
            KernelEncoding,
            {
              s.encodings = {7};
              s.kernels[0].in_enc = s.encodings.data();
            },
            kBad, "kernel 0", "field in_enc: 7"),
        CASE(CudaLaunch, s.kernels[0].device = BL_DEVICE_CUDA, kBad, "kernel 0", "field launch"),
        CASE(
            CudaAlone,
            {
              s.kernels[0].device = BL_DEVICE_CUDA;
              s.kernels[0].launch = [](const bl_args*, void*) -> bl_status { return BL_OK; };
              s.kernels[0].cc_min = 80;
              s.kernels[0].cc_max = 90;
            },
            kBad, "operator 0", "neither a CPU kernel")),
    [](const auto& i) { return i.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Entry, BadDescription,
    testing::Values(
        CASE(Size, s.entries[0].size = 8, kBad, "entry 0", "field size: 8"),
        CASE(NameNull, s.entries[0].name = nullptr, kBad, "entry 0", "field name"),
        CASE(NameTwice, s.entries.push_back(s.entries[0]), kBad, "entry 1", "field name"),
        CASE(Kind, s.entries[0].kind = 6, kBad, "entry 0 'main'", "field kind: 6"),
        CASE(DraftStore, s.entries[0].kind = BL_ENTRY_DRAFT_STORE, kNot, "entry 0", "DRAFT_STORE"),
        CASE(DraftStep, s.entries[0].kind = BL_ENTRY_DRAFT_STEP, kBad, "seat", "0 main entries"),
        CASE(DraftBlock, s.entries[0].kind = BL_ENTRY_DRAFT_BLOCK, kNot, "entry 0", "DRAFT_BLOCK"),
        CASE(Encode, s.entries[0].kind = BL_ENTRY_ENCODE, kNot, "entry 0", "ENCODE"),
        CASE(Hidden, s.entries[0].kind = BL_ENTRY_HIDDEN, kNot, "entry 0", "HIDDEN"),
        CASE(Domain, s.entries[0].domain = 5, kBad, "entry 0", "field domain: 5"),
        CASE(LogitDomain, s.entries[0].domain = BL_DOMAIN_LOGIT_ROWS, kBad, "entry 0",
             "field domain"),
        CASE(Needs, s.entries[0].needs = 8, kBad, "entry 0", "field needs"),
        CASE(NoLogits, s.entries[0].needs = 0, kBad, "entry 0", "field needs"),
        CASE(NeedsHidden, s.entries[0].needs |= BL_NEEDS_HIDDEN, kNot, "entry 0", "HIDDEN"),
        CASE(NeedsTaps, s.entries[0].needs |= BL_NEEDS_TAPS, kNot, "entry 0", "TAPS"),
        CASE(Build, s.entries[0].build = nullptr, kBad, "entry 0", "field build")),
    [](const auto& i) { return i.param.name; });

#undef CASE

TEST_F(DescriptionTest, AnExpansionAloneDefinesAnOperator) {
  raw_->ops[0].n_kernels = 0;
  raw_->ops[0].expand = NoExpansion;
  EXPECT_TRUE(Check().operators[0].kernels.empty());
}

class UnknownTensorTest : public DescriptionTest {
 protected:
  UnknownTensorTest() : DescriptionTest(test::FakeModel({}, "", "blk.0.surprise.weight")) {}
};

TEST_F(UnknownTensorTest, IsARefusalThatNamesIt) {
  const auto refusal = RefusalOf([&] { Check(); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
  EXPECT_THAT(refusal.message, HasSubstr("tensor 'blk.0.surprise.weight'"));
  EXPECT_THAT(refusal.message, HasSubstr("claimed by no weight"));
  EXPECT_THAT(refusal.message, HasSubstr("m.gguf"));
}

class MissingTensorTest : public DescriptionTest {
 protected:
  MissingTensorTest() : DescriptionTest(test::FakeModel({}, "blk.1.router.weight")) {}
};

TEST_F(MissingTensorTest, IsARefusalThatNamesIt) {
  EXPECT_THAT(RefusalOf([&] { Check(); }).message,
              HasSubstr("tensor 'blk.1.router.weight' is missing in m.gguf"));
  EXPECT_EQ(raw_->weights[kRouter].layer, 0);
}

}  // namespace
}  // namespace bloomery::plugin
