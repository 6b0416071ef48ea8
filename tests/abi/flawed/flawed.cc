// The fake plugin with one thing broken, chosen by FLAW: check-plugin must fail each, in the test
// that is about it. FLAW is the name of one of the cases below.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/abi/fake/fake.h"

extern "C" const char* const flawed_flaw;

namespace bloomery::test {
namespace {

using Calls = sdk::PluginCalls<Fake>;

bool Is(std::string_view flaw) { return flaw == flawed_flaw; }

bl_status Probe(const bl_model* model, const bl_sink* sink, bl_claim* out) {
  if (Is("throws")) throw 7;
  if (Is("crashes")) std::raise(SIGSEGV);
  if (Is("hangs")) {
    while (true) ::usleep(1000);
  }
  if (Is("exits")) std::exit(0);
  if (Is("prints")) {
    std::puts("probing");
    std::fflush(stdout);
  }
  if (Is("claims_all")) {
    out->score = 50;
    return BL_OK;
  }
  if (Is("silent")) {
    static constexpr bl_sink kDeaf = {sizeof(bl_sink), 0, nullptr, nullptr};
    return Calls::Probe(model, &kDeaf, out);
  }
  return Calls::Probe(model, sink, out);
}

bl_status Create(const bl_host* host, const bl_model* model, const bl_params* params,
                 bl_instance** out) {
  if (Is("hoards")) host->alloc(host->self, 100, 64);  // and never frees it
  const bl_status status = Calls::Create(host, model, params, out);
  // Leaves something behind on failure.
  if (Is("half_made") && status != BL_OK)
    *out = reinterpret_cast<bl_instance*>(const_cast<bl_host*>(host));
  return status;
}

bl_status BuildDeaf(bl_instance*, const bl_builder* builder, const bl_build*) {
  bl_value tokens = 0;
  builder->input(builder->self, BL_FIELD_TOKEN, &tokens);
  return BL_OK;
}
bl_status (*sound_build)(bl_instance*, const bl_builder*, const bl_build*) = nullptr;
bl_status BuildFickle(bl_instance* instance, const bl_builder* builder, const bl_build* build) {
  static int calls = 0;
  if (calls++ % 2 == 1) builder->layer(builder->self, -1);
  return sound_build(instance, builder, build);
}

// Copies of a description, changed; one for each flaw that is about it. State of the process, which
// a plugin must not have: that is the point of some.
bl_status Describe(bl_instance* instance, const bl_seat** out) {
  const bl_status status = Calls::Describe(instance, out);
  if (status != BL_OK) return status;
  static bl_seat seats[2];
  static std::vector<bl_weight> weights;
  static bl_op op;
  static bl_kernel kernel;
  static bl_entry entry;
  static int calls = 0;
  bl_seat& seat = seats[Is("restless") ? calls++ % 2 : 0];
  seat = **out;
  if (Is("wrong_size")) {
    weights.assign(seat.weights, seat.weights + seat.n_weights);
    for (bl_weight& w : weights) w.size = 8;
    seat.weights = weights.data();
  }
  if (Is("deaf_build") || Is("fickle_build")) {
    entry = *seat.entries;
    sound_build = entry.build;
    entry.build = Is("deaf_build") ? BuildDeaf : BuildFickle;
    seat.entries = &entry;
  }
  op = *seat.ops;
  kernel = *op.kernels;
  op.kernels = &kernel;
  seat.ops = &op;
  if (Is("foreign_operator")) op.name = kernel.op = "linear.scale";
  if (Is("spills")) {
    kernel.run = [](const bl_args* args, int32_t row) -> bl_status {
      static_cast<float*>(args->out->data)[args->out->ne[0] * args->out->ne[1]] = 1.0f;
      return sdk::CpuKernelCalls<ScaleKernel>::Run(args, row);
    };
  }
  if (Is("mixes_rows")) {
    kernel.run = [](const bl_args* args, int32_t row) -> bl_status {
      const bl_status done = sdk::CpuKernelCalls<ScaleKernel>::Run(args, row);
      sdk::Args(args).Out(0).Row<float>(row)[0] += static_cast<float>(*args->rows->live);
      return done;
    };
  }
  *out = &seat;
  return BL_OK;
}

const void* Extension(const char* id) {
  return Is("obliging") ? &kFakeChat : Calls::GetExtension(id);
}

}  // namespace
}  // namespace bloomery::test

// The functions of the table in table.c.
extern "C" {
const void* flawed_get_extension(const char* id) { return bloomery::test::Extension(id); }
bl_status flawed_probe(const bl_model* model, const bl_sink* sink, bl_claim* out) {
  return bloomery::test::Probe(model, sink, out);
}
bl_status flawed_create(const bl_host* host, const bl_model* model, const bl_params* params,
                        bl_instance** out) {
  return bloomery::test::Create(host, model, params, out);
}
bl_status flawed_describe(bl_instance* instance, const bl_seat** out) {
  return bloomery::test::Describe(instance, out);
}
void flawed_destroy(bl_instance* instance) { bloomery::test::Calls::Destroy(instance); }
}
