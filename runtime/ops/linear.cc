#include "runtime/ops/linear.h"

#include "runtime/ops/schemas.h"

namespace bloomery::ops {
namespace {

constexpr size_t kMatricesMax = 8;
// Weight rows that pieces are multiples of where reading bounds, and bytes that make one worth its
// hand-over.
constexpr int64_t kReadBoundUnit = 8;
constexpr int64_t kTaskBytesMin = 32768;

class LinearStep : public Step {
 public:
  LinearStep(const Backend& backend, const Activations& x, std::vector<Matrix> matrices,
             RowCount rows, int32_t threads)
      : backend_(backend), matrices_(std::move(matrices)), rows_(rows), threads_(threads) {
    for (const Matrix& m : matrices_) {
      total_n_ += static_cast<int64_t>(m.n);
      kernels::LinearArgs args;
      args.weight = m.weight;
      x.SetInput(*m.weight.format, 0, &args);
      args.bias = m.bias;
      args.y = m.y;
      args.y_stride = m.y_stride;
      args_.push_back(args);
    }
  }

  int32_t Tasks() const override {
    const int32_t rows = rows_.Get();
    if (rows == 0) return 0;
    int32_t tasks = 0;
    for (const Matrix& m : matrices_) tasks += Cut(m, rows).pieces();
    return tasks;
  }

  bl_status Run(int32_t task, Worker* worker) const override {
    const int32_t rows = rows_.Get();
    for (size_t i = 0; i < matrices_.size(); ++i) {
      const Pieces pieces = Cut(matrices_[i], rows);
      if (task >= pieces.pieces()) {
        task -= pieces.pieces();
        continue;
      }
      const int32_t column = task % pieces.columns.pieces();
      const int32_t row = task / pieces.columns.pieces();
      const size_t bytes =
          backend_.linear(OfRows(args_[i], pieces.rows.begin(row), pieces.rows.end(row)),
                          static_cast<size_t>(pieces.columns.begin(column)),
                          static_cast<size_t>(pieces.columns.end(column)), worker->scratch);
      // Pieces that share weight rows read them from a cache: they count once.
      if (row == 0) worker->weight_bytes_read += bytes;
      return BL_OK;
    }
    return BL_INTERNAL;
  }

  size_t Foresee(int32_t begin, int32_t end,
                 std::span<std::span<const std::byte>> out) const override {
    const int32_t rows = rows_.Get();
    if (rows == 0 || rows > kReadBoundRows) return 0;
    size_t found = 0;
    for (size_t i = 0; i < matrices_.size() && end > 0 && found < out.size(); ++i) {
      const Split columns = Cut(matrices_[i], rows).columns;
      const int32_t pieces = columns.pieces();
      if (begin < pieces) {
        const auto first = static_cast<size_t>(columns.begin(begin));
        const auto last = static_cast<size_t>(columns.end(std::min(end, pieces) - 1));
        const kernels::WeightRows& weight = matrices_[i].weight;
        out[found++] = {weight.data + first * weight.row_bytes, (last - first) * weight.row_bytes};
      }
      begin = std::max(0, begin - pieces);
      end -= pieces;
    }
    return found;
  }

 private:
  struct Pieces {
    Split columns;  // weight rows
    Split rows;
    int32_t pieces() const { return columns.pieces() * rows.pieces(); }
  };

  // A share of the pieces by the matrix's share of all weight rows: of its weight rows, and where
  // they are too few (a router's), of the rows as well.
  Pieces Cut(const Matrix& m, int32_t rows) const {
    const auto n = static_cast<int64_t>(m.n);
    const int64_t wanted = std::max<int64_t>(1, threads_ * kPiecesPerThread * n / total_n_);
    const auto k = static_cast<int64_t>(m.weight.k);
    const bool tiles = rows > kReadBoundRows;
    const auto unit = tiles ? static_cast<int64_t>(kernels::kLinearTileRows) : kReadBoundUnit;
    const int64_t least = tiles ? kTaskWorkMin / (k * rows)
                                : kTaskBytesMin / static_cast<int64_t>(m.weight.row_bytes);
    const Split columns = Split::Of(n, unit, least, wanted);
    if (!tiles || columns.pieces() >= wanted) return {columns, Split::Of(rows, 1, rows, 1)};
    return {columns,
            Split::Of(rows, 1, kTaskWorkMin / (k * columns.per_piece), wanted / columns.pieces())};
  }

  static kernels::LinearArgs OfRows(kernels::LinearArgs args, int64_t begin, int64_t end) {
    const auto first = static_cast<size_t>(begin);
    args.rows = static_cast<size_t>(end - begin);
    args.y += first * args.y_stride;
    if (args.x != nullptr) args.x += first * args.x_stride;
    if (args.quantised.data != nullptr) args.quantised.data += first * args.quantised.row_bytes;
    return args;
  }

  const Backend& backend_;
  std::vector<Matrix> matrices_;
  std::vector<kernels::LinearArgs> args_;
  int64_t total_n_ = 0;
  RowCount rows_;
  int32_t threads_;
};

class QuantiseStep : public Step {
 public:
  QuantiseStep(const Backend& backend, const float* x, size_t x_stride,
               const kernels::QuantisedRows& out, RowCount rows, int32_t threads)
      : backend_(backend), x_(x), x_stride_(x_stride), out_(out), rows_(rows), threads_(threads) {}

  int32_t Tasks() const override { return Rows().pieces(); }

  bl_status Run(int32_t task, Worker* /*worker*/) const override {
    const Split rows = Rows();
    backend_.quantise_rows(x_, x_stride_, out_, static_cast<size_t>(rows.begin(task)),
                           static_cast<size_t>(rows.end(task)));
    return BL_OK;
  }

 private:
  Split Rows() const {
    return Split::Of(rows_.Get(), 1, kTaskWorkMin / static_cast<int64_t>(out_.k),
                     threads_ * kPiecesPerThread);
  }

  const Backend& backend_;
  const float* x_;
  size_t x_stride_;
  kernels::QuantisedRows out_;
  RowCount rows_;
  int32_t threads_;
};

void InferLinear(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& x = RowsInput(op, call, 0, BL_F32, 2, 2);
  const size_t stride = call.attrs.Bool("biases") ? 2 : 1;
  if (call.weights.size() != call.outputs.size() * stride) {
    RefuseGraph("was given " + std::to_string(call.weights.size()) + " weights for " +
                std::to_string(call.outputs.size()) + " outputs" +
                (stride == 2 ? "; with biases, each matrix is followed by its vector" : ""));
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const graph::Shape& matrix =
        WeightOver(call, i * stride, 2, x.ne[0], "input 'x' " + ToString(x));
    if (stride == 2) {
      const graph::Shape& bias = WeightOver(call, i * 2 + 1, 1, matrix.ne[1],
                                            "the rows of " + DescribeWeight(call, i * 2));
      if (bias.dtype != BL_F32) RefuseGraph(DescribeWeight(call, i * 2 + 1) + " must be F32");
    }
    call.outputs[i] = RowsShape(BL_F32, matrix.ne[1], x);
  }
}

void InferHead(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& x = RowsInput(op, call, 0, BL_F32, 2, 2);
  const graph::Shape& matrix = WeightOver(call, 0, 2, x.ne[0], "input 'x' " + ToString(x));
  call.outputs[0] = RowsShape(BL_F32, matrix.ne[1], x);
}

}  // namespace

std::unique_ptr<Step> MakeLinear(const Backend& backend, const Activations& x,
                                 std::vector<Matrix> matrices, RowCount rows, int32_t threads) {
  return std::make_unique<LinearStep>(backend, x, std::move(matrices), rows, threads);
}

std::unique_ptr<Step> MakeQuantise(const Backend& backend, const float* x, size_t x_stride,
                                   const kernels::QuantisedRows& out, RowCount rows,
                                   int32_t threads) {
  return std::make_unique<QuantiseStep>(backend, x, x_stride, out, rows, threads);
}

void AddLinearOperators(std::vector<graph::OperatorSchema>* out) {
  out->push_back({.name = "linear",
                  .numeric_class = BL_EXACT,
                  .inputs = {{"x"}},
                  .weights_min = 1,
                  .weights_max = 2 * kMatricesMax,
                  .outputs_max = kMatricesMax,
                  .attrs = {{.key = "biases", .type = BL_ATTR_BOOL}},
                  .infer = InferLinear});
  out->push_back({.name = "head",
                  .numeric_class = BL_EXACT,
                  .inputs = {{"x"}},
                  .weights_min = 1,
                  .weights_max = 1,
                  .infer = InferHead});
}

}  // namespace bloomery::ops
