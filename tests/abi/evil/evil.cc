// The fake plugin turned evil: $EVIL, "<deed>_in_<call>", says what it does and where; without it,
// it is sound. It reads the environment, which no plugin may: one binary stands for all its deeds.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "tests/abi/fake/fake.h"

namespace bloomery::test {
namespace {

using Calls = sdk::PluginCalls<Fake>;

std::string_view Deed() {
  const char* deed = std::getenv("EVIL");
  return deed == nullptr ? "" : deed;
}

// Does the deed where `call` is its place. `out`: where the call answers, `bytes` long.
void Reach(std::string_view call, void* out = nullptr, size_t bytes = 0) {
  const std::string_view deed = Deed();
  const size_t in = deed.find("_in_");
  if (in == std::string_view::npos || deed.substr(in + 4) != call) return;
  const std::string_view what = deed.substr(0, in);
  if (what == "crash") std::raise(SIGSEGV);
  if (what == "abort") std::abort();
  if (what == "realtime") std::raise(SIGRTMIN);
  if (what == "exit") std::exit(0);
  if (what == "throw") throw 7;
  if (what == "closehang") {
    for (int fd = 0; fd < 256; ++fd) ::close(fd);
  }
  if (what == "hang" || what == "closehang") {
    while (true) ::usleep(1000);
  }
  if (what == "overwrite" && out != nullptr) std::memset(out, 0x41, bytes + 65536);
}

__attribute__((constructor)) void AtLoad() { Reach("load"); }

bl_status Build(bl_instance* instance, const bl_builder* builder, const bl_build* build);
bl_status BuildDraft(bl_instance* instance, const bl_builder* builder, const bl_build* build);
bl_status Run(const bl_args* args, int32_t row);

// The sound description with one entry and one kernel put before the sound ones; where drafts are
// asked for, the main entry is their step, too.
struct Spoilt {
  bl_seat seat;
  bl_entry entries[2];
  bl_entry sound_entry;
  bl_kernel kernel;
  bl_op ops[2];
  bl_weight weight;
  bool drafts;
};
Spoilt& TheSpoilt() {
  static Spoilt spoilt;
  return spoilt;
}

bl_status Probe(const bl_model* model, const bl_sink* sink, bl_claim* out) {
  Reach("probe", out, sizeof(*out));
  return Calls::Probe(model, sink, out);
}

bl_status Create(const bl_host* host, const bl_model* model, const bl_params* params,
                 bl_instance** out) {
  Reach("create", out, sizeof(*out));
  TheSpoilt().drafts = (params->features & BL_FEATURE_DRAFT) != 0;
  return Calls::Create(host, model, params, out);
}

bl_status Build(bl_instance* instance, const bl_builder* builder, const bl_build* build) {
  Reach("build");
  return TheSpoilt().sound_entry.build(instance, builder, build);
}

bl_status BuildDraft(bl_instance* instance, const bl_builder* builder, const bl_build* build) {
  Reach("draft_build");
  return TheSpoilt().sound_entry.build(instance, builder, build);
}

bl_status Run(const bl_args* args, int32_t row) {
  if (Deed() == "fail_in_run") return BL_DEVICE;
  Reach("run");
  return sdk::CpuKernelCalls<ScaleKernel>::Run(args, row);
}

bl_status Describe(bl_instance* instance, const bl_seat** out) {
  Reach("describe", out, sizeof(*out));
  const bl_seat* sound = nullptr;
  const bl_status status = Calls::Describe(instance, &sound);
  if (status != BL_OK) return status;
  Spoilt& spoilt = TheSpoilt();
  spoilt.seat = *sound;
  spoilt.sound_entry = *sound->entries;
  for (bl_entry& entry : spoilt.entries) entry = spoilt.sound_entry;
  spoilt.entries[0].build = Build;
  spoilt.seat.entries = spoilt.entries;
  if (spoilt.drafts) {
    Reach("draft_describe");
    spoilt.entries[1].name = "draft";
    spoilt.entries[1].kind = BL_ENTRY_DRAFT_STEP;
    spoilt.entries[1].build = BuildDraft;
    spoilt.seat.n_entries = 2;
  }
  spoilt.ops[0] = sound->ops[0];
  spoilt.ops[1] = sound->ops[1];
  spoilt.kernel = *sound->ops[0].kernels;
  spoilt.kernel.run = Run;
  spoilt.ops[0].kernels = &spoilt.kernel;
  spoilt.seat.ops = spoilt.ops;
  if (Deed() == "small_size_in_seat") spoilt.seat.size = 4;
  if (Deed() == "huge_size_in_seat") spoilt.seat.size = 1U << 30;
  if (Deed() == "wrong_size_in_weights") {
    spoilt.weight = *sound->weights;
    spoilt.weight.size = 12;
    spoilt.seat.weights = &spoilt.weight;
  }
  if (Deed() == "huge_count_in_seat") spoilt.seat.n_weights = UINT32_MAX;
  if (Deed() == "wild_pointer_in_seat") {
    spoilt.seat.weights = reinterpret_cast<const bl_weight*>(uintptr_t{64});
  }
  *out = &spoilt.seat;
  return BL_OK;
}

void Destroy(bl_instance* instance) {
  Reach("destroy");
  Calls::Destroy(instance);
}

}  // namespace
}  // namespace bloomery::test

extern "C" {
extern BL_EXPORT const bl_plugin bloomery_plugin;
const bl_plugin bloomery_plugin = {sizeof(bl_plugin),
                                   {BL_ABI_MAJOR, BL_ABI_MINOR},
                                   "fake",
                                   "0.1.0",
                                   bloomery::test::Calls::GetExtension,
                                   bloomery::test::Probe,
                                   bloomery::test::Create,
                                   bloomery::test::Describe,
                                   bloomery::test::Destroy,
                                   nullptr};
}
