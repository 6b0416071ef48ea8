// How fast a placement will be: what a row reads and computes, over the rates of this machine. The
// model is the plain one (docs/programs.md): in each layer of a decode step the card's own work,
// then the longer of the experts there and those of the host, which is handed their part; prompts
// are divided between card, link and host as a seat does it (residency/sharing.h). Of several cards
// each does this for its own layers, one after the other. Experts are taken as picked evenly;
// residency does better where they are not. Pure; what constants are measured is said beside them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/memory/placement.h"

namespace bloomery::memory {

// Bytes and multiply-adds of one expert.
struct BankWork {
  uint32_t experts = 0;
  uint32_t used = 0;
  uint64_t bytes = 0;
  uint64_t macs = 0;   // of one row
  uint64_t width = 0;  // of a row's sum
};

struct DenseWork {
  uint64_t dense_bytes = 0;        // weights that every token reads
  uint64_t dense_macs = 0;         // of one row
  uint64_t context_row_bytes = 0;  // of the states, read by every later token of the slot

  bool operator==(const DenseWork&) const = default;
};

struct SeatWork : DenseWork {  // in all
  uint32_t layers = 0;
  std::vector<BankWork> banks = {};
  // Of it, that of each layer; what is no layer's is behind them. Needed for several cards.
  std::vector<DenseWork> of_layers = {};
};

// Measured by `bloomery doctor`; bytes a second, and multiply-adds a second. 0: not measured.
struct CardRates {
  std::string id = {};    // "CUDA0"
  std::string name = {};  // "NVIDIA H200"
  double read = 0;
  double to_card = 0;         // from pinned memory
  double to_card_beside = 0;  // while the host's pool computes experts of a prompt
  double from_card = 0;
  double hand_off = 0;  // seconds in which card and host answer each other through memory
  int32_t multiprocessors = 0;
};
// What an expert takes the host's pool, measured with experts of `bytes` (0: not measured), in
// microseconds.
struct HostExpertRates {
  uint64_t bytes = 0;
  // A dispatch of experts of one row each: so much itself, and so much an expert.
  double dispatch_us = 0;
  double expert_us = 0;
  // Of a prompt, as ShareRates has them, and how many times as long while the link is busy (1 where
  // there is no card).
  double read_us = 0;
  double fixed_us = 0;
  double row_us = 0;
  double beside_link = 1;
};
struct MachineRates {
  double host_read = 0;  // all threads of the pool
  double host_macs = 0;  // theirs, of int8
  double file_read = 0;
  HostExpertRates experts = {};
  std::vector<CardRates> cards = {};
};

// Tokens a second of one stream, and what most of the time goes to; 0: a rate is not known, of any
// card of the placement.
struct Prediction {
  double decode = 0;
  std::string decode_by = {};  // "the card", "the link", "the host's experts", "the host"
  double prompt = 0;           // rows
  std::string prompt_by = {};
};

// Decode after `depth` rows of context; prompts in passes of `prompt_rows` rows, at most as many as
// a pass can have (0: so many), in the parts that stages overlap in.
Prediction Predict(const Placement& placement, const SeatWork& work, const MachineRates& rates,
                   int32_t depth, int32_t prompt_rows = 0);

// "predicted: decode 799 tok/s at depth 0 (by the card), prompt 18441 tok/s (by the card)"; empty
// where nothing is known.
std::string PredictionLine(const Prediction& prediction, int32_t depth);

}  // namespace bloomery::memory
