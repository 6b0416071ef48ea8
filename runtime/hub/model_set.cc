#include "runtime/hub/model_set.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <map>
#include <optional>
#include <set>

#include "runtime/base/error.h"

namespace bloomery::hub {
namespace {

constexpr std::string_view kExtension = ".gguf";
constexpr int kShardsMax = 1024;
// In a file's name: it goes with a model and is none.
constexpr std::array<std::string_view, 6> kBeside{"mmproj",  "imatrix", "mtp-",
                                                  "eagle3-", "dflash-", "dspark-"};

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

bool IsCandidate(const std::string& path) {
  const std::string lower = Lower(path);
  if (!lower.ends_with(kExtension)) return false;
  const std::string_view name = std::string_view(lower).substr(lower.rfind('/') + 1);
  return std::none_of(kBeside.begin(), kBeside.end(), [&](std::string_view word) {
    return name.find(word) != std::string_view::npos;
  });
}

std::optional<int> FiveDigits(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.size() != 5 || error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

struct Shard {
  std::string name;
  int index = 1;
  int count = 1;
  bool possible = true;
};

// "model-00002-of-00003.gguf"
Shard ShardOf(const std::string& path) {
  Shard shard{path.substr(0, path.size() - kExtension.size())};
  constexpr std::string_view kOf = "-of-";
  constexpr size_t kTail = 1 + 5 + kOf.size() + 5;
  if (shard.name.size() <= kTail) return shard;
  const std::string_view tail = std::string_view(shard.name).substr(shard.name.size() - kTail);
  const auto index = FiveDigits(tail.substr(1, 5));
  const auto count = FiveDigits(tail.substr(1 + 5 + kOf.size()));
  if (tail[0] != '-' || tail.substr(6, kOf.size()) != kOf || !index || !count) return shard;
  // A name that says it is a shard is one: where its numbers are none that there can be, its set
  // is never whole.
  shard.possible = *index >= 1 && *index <= *count && *count <= kShardsMax;
  shard.name.resize(shard.name.size() - kTail);
  shard.index = *index;
  shard.count = *count;
  return shard;
}

bool IsSeparator(char c) { return c == '.' || c == '-' || c == '/'; }

std::string SizeText(uint64_t bytes) {
  std::array<char, 32> text{};
  const double value = static_cast<double>(bytes);
  std::snprintf(text.data(), text.size(), value < 1e9 ? "%.1f MB" : "%.1f GB",
                value < 1e9 ? value / 1e6 : value / 1e9);
  return text.data();
}

[[noreturn]] void Refuse(const Reference& reference, const std::string& why,
                         std::span<const ModelSet> sets) {
  throw Error(ErrorKind::kDownload, reference.Text() + ": " + why + ":" + ListSets(sets),
              "bloomery pull " + reference.Repo() + ":QUANT");
}

}  // namespace

uint64_t ModelSet::Bytes() const {
  uint64_t sum = 0;
  for (const HubFile& file : files) {
    if (__builtin_add_overflow(sum, file.bytes, &sum)) {
      throw Error(ErrorKind::kDownload, name + ": the sizes listed are impossible");
    }
  }
  return sum;
}

std::vector<ModelSet> SetsOf(std::span<const HubFile> files) {
  std::map<std::pair<std::string, int>, std::map<int, HubFile>> groups;
  std::set<std::pair<std::string, int>> impossible;
  for (const HubFile& file : files) {
    if (!IsCandidate(file.path)) continue;
    const Shard shard = ShardOf(file.path);
    if (!shard.possible) impossible.insert({shard.name, shard.count});
    if (!groups[{shard.name, shard.count}].emplace(shard.index, file).second) {
      throw Error(ErrorKind::kDownload, file.path + ": this shard is listed twice");
    }
  }
  std::vector<ModelSet> sets;
  for (auto& [key, shards] : groups) {
    ModelSet set{.name = key.first, .shards = key.second};
    set.possible = !impossible.contains(key);
    for (auto& [index, file] : shards) set.files.push_back(std::move(file));
    sets.push_back(std::move(set));
  }
  return sets;
}

bool MatchesQuant(const ModelSet& set, std::string_view quant) {
  const std::string name = Lower(set.name);
  const std::string wanted = Lower(quant);
  for (size_t at = name.find(wanted); at != std::string::npos; at = name.find(wanted, at + 1)) {
    const size_t end = at + wanted.size();
    if ((at == 0 || IsSeparator(name[at - 1])) && (end == name.size() || IsSeparator(name[end]))) {
      return true;
    }
  }
  return false;
}

const ModelSet& PickSet(std::span<const ModelSet> sets, const Reference& reference,
                        const std::string& file) {
  if (sets.empty()) Refuse(reference, "there is no GGUF model in it", {});
  std::vector<ModelSet> found;
  const ModelSet* picked = nullptr;
  for (const ModelSet& set : sets) {
    const bool matches = file.empty()
                             ? reference.quant.empty() || MatchesQuant(set, reference.quant)
                             : std::any_of(set.files.begin(), set.files.end(),
                                           [&](const HubFile& f) { return f.path == file; });
    if (!matches) continue;
    found.push_back(set);
    picked = &set;
  }
  if (found.empty()) {
    Refuse(reference,
           file.empty() ? "nothing matches; there is" : "no file '" + file + "'; there is", sets);
  }
  if (found.size() > 1) {
    Refuse(reference, "say which one, with :QUANT or --hf-file FILE", found);
  }
  if (!picked->possible) {
    Refuse(reference,
           "its files are numbered as no set is: shards are 1 to N of N, N at most " +
               std::to_string(kShardsMax),
           found);
  }
  if (!picked->Complete()) {
    Refuse(reference,
           "of " + std::to_string(picked->shards) + " shards only " +
               std::to_string(picked->files.size()) + " are there",
           found);
  }
  return *picked;
}

std::string ListSets(std::span<const ModelSet> sets) {
  constexpr size_t kShownMax = 40;  // of a listing that may have a hundred thousand
  std::string text;
  for (const ModelSet& set : sets.first(std::min(sets.size(), kShownMax))) {
    text += "\n  " + set.files.front().path + "  " + SizeText(set.Bytes());
    if (set.shards > 1) text += " in " + std::to_string(set.shards) + " files";
  }
  if (sets.size() > kShownMax) {
    text += "\n  and " + std::to_string(sets.size() - kShownMax) + " more";
  }
  return text;
}

}  // namespace bloomery::hub
