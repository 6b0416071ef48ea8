#include "runtime/ops/taps.h"

#include <cstring>

#include "runtime/ops/schemas.h"

namespace bloomery::ops {
namespace {

// One task: these move a few kilobytes a row.
template <class Work>
class CopyStep : public Step {
 public:
  explicit CopyStep(Work work) : work_(std::move(work)) {}
  int32_t Tasks() const override { return 1; }
  bl_status Run(int32_t /*task*/, Worker* /*worker*/) const override {
    work_();
    return BL_OK;
  }

 private:
  Work work_;
};

template <class Work>
std::unique_ptr<Step> MakeCopy(Work work) {
  return std::make_unique<CopyStep<Work>>(std::move(work));
}

float* Lane(const bl_plane_view& plane, int32_t slot, int32_t lane) {
  return static_cast<float*>(bl_plane_lane(&plane, slot, lane));
}

// What the plane holds before the segment: zeros before a slot's first row.
void TakeBefore(const bl_plane_view& plane, const bl_rows& rows, const bl_segment& segment,
                size_t width, float* y) {
  const int32_t lane = rows.lane_in[segment.row0];
  if (lane < 0) {
    std::memset(y, 0, width * sizeof(float));
  } else {
    std::memcpy(y, Lane(plane, segment.slot, lane), width * sizeof(float));
  }
}

void Leave(const bl_plane_view& plane, const bl_rows& rows, const bl_segment& segment, size_t width,
           const float* x) {
  for (int32_t row = segment.row0; row < segment.row0 + segment.rows; ++row) {
    if (rows.lane_out[row] < 0) continue;
    std::memcpy(Lane(plane, segment.slot, rows.lane_out[row]), x + static_cast<size_t>(row) * width,
                width * sizeof(float));
  }
}

const graph::PlaneInfo& PlaneOver(const graph::InferCall& call, const graph::Shape& rows) {
  if (rows.domain != BL_DOMAIN_PASS_ROWS) {
    RefuseGraph("its input is " + ToString(rows) + ", must be over the rows of the pass");
  }
  return call.seat.planes[call.planes[0]];
}

void CheckWidth(const graph::PlaneInfo& plane, const graph::Shape& x) {
  if (plane.width == x.ne[0]) return;
  RefuseGraph("plane '" + plane.name + "' has lanes of " + std::to_string(plane.width) +
              " values, input 'x' is " + ToString(x));
}

void InferConcat(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& a = RowsInput(op, call, 0, BL_F32, 2, 2);
  const graph::Shape& b = RowsInput(op, call, 1, BL_F32, 2, 2);
  if (a.domain != b.domain || a.rows() != b.rows()) {
    RefuseGraph("inputs 'a' " + ToString(a) + " and 'b' " + ToString(b) + " have other rows");
  }
  call.outputs[0] = RowsShape(BL_F32, a.ne[0] + b.ne[0], a);
}

void InferPrevious(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& x = RowsInput(op, call, 0, BL_F32, 2, 2);
  CheckWidth(PlaneOver(call, x), x);
  call.outputs[0] = x;
}

void InferRecall(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& like = RowsInput(op, call, 0, BL_I32, 2, 2);
  call.outputs[0] = RowsShape(BL_F32, PlaneOver(call, like).width, like);
}

void InferKeep(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& x = RowsInput(op, call, 0, BL_F32, 2, 2);
  CheckWidth(PlaneOver(call, x), x);
}

}  // namespace

std::unique_ptr<Step> MakeConcat(const float* a, size_t a_width, const float* b, size_t b_width,
                                 float* y, RowCount rows) {
  return MakeCopy([=] {
    const auto count = static_cast<size_t>(rows.Get());
    for (size_t row = 0; row < count; ++row) {
      float* const to = y + row * (a_width + b_width);
      std::memcpy(to, a + row * a_width, a_width * sizeof(float));
      std::memcpy(to + a_width, b + row * b_width, b_width * sizeof(float));
    }
  });
}

std::unique_ptr<Step> MakePrevious(const float* x, float* y, size_t width,
                                   const bl_plane_view& plane, const bl_rows& rows) {
  return MakeCopy([=, &rows] {
    for (int32_t i = 0; i < *rows.n_segments; ++i) {
      const bl_segment& segment = rows.segments[i];
      const size_t first = static_cast<size_t>(segment.row0) * width;
      TakeBefore(plane, rows, segment, width, y + first);
      std::memcpy(y + first + width, x + first,
                  static_cast<size_t>(segment.rows - 1) * width * sizeof(float));
      Leave(plane, rows, segment, width, x);
    }
  });
}

std::unique_ptr<Step> MakeRecall(float* y, size_t width, const bl_plane_view& plane,
                                 const bl_rows& rows) {
  return MakeCopy([=, &rows] {
    for (int32_t i = 0; i < *rows.n_segments; ++i) {
      const bl_segment& segment = rows.segments[i];
      for (int32_t row = segment.row0; row < segment.row0 + segment.rows; ++row) {
        TakeBefore(plane, rows, segment, width, y + static_cast<size_t>(row) * width);
      }
    }
  });
}

std::unique_ptr<Step> MakeKeep(const float* x, size_t width, const bl_plane_view& plane,
                               const bl_rows& rows) {
  return MakeCopy([=, &rows] {
    for (int32_t i = 0; i < *rows.n_segments; ++i) {
      Leave(plane, rows, rows.segments[i], width, x);
    }
  });
}

void AddTapOperators(std::vector<graph::OperatorSchema>* out) {
  const auto plane = [](bl_access access) {
    return std::vector<graph::PlanePortSpec>{
        {.name = "tap", .access = access, .rule = BL_PLANE_FIXED}};
  };
  out->push_back({.name = "concat",
                  .numeric_class = BL_EXACT,
                  .inputs = {{"a"}, {"b"}},
                  .infer = InferConcat});
  out->push_back({.name = "previous",
                  .numeric_class = BL_EXACT,
                  .inputs = {{"x"}},
                  .planes = plane(BL_READ_WRITE),
                  .infer = InferPrevious});
  out->push_back({.name = "recall",
                  .numeric_class = BL_EXACT,
                  .inputs = {{"like"}},
                  .planes = plane(BL_READ),
                  .infer = InferRecall});
  out->push_back({.name = "keep",
                  .numeric_class = BL_EXACT,
                  .inputs = {{"x"}},
                  .planes = plane(BL_WRITE),
                  .outputs_min = 0,
                  .outputs_max = 0,
                  .infer = InferKeep});
}

}  // namespace bloomery::ops
