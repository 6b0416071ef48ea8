// gpu_bench_kernels [--filter TEXT]: runs the benchmarks whose names hold TEXT.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/gpu/bench/bench.h"
#include "tests/gpu/device.h"

namespace bloomery::kernels::bench {
namespace {

struct Benchmark {
  std::string name;
  std::function<void()> run;
};

std::vector<Benchmark>& Benchmarks() {
  static std::vector<Benchmark> benchmarks;
  return benchmarks;
}

constexpr int kReplays = 7;

// Fastest replay of `graph`, in microseconds.
double FastestReplay(cudaGraphExec_t graph, cudaStream_t stream) {
  using testing::Check;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  Check(cudaEventCreate(&begin));
  Check(cudaEventCreate(&end));
  double fastest = 1e30;
  for (int replay = 0; replay < kReplays; ++replay) {
    Check(cudaEventRecord(begin, stream));
    Check(cudaGraphLaunch(graph, stream));
    Check(cudaEventRecord(end, stream));
    Check(cudaEventSynchronize(end));
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, begin, end));
    fastest = std::min(fastest, static_cast<double>(milliseconds) * 1000.0);
  }
  Check(cudaEventDestroy(begin));
  Check(cudaEventDestroy(end));
  return fastest;
}

}  // namespace

Registered::Registered(std::string name, std::function<void()> run) {
  Benchmarks().push_back({std::move(name), std::move(run)});
}

void Measure(const std::string& name, const Work& work, int repetitions,
             const Repetition& repetition) {
  using testing::Check;
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreate(&stream));
  cuda::Launch launch = testing::TestLaunch();
  launch.stream = stream;
  Check(repetition(launch, 0));  // first use loads the kernel
  Check(cudaStreamSynchronize(stream));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < repetitions; ++i) {
    Check(repetition(launch, i));
  }
  Check(cudaStreamEndCapture(stream, &graph));
  Check(cudaGraphInstantiate(&executable, graph, 0));
  const double us = FastestReplay(executable, stream) / repetitions;
  std::printf("%-44s %9.2f us", name.c_str(), us);
  if (work.bytes > 0) {
    std::printf("  %7.1f GB/s (%4.1f %%)", work.bytes / us * 1e-3,
                work.bytes / us * 1e8 / kBytesBound);
  }
  if (work.operations > 0) {
    std::printf("  %7.1f TOPS (%4.1f %%)", work.operations / us * 1e-6,
                work.operations / us * 1e8 / kOperationsBound);
  }
  std::printf("\n");
  std::fflush(stdout);
  Check(cudaGraphExecDestroy(executable));
  Check(cudaGraphDestroy(graph));
  Check(cudaStreamDestroy(stream));
}

}  // namespace bloomery::kernels::bench

int main(int argc, char** argv) {
  const std::string_view filter =
      argc == 3 && std::string_view(argv[1]) == "--filter" ? argv[2] : "";
  if (argc != 1 && filter.empty()) {
    std::fprintf(stderr, "usage: gpu_bench_kernels [--filter TEXT]\n");
    return 2;
  }
  int failed = 0;
  for (const auto& benchmark : bloomery::kernels::bench::Benchmarks()) {
    if (benchmark.name.find(filter) == std::string::npos) {
      continue;
    }
    try {
      benchmark.run();
    } catch (const std::exception& error) {
      std::printf("%s: %s\n", benchmark.name.c_str(), error.what());
      failed = 1;
    }
  }
  return failed;
}
