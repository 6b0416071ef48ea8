#include "runtime/apps/tools/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/refusal.h"

namespace bloomery::apps {
namespace {

using test::RefusalOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct Parsed {
  std::string file, in, out;
  std::vector<std::string> dirs;
  std::vector<int64_t> sizes{1};
  int64_t count = 3;
  double share = 0;
  std::string mode = "auto";
};

Parsed Parse(const std::vector<std::string>& argv) {
  Parsed p;
  Arguments arguments("tool", "About.");
  arguments.Text({"-f", "--file"}, "FILE", "a file", &p.file)
      .Texts({"--dir"}, "DIR", "folders", &p.dirs)
      .Numbers({"-n"}, "N", "sizes", 0, 100, &p.sizes)
      .Number({"-c"}, "N", "count", 1, 10, &p.count)
      .Real({"-s"}, "P", "share", 0, 1, &p.share)
      .Switch({"--quick"}, "as mode quick", "quick", &p.mode)
      .Positional("IN", "input", &p.in)
      .Required()
      .Positional("OUT", "output", &p.out);
  arguments.Parse(argv);
  return p;
}

std::string Refused(const std::vector<std::string>& argv) {
  const auto refusal = RefusalOf([&] { Parse(argv); });
  EXPECT_EQ(refusal.kind, ErrorKind::kUsage);
  return refusal.message;
}

TEST(Arguments, OptionsAndPositionalsMix) {
  const Parsed p = Parse(
      {"a", "--file", "x", "--dir", "1", "-n", "4,5", "b", "--dir", "2", "-c", "10", "-s", "0.5"});
  EXPECT_EQ(p.in, "a");
  EXPECT_EQ(p.out, "b");
  EXPECT_EQ(p.file, "x");
  EXPECT_THAT(p.dirs, ElementsAre("1", "2"));
  EXPECT_THAT(p.sizes, ElementsAre(4, 5));
  EXPECT_EQ(p.count, 10);
  EXPECT_EQ(p.share, 0.5);
}

TEST(Arguments, ASwitchTakesNoValue) {
  EXPECT_EQ(Parse({"a"}).mode, "auto");
  const Parsed p = Parse({"--quick", "a", "b"});
  EXPECT_EQ(p.mode, "quick");
  EXPECT_EQ(p.in, "a");
  EXPECT_EQ(p.out, "b");
  EXPECT_EQ(Parse({"a", "--quick"}).mode, "quick");
}

TEST(Arguments, WrongOnesAreRefusedByName) {
  EXPECT_THAT(Refused({}), HasSubstr("IN: must be given"));
  EXPECT_THAT(Refused({"a", "--fil", "x"}), HasSubstr("'--fil'"));
  EXPECT_THAT(Refused({"a", "-f"}), HasSubstr("-f: a value is missing"));
  EXPECT_THAT(Refused({"a", "b", "c"}), HasSubstr("'c': one argument too many"));
  EXPECT_THAT(Refused({"a", "-c", "11"}), HasSubstr("-c 11: must be a number from 1 to 10"));
  EXPECT_THAT(Refused({"a", "-c", "0"}), HasSubstr("-c 0"));
  EXPECT_THAT(Refused({"a", "-c", "2x"}), HasSubstr("-c 2x"));
  EXPECT_THAT(Refused({"a", "-n", "1,,2"}), HasSubstr("-n"));
  EXPECT_THAT(Refused({"a", "-n", "1,101"}), HasSubstr("-n 101"));
  EXPECT_THAT(Refused({"a", "-s", "nan"}), HasSubstr("-s nan"));
}

}  // namespace
}  // namespace bloomery::apps
