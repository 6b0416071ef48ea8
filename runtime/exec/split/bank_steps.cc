#include "runtime/exec/split/bank_steps.h"

#include <utility>

#include "kernels-common/moe/cpu/moe.h"
#include "runtime/ops/linear.h"

namespace bloomery::exec {
namespace {

ops::Activations Encoded(const kernels::FormatTraits& format, std::byte* codes, float* f32,
                         size_t width) {
  ops::Activations x;
  x.f32 = f32;
  x.stride = width;
  const size_t group = format.activation_group;
  if (group != 0) {
    (group == 256 ? x.group_256 : x.group_32) = kernels::MakeQuantisedRows(codes, width, group);
  }
  return x;
}

}  // namespace

BankSteps::BankSteps(const Args& args)
    : experts_(args.bank.experts),
      used_(args.used),
      threads_(args.threads),
      expert_bytes_(args.bank.gate_expert_bytes + args.bank.up_expert_bytes +
                    args.bank.down_expert_bytes) {
  const ops::BankRows& bank = args.bank;
  const Arrays& arrays = args.arrays;
  const size_t picks_max = static_cast<size_t>(args.rows_max) * used_;
  groups_->offsets = arrays.ints;
  groups_->active = groups_->offsets + experts_ + 1;
  groups_->place_rows = groups_->active + experts_;
  groups_->pair_places = groups_->place_rows + picks_max;
  groups_->gate_up = {.n = static_cast<int64_t>(bank.ff),
                      .k = 2 * static_cast<int64_t>(bank.width),
                      .first = groups_->pair_places + picks_max,
                      .per_piece = groups_->pair_places + picks_max + experts_ + 1};
  groups_->down = {.n = static_cast<int64_t>(bank.width),
                   .k = static_cast<int64_t>(bank.ff),
                   .first = groups_->gate_up.per_piece + experts_,
                   .per_piece = groups_->gate_up.per_piece + 2 * experts_ + 1};
  const ops::Activations x =
      Encoded(*bank.gate.format, arrays.input, reinterpret_cast<float*>(arrays.input), bank.width);
  const ops::Activations inner = Encoded(*bank.down.format, arrays.codes, arrays.h, bank.ff);
  const ops::Backend& backend = *args.backend;
  const ops::RowCount live{args.live};
  const ops::RowCount picks{args.live, static_cast<int32_t>(used_)};
  many_rows_.push_back(ops::MakeExpertGateUp(backend, bank, groups_, x, arrays.h, picks));
  if (const size_t group = bank.down.format->activation_group; group != 0) {
    many_rows_.push_back(
        ops::MakeQuantise(backend, arrays.h, bank.ff, inner.Quantised(group), picks, threads_));
  }
  many_rows_.push_back(ops::MakeExpertDown(backend, bank, groups_, inner, arrays.y, picks));
  kernels::PickSumArgs sum;
  sum.y = arrays.y;
  sum.y_stride = bank.width;
  sum.pair_places = groups_->pair_places;
  sum.weights = arrays.weights;
  sum.top_k = used_;
  sum.dim = bank.width;
  sum.sums = arrays.sums;
  many_rows_.push_back(ops::MakePickSum(backend, sum, groups_, live, threads_));
  auto few_rows = std::make_unique<FewRowsExperts>(FewRowsExperts::Args{.backend = &backend,
                                                                        .bank = bank,
                                                                        .groups = groups_,
                                                                        .x = x,
                                                                        .inner = inner,
                                                                        .h = arrays.h,
                                                                        .y = arrays.y,
                                                                        .sum = sum,
                                                                        .live = args.live,
                                                                        .threads = threads_,
                                                                        .counts = args.counts,
                                                                        .until = args.until});
  few_rows_experts_ = few_rows.get();
  few_rows_.push_back(std::move(few_rows));
}

void BankSteps::Begin(const int32_t* ids, int32_t rows) {
  rows_ = rows;
  kernels::cpu::GroupPicks(ids, static_cast<size_t>(rows), used_, experts_, groups_.get());
  if (rows <= kFewRows) return few_rows_experts_->Begin();
  ops::CutExperts(*groups_, threads_, &groups_->gate_up);
  ops::CutExperts(*groups_, threads_, &groups_->down);
}

std::span<const std::unique_ptr<ops::Step>> BankSteps::Steps() const {
  return rows_ <= kFewRows ? few_rows_ : many_rows_;
}

void BankSteps::WrapSteps(const Wrap& wrap) {
  for (auto* steps : {&few_rows_, &many_rows_}) {
    for (std::unique_ptr<ops::Step>& step : *steps) step = wrap(std::move(step));
  }
}

}  // namespace bloomery::exec
