#include "runtime/ops/rows.h"

#include <cstring>

#include "runtime/ops/schemas.h"

namespace bloomery::ops {
namespace {

class SelectRowsStep : public Step {
 public:
  SelectRowsStep(const float* x, float* y, size_t width, const int32_t* map, RowCount rows,
                 int32_t threads)
      : x_(x), y_(y), width_(width), map_(map), rows_(rows), threads_(threads) {}

  int32_t Tasks() const override { return Rows().pieces(); }

  bl_status Run(int32_t task, Worker* /*worker*/) const override {
    const Split rows = Rows();
    for (auto row = static_cast<size_t>(rows.begin(task));
         row < static_cast<size_t>(rows.end(task)); ++row) {
      std::memcpy(y_ + row * width_, x_ + static_cast<size_t>(map_[row]) * width_,
                  width_ * sizeof(float));
    }
    return BL_OK;
  }

 private:
  Split Rows() const {
    return Split::Of(rows_.Get(), 1, kTaskWorkMin / static_cast<int64_t>(width_),
                     threads_ * kPiecesPerThread);
  }

  const float* x_;
  float* y_;
  size_t width_;
  const int32_t* map_;
  RowCount rows_;
  int32_t threads_;
};

void InferSelectRows(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& x = RowsInput(op, call, 0, BL_F32, 2, 2);
  const std::string_view domain = call.attrs.Str("domain", "logit_rows");
  if (domain != "logit_rows") {
    RefuseGraph("attribute 'domain' is '" + std::string(domain) +
                "'; this host selects 'logit_rows' only");
  }
  if (x.domain != BL_DOMAIN_PASS_ROWS || call.logit_rows < 1) {
    RefuseGraph("input 'x' is " + ToString(x) +
                ", must be over the rows of a pass that has logit rows");
  }
  call.outputs[0] = x;
  call.outputs[0].domain = BL_DOMAIN_LOGIT_ROWS;
  call.outputs[0].ne[1] = call.logit_rows;
}

}  // namespace

std::unique_ptr<Step> MakeSelectRows(const float* x, float* y, size_t width, const int32_t* map,
                                     RowCount rows, int32_t threads) {
  return std::make_unique<SelectRowsStep>(x, y, width, map, rows, threads);
}

void AddRowOperators(std::vector<graph::OperatorSchema>* out) {
  out->push_back({.name = "select_rows",
                  .numeric_class = BL_EXACT,
                  .inputs = {{"x"}},
                  .attrs = {{.key = "domain", .type = BL_ATTR_STR}},
                  .infer = InferSelectRows});
}

}  // namespace bloomery::ops
