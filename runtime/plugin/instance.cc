#include "runtime/plugin/instance.h"

#include "runtime/base/error.h"
#include "runtime/base/foreign_call.h"
#include "runtime/base/log.h"
#include "runtime/plugin/call.h"
#include "runtime/plugin/host_model.h"
#include "runtime/plugin/host_services.h"
#include "runtime/plugin/sized.h"

namespace bloomery::plugin {

struct Instance::Impl {
  // The order is that of life: the plugin's instance goes first, then what it was lent.
  Impl(const LoadedPlugin& loaded, const model::ModelFile& model, InstanceOptions given)
      : plugin(loaded),
        options(std::move(given)),
        host_model(model),
        host(loaded.name, options.host_bytes_max, options.parallel_for) {
    params.size = sizeof(params);
    params.n_slots = options.n_slots;
    params.n_ctx = options.n_ctx;
    params.rows_max = options.rows_max;
    params.draft_rows_max = options.draft_rows_max;
    params.plane_types = options.plane_types.data();
    params.n_plane_types = static_cast<uint32_t>(options.plane_types.size());
    params.features = options.features;
  }
  ~Impl() {
    if (instance != nullptr) {
      const ForeignCallNote note(plugin.path.c_str(), "destroy");
      plugin.table->destroy(instance);
    }
    if (host.bytes() > 0) {
      LOG(WARNING) << "plugin " << plugin.name << ": kept " << host.bytes()
                   << " bytes of the host after destroy; they are freed now";
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void Create() {
    bl_instance* made = nullptr;  // believed only where create succeeded
    Call("create",
         [&] { return plugin.table->create(&host.raw(), &host_model.raw(), &params, &made); });
    if (made == nullptr) Broken("create", "returned BL_OK without an instance");
    instance = made;
  }

  const bl_seat& Describe() {
    const bl_seat* seat = nullptr;
    Call("describe", [&] { return plugin.table->describe(instance, &seat); });
    if (seat == nullptr) Broken("describe", "returned BL_OK without a seat");
    return *seat;
  }

  template <class Function>
  void Call(const char* name, Function&& function) {
    CallPlugin(plugin.path, name, host.reason(), std::forward<Function>(function));
  }
  [[noreturn]] void Broken(const char* call, const char* problem) const {
    throw Error(ErrorKind::kInternal, "plugin " + plugin.path + ", " + call + ": " + problem);
  }

  LoadedPlugin plugin;
  InstanceOptions options;
  HostModel host_model;
  HostServices host;
  bl_params params{};
  bl_instance* instance = nullptr;
  Description description;
};

Instance::Instance(const LoadedPlugin& plugin, const model::ModelFile& model,
                   InstanceOptions options)
    : impl_(std::make_unique<Impl>(plugin, model, std::move(options))) {
  impl_->Create();
  const bl_seat& seat = impl_->Describe();
  // Its arrays are read, wherever they may point.
  const ForeignCallNote note(impl_->plugin.path.c_str(), "describe");
  impl_->description =
      CheckDescription(seat, impl_->plugin.name, model, impl_->options.plane_types);
}

Instance::~Instance() = default;

const LoadedPlugin& Instance::plugin() const { return impl_->plugin; }
const Description& Instance::description() const { return impl_->description; }

void Instance::Build(uint32_t entry, const bl_builder& builder, const bl_build& build) {
  const Entry& chosen = impl_->description.entries.at(entry);
  impl_->Call("build", [&] { return chosen.build(impl_->instance, &builder, &build); });
}

const void* Instance::Extension(const char* id) const {
  const bl_plugin table = CopySized(impl_->plugin.table, "bl_plugin");
  const ForeignCallNote note(impl_->plugin.path.c_str(), "get_extension");
  if (table.instance_extension != nullptr) {
    const void* own = table.instance_extension(impl_->instance, id);
    if (own != nullptr) return own;
  }
  return table.get_extension(id);
}

void Instance::SetTextExtension(const void* table) { impl_->host.SetTextExtension(table); }
uint64_t Instance::host_bytes() const { return impl_->host.bytes(); }
bl_instance* Instance::raw() const { return impl_->instance; }

}  // namespace bloomery::plugin
