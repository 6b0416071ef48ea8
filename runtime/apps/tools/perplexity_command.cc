// bloomery perplexity: mean negative log likelihood of ids or a text, and the divergence from saved
// predictions.
#include <cstdio>
#include <iostream>
#include <optional>

#include "runtime/apps/commands.h"
#include "runtime/apps/folder/folder_model.h"
#include "runtime/apps/program.h"
#include "runtime/apps/tools/arguments.h"
#include "runtime/apps/tools/perplexity.h"
#include "runtime/apps/tools/progress.h"
#include "runtime/apps/tools/seat_flags.h"
#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/text/tokenizer.h"

namespace bloomery::apps {
namespace {

struct PerplexityFlags {
  SeatFlags seat;
  std::string ids;
  std::string tensor = "eval.ids";
  std::string file;
  std::string base;
  std::string base_out;
  int64_t context = 512;
  int64_t threads = 0;
};

IdRows ReadRows(const PerplexityFlags& flags) {
  if (flags.ids.empty() == flags.file.empty()) {
    throw Error(ErrorKind::kUsage, "give one of --ids and --file");
  }
  if (!flags.ids.empty()) {
    return ReadIdRows(model::SafetensorsFile(RealFileSystem(), flags.ids), flags.tensor);
  }
  const std::string text = ReadWholeFile(RealFileSystem(), flags.file, limits::kTokeniseBytesMax);
  const model::ModelFile model =
      OpenModelAt(ModelPathOf(flags.seat), DiscoverPlugins(flags.seat.plugin_dirs));
  const text::Tokenizer tokenizer(text::ReadVocabulary(model.metadata()));
  return CutIdRows(tokenizer.Tokenise(text, {.add_special = true}),
                   static_cast<size_t>(flags.context));
}

void Print(const char* name, double value) { std::printf("%s %.9g\n", name, value); }

int Measure(const PerplexityFlags& flags) {
  const IdRows rows = ReadRows(flags);
  const LoadedSeat loaded =
      LoadSeatOf(flags.seat, static_cast<int32_t>(flags.threads), static_cast<int64_t>(rows.width));
  const auto vocabulary = static_cast<size_t>(loaded.seat->limits().vocabulary);
  std::optional<BaseWriter> writer;
  std::optional<BaseComparison> comparison;
  std::vector<PredictionSink*> sinks;
  if (!flags.base_out.empty()) sinks.push_back(&writer.emplace(flags.base_out, rows, vocabulary));
  if (!flags.base.empty()) sinks.push_back(&comparison.emplace(flags.base, rows, vocabulary));

  PerplexityResult result;
  {
    Progress progress("perplexity");
    result = RunPerplexity(*loaded.seat, rows, sinks,
                           [&](size_t done, size_t all) { progress.Show(done, all); });
  }
  if (writer) writer->Finish();
  for (size_t i = 0; i < result.row_nll.size(); ++i) {
    Print(("row_" + std::to_string(i) + "_nll").c_str(), result.row_nll[i]);
  }
  Print("mean_nll", result.mean_nll);
  Print("ppl", result.perplexity);
  if (comparison) {
    Print("mean_kl", comparison->mean());
    Print("max_kl", comparison->largest());
    Print("same_first", comparison->same_first());
  }
  return kExitOk;
}

}  // namespace

int PerplexityCommand(const std::vector<std::string>& argv) {
  PerplexityFlags flags;
  Arguments arguments("bloomery perplexity",
                      "Scores ids: the mean negative natural log likelihood of each id after those "
                      "before it in its\n"
                      "row, ppl = exp of it, and with --base the Kullback-Leibler divergence from "
                      "saved predictions.");
  AddSeatFlags(arguments, flags.seat);
  arguments.Text({"--ids"}, "FILE", "safetensors file with rows of ids", &flags.ids)
      .Text({"--tensor"}, "NAME", "the tensor in it, i32 [rows, width]", &flags.tensor)
      .Text({"--file"}, "FILE", "text, cut into rows of -c ids; control tokens stay text",
            &flags.file)
      .Number({"-c", "--ctx-size"}, "N", "ids of a row of --file", 2, 1 << 24, &flags.context)
      .Number({"-t", "--threads"}, "N", "threads; 0: one a physical core", 0, 1024, &flags.threads)
      .Text({"--base-out"}, "FILE",
            "saves the predictions: 4 bytes an id of the vocabulary and row", &flags.base_out)
      .Text({"--base"}, "FILE", "saved predictions to compare with", &flags.base);
  return arguments.Parse(argv) ? Measure(flags) : static_cast<int>(kExitOk);
}

}  // namespace bloomery::apps
