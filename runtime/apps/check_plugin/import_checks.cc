// What a plugin's calls take of the C library: memory that grows comes from the host, nothing looks
// outside of the process, and kernels neither allocate nor lock (kernel_checks.cc).
#include "runtime/apps/check_plugin/built_seat.h"
#include "runtime/apps/check_plugin/import_watch.h"

namespace bloomery::apps::check {
namespace {

// Small objects may come from the C library (sdk plugin.h).
constexpr uint64_t kBlockBytesMax = 1u << 20;
constexpr int64_t kHeldBytesMax = 16 << 20;

// Create, describe and builds of one instance, which lives on while `look` is called.
void UseOnce(const Subject& subject, ImportWatch& watch,
             const std::function<void(const ImportCounts&)>& look) {
  const plugin::LoadedPlugin plugin = plugin::LoadPlugin(subject.path);
  const model::ModelFile model = OpenModel(subject);
  const plugin::HostModel host_model(model);
  watch.Reset();
  bl_claim claim{};
  AskProbe(plugin, host_model.raw(), claim);
  BuiltSeat seat(subject, OpenModel(subject));
  for (const int32_t rows : {1, 7, 512}) seat.BuildGraph(rows);
  look(watch.counts());
}

ImportWatch Watch(const Subject& subject) {
  plugin::LoadPlugin(subject.path);
  return ImportWatch(subject.path);
}

void MemoryThatGrowsIsTheHosts(const Subject& subject) {
  ImportWatch watch = Watch(subject);
  UseOnce(subject, watch, [](const ImportCounts& counts) {
    Expect(counts.largest_bytes < kBlockBytesMax,
           "takes " + std::to_string(counts.largest_bytes) +
               " bytes at once from the C library; blocks of 1 MiB and more come from "
               "bl_host.alloc, which counts them");
    Expect(counts.held_bytes <= kHeldBytesMax,
           "an instance holds " + std::to_string(counts.held_bytes) +
               " bytes of the C library's, more than 16 MiB; take them from bl_host.alloc");
    Expect(counts.maps == 0, "maps memory; take it from bl_host.alloc");
  });
}

void NothingOutsideIsTouched(const Subject& subject) {
  ImportWatch watch = Watch(subject);
  UseOnce(subject, watch, [](const ImportCounts& counts) {
    Expect(counts.outside.empty(), "a call of the plugin's went to " + counts.outside +
                                       ": files, environment, threads and processes are the "
                                       "host's");
  });
}

}  // namespace

std::vector<Check> ImportChecks() {
  return {{"memory.what_grows_is_the_hosts", true, MemoryThatGrowsIsTheHosts},
          {"calls.touch_nothing_outside", true, NothingOutsideIsTouched}};
}

}  // namespace bloomery::apps::check
