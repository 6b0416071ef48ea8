#include "runtime/memory/residency/frame_map.h"

#include <algorithm>
#include <string>

#include "runtime/base/error.h"

namespace bloomery::memory {
namespace {

[[noreturn]] void Refuse(size_t bank, const char* what, int32_t id, const char* why) {
  throw Error(ErrorKind::kInternal,
              "bank " + std::to_string(bank) + ": " + what + ' ' + std::to_string(id) + ' ' + why);
}

}  // namespace

FrameMap::FrameMap(std::span<const BankFrames> banks) : banks_(banks.begin(), banks.end()) {
  size_t experts = 0;
  size_t frames = 0;
  for (size_t i = 0; i < banks_.size(); ++i) {
    const BankFrames& bank = banks_[i];
    if (bank.experts < 1 || bank.experts > UINT16_MAX || bank.frames > bank.experts) {
      throw Error(ErrorKind::kInternal, "bank " + std::to_string(i) + ": " +
                                            std::to_string(bank.frames) + " frames for " +
                                            std::to_string(bank.experts) + " experts");
    }
    expert_first_.push_back(experts);
    frame_first_.push_back(frames);
    experts += bank.experts;
    frames += bank.frames;
  }
  frame_of_.assign(experts, kOnHost);
  expert_of_.assign(frames, kNoExpert);
  for (size_t i = 0; i < banks_.size(); ++i) {
    for (int32_t frame = 0; frame < static_cast<int32_t>(banks_[i].frames); ++frame) {
      Seat(i, frame, frame);
    }
  }
}

std::span<const int32_t> FrameMap::FramesOf(size_t bank) const {
  return std::span(frame_of_).subspan(expert_first_[bank], banks_[bank].experts);
}

std::span<const int32_t> FrameMap::ExpertsOf(size_t bank) const {
  return std::span(expert_of_).subspan(frame_first_[bank], banks_[bank].frames);
}

int32_t FrameMap::FreeFrame(size_t bank) const {
  const auto experts = ExpertsOf(bank);
  const auto found = std::ranges::find(experts, kNoExpert);
  return found == experts.end() ? -1 : static_cast<int32_t>(found - experts.begin());
}

int32_t& FrameMap::Expert(size_t bank, int32_t frame) {
  if (frame < 0 || frame >= static_cast<int32_t>(banks_[bank].frames)) {
    Refuse(bank, "frame", frame, "does not exist");
  }
  return expert_of_[frame_first_[bank] + static_cast<size_t>(frame)];
}

int32_t FrameMap::Unseat(size_t bank, int32_t expert) {
  if (expert < 0 || expert >= static_cast<int32_t>(banks_[bank].experts) || !Seated(bank, expert)) {
    Refuse(bank, "expert", expert, "has no frame to leave");
  }
  int32_t& frame_of = frame_of_[expert_first_[bank] + static_cast<size_t>(expert)];
  const int32_t frame = frame_of;
  Expert(bank, frame) = kNoExpert;
  frame_of = kOnHost;
  return frame;
}

void FrameMap::Reserve(size_t bank, int32_t frame) {
  int32_t& expert = Expert(bank, frame);
  if (expert != kNoExpert) Refuse(bank, "frame", frame, "is not free");
  expert = kFilling;
}

void FrameMap::Release(size_t bank, int32_t frame) {
  int32_t& expert = Expert(bank, frame);
  if (expert != kFilling) Refuse(bank, "frame", frame, "is not kept for anything");
  expert = kNoExpert;
}

void FrameMap::Seat(size_t bank, int32_t expert, int32_t frame) {
  int32_t& in_frame = Expert(bank, frame);
  if (in_frame != kNoExpert) Refuse(bank, "frame", frame, "is not free");
  if (expert < 0 || expert >= static_cast<int32_t>(banks_[bank].experts) || Seated(bank, expert)) {
    Refuse(bank, "expert", expert, "cannot get a frame: it has one, or does not exist");
  }
  in_frame = expert;
  frame_of_[expert_first_[bank] + static_cast<size_t>(expert)] = frame;
}

}  // namespace bloomery::memory
