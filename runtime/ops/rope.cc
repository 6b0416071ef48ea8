#include "runtime/ops/rope.h"

#include <cmath>

#include "runtime/ops/schemas.h"

namespace bloomery::ops {
namespace {

class RopeStep : public Step {
 public:
  RopeStep(const Backend& backend, const kernels::RopeArgs& args, std::vector<double> frequencies,
           RowCount rows, int32_t threads)
      : backend_(backend),
        args_(args),
        frequencies_(std::move(frequencies)),
        rows_(rows),
        threads_(threads) {
    args_.frequencies = frequencies_.data();
  }

  int32_t Tasks() const override { return Rows().pieces(); }

  bl_status Run(int32_t task, Worker* /*worker*/) const override {
    const Split rows = Rows();
    backend_.rope(args_, static_cast<size_t>(rows.begin(task)),
                  static_cast<size_t>(rows.end(task)));
    return BL_OK;
  }

 private:
  Split Rows() const {
    // A pair costs about eight multiply-adds, and its sine and cosine some thirty once a row.
    const auto work = static_cast<int64_t>(args_.heads * args_.head_dim * 4 + args_.n_rot * 15);
    return Split::Of(rows_.Get(), 1, kTaskWorkMin / work, threads_ * kPiecesPerThread);
  }

  const Backend& backend_;
  kernels::RopeArgs args_;
  std::vector<double> frequencies_;
  RowCount rows_;
  int32_t threads_;
};

void InferRope(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& x = RowsInput(op, call, 0, BL_F32, 3, 3);
  if (x.domain != BL_DOMAIN_PASS_ROWS) {
    RefuseGraph("input 'x' is " + ToString(x) + ", must be over the rows of the pass");
  }
  const std::string_view kind = call.attrs.Str("kind", "neox");
  if (kind != "neox") {
    RefuseGraph("attribute 'kind' is '" + std::string(kind) + "'; this host has 'neox' only");
  }
  const int64_t dims = call.attrs.I64("dims", x.ne[0]);
  const auto dims_max = static_cast<int64_t>(kernels::kMaxRopeValues);
  if (dims < 2 || dims % 2 != 0 || dims > x.ne[0] || dims > dims_max) {
    RefuseGraph("attribute 'dims' is " + std::to_string(dims) + ", must be even, from 2 to " +
                std::to_string(x.ne[0] < dims_max ? x.ne[0] : dims_max));
  }
  const double base = call.attrs.F64("base");
  if (!(base > 1.0) || !std::isfinite(base)) RefuseGraph("attribute 'base' must be above 1");
  const double scale = call.attrs.F64("scale", 1.0);
  if (!(scale > 0.0) || !std::isfinite(scale)) RefuseGraph("attribute 'scale' must be above 0");
  call.outputs[0] = x;
}

}  // namespace

std::vector<double> RopeFrequencies(double base, double scale, size_t dims) {
  std::vector<double> frequencies(dims / 2);
  kernels::RopeFrequencies(base, dims, frequencies.data());
  if (scale != 1.0) {
    for (double& f : frequencies) f *= scale;
  }
  return frequencies;
}

std::unique_ptr<Step> MakeRope(const Backend& backend, const kernels::RopeArgs& args,
                               std::vector<double> frequencies, RowCount rows, int32_t threads) {
  return std::make_unique<RopeStep>(backend, args, std::move(frequencies), rows, threads);
}

void AddRopeOperators(std::vector<graph::OperatorSchema>* out) {
  out->push_back({.name = "rope",
                  .numeric_class = BL_EXACT,
                  .inputs = {{"x"}},
                  .attrs = {{.key = "kind", .type = BL_ATTR_STR},
                            {.key = "dims", .type = BL_ATTR_I64},
                            {.key = "base", .type = BL_ATTR_F64, .required = true},
                            {.key = "scale", .type = BL_ATTR_F64}},
                  .infer = InferRope});
}

}  // namespace bloomery::ops
