// usage: run_seat PLUGIN_FOLDER MODEL: finds a plugin for the model in that folder alone, runs a
// short prompt, and prints the plugin's name on stderr and the bits of every logit on stdout.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

#include "runtime/base/foreign_call.h"
#include "runtime/exec/seat.h"
#include "runtime/exec/trial_build.h"
#include "runtime/model/gguf.h"
#include "runtime/plugin/select.h"

namespace {

void Run(const char* folder, const char* path) {
  using namespace bloomery;
  const model::ModelFile model = model::OpenGguf(RealFileSystem(), path);
  const std::vector<plugin::SearchFolder> folders = {{folder, "command line"}};
  const plugin::TrialOptions trial = {.build = exec::BuildForTrial};
  const plugin::Selection chosen = plugin::Select(model, plugin::Discover(folders), &trial);
  std::fprintf(stderr, "%s %s\n", chosen.plugin.name.c_str(), chosen.plugin.version.c_str());
  const exec::SeatOptions options{.slot_context = 128,
                                  .rows_max = 8,
                                  .threads = 1,
                                  .pin = false,
                                  .k_type = BL_F32,
                                  .v_type = BL_F32};
  plugin::Instance instance(chosen.plugin, model, exec::InstanceOptionsOf(options));
  const auto seat = exec::LoadSeat(model, instance, options);
  std::vector<exec::PassRow> rows;
  for (int32_t i = 0; i < 7; ++i) rows.push_back({0, i, 3 + i, true});
  seat->Run(rows);
  for (int32_t i = 0; i < 7; ++i) {
    for (const float logit : seat->Logits(i)) {
      uint32_t bits = 0;
      std::memcpy(&bits, &logit, sizeof(bits));
      std::printf("%08x\n", bits);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  bloomery::TellHowProcessEnds("run_seat");
  try {
    Run(argv[1], argv[2]);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
