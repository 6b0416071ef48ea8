// From a C++ class to the one symbol a plugin exports. No exception leaves: each becomes a status
// and a text for the host.
//
//   class Toy {
//    public:
//     // 1 … 100, or throws (sdk::Refuse) with the reason. Reads metadata only.
//     static int32_t Probe(const sdk::Model& model);
//     // Throws when the model cannot be served. The context lives as long as the object.
//     explicit Toy(const sdk::Context& context);
//     // Called once.
//     void Describe(sdk::Seat& seat);
//     // Optional: an extension of the plugin by id, or null.
//     static const void* GetExtension(std::string_view id);
//     const void* InstanceExtension(std::string_view id) const;  // where its models differ
//   };
//   BLOOMERY_PLUGIN(Toy, "toy", "0.1.0")
#pragma once

#include <bloomery/plugin.h>

#include <bloomery/errors.hpp>
#include <bloomery/model.hpp>
#include <bloomery/seat.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace bloomery::sdk {

// What the host lends an instance. Copies are views of the same host.
class Host {
 public:
  explicit Host(const bl_host* host) : host_(host) {}
  const bl_host& raw() const { return *host_; }

  void Log(bl_log_level level, const std::string& text) const {
    host_->log(host_->self, level, text.c_str());
  }
  void Progress(const std::string& what, uint64_t done, uint64_t total) const {
    host_->progress(host_->self, what.c_str(), done, total);
  }
  // A constant table of the host by versioned id, or null.
  const void* Extension(const std::string& id) const {
    return host_->get_extension(host_->self, id.c_str());
  }

  struct Free {
    const bl_host* host;
    void operator()(void* p) const { host->free(host->self, p); }
  };
  using Memory = std::unique_ptr<void, Free>;
  // Counted memory of the host; throws Failure(BL_NO_MEMORY) naming the bytes when the budget is
  // spent.
  Memory Alloc(uint64_t bytes, uint64_t align = 64) const {
    void* p = host_->alloc(host_->self, bytes, align);
    if (p == nullptr) {
      throw Failure(BL_NO_MEMORY, "the host gave no " + std::to_string(bytes) + " bytes");
    }
    return Memory(p, Free{host_});
  }

 private:
  const bl_host* host_;
};

struct Context {
  Host host;
  Model model;
  const bl_params* params;

  // The type that the user's flags chose for planes of this class, if any.
  std::optional<bl_dtype> PlaneType(bl_plane_class plane_class) const {
    for (uint32_t i = 0; i < params->n_plane_types; ++i) {
      if (params->plane_types[i].plane_class == plane_class) return params->plane_types[i].type;
    }
    return std::nullopt;
  }
};

// The five C functions over a plugin class.
template <class T>
class PluginCalls {
 public:
  static const void* GetExtension(const char* id) noexcept {
    if constexpr (requires { T::GetExtension(std::string_view()); }) {
      const void* table = nullptr;
      if (id != nullptr) Guard([&] { table = T::GetExtension(id); }, [](bl_status, const char*) {});
      return table;
    } else {
      return nullptr;
    }
  }

  static const void* InstanceExtension(bl_instance* raw, const char* id) noexcept {
    if constexpr (requires(const T& object) { object.InstanceExtension(std::string_view()); }) {
      const void* table = nullptr;
      const T& object = reinterpret_cast<Instance*>(raw)->object;
      if (id != nullptr) {
        Guard([&] { table = object.InstanceExtension(id); }, [](bl_status, const char*) {});
      }
      return table;
    } else {
      return nullptr;
    }
  }

  static bl_status Probe(const bl_model* model, const bl_sink* sink, bl_claim* out) noexcept {
    return Guard([&] { out->score = T::Probe(Model(model)); }, SinkSayer(sink));
  }

  static bl_status Create(const bl_host* host, const bl_model* model, const bl_params* params,
                          bl_instance** out) noexcept {
    *out = nullptr;
    return Guard(
        [&] {
          auto instance = std::make_unique<Instance>(Context{Host(host), Model(model), params});
          *out = reinterpret_cast<bl_instance*>(instance.release());
        },
        [&](bl_status status, const char* text) { Fail(host, status, text); });
  }

  static bl_status Describe(bl_instance* raw, const bl_seat** out) noexcept {
    auto* instance = reinterpret_cast<Instance*>(raw);
    *out = nullptr;
    return Guard(
        [&] {
          if (instance->described == nullptr) {
            auto seat = std::make_unique<Seat>();
            instance->object.Describe(*seat);
            instance->described = seat->Finish();
            instance->seat = std::move(seat);
          }
          *out = instance->described;
        },
        [&](bl_status status, const char* text) {
          Fail(&instance->context.host.raw(), status, text);
        });
  }

  static void Destroy(bl_instance* raw) noexcept { delete reinterpret_cast<Instance*>(raw); }

 private:
  // Opens with the head, which the seat's trampolines read.
  struct Instance {
    explicit Instance(const Context& given)
        : head{&kTypeTag<T>, &object, &given.host.raw(), FailUntyped},
          context(given),
          object(context) {}
    InstanceHead head;
    Context context;
    T object;
    std::unique_ptr<Seat> seat;
    const bl_seat* described = nullptr;
  };

  static void Fail(const bl_host* host, bl_status status, const char* text) {
    host->fail(host->self, status, text);
  }
  static void FailUntyped(const void* host, bl_status status, const char* text) {
    Fail(static_cast<const bl_host*>(host), status, text);
  }
};

// The constant table over a plugin class.
template <class T>
constexpr bl_plugin PluginTable(const char* name, const char* version) {
  using Calls = PluginCalls<T>;
  return {sizeof(bl_plugin),
          {BL_ABI_MAJOR, BL_ABI_MINOR},
          name,
          version,
          Calls::GetExtension,
          Calls::Probe,
          Calls::Create,
          Calls::Describe,
          Calls::Destroy,
          Calls::InstanceExtension};
}

}  // namespace bloomery::sdk

// Defines the exported symbol. Once a plugin, at namespace scope.
#define BLOOMERY_PLUGIN(Class, plugin_name, plugin_version)             \
  extern "C" {                                                          \
  extern BL_EXPORT const bl_plugin bloomery_plugin;                     \
  constinit const bl_plugin bloomery_plugin =                           \
      ::bloomery::sdk::PluginTable<Class>(plugin_name, plugin_version); \
  }
