#include "runtime/ops/elementwise.h"

#include <cmath>

#include "runtime/ops/schemas.h"

namespace bloomery::ops {
namespace {

class EmbedStep : public Step {
 public:
  EmbedStep(const Backend& backend, const kernels::EmbedArgs& args, int64_t vocabulary,
            RowCount rows, int32_t threads)
      : backend_(backend), args_(args), vocabulary_(vocabulary), rows_(rows), threads_(threads) {}

  int32_t Tasks() const override { return Rows().pieces(); }

  bl_status Run(int32_t task, Worker* worker) const override {
    const Split rows = Rows();
    for (int64_t row = rows.begin(task); row < rows.end(task); ++row) {
      if (args_.ids[row] < 0 || args_.ids[row] >= vocabulary_) {
        worker->failed_row = row;
        return BL_BAD_DATA;
      }
    }
    backend_.embed(args_, static_cast<size_t>(rows.begin(task)),
                   static_cast<size_t>(rows.end(task)));
    worker->weight_bytes_read +=
        static_cast<uint64_t>(rows.end(task) - rows.begin(task)) * args_.table.row_bytes;
    return BL_OK;
  }

 private:
  Split Rows() const {
    const auto width = static_cast<int64_t>(args_.table.k);
    return Split::Of(rows_.Get(), 1, kTaskWorkMin / width, threads_ * kPiecesPerThread);
  }

  const Backend& backend_;
  kernels::EmbedArgs args_;
  int64_t vocabulary_;
  RowCount rows_;
  int32_t threads_;
};

class RmsNormStep : public Step {
 public:
  RmsNormStep(const Backend& backend, const kernels::RmsNormArgs& args, RowCount rows,
              int32_t threads)
      : backend_(backend), args_(args), rows_(rows), threads_(threads) {}

  int32_t Tasks() const override { return Rows().pieces(); }

  bl_status Run(int32_t task, Worker* /*worker*/) const override {
    const Split rows = Rows();
    backend_.rms_norm(args_, static_cast<size_t>(rows.begin(task)),
                      static_cast<size_t>(rows.end(task)));
    return BL_OK;
  }

 private:
  Split Rows() const {
    const auto width = static_cast<int64_t>(args_.groups * args_.dim);
    return Split::Of(rows_.Get(), 1, kTaskWorkMin / width, threads_ * kPiecesPerThread);
  }

  const Backend& backend_;
  kernels::RmsNormArgs args_;
  RowCount rows_;
  int32_t threads_;
};

class BinaryStep : public Step {
 public:
  BinaryStep(const Backend& backend, Binary kind, const float* a, const float* b, float* y,
             size_t width, RowCount rows, int32_t threads)
      : backend_(backend),
        kind_(kind),
        a_(a),
        b_(b),
        y_(y),
        width_(width),
        rows_(rows),
        threads_(threads) {}

  int32_t Tasks() const override { return Values().pieces(); }

  bl_status Run(int32_t task, Worker* /*worker*/) const override {
    const Split values = Values();
    const auto begin = static_cast<size_t>(values.begin(task));
    const auto end = static_cast<size_t>(values.end(task));
    if (kind_ == Binary::kAdd) {
      backend_.add(a_ + begin, b_ + begin, y_ + begin, end - begin);
    } else {
      for (size_t i = begin; i < end; ++i) y_[i] = a_[i] * b_[i];
    }
    return BL_OK;
  }

 private:
  Split Values() const {
    return Split::Of(rows_.Get() * static_cast<int64_t>(width_), 64, kTaskWorkMin,
                     threads_ * kPiecesPerThread);
  }

  const Backend& backend_;
  Binary kind_;
  const float* a_;
  const float* b_;
  float* y_;
  size_t width_;
  RowCount rows_;
  int32_t threads_;
};

class ScaleStep : public Step {
 public:
  ScaleStep(const float* x, float factor, float* y, size_t width, RowCount rows, int32_t threads)
      : x_(x), factor_(factor), y_(y), width_(width), rows_(rows), threads_(threads) {}

  int32_t Tasks() const override { return Values().pieces(); }

  bl_status Run(int32_t task, Worker* /*worker*/) const override {
    const Split values = Values();
    for (auto i = static_cast<size_t>(values.begin(task));
         i < static_cast<size_t>(values.end(task)); ++i) {
      y_[i] = x_[i] * factor_;
    }
    return BL_OK;
  }

 private:
  Split Values() const {
    return Split::Of(rows_.Get() * static_cast<int64_t>(width_), 64, kTaskWorkMin,
                     threads_ * kPiecesPerThread);
  }

  const float* x_;
  float factor_;
  float* y_;
  size_t width_;
  RowCount rows_;
  int32_t threads_;
};

void InferEmbed(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& ids = RowsInput(op, call, 0, BL_I32, 2, 2);
  if (ids.ne[0] != 1) RefuseGraph("input 'ids' is " + ToString(ids) + ", must have one id a row");
  const graph::Shape& table = call.weight(0);
  if (table.ndim != 2) RefuseGraph(DescribeWeight(call, 0) + " must have 2 axes");
  call.outputs[0] = RowsShape(BL_F32, table.ne[0], ids);
}

void InferRmsNorm(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& x = RowsInput(op, call, 0, BL_F32, 2, 3);
  const graph::Shape& weight = WeightOver(call, 0, 1, x.ne[0], "input 'x' " + ToString(x));
  if (weight.dtype != BL_F32) RefuseGraph(DescribeWeight(call, 0) + " must be F32");
  // Without it a row of zeros would be divided by zero.
  const double eps = call.attrs.F64("eps");
  if (!(eps > 0.0) || !std::isfinite(eps)) {
    RefuseGraph("attribute 'eps' must be a finite number above 0");
  }
  call.outputs[0] = x;
}

void InferReshape(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& x = RowsInput(op, call, 0, BL_F32, 2, 4);
  const std::span<const int64_t> ne = call.attrs.I64s("ne");
  graph::Shape out{.dtype = x.dtype, .domain = x.domain};
  int64_t left = x.width();
  for (const int64_t n : ne) {
    if (n < 1 || left % n != 0) left = -1;
    if (left < 0) break;
    left /= n;
    out.ne[out.ndim++] = n;
  }
  if (left != 1) {
    std::string asked;
    for (const int64_t n : ne) asked += (asked.empty() ? "" : ", ") + std::to_string(n);
    RefuseGraph("input 'x' is " + ToString(x) + ": its rows of " + std::to_string(x.width()) +
                " values do not reshape to [" + asked + "]");
  }
  out.ne[out.ndim++] = x.rows();
  call.outputs[0] = out;
}

void InferBinary(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& a = RowsInput(op, call, 0, BL_F32, 2, 4);
  const graph::Shape& b = RowsInput(op, call, 1, BL_F32, 2, 4);
  if (a != b) {
    RefuseGraph("inputs 'a' " + ToString(a) + " and 'b' " + ToString(b) + " differ in shape");
  }
  call.outputs[0] = a;
}

void InferScale(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& x = RowsInput(op, call, 0, BL_F32, 2, 4);
  // What it becomes as the f32 that values are multiplied by.
  if (!std::isfinite(static_cast<float>(call.attrs.F64("factor")))) {
    RefuseGraph("attribute 'factor' must be finite in 32 bits");
  }
  call.outputs[0] = x;
}

}  // namespace

std::unique_ptr<Step> MakeEmbed(const Backend& backend, const kernels::EmbedArgs& args,
                                int64_t vocabulary, RowCount rows, int32_t threads) {
  return std::make_unique<EmbedStep>(backend, args, vocabulary, rows, threads);
}

std::unique_ptr<Step> MakeRmsNorm(const Backend& backend, const kernels::RmsNormArgs& args,
                                  RowCount rows, int32_t threads) {
  return std::make_unique<RmsNormStep>(backend, args, rows, threads);
}

std::unique_ptr<Step> MakeBinary(const Backend& backend, Binary kind, const float* a,
                                 const float* b, float* y, size_t width, RowCount rows,
                                 int32_t threads) {
  return std::make_unique<BinaryStep>(backend, kind, a, b, y, width, rows, threads);
}

std::unique_ptr<Step> MakeScale(const float* x, float factor, float* y, size_t width, RowCount rows,
                                int32_t threads) {
  return std::make_unique<ScaleStep>(x, factor, y, width, rows, threads);
}

void AddElementwiseOperators(std::vector<graph::OperatorSchema>* out) {
  out->push_back({.name = "embed",
                  .numeric_class = BL_EXACT,
                  .inputs = {{"ids"}},
                  .weights_min = 1,
                  .weights_max = 1,
                  .infer = InferEmbed});
  out->push_back({.name = "rms_norm",
                  .numeric_class = BL_EXACT,
                  .inputs = {{"x"}},
                  .weights_min = 1,
                  .weights_max = 1,
                  .attrs = {{.key = "eps", .type = BL_ATTR_F64, .required = true}},
                  .infer = InferRmsNorm});
  out->push_back({.name = "reshape",
                  .numeric_class = BL_EXACT,
                  .inputs = {{"x"}},
                  .attrs = {{.key = "ne", .type = BL_ATTR_I64, .required = true, .values_max = 3}},
                  .infer = InferReshape});
  out->push_back(
      {.name = "add", .numeric_class = BL_EXACT, .inputs = {{"a"}, {"b"}}, .infer = InferBinary});
  out->push_back(
      {.name = "mul", .numeric_class = BL_EXACT, .inputs = {{"a"}, {"b"}}, .infer = InferBinary});
  out->push_back({.name = "scale",
                  .numeric_class = BL_EXACT,
                  .inputs = {{"x"}},
                  .attrs = {{.key = "factor", .type = BL_ATTR_F64, .required = true}},
                  .infer = InferScale});
}

}  // namespace bloomery::ops
