// Which call into code that is not ours (a plugin's) a thread is in, for the last words of a
// process that dies in one: a crash or an exit there cannot be caught, but it can be told whose it
// was. A note costs two stores. Any thread; a signal handler reads the note of the thread it runs
// on.
#pragma once

namespace bloomery {

// Texts outlive the note: literals, or strings of whatever is called.
struct ForeignCall {
  const char* owner = nullptr;  // a plugin's path, or an operator "<plugin>.<something>"
  const char* call = nullptr;   // "create"; null: none is under way
};

class ForeignCallNote {
 public:
  ForeignCallNote(const char* owner, const char* call) : at_(Place()), before_(*at_) {
    *at_ = {owner, call};
  }
  ~ForeignCallNote() { *at_ = before_; }
  ForeignCallNote(const ForeignCallNote&) = delete;
  ForeignCallNote& operator=(const ForeignCallNote&) = delete;

  // Of the calling thread.
  static ForeignCall Current() { return *Place(); }
  // The calling thread's notes are written there from now on, for another process to read.
  static void WriteTo(ForeignCall* place);

 private:
  static ForeignCall* Place();

  ForeignCall* at_;
  ForeignCall before_;
};

// From now on a crash says on stderr what ended the process and, where a note is set, in which
// call; and an exit from inside such a call says so and ends with code 1. Once, at a program's
// start. Sanitizers, which report crashes themselves, keep their handlers.
void TellHowProcessEnds(const char* program);

}  // namespace bloomery
