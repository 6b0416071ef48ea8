// What a plugin class throws arrives as a status and a text, and nothing else crosses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bloomery/plugin.hpp>
#include <new>
#include <string>

namespace bloomery::sdk {
namespace {

// What the class below does; one test at a time.
enum class Mode { kGood, kRefuse, kNoMemory, kStd, kOther, kDescribe, kBuild, kForeignEntry };
Mode mode = Mode::kGood;
int alive = 0;

void Act(Mode when_refused) {
  if (mode == when_refused) throw Failure(BL_BAD_DATA, "the reason");
}

struct Base {
  void BuildBase(Graph&, const bl_build&) const {}
};

class Toy : public Base {
 public:
  static int32_t Probe(const Model&) {
    if (mode == Mode::kRefuse) Refuse("not mine");
    return 7;
  }
  explicit Toy(const Context&) {
    if (mode == Mode::kRefuse) Refuse("not mine");
    if (mode == Mode::kNoMemory) throw std::bad_alloc();
    if (mode == Mode::kStd) throw std::runtime_error("a bug");
    if (mode == Mode::kOther) throw 3;
    ++alive;
  }
  Toy(const Toy&) = delete;
  Toy& operator=(const Toy&) = delete;
  ~Toy() { --alive; }
  void Describe(Seat& seat) {
    Act(Mode::kDescribe);
    ++described_;
    seat.layers = static_cast<uint32_t>(described_);
    if (mode == Mode::kForeignEntry) {
      seat.AddEntry<&Base::BuildBase>({});
    } else {
      seat.AddEntry<&Toy::Build>({});
    }
  }
  void Build(Graph&, const bl_build&) const { Act(Mode::kBuild); }
  static const void* GetExtension(std::string_view id) { return id == "toy/1" ? &mode : nullptr; }

 private:
  int described_ = 0;
};

class Plain {
 public:
  static int32_t Probe(const Model&) { return 1; }
  explicit Plain(const Context&) {}
  void Describe(Seat&) {}
};

class PluginTest : public testing::Test {
 protected:
  PluginTest() {
    mode = Mode::kGood;
    host_.size = sizeof(host_);
    host_.self = this;
    host_.fail = [](void* self, bl_status status, const char* text) {
      static_cast<PluginTest*>(self)->Say(status, text);
    };
    sink_ = {sizeof(bl_sink), 0, this, host_.fail};
    model_.size = sizeof(model_);
    params_.size = sizeof(params_);
  }
  ~PluginTest() override { EXPECT_EQ(alive, 0); }

  void Say(bl_status status, const char* text) {
    said_status_ = status;
    said_ = text;
  }
  bl_status Create(Mode m) {
    mode = m;
    instance_ = reinterpret_cast<bl_instance*>(this);  // garbage that must be cleared
    return table_.create(&host_, &model_, &params_, &instance_);
  }

  const bl_plugin table_ = PluginTable<Toy>("toy", "1.2.3");
  bl_host host_{};
  bl_sink sink_{};
  bl_model model_{};
  bl_params params_{};
  bl_instance* instance_ = nullptr;
  bl_status said_status_ = BL_OK;
  std::string said_;
};

TEST_F(PluginTest, TheTableIsFilled) {
  EXPECT_EQ(table_.size, sizeof(bl_plugin));
  EXPECT_EQ(table_.abi.major, BL_ABI_MAJOR);
  EXPECT_EQ(table_.abi.minor, BL_ABI_MINOR);
  EXPECT_STREQ(table_.name, "toy");
  EXPECT_STREQ(table_.version, "1.2.3");
  EXPECT_EQ(table_.get_extension("toy/1"), &mode);
  EXPECT_EQ(table_.get_extension("toy/2"), nullptr);
  EXPECT_EQ(table_.get_extension(nullptr), nullptr);
  EXPECT_EQ(PluginTable<Plain>("p", "0.0.1").get_extension("toy/1"), nullptr);
}

TEST_F(PluginTest, ProbeGivesTheScoreOrTheReason) {
  bl_claim claim{sizeof(bl_claim), 0};
  EXPECT_EQ(table_.probe(&model_, &sink_, &claim), BL_OK);
  EXPECT_EQ(claim.score, 7);
  mode = Mode::kRefuse;
  EXPECT_EQ(table_.probe(&model_, &sink_, &claim), BL_REFUSED);
  EXPECT_EQ(said_, "not mine");
  EXPECT_EQ(table_.probe(&model_, nullptr, &claim), BL_REFUSED);  // a deaf host is survived
}

TEST_F(PluginTest, EachKindOfExceptionBecomesItsStatusAndLeavesNoInstance) {
  const struct {
    Mode mode;
    bl_status status;
    const char* text;
  } cases[] = {{Mode::kRefuse, BL_REFUSED, "not mine"},
               {Mode::kNoMemory, BL_NO_MEMORY, "out of memory"},
               {Mode::kStd, BL_INTERNAL, "a bug"},
               {Mode::kOther, BL_INTERNAL, "an exception that is no std::exception"}};
  for (const auto& c : cases) {
    EXPECT_EQ(Create(c.mode), c.status);
    EXPECT_EQ(instance_, nullptr);
    EXPECT_EQ(said_status_, c.status);
    EXPECT_EQ(said_, c.text);
  }
}

TEST_F(PluginTest, DescribeRunsOnceAndGivesOnePointer) {
  ASSERT_EQ(Create(Mode::kGood), BL_OK);
  const bl_seat* first = nullptr;
  const bl_seat* second = nullptr;
  EXPECT_EQ(table_.describe(instance_, &first), BL_OK);
  EXPECT_EQ(table_.describe(instance_, &second), BL_OK);
  EXPECT_EQ(first, second);
  EXPECT_EQ(first->layers, 1u);
  table_.destroy(instance_);
}

TEST_F(PluginTest, AFailedDescribeSaysWhyAndLeavesNoSeat) {
  ASSERT_EQ(Create(Mode::kDescribe), BL_OK);
  const bl_seat* seat = nullptr;
  EXPECT_EQ(table_.describe(instance_, &seat), BL_BAD_DATA);
  EXPECT_EQ(seat, nullptr);
  EXPECT_EQ(said_, "the reason");
  mode = Mode::kGood;
  EXPECT_EQ(table_.describe(instance_, &seat), BL_OK);  // and may be asked again
  table_.destroy(instance_);
}

TEST_F(PluginTest, AFailedBuildSaysWhyThroughTheHost) {
  ASSERT_EQ(Create(Mode::kBuild), BL_OK);
  const bl_seat* seat = nullptr;
  ASSERT_EQ(table_.describe(instance_, &seat), BL_OK);
  const bl_builder builder{};
  const bl_build build{};
  EXPECT_EQ(seat->entries[0].build(instance_, &builder, &build), BL_BAD_DATA);
  EXPECT_EQ(said_, "the reason");
  table_.destroy(instance_);
}

TEST_F(PluginTest, AnEntryOfABaseClassIsRefusedAndNotCalled) {
  ASSERT_EQ(Create(Mode::kForeignEntry), BL_OK);
  const bl_seat* seat = nullptr;
  ASSERT_EQ(table_.describe(instance_, &seat), BL_OK);
  const bl_builder builder{};
  const bl_build build{};
  EXPECT_EQ(seat->entries[0].build(instance_, &builder, &build), BL_INTERNAL);
  EXPECT_THAT(said_, testing::HasSubstr("not a member of the plugin class itself"));
  table_.destroy(instance_);
}

}  // namespace
}  // namespace bloomery::sdk
