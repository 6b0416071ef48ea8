// Every file that tests/data/malformed/make_corpus.py makes is refused with a message that names
// the path, the place and what is wrong there. The maker knows the byte offsets, the table below
// the words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/model/gguf.h"
#include "tests/support/refusal.h"

namespace bloomery::model {
namespace {

using test::Refusal;
using test::RefusalOf;
using testing::HasSubstr;

const std::string kCorpus = BLOOMERY_BINARY_DIR "/tests/malformed/";

struct Expectation {
  const char* name;
  const char* subject;  // what the message says is broken: a key, a tensor, an entry
  const char* problem;
  ErrorKind kind = ErrorKind::kBadModel;
};

constexpr char kKey[] = "metadata key 'some.key'";
constexpr char kArray[] = "metadata key 'some.array'";
constexpr char kAlignment[] = "metadata key 'general.alignment'";
constexpr char kTensor[] = "tensor 'a.tensor.with.a.name.of.forty.bytes.long'";
constexpr char kWeight[] = "tensor 'weight'";

const Expectation kExpectations[] = {
    {"empty", "header", "the magic number needs 4 bytes, but the file ends at byte 0"},
    {"magic_cut", "header", "the magic number needs 4 bytes"},
    {"magic_wrong", "header", "no GGUF file"},
    {"version_cut", "header", "the version needs 4 bytes"},
    {"version_0", "header", "GGUF version 0 is not read"},
    {"version_1", "header", "GGUF version 1 is not read"},
    {"version_4", "header", "GGUF version 4 is not read"},
    {"version_4294967295", "header", "GGUF version 4294967295 is not read"},
    {"big_endian_v1", "header", "big-endian"},
    {"big_endian_v2", "header", "big-endian"},
    {"big_endian_v3", "header", "big-endian"},
    {"tensor_count_cut", "header", "the number of tensors needs 8 bytes"},
    {"entry_count_cut", "header", "the number of metadata entries needs 8 bytes"},
    {"tensor_count_2_31", "header", "2147483648 tensors are announced"},
    {"tensor_count_2_63", "header", "9223372036854775808 tensors are announced"},
    {"tensor_count_max", "header", "room for at most 0"},
    {"entry_count_2_31", "header", "2147483648 metadata entries are announced"},
    {"entry_count_2_63", "header", "9223372036854775808 metadata entries are announced"},
    {"entry_count_max", "header", "room for at most 0"},
    {"entry_count_one_more", "metadata entry 1", "its key is empty"},

    {"key_length_cut", "metadata entry 1", "the length of its key needs 8 bytes"},
    {"key_cut", "metadata entry 0", "its key needs 20 bytes"},
    {"key_length_max", "metadata entry 0", "its key has 18446744073709551615 bytes"},
    {"key_too_long", "metadata entry 0", "its key has 65536 bytes, the limit is 65535"},
    {"key_empty", "metadata entry 0", "its key is empty"},
    {"key_not_utf8", "metadata entry 0", "'general.\xEF\xBF\xBD\xEF\xBF\xBD' is not valid UTF-8"},
    {"key_overlong_utf8", "metadata entry 0", "is not valid UTF-8"},
    {"key_twice", "metadata key 'same.key'", "the key is there twice"},
    {"kind_cut", kKey, "its value type needs 4 bytes"},
    {"kind_13", kKey, "its value type is 13"},
    {"kind_255", kKey, "its value type is 255"},
    {"kind_4294967295", kKey, "its value type is 4294967295"},
    {"value_cut", kKey, "its value needs 8 bytes"},
    {"value_missing", kKey, "its value needs 1 bytes"},
    {"bool_2", kKey, "a bool is stored as 2"},
    {"string_length_cut", kKey, "the string's length needs 8 bytes"},
    {"string_length_2_63", kKey, "the string needs 9223372036854775808 bytes"},
    {"string_length_max", kKey, "the string needs 18446744073709551615 bytes"},
    {"string_one_past_the_end", kKey, "the string needs 5 bytes"},

    {"array_kind_cut", kArray, "its element type needs 4 bytes"},
    {"array_kind_13", kArray, "its element type is 13"},
    {"array_of_arrays", kArray, "an array of arrays is not read"},
    {"array_of_arrays_deep", kArray, "an array of arrays is not read"},
    {"array_count_cut", kArray, "the array's length needs 8 bytes"},
    {"array_count_max", kArray, "an array of 18446744073709551615 u8 is announced"},
    {"array_count_2_61_times_8_wraps", kArray, "an array of 2305843009213693952 u64 is announced"},
    {"array_count_2_32_times_4_bytes", kArray, "an array of 4294967296 u32 is announced"},
    {"array_one_past_the_end", kArray, "only 16 more bytes"},
    {"array_bool_3", kArray, "a bool is stored as 3"},
    {"array_strings_count_2_61", kArray, "an array of 2305843009213693952 string is announced"},
    {"array_strings_count_too_large", kArray, "an array of 3 string is announced"},
    {"array_string_past_the_end", kArray, "string 1 needs 9 bytes"},
    {"array_string_length_wraps", kArray, "string 1 needs 18446744073709551608 bytes"},
    {"array_string_length_cut", kArray, "the length of string 1 needs 8 bytes"},

    {"alignment_0", kAlignment, "the alignment is 0"},
    {"alignment_4", kAlignment, "the alignment is 4"},
    {"alignment_24", kAlignment, "the alignment is 24"},
    {"alignment_33", kAlignment, "the alignment is 33"},
    {"alignment_4294967295", kAlignment, "the alignment is 4294967295"},
    {"alignment_u64", kAlignment, "it is u64, expected u32"},
    {"alignment_string", kAlignment, "it is string, expected u32"},
    {"alignment_2_31_leaves_no_data", kWeight, "go past the file's end"},

    {"tensor_count_one_more", "tensor entry 1", "its name is empty"},
    {"tensor_name_length_cut", "tensor entry 1", "the length of its name needs 8 bytes"},
    {"tensor_name_cut", "tensor entry 0", "its name needs 64 bytes"},
    {"tensor_name_length_max", "tensor entry 0", "its name has 18446744073709551615 bytes"},
    {"tensor_name_too_long", "tensor entry 0", "its name has 257 bytes, the limit is 256"},
    {"tensor_name_empty", "tensor entry 0", "its name is empty"},
    {"tensor_name_not_utf8", "tensor entry 0", "'bl\xEF\xBF\xBD' is not valid UTF-8"},
    {"tensor_name_twice", "tensor 'twice'", "the name is there twice, first at byte 24"},
    {"dims_cut", kTensor, "the number of its dimensions needs 4 bytes"},
    {"dims_0", kTensor, "it has 0 dimensions"},
    {"dims_5", kTensor, "it has 5 dimensions"},
    {"dims_4294967295", kTensor, "it has 4294967295 dimensions"},
    {"ne_cut", kTensor, "dimension 0 needs 8 bytes"},
    {"ne_0", kTensor, "dimension 1 is 0"},
    {"ne_product_wraps", kTensor, "the number of values passes 2^63"},
    {"ne_product_2_63", kTensor, "the number of values passes 2^63"},
    {"ne_max", kTensor, "dimension 0 is 18446744073709551615"},
    {"size_wraps", kTensor, "its size in bytes passes 2^64"},
    {"type_cut", kTensor, "its type needs 4 bytes"},
    {"type_4", kTensor, "its type 4 is not known"},
    {"type_9", kTensor,
     "its type 9 is not known; the file may be from a newer tool, known are F32, F16, Q4_0"},
    {"type_15", kTensor, "its type 15 is not known"},
    {"type_31", kTensor, "its type 31 is not known"},
    {"type_41", kTensor, "its type 41 is not known"},
    {"type_4294967295", kTensor, "its type 4294967295 is not known"},
    {"row_no_multiple_of_32", kTensor, "a row has 16 values, type Q4_0 needs a multiple of 32"},
    {"row_no_multiple_of_256", kTensor, "a row has 128 values, type Q4_K needs a multiple of 256"},
    {"offset_cut", kTensor, "its offset needs 8 bytes"},
    {"offset_1", kTensor, "its offset 1 is no multiple of the alignment 32"},
    {"offset_16", kTensor, "its offset 16 is no multiple of the alignment 32"},

    {"offset_past_the_end", kWeight, "64 bytes of data at offset 96 from byte 64"},
    {"offset_max", kWeight, "data at offset 18446744073709551584"},
    {"data_one_byte_short", kWeight, "go past the file's end at byte 127"},
    {"data_missing", kWeight, "go past the file's end"},
    {"data_larger_than_the_file", kWeight, "4398046511104 bytes of data"},
    {"data_of_second_short", "tensor 'two'", "data at offset 64"},
    {"overlap_whole", "tensor 'two'", "overlaps that of 'one'"},
    {"overlap_part", "tensor 'two'", "overlaps that of 'one'"},
    {"overlap_listed_backwards", "tensor 'two'", "overlaps that of 'one'"},

    {"split_second_missing", "set-00002-of-00003.gguf' is missing", "file 2 of the 3",
     ErrorKind::kNoInput},
    {"split_last_missing", "set-00003-of-00003.gguf' is missing", "file 3 of the 3",
     ErrorKind::kNoInput},
    {"split_not_the_first", "metadata key 'split.no'",
     "open the first one, named …-00001-of-00003"},
    {"split_name_without_numbers", "metadata key 'split.count'",
     "ending in '-00001-of-00003.gguf'"},
    {"split_name_of_another_count", "metadata key 'split.count'",
     "ending in '-00001-of-00003.gguf'"},
    {"split_second_is_a_copy_of_the_third", "metadata key 'split.no'", "it is 2, expected 1"},
    {"split_second_is_a_copy_of_the_first", "metadata key 'split.no'", "it is 0, expected 1"},
    {"split_counts_differ", "metadata key 'split.count'", "it is 4, expected 3"},
    {"split_tensor_counts_differ", "metadata key 'split.tensors.count'", "it is 9, expected 3"},
    {"split_of_another_model", "metadata key 'general.architecture'", "belongs to another set"},
    {"split_second_is_no_part", "metadata key 'split.no'", "is missing"},
    {"split_total_wrong", "metadata key 'split.tensors.count'", "holds 3 tensors, expected 4"},
    {"split_tensor_twice", "tensor 't0'", "the name is there twice"},
    {"split_second_cut", "tensor 't1'", "go past the file's end"},
    {"split_too_many_files", "metadata key 'split.count'", "2000 files, the limit is 1024"},
    {"split_count_is_a_string", "metadata key 'split.count'", "it is string, expected an integer"},
    {"split_no_missing", "metadata key 'split.no'", "is missing"},
};

struct Place {
  std::string path;
  std::string offset;  // "-" when the message has none
};

std::map<std::string, Place> Places() {
  std::map<std::string, Place> places;
  std::ifstream list(kCorpus + "places.txt");
  for (std::string line; std::getline(list, line);) {
    std::istringstream fields(line);
    std::string name;
    Place place;
    fields >> name >> place.path >> place.offset;
    places[name] = place;
  }
  return places;
}

void PrintTo(const Expectation& row, std::ostream* out) { *out << row.name; }

class Malformed : public testing::TestWithParam<Expectation> {};

TEST_P(Malformed, IsRefusedNamingPlaceAndProblem) {
  const Expectation& expected = GetParam();
  const auto places = Places();
  const auto found = places.find(expected.name);
  ASSERT_NE(found, places.end()) << "the maker makes no such file";
  const Place& place = found->second;
  const Refusal refusal = RefusalOf([&] { OpenGguf(RealFileSystem(), kCorpus + place.path); });
  EXPECT_EQ(refusal.kind, expected.kind);
  EXPECT_THAT(refusal.message, HasSubstr(kCorpus));
  EXPECT_THAT(refusal.message, HasSubstr(expected.subject));
  EXPECT_THAT(refusal.message, HasSubstr(expected.problem));
  if (place.offset != "-") {
    EXPECT_THAT(refusal.message, HasSubstr(" at byte " + place.offset + ":"));
  }
}

INSTANTIATE_TEST_SUITE_P(Corpus, Malformed, testing::ValuesIn(kExpectations),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(MalformedCorpus, EveryFileHasAnExpectationAndThereAreMany) {
  std::set<std::string> made, expected;
  for (const auto& [name, place] : Places()) made.insert(name);
  for (const Expectation& row : kExpectations) expected.insert(row.name);
  EXPECT_EQ(made, expected);
  EXPECT_GE(made.size(), 40u);
}

// Otherwise a case could be refused for a fault that all of the maker's files have.
TEST(MalformedCorpus, SoundFilesOfTheSameMakerOpen) {
  for (const char* name :
       {"header", "kinds", "tensors", "quantised", "aligned", "set-00001-of-00003"}) {
    EXPECT_NO_THROW(OpenGguf(RealFileSystem(), kCorpus + "sound/" + name + ".gguf")) << name;
  }
}

}  // namespace
}  // namespace bloomery::model
