#include "runtime/ops/moe.h"

#include <algorithm>
#include <cmath>

#include "kernels-common/moe/cpu/moe.h"
#include "runtime/ops/schemas.h"

namespace bloomery::ops {
namespace {

constexpr auto kTile = static_cast<int64_t>(kernels::kLinearTileRows);
// Equal pieces a thread: half a piece is what a thread waits for at the end of the step.
constexpr int64_t kExpertPiecesPerThread = 8;

class RouteStep : public Step {
 public:
  RouteStep(const Backend& backend, const kernels::RouterArgs& args, RowCount rows, int32_t threads)
      : backend_(backend), args_(args), rows_(rows), threads_(threads) {}

  int32_t Tasks() const override { return Rows().pieces(); }

  bl_status Run(int32_t task, Worker* worker) const override {
    const Split rows = Rows();
    const int64_t failed = backend_.route(args_, static_cast<size_t>(rows.begin(task)),
                                          static_cast<size_t>(rows.end(task)));
    if (failed == kernels::kNoFailingRow) return BL_OK;
    worker->failed_row = failed;
    return BL_BAD_DATA;
  }

 private:
  Split Rows() const {
    // An exponential and a few comparisons an expert and pick.
    const auto work = static_cast<int64_t>(args_.experts * (16 + args_.top_k));
    return Split::Of(rows_.Get(), 1, kTaskWorkMin / work, threads_ * kPiecesPerThread);
  }

  const Backend& backend_;
  kernels::RouterArgs args_;
  RowCount rows_;
  int32_t threads_;
};

class GroupPicksStep : public Step {
 public:
  GroupPicksStep(const int32_t* ids, size_t used, size_t experts, uint64_t expert_bytes,
                 Groups groups, RowCount rows, int32_t threads)
      : ids_(ids),
        used_(used),
        experts_(experts),
        expert_bytes_(expert_bytes),
        groups_(std::move(groups)),
        rows_(rows),
        threads_(threads) {}

  int32_t Tasks() const override { return rows_.Get() > 0 ? 1 : 0; }

  bl_status Run(int32_t /*task*/, Worker* worker) const override {
    const auto rows = static_cast<size_t>(rows_.Get());
    for (size_t pick = 0; pick < rows * used_; ++pick) {
      if (ids_[pick] < 0 || static_cast<size_t>(ids_[pick]) >= experts_) {
        worker->failed_row = static_cast<int64_t>(pick / used_);
        return BL_BAD_DATA;
      }
    }
    kernels::cpu::GroupPicks(ids_, rows, used_, experts_, groups_.get());
    CutExperts(*groups_, threads_, &groups_->gate_up);
    CutExperts(*groups_, threads_, &groups_->down);
    const auto active = static_cast<uint64_t>(groups_->active_count);
    worker->experts_picked += active;
    worker->expert_bytes += active * expert_bytes_;
    if (!groups_->counts.empty()) CountRows();
    if (!groups_->record.empty()) {
      std::transform(ids_, ids_ + rows * used_, groups_->record.begin(),
                     [](int32_t id) { return static_cast<uint16_t>(id); });
    }
    return BL_OK;
  }

 private:
  // One task writes them, so that no addition needs to be atomic.
  void CountRows() const {
    for (int32_t i = 0; i < groups_->active_count; ++i) {
      const auto expert = static_cast<size_t>(groups_->active[i]);
      const int32_t rows = groups_->offsets[expert + 1] - groups_->offsets[expert];
      std::atomic<uint64_t>& count = groups_->counts[expert];
      count.store(count.load(std::memory_order_relaxed) + static_cast<uint64_t>(rows),
                  std::memory_order_relaxed);
    }
  }

  const int32_t* ids_;
  size_t used_;
  size_t experts_;
  uint64_t expert_bytes_;
  Groups groups_;
  RowCount rows_;
  int32_t threads_;
};

// A piece of a step over the active experts: one's places (picks of its group) and a range of its
// weight rows.
struct ExpertPiece {
  size_t expert = 0;
  size_t first = 0;
  size_t places = 0;
  size_t begin = 0;
  size_t end = 0;

  static ExpertPiece Of(const PickGroups& groups, const ExpertCut& cut, int32_t task) {
    const int32_t* pieces = cut.first;
    const auto at = std::upper_bound(pieces, pieces + groups.active_count + 1, task) - pieces - 1;
    const auto expert = static_cast<size_t>(groups.active[at]);
    const auto first = static_cast<size_t>(groups.offsets[expert]);
    const int64_t begin = int64_t{task - pieces[at]} * cut.per_piece[at];
    return {.expert = expert,
            .first = first,
            .places = static_cast<size_t>(groups.offsets[expert + 1]) - first,
            .begin = static_cast<size_t>(begin),
            .end = static_cast<size_t>(std::min<int64_t>(begin + cut.per_piece[at], cut.n))};
  }
};

class ExpertGateUpStep : public Step {
 public:
  ExpertGateUpStep(const Backend& backend, const BankRows& bank, Groups groups,
                   const Activations& x, float* h, RowCount picks)
      : backend_(backend), bank_(bank), groups_(std::move(groups)), h_(h), picks_(picks) {
    args_.gate = bank.gate;
    args_.up = bank.up;
    x.SetInput(*bank.gate.format, 0, &args_);
    args_.h_stride = bank.ff;
  }

  int32_t Tasks() const override {
    return picks_.Get() == 0 ? 0 : groups_->gate_up.first[groups_->active_count];
  }

  bl_status Run(int32_t task, Worker* worker) const override {
    const ExpertPiece piece = ExpertPiece::Of(*groups_, groups_->gate_up, task);
    kernels::ExpertGateUpArgs args = args_;
    args.gate.data += piece.expert * bank_.gate_expert_bytes;
    args.up.data += piece.expert * bank_.up_expert_bytes;
    args.place_rows = groups_->place_rows + piece.first;
    args.places = piece.places;
    args.h = h_ + piece.first * bank_.ff;
    worker->weight_bytes_read += backend_.gate_up(args, piece.begin, piece.end, worker->scratch);
    return BL_OK;
  }

 private:
  const Backend& backend_;
  BankRows bank_;
  Groups groups_;
  kernels::ExpertGateUpArgs args_;
  float* h_;
  RowCount picks_;
};

class ExpertDownStep : public Step {
 public:
  ExpertDownStep(const Backend& backend, const BankRows& bank, Groups groups, const Activations& h,
                 float* y, RowCount picks)
      : backend_(backend), bank_(bank), groups_(std::move(groups)), h_(h), y_(y), picks_(picks) {}

  int32_t Tasks() const override {
    return picks_.Get() == 0 ? 0 : groups_->down.first[groups_->active_count];
  }

  bl_status Run(int32_t task, Worker* worker) const override {
    const ExpertPiece piece = ExpertPiece::Of(*groups_, groups_->down, task);
    kernels::LinearArgs args;
    args.weight = bank_.down;
    args.weight.data += piece.expert * bank_.down_expert_bytes;
    h_.SetInput(*bank_.down.format, piece.first, &args);
    args.rows = piece.places;
    args.y = y_ + piece.first * bank_.width;
    args.y_stride = bank_.width;
    worker->weight_bytes_read += backend_.linear(args, piece.begin, piece.end, worker->scratch);
    return BL_OK;
  }

  size_t Foresee(int32_t begin, int32_t end,
                 std::span<std::span<const std::byte>> out) const override {
    size_t found = 0;
    for (int32_t task = begin; task < end; ++task) {
      const ExpertPiece piece = ExpertPiece::Of(*groups_, groups_->down, task);
      if (static_cast<int64_t>(piece.places) > kReadBoundRows) continue;
      const std::byte* at = bank_.down.data + piece.expert * bank_.down_expert_bytes +
                            piece.begin * bank_.down.row_bytes;
      const size_t bytes = (piece.end - piece.begin) * bank_.down.row_bytes;
      if (found > 0 && out[found - 1].data() + out[found - 1].size() == at) {
        out[found - 1] = {out[found - 1].data(), out[found - 1].size() + bytes};
      } else if (found < out.size()) {
        out[found++] = {at, bytes};
      } else {
        break;
      }
    }
    return found;
  }

 private:
  const Backend& backend_;
  BankRows bank_;
  Groups groups_;
  Activations h_;
  float* y_;
  RowCount picks_;
};

class PickSumStep : public Step {
 public:
  PickSumStep(const Backend& backend, const kernels::PickSumArgs& args, Groups groups,
              RowCount rows, int32_t threads)
      : backend_(backend), args_(args), groups_(std::move(groups)), rows_(rows), threads_(threads) {
    args_.pair_places = groups_->pair_places;
  }

  int32_t Tasks() const override {
    const Pieces cut = Cut();
    return cut.rows.pieces() * cut.columns.pieces();
  }

  bl_status Run(int32_t task, Worker* worker) const override {
    const Pieces cut = Cut();
    const int32_t row = task / cut.columns.pieces();
    const int32_t column = task % cut.columns.pieces();
    const int64_t failed = backend_.pick_sum(args_, static_cast<size_t>(cut.rows.begin(row)),
                                             static_cast<size_t>(cut.rows.end(row)),
                                             static_cast<size_t>(cut.columns.begin(column)),
                                             static_cast<size_t>(cut.columns.end(column)));
    if (failed == kernels::kNoFailingRow) return BL_OK;
    worker->failed_row = failed;
    return BL_BAD_DATA;
  }

 private:
  struct Pieces {
    Split rows;
    Split columns;
  };

  // Columns of a row apart where there are fewer rows than threads.
  Pieces Cut() const {
    // A pick's value is rounded to 64 bits: some eight multiply-adds of quantised weights.
    const auto value_work = static_cast<int64_t>(args_.top_k * 8);
    const auto dim = static_cast<int64_t>(args_.dim);
    const int64_t wanted = threads_ * kPiecesPerThread;
    const Split rows = Split::Of(rows_.Get(), 1, kTaskWorkMin / (value_work * dim), wanted);
    const bool few = rows.pieces() > 0 && rows.pieces() < threads_;
    return {rows,
            Split::Of(dim, 64, kTaskWorkMin / 4 / value_work, few ? threads_ / rows.pieces() : 1)};
  }

  const Backend& backend_;
  kernels::PickSumArgs args_;
  Groups groups_;
  RowCount rows_;
  int32_t threads_;
};

void InferRouter(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& x = RowsInput(op, call, 0, BL_F32, 2, 2);
  const graph::Shape& weight = WeightOver(call, 0, 2, x.ne[0], "input 'x' " + ToString(x));
  const std::string_view scoring = call.attrs.Str("scoring", "softmax");
  if (scoring != "softmax" && scoring != "sigmoid") {
    RefuseGraph("attribute 'scoring' is '" + std::string(scoring) +
                "'; this host has 'softmax' and 'sigmoid'");
  }
  const int64_t experts = weight.ne[1];
  if (experts > static_cast<int64_t>(kernels::kMaxExperts)) {
    RefuseGraph(DescribeWeight(call, 0) + " has more than " + std::to_string(kernels::kMaxExperts) +
                " experts");
  }
  const int64_t used = call.attrs.I64("used");
  if (used < 1 || used > experts || used > static_cast<int64_t>(kernels::kMaxPicks)) {
    RefuseGraph("attribute 'used' is " + std::to_string(used) + ", must be from 1 to " +
                std::to_string(std::min<int64_t>(experts, kernels::kMaxPicks)));
  }
  if (!std::isfinite(call.attrs.F64("scale", 1.0))) {
    RefuseGraph("attribute 'scale' is not finite");
  }
  const double sum_min = call.attrs.F64("sum_min", 0.0);
  if (!(sum_min >= 0.0) || !std::isfinite(sum_min)) {
    RefuseGraph("attribute 'sum_min' must be a finite number, 0 or more");
  }
  if (call.weights.size() > 1) {
    const graph::Shape& bias = WeightOver(call, 1, 1, experts, "the experts of the router");
    if (bias.dtype != BL_F32) RefuseGraph(DescribeWeight(call, 1) + " must be F32");
  }
  call.outputs[0] = RowsShape(BL_I32, used, x);
  call.outputs[1] = RowsShape(BL_F32, used, x);
  call.outputs[2] = RowsShape(BL_F32, experts, x);
}

void InferRoutedExperts(const graph::OperatorSchema& op, const graph::InferCall& call) {
  const graph::Shape& x = RowsInput(op, call, 0, BL_F32, 2, 2);
  const graph::Shape& ids = RowsInput(op, call, 1, BL_I32, 2, 2);
  const graph::Shape& weights = RowsInput(op, call, 2, BL_F32, 2, 2);
  const graph::Shape& residual = RowsInput(op, call, 3, BL_F32, 2, 2);
  const int64_t index = call.attrs.I64("bank");
  if (index < 0 || index >= static_cast<int64_t>(call.seat.banks.size())) {
    RefuseGraph("attribute 'bank' is " + std::to_string(index) + ", the seat has " +
                std::to_string(call.seat.banks.size()) + " banks");
  }
  const graph::BankInfo& bank = call.seat.banks[static_cast<size_t>(index)];
  const std::string name = "bank " + std::to_string(index);
  if (x.ne[0] != bank.width || residual != x) {
    RefuseGraph(name + " is " + std::to_string(bank.width) + " wide; inputs 'x' " + ToString(x) +
                " and 'residual' " + ToString(residual) + " must both be that");
  }
  if (ids.ne[0] != bank.used || weights.ne[0] != ids.ne[0] || ids.domain != x.domain ||
      weights.domain != x.domain) {
    RefuseGraph(name + " uses " + std::to_string(bank.used) + " experts a row; inputs 'ids' " +
                ToString(ids) + " and 'weights' " + ToString(weights) + " must hold that many");
  }
  call.outputs[0] = x;
}

}  // namespace

void CutExperts(const kernels::ExpertGroups& groups, int32_t threads, ExpertCut* cut) {
  const auto rows_of = [&](int32_t at) -> int64_t {
    const int32_t expert = groups.active[at];
    return groups.offsets[expert + 1] - groups.offsets[expert];
  };
  const auto work_of = [&](int32_t at) { return std::max(rows_of(at), kReadBoundRows) * cut->k; };
  int64_t total = 0;
  for (int32_t i = 0; i < groups.active_count; ++i) total += work_of(i) * cut->n;
  const int64_t piece = total / (int64_t{threads} * kExpertPiecesPerThread);
  cut->first[0] = 0;
  for (int32_t i = 0; i < groups.active_count; ++i) {
    // Down to whole tiles, so that no piece is much larger than the others, but each worth handing
    // over.
    const int64_t tiles = piece / (work_of(i) * kTile) * kTile;
    const int64_t least = kTaskWorkMin / (cut->k * std::max<int64_t>(1, rows_of(i)));
    const Split rows = Split::Of(cut->n, kTile, std::max(tiles, least), cut->n);
    cut->per_piece[i] = static_cast<int32_t>(std::min(rows.per_piece, cut->n));
    cut->first[i + 1] = cut->first[i] + rows.pieces();
  }
}

std::unique_ptr<Step> MakeRoute(const Backend& backend, const kernels::RouterArgs& args,
                                RowCount rows, int32_t threads) {
  return std::make_unique<RouteStep>(backend, args, rows, threads);
}

std::unique_ptr<Step> MakeGroupPicks(const int32_t* ids, size_t used, size_t experts,
                                     uint64_t expert_bytes, Groups groups, RowCount rows,
                                     int32_t threads) {
  return std::make_unique<GroupPicksStep>(ids, used, experts, expert_bytes, std::move(groups), rows,
                                          threads);
}

std::unique_ptr<Step> MakeExpertGateUp(const Backend& backend, const BankRows& bank, Groups groups,
                                       const Activations& x, float* h, RowCount picks) {
  return std::make_unique<ExpertGateUpStep>(backend, bank, std::move(groups), x, h, picks);
}

std::unique_ptr<Step> MakeExpertDown(const Backend& backend, const BankRows& bank, Groups groups,
                                     const Activations& h, float* y, RowCount picks) {
  return std::make_unique<ExpertDownStep>(backend, bank, std::move(groups), h, y, picks);
}

std::unique_ptr<Step> MakePickSum(const Backend& backend, const kernels::PickSumArgs& args,
                                  Groups groups, RowCount rows, int32_t threads) {
  return std::make_unique<PickSumStep>(backend, args, std::move(groups), rows, threads);
}

void AddMoeOperators(std::vector<graph::OperatorSchema>* out) {
  out->push_back({.name = "router",
                  .numeric_class = BL_EXACT,
                  .inputs = {{"x"}},
                  .weights_min = 1,
                  .weights_max = 2,
                  .outputs_min = 3,
                  .outputs_max = 3,
                  .attrs = {{.key = "scoring", .type = BL_ATTR_STR},
                            {.key = "used", .type = BL_ATTR_I64, .required = true},
                            {.key = "renormalise", .type = BL_ATTR_BOOL},
                            {.key = "sum_min", .type = BL_ATTR_F64},
                            {.key = "scale", .type = BL_ATTR_F64}},
                  .infer = InferRouter});
  out->push_back({.name = "routed_experts",
                  .numeric_class = BL_EXACT,
                  .inputs = {{"x"}, {"ids"}, {"weights"}, {"residual"}},
                  .attrs = {{.key = "bank", .type = BL_ATTR_I64, .required = true}},
                  .infer = InferRoutedExperts});
}

}  // namespace bloomery::ops
