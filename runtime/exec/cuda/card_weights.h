// The weights of a seat on a card: where each lies there (integer matrices in the form the kernels
// read, the rest as in the file), and the memory that holds them. card_load.h brings them there.
// Immutable after loading.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kernels-common/quant/cuda/card_form.h"
#include "runtime/exec/cuda/card.h"
#include "runtime/memory/parallel_read.h"
#include "runtime/model/inventory.h"
#include "runtime/plugin/description.h"

namespace bloomery::exec {

// How a weight lies on the card.
enum class CardLayout {
  kFileRows,  // as in the file: float formats, and tables that are read row by row
  kCardForm,  // tiles of 16 rows
  kDecoded,   // F16 rows, decoded by the host: a format without kernels here
};

// Where a weight's bytes lie: decided before anything is allocated.
struct CardPlace {
  CardLayout layout = CardLayout::kFileRows;
  uint64_t at = 0;     // from the start of all weights
  uint64_t bytes = 0;  // there
};

class CardWeightLayout {
 public:
  // Error(kUnsupported) naming tensor and type where nothing on the card can read it.
  CardWeightLayout(const model::ModelFile& model, const plugin::Description& description);

  const CardPlace& place(uint32_t weight) const { return places_[weight]; }
  uint64_t bytes() const { return bytes_; }
  // Beside the weights while they load: rooms for what is on its way into card form.
  uint64_t staging_bytes() const { return staging_bytes_; }
  // "token_embd.weight (IQ2_S) as F16": what has no kernels in its own format, for the log.
  const std::vector<std::string>& decoded() const { return decoded_; }
  // The weights to load, no bytes twice, in the order of the files.
  std::span<const uint32_t> order() const { return order_; }

 private:
  std::vector<CardPlace> places_;  // by weight
  std::vector<uint32_t> order_;
  std::vector<std::string> decoded_;
  uint64_t bytes_ = 0;
  uint64_t staging_bytes_ = 0;
};

// What loading took, for the log. Seconds are this thread's, one after the other, unless they say
// otherwise; what is left of `read.seconds` is its work: calls of the driver, above all.
struct CardLoadReport {
  memory::ReadReport read;
  double memory = 0;   // taking the card's memory
  double pinning = 0;  // of the ring
  double files = 0;    // waiting for bytes of the files, the link idle
  double copies = 0;   // waiting while copies were on their way: the link is what is slow
  double link = 0;     // on the card, beside the others: from the first copy to the last one's end
  double tail = 0;     // on the card: repacking after the last copy

  // "weights: 17.3 GiB to CUDA0 in 0.40 s, 46.1 GB/s (memory 0.010, …)".
  std::string Line(const std::string& card) const;
};

class CardWeights {
 public:
  // `progress(done, total)` is called by this thread now and then. Throws Error(kNoMemory) where
  // the card has not what was planned, the errors of reading, and what `progress` throws.
  CardWeights(const model::ModelFile& model, const plugin::Description& description,
              CardWeightLayout layout, const kernels::cuda::Launch& launch,
              const std::function<void(uint64_t, uint64_t)>& progress);

  // A matrix, or a bank's part.
  kernels::cuda::CardWeight Matrix(uint32_t weight) const;
  // First byte of a weight that lies as in the file (or decoded): norms, biases, tables.
  const std::byte* Data(uint32_t weight) const;
  // The GGUF type of its bytes on the card.
  int Type(uint32_t weight) const;

  // All of them, for measuring how fast the card reads.
  std::span<const std::byte> memory() const { return {memory_.data(), memory_.size()}; }

  const CardLoadReport& report() const { return report_; }

 private:
  const plugin::Description& description_;
  CardWeightLayout layout_;
  CardBuffer memory_;
  CardLoadReport report_;
};

}  // namespace bloomery::exec
