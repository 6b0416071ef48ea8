#include "runtime/ops/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels-common/attention/cpu/attention.h"
#include "runtime/ops/schemas.h"

namespace bloomery::ops {
namespace {

class AppendStep : public Step {
 public:
  AppendStep(const Backend& backend, const kernels::KvAppendArgs& args,
             std::vector<kernels::KvView> views, RowCount rows, int32_t threads)
      : backend_(backend), args_(args), views_(std::move(views)), rows_(rows), threads_(threads) {
    args_.views = views_.data();
  }

  int32_t Tasks() const override { return Rows().pieces(); }

  bl_status Run(int32_t task, Worker* /*worker*/) const override {
    const Split rows = Rows();
    backend_.append(args_, static_cast<size_t>(rows.begin(task)),
                    static_cast<size_t>(rows.end(task)));
    return BL_OK;
  }

 private:
  Split Rows() const {
    const auto width = static_cast<int64_t>(args_.x_stride);
    return Split::Of(rows_.Get(), 1, kTaskWorkMin / width, threads_ * kPiecesPerThread);
  }

  const Backend& backend_;
  kernels::KvAppendArgs args_;
  std::vector<kernels::KvView> views_;
  RowCount rows_;
  int32_t threads_;
};

class AttentionStep : public Step {
 public:
  AttentionStep(const Backend& backend, const kernels::AttentionArgs& args,
                std::vector<kernels::KvView> keys, std::vector<kernels::KvView> values,
                RowCount rows, int32_t threads)
      : backend_(backend),
        args_(args),
        keys_(std::move(keys)),
        values_(std::move(values)),
        rows_(rows),
        threads_(threads) {
    args_.keys = keys_.data();
    args_.values = values_.data();
  }

  int32_t Tasks() const override {
    const Pieces pieces = Cut();
    return pieces.rows.pieces() * pieces.heads;
  }

  bl_status Run(int32_t task, Worker* worker) const override {
    const Pieces pieces = Cut();
    const int32_t row_piece = task / pieces.heads;
    const auto begin = static_cast<size_t>(pieces.rows.begin(row_piece));
    const auto end = static_cast<size_t>(pieces.rows.end(row_piece));
    if (pieces.heads > 1) {
      const auto head = static_cast<size_t>(task % pieces.heads);
      backend_.attention(args_, begin, end, head, worker->scratch);
      return BL_OK;
    }
    for (size_t head = 0; head < args_.kv_heads; ++head) {
      backend_.attention(args_, begin, end, head, worker->scratch);
    }
    return BL_OK;
  }

 private:
  struct Pieces {
    Split rows;
    int32_t heads = 1;  // kv heads each apart, or 1: all in one piece
  };

  Pieces Cut() const {
    const int64_t rows = rows_.Get();
    if (rows == 0) return {Split::Of(0, 1, 1, 1), 1};
    // The last row's context stands for all: exact for one slot, near enough for several.
    const int64_t keys = args_.index[rows - 1] + 1;
    const int64_t row_work =
        keys * static_cast<int64_t>(args_.heads * (args_.key_dim + args_.value_dim));
    if (rows * row_work < 2 * kTaskWorkMin) return {Split::Of(rows, 1, rows, 1), 1};
    const auto kv_heads = static_cast<int32_t>(args_.kv_heads);
    const int64_t wanted =
        std::max<int64_t>(1, threads_ * kPiecesPerThread / std::max<int32_t>(1, kv_heads));
    Split split = Split::Of(rows, 1, 1, wanted);
    split.per_piece = std::min<int64_t>(
        split.per_piece, static_cast<int64_t>(kernels::cpu::AttentionChunkRows(args_)));
    return {split, kv_heads};
  }

  const Backend& backend_;
  kernels::AttentionArgs args_;
  std::vector<kernels::KvView> keys_;
  std::vector<kernels::KvView> values_;
  RowCount rows_;
  int32_t threads_;
};

void InferAppend(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& x = RowsInput(op, call, 0, BL_F32, 2, 3);
  const graph::PlaneInfo& plane = call.seat.planes[call.planes[0]];
  if (x.domain != BL_DOMAIN_PASS_ROWS || x.width() != plane.width) {
    RefuseGraph("input 'x' is " + ToString(x) + "; plane '" + plane.name + "' takes rows of " +
                std::to_string(plane.width) + " values over the rows of the pass");
  }
}

void InferAttention(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& q = RowsInput(op, call, 0, BL_F32, 3, 3);
  if (q.domain != BL_DOMAIN_PASS_ROWS) {
    RefuseGraph("input 'q' is " + ToString(q) + ", must be over the rows of the pass");
  }
  const std::string_view source = call.attrs.Str("source", "plane");
  if (source != "plane") {
    RefuseGraph("attribute 'source' is '" + std::string(source) + "'; this host has 'plane' only");
  }
  const int64_t kv_heads = call.attrs.I64("kv_heads");
  if (kv_heads < 1 || q.ne[1] % kv_heads != 0) {
    RefuseGraph("attribute 'kv_heads' is " + std::to_string(kv_heads) +
                ", must divide the heads of input 'q' " + ToString(q));
  }
  const graph::PlaneInfo& k = call.seat.planes[call.planes[0]];
  const graph::PlaneInfo& v = call.seat.planes[call.planes[1]];
  if (k.width != q.ne[0] * kv_heads) {
    RefuseGraph("plane '" + k.name + "' is " + std::to_string(k.width) + " wide, input 'q' " +
                ToString(q) + " with " + std::to_string(kv_heads) + " kv heads needs " +
                std::to_string(q.ne[0] * kv_heads));
  }
  if (v.width % kv_heads != 0) {
    RefuseGraph("plane '" + v.name + "' is " + std::to_string(v.width) +
                " wide, which does not divide by " + std::to_string(kv_heads) + " kv heads");
  }
  if (!std::isfinite(call.attrs.F64("scale"))) RefuseGraph("attribute 'scale' is not finite");
  call.outputs[0] = q;
  call.outputs[0].ne[0] = v.width / kv_heads;
}

}  // namespace

kernels::KvType KvTypeOf(bl_dtype type) {
  switch (type) {
    case BL_F32:
      return kernels::KvType::kF32;
    case BL_F16:
      return kernels::KvType::kF16;
    case BL_Q8_0:
      return kernels::KvType::kQ8_0;
    default:
      throw Error(ErrorKind::kUnsupported, "planes of type id " + std::to_string(type) +
                                               " have no kernels; choose f32, f16 or q8_0");
  }
}

std::vector<kernels::KvView> KvViews(const bl_plane_view& plane, int32_t slots) {
  std::vector<kernels::KvView> views(static_cast<size_t>(slots));
  for (int32_t slot = 0; slot < slots; ++slot) {
    kernels::KvView& view = views[static_cast<size_t>(slot)];
    view.type = KvTypeOf(plane.type);
    view.width = static_cast<size_t>(plane.width);
    view.row_bytes = static_cast<size_t>(plane.row_bytes);
    view.base = static_cast<std::byte*>(plane.data);
    view.blocks = plane.blocks + int64_t{slot} * plane.blocks_per_slot;
    view.block_rows = static_cast<size_t>(plane.block_rows);
    view.capacity = static_cast<size_t>(plane.capacity);
  }
  return views;
}

std::unique_ptr<Step> MakeAppend(const Backend& backend, const kernels::KvAppendArgs& args,
                                 std::vector<kernels::KvView> views, RowCount rows,
                                 int32_t threads) {
  return std::make_unique<AppendStep>(backend, args, std::move(views), rows, threads);
}

std::unique_ptr<Step> MakeAttention(const Backend& backend, const kernels::AttentionArgs& args,
                                    std::vector<kernels::KvView> keys,
                                    std::vector<kernels::KvView> values, RowCount rows,
                                    int32_t threads) {
  return std::make_unique<AttentionStep>(backend, args, std::move(keys), std::move(values), rows,
                                         threads);
}

void AddAttentionOperators(std::vector<graph::OperatorSchema>* out) {
  out->push_back({.name = "append",
                  .inputs = {{"x"}},
                  .planes = {{.name = "plane", .access = BL_WRITE}},
                  .outputs_min = 0,
                  .outputs_max = 0,
                  .infer = InferAppend});
  out->push_back({.name = "attention",
                  .inputs = {{"q"}},
                  .planes = {{.name = "k"}, {.name = "v"}},
                  .attrs = {{.key = "kv_heads", .type = BL_ATTR_I64, .required = true},
                            {.key = "scale", .type = BL_ATTR_F64, .required = true},
                            {.key = "source", .type = BL_ATTR_STR}},
                  .infer = InferAttention});
}

}  // namespace bloomery::ops
