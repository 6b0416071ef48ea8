// Each kernel of a plugin's own operators, run on the shapes its graphs give it: inside guarded
// memory, at odd row counts, with its pieces in any order, and row by row.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "runtime/apps/check_plugin/built_seat.h"
#include "runtime/apps/check_plugin/import_watch.h"

namespace bloomery::apps::check {
namespace {

constexpr int32_t kCapacity = 7;  // odd, and no bucket
constexpr int32_t kLiveCounts[] = {1, 2, 5, 7};
constexpr size_t kAlign = 64;  // of the host's buffers
constexpr unsigned char kCanary = 0xa5;

// Memory that ends at a page nobody may touch; the few bytes between its end and that page hold
// canaries, and so do those before it.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t bytes) : bytes_(bytes) {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const size_t body = (bytes + kAlign - 1) / kAlign * kAlign + kAlign;
    const size_t pages = (body + page - 1) / page * page;
    mapped_ = pages + page;
    void* p = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw Error(ErrorKind::kNoMemory, "no memory for a test buffer");
    base_ = static_cast<unsigned char*>(p);
    ::mprotect(base_ + pages, page, PROT_NONE);
    std::memset(base_, kCanary, pages);
    end_ = base_ + pages;
    data_ = end_ - (body - kAlign);
  }
  ~GuardedBuffer() { ::munmap(base_, mapped_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  unsigned char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  bool intact() const {
    const auto untouched = [](unsigned char c) { return c == kCanary; };
    return std::all_of(base_, data_, untouched) && std::all_of(data_ + bytes_, end_, untouched);
  }

 private:
  size_t bytes_;
  size_t mapped_ = 0;
  unsigned char* base_ = nullptr;
  unsigned char* data_ = nullptr;
  unsigned char* end_ = nullptr;
};

// One node of the plugin's own with one kernel, and buffers for a call.
class KernelRun {
 public:
  KernelRun(const graph::Graph& graph, const graph::Node& node, const plugin::Kernel& kernel)
      : kernel_(kernel), name_(graph::OperatorName(*node.op)), attrs_(node.attrs) {
    for (const graph::ValueId id : node.inputs) {
      if (id == 0) {
        in_.push_back(Absent());
        continue;
      }
      in_.push_back(Make(graph.value(id).shape));
      FillInput(in_.back(), in_.size());
    }
    for (const graph::ValueId id : node.outputs) out_.push_back(Make(graph.value(id).shape));
    args_.size = sizeof(args_);
    args_.in = in_.data();
    args_.n_in = static_cast<uint32_t>(in_.size());
    args_.out = out_.data();
    args_.n_out = static_cast<uint32_t>(out_.size());
    args_.attrs = attrs_.view().data();
    args_.n_attrs = static_cast<uint32_t>(attrs_.view().size());
    device_.size = sizeof(device_);
    device_.kind = BL_DEVICE_CPU;
    args_.device = &device_;
    MakeRows();
    MakeWorkspace();
  }

  const std::string& name() const { return name_; }
  // Equal for runs of one operator on equal inputs.
  std::string signature() const {
    std::string text = name_;
    for (const bl_attr& attr : attrs_.view()) {
      text += std::string(" ") + attr.key;
      const auto* bytes = static_cast<const char*>(attr.value);
      if (attr.type == BL_ATTR_I64 || attr.type == BL_ATTR_F64) text.append(bytes, attr.count * 8);
    }
    for (const bl_tensor& in : in_) {
      for (const int64_t n : in.ne) text += " " + std::to_string(n);
    }
    return text;
  }
  bool supported() const { return kernel_.supports == nullptr || kernel_.supports(&args_) != 0; }

  // The bytes of all outputs after a run of `live` rows; the pieces in the order of the mode.
  enum class Order { kUp, kDown };
  std::string Run(int32_t live, Order order) {
    live_ = live;
    for (const bl_tensor& out : out_) {
      std::memset(out.data, kCanary, static_cast<size_t>(out.nb[out.ndim - 1]) * kCapacity);
    }
    const int32_t n = kernel_.tasks(&args_);
    Expect(n >= 0, name_ + ": tasks gave " + std::to_string(n));
    for (int32_t i = 0; i < n; ++i) {
      const int32_t task = order == Order::kUp ? i : n - 1 - i;
      const bl_status status = kernel_.run(&args_, task);
      Expect(status == BL_OK, name_ + ": run of piece " + std::to_string(task) + " returned " +
                                  std::to_string(status));
    }
    for (const auto& buffer : buffers_) {
      Expect(buffer.intact(), name_ + ": wrote outside its buffers with " + std::to_string(live) +
                                  " of " + std::to_string(kCapacity) + " rows");
    }
    std::string bytes;
    for (const bl_tensor& out : out_) {
      bytes.append(static_cast<const char*>(out.data),
                   static_cast<size_t>(out.nb[out.ndim - 1]) * kCapacity);
    }
    return bytes;
  }
  // Shows the kernel row `row` of the inputs as its row 0.
  std::string RunAlone(int32_t row) {
    const std::vector<bl_tensor> saved = in_;
    for (bl_tensor& in : in_) {
      if (in.data == nullptr) continue;
      in.data = static_cast<char*>(in.data) + in.nb[in.ndim - 1] * row;
    }
    std::string bytes = Run(1, Order::kUp);
    std::ranges::copy(saved, in_.begin());
    return bytes;
  }
  // Row `row` of every output, cut out of what Run gave.
  std::string RowOf(const std::string& bytes, int32_t row) const {
    std::string cut;
    size_t at = 0;
    for (const bl_tensor& out : out_) {
      const auto row_bytes = static_cast<size_t>(out.nb[out.ndim - 1]);
      cut += bytes.substr(at + row_bytes * static_cast<size_t>(row), row_bytes);
      at += row_bytes * kCapacity;
    }
    return cut;
  }

 private:
  static bl_tensor Absent() {
    bl_tensor tensor{};
    tensor.size = sizeof(tensor);
    return tensor;
  }
  bl_tensor Make(const graph::Shape& shape) {
    bl_tensor tensor = Absent();
    tensor.dtype = shape.dtype;
    tensor.encoding = shape.dtype == BL_I32 ? BL_ENC_I32 : BL_ENC_F32;
    tensor.domain = shape.domain;
    tensor.ndim = shape.ndim;
    int64_t stride = 4;
    for (uint32_t d = 0; d < 4; ++d) {
      tensor.ne[d] = d < shape.ndim ? shape.ne[d] : 1;
      tensor.nb[d] = stride;
      stride *= tensor.ne[d];
    }
    tensor.data = buffers_.emplace_back(static_cast<size_t>(stride)).data();
    return tensor;
  }
  static void FillInput(const bl_tensor& tensor, size_t seed) {
    const int64_t n = tensor.nb[tensor.ndim - 1] / 4 * tensor.ne[tensor.ndim - 1];
    for (int64_t i = 0; i < n; ++i) {
      const auto hash = static_cast<uint32_t>(i + 1) * 2654435761u + static_cast<uint32_t>(seed);
      if (tensor.dtype == BL_I32) {
        static_cast<int32_t*>(tensor.data)[i] = static_cast<int32_t>(hash >> 30);
      } else {
        static_cast<float*>(tensor.data)[i] = static_cast<float>(hash >> 8) / 16777216.0f - 0.5f;
      }
    }
  }
  void MakeRows() {
    zeros_.assign(kCapacity, 0);
    rows_.size = sizeof(rows_);
    rows_.capacity = kCapacity;
    rows_.live = &live_;
    rows_.slot = rows_.index = rows_.token = rows_.row_class = zeros_.data();
    for (const int32_t*& pos : rows_.pos) pos = zeros_.data();
    minus_.assign(kCapacity, -1);
    rows_.embed_row = rows_.lane_in = rows_.lane_out = minus_.data();
    rows_.segments = &segment_;
    rows_.n_segments = &n_segments_;
    args_.rows = &rows_;
  }
  void MakeWorkspace() {
    if (kernel_.workspace == nullptr) return;
    bl_workspace wanted{sizeof(bl_workspace), 0, 0};
    const bl_status status = kernel_.workspace(&args_, &wanted);
    Expect(status == BL_OK, name_ + ": workspace returned " + std::to_string(status));
    if (wanted.bytes == 0) return;
    Expect(wanted.bytes <= 1ull << 30,
           name_ + ": asks for " + std::to_string(wanted.bytes) + " bytes of workspace");
    GuardedBuffer& buffer = buffers_.emplace_back(wanted.bytes);
    std::memset(buffer.data(), 0, buffer.bytes());
    args_.workspace = buffer.data();
  }

  const plugin::Kernel& kernel_;
  std::string name_;
  graph::AbiAttrs attrs_;
  std::deque<GuardedBuffer> buffers_;
  std::vector<bl_tensor> in_, out_;
  std::vector<int32_t> zeros_, minus_;
  bl_segment segment_{0, 0, kCapacity, 0};
  int32_t n_segments_ = 1;
  int32_t live_ = kCapacity;
  bl_rows rows_{};
  bl_device device_{};
  bl_args args_{};
};

// Calls `body` for every kernel of every node of the plugin's own operators that it supports.
void ForEachKernel(const Subject& subject,
                   const std::function<void(KernelRun&, const plugin::Kernel&)>& body) {
  BuiltSeat seat(subject);
  if (seat.description().operators.empty()) {
    throw NotApplicable("the plugin has no operators of its own");
  }
  const graph::Graph graph = seat.BuildGraph(kCapacity);
  int runs = 0;
  for (const graph::Node& node : graph.nodes) {
    if (!node.weights.empty() || !node.planes.empty()) continue;
    for (const plugin::Operator& op : seat.description().operators) {
      if (op.name != node.op->name || op.version != node.op->version) continue;
      for (const plugin::Kernel& kernel : op.kernels) {
        KernelRun run(graph, node, kernel);
        if (!run.supported()) continue;
        body(run, kernel);
        ++runs;
      }
    }
  }
  if (runs == 0) throw NotApplicable("no kernel of the plugin runs in its main graph");
}

void StayInsideTheirBuffers(const Subject& subject) {
  ForEachKernel(subject, [](KernelRun& run, const plugin::Kernel&) {
    for (const int32_t live : kLiveCounts) {
      const std::string bytes = run.Run(live, KernelRun::Order::kUp);
      for (int32_t row = live; row < kCapacity; ++row) {
        const std::string padding = run.RowOf(bytes, row);
        const auto untouched = [](char c) { return static_cast<unsigned char>(c) == kCanary; };
        Expect(std::ranges::all_of(padding, untouched),
               run.name() + ": wrote padding row " + std::to_string(row) + " of a pass with " +
                   std::to_string(live) + " rows");
      }
    }
  });
}

void DoNotDependOnOrder(const Subject& subject) {
  ForEachKernel(subject, [](KernelRun& run, const plugin::Kernel&) {
    for (const int32_t live : kLiveCounts) {
      const std::string up = run.Run(live, KernelRun::Order::kUp);
      Expect(up == run.Run(live, KernelRun::Order::kDown),
             run.name() + ": the bits depend on the order of its pieces");
      Expect(up == run.Run(live, KernelRun::Order::kUp), run.name() + ": two equal runs differ");
    }
  });
}

void KeepRowsApart(const Subject& subject) {
  ForEachKernel(subject, [](KernelRun& run, const plugin::Kernel& kernel) {
    if (kernel.numeric_class == BL_BAND) return;  // promises nothing about rows
    const std::string together = run.Run(kCapacity, KernelRun::Order::kUp);
    for (int32_t row = 0; row < kCapacity; ++row) {
      const std::string alone = run.RunAlone(row);
      Expect(run.RowOf(alone, 0) == run.RowOf(together, row),
             run.name() + ": row " + std::to_string(row) +
                 " has other bits alone than among others, against its numeric class");
    }
  });
}

void AllocateAndLockNothing(const Subject& subject) {
  plugin::LoadPlugin(subject.path);
  ImportWatch watch(subject.path);
  ForEachKernel(subject, [&](KernelRun& run, const plugin::Kernel&) {
    run.Run(kCapacity, KernelRun::Order::kUp);  // whatever it does once, it has done
    watch.Reset();
    run.Run(kCapacity, KernelRun::Order::kUp);
    const ImportCounts counts = watch.counts();
    Expect(counts.allocations + counts.maps == 0, run.name() + ": allocates in a pass");
    Expect(counts.locks == 0, run.name() + ": takes a lock in a pass");
    Expect(counts.outside.empty(), run.name() + ": calls " + counts.outside + " in a pass");
  });
}

// Kernels of one operator are versions of one definition: those that promise bits agree in them.
void AgreeWithEachOther(const Subject& subject) {
  std::map<std::string, std::string> first;  // by operator: what its first exact kernel gave
  size_t compared = 0;
  ForEachKernel(subject, [&](KernelRun& run, const plugin::Kernel& kernel) {
    if (kernel.numeric_class == BL_BAND) return;
    const std::string bytes = run.Run(kCapacity, KernelRun::Order::kUp);
    const auto [known, fresh] = first.emplace(run.signature(), bytes);
    compared += fresh ? 0 : 1;
    Expect(known->second == bytes, run.name() + ": two of its kernels give different bits");
  });
  if (compared == 0) throw NotApplicable("no operator of the plugin has two kernels");
}

}  // namespace

std::vector<Check> KernelChecks() {
  return {{"kernels.allocate_and_lock_nothing", true, AllocateAndLockNothing},
          {"kernels.agree_with_each_other", true, AgreeWithEachOther},
          {"kernels.stay_inside_their_buffers", true, StayInsideTheirBuffers},
          {"kernels.do_not_depend_on_order", true, DoNotDependOnOrder},
          {"kernels.keep_rows_apart", true, KeepRowsApart}};
}

}  // namespace bloomery::apps::check
