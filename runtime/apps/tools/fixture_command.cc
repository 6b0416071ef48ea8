// bloomery fixture: a file of a real model's shapes with pseudo-random weights.
#include <charconv>
#include <iostream>

#include "runtime/apps/commands.h"
#include "runtime/apps/program.h"
#include "runtime/apps/tools/arguments.h"
#include "runtime/apps/tools/fixture.h"
#include "runtime/apps/tools/parallel.h"
#include "runtime/apps/tools/progress.h"
#include "runtime/apps/tools/seat_flags.h"
#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/memory/plan.h"
#include "runtime/model/gguf.h"

namespace bloomery::apps {
namespace {

// "experts=16".
void SetSize(FixtureRecipe& recipe, const std::string& text) {
  const size_t equals = text.find('=');
  uint64_t value = 0;
  if (equals != std::string::npos) {
    const char* end = text.data() + text.size();
    const auto [next, error] = std::from_chars(text.data() + equals + 1, end, value);
    if (error == std::errc() && next == end && value > 0) {
      return recipe.Set(text.substr(0, equals), value);
    }
  }
  throw Error(ErrorKind::kUsage,
              "--set " + Printable(text) + ": must be NAME=N with a whole number above 0");
}

}  // namespace

int FixtureCommand(const std::vector<std::string>& argv) {
  std::string out, tokenizer, type = "Q4_K_M";
  std::vector<std::string> plugin_dirs, sizes;
  std::string even;
  int64_t layers = 4, vocabulary = 4096, seed = 1, threads = 0;
  FixtureOptions options;
  Arguments arguments(
      "bloomery fixture",
      "Writes a GGUF file of a real model's shapes, names and types with pseudo-random\n"
      "weights, by the recipe that the architecture's plugin ships.");
  arguments.Positional("OUT", "the file to write", &out)
      .Required()
      .Text({"--arch"}, "NAME", "the architecture", &options.architecture)
      .Required()
      .Number({"--layers"}, "N", "layers", 1, 4096, &layers)
      .Text({"--type"}, "TYPE", "as of bloomery quantize", &type)
      .Real({"--locality"}, "P", "share of expert picks that follow a token's topic", 0, 1,
            &options.locality)
      .Real({"--persistence"}, "Q", "share of greedy steps that stay with a token's topic", 0, 1,
            &options.persistence)
      .Switch({"--even"}, "routers use all experts alike: layers add next to nothing to a row",
              "yes", &even)
      .Number({"--vocab"}, "N", "tokens; what the tokenizer lacks is padding", 1, 1 << 20,
              &vocabulary)
      .Number({"--seed"}, "N", "another number, other weights", 0, INT64_MAX, &seed)
      .Texts({"--set"}, "NAME=N", "another size of the recipe; may be repeated", &sizes)
      .Text({"--tokenizer"}, "FILE", "GGUF file to take the tokenizer of; the demo model's",
            &tokenizer)
      .Texts({"--plugin-dir"}, "DIR", "where plugins are looked for first; may be repeated",
             &plugin_dirs)
      .Number({"-t", "--threads"}, "N", "threads; 0: one a physical core", 0, 1024, &threads);
  if (!arguments.Parse(argv)) return kExitOk;
  const model::QuantMix& mix = model::GetQuantMix(type);
  FixtureRecipe recipe = FindRecipe(DiscoverPlugins(plugin_dirs), options.architecture);
  for (const std::string& size : sizes) SetSize(recipe, size);
  recipe.Set("layers", static_cast<uint64_t>(layers));
  recipe.Set("vocabulary", static_cast<uint64_t>(vocabulary));
  if (tokenizer.empty()) tokenizer = DemoModelPath(ExecutablePath());
  const model::ModelFile vocabulary_file = model::OpenGguf(RealFileSystem(), tokenizer);
  options.seed = static_cast<uint64_t>(seed);
  options.threads = ThreadsOf(threads);
  options.even = !even.empty();
  {
    Progress progress("fixture");
    WriteFixture(out, recipe, mix, vocabulary_file.metadata(), options,
                 [&](uint64_t done, uint64_t all) { progress.Show(done, all); });
  }
  std::cout << Printable(out) << ": "
            << memory::FormatBytes(model::OpenGguf(RealFileSystem(), out).tensor_bytes())
            << std::endl;
  if (options.locality > 0) {
    std::cout << "locality " << options.locality << ": of a row's picks follow its token's topic; "
              << "persistence " << options.persistence << ": of greedy steps stay with the topic"
              << std::endl;
  }
  return kExitOk;
}

}  // namespace bloomery::apps
