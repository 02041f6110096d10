// Which prompts of a conversation stay pinned, under policies that pin prompts: the first one, with the task or the
// system's message, and the latest. Those between become pages like an answer's when the next prompt begins; otherwise
// every turn of a conversation would be pinned until nothing else had room.
#pragma once

#include "policy/policy.h"

namespace weir {

// Flags of a page beside those of ops.h, which no device looks at.
inline constexpr uint32_t kPageFirstPrompt = 8;  // has tokens of the first prompt
// While a prompt is read: what kPagePinned and kPagePrompt were before it.
inline constexpr uint32_t kPageWasPinned = kPagePinned << 4, kPageWasPrompt = kPagePrompt << 4;

// The pins of earlier prompts while a prompt is read. Unless the prompt ends with end(), they are as before.
class EarlierPrompts {
 public:
  EarlierPrompts(const Policy& policy, KvCache& kv);
  ~EarlierPrompts();
  EarlierPrompts(const EarlierPrompts&) = delete;
  EarlierPrompts& operator=(const EarlierPrompts&) = delete;

  // After Policy::prompt_end: earlier prompts stay unpinned, and the first of all is marked.
  void end();

 private:
  KvCache& kv_;
  bool pins_;
};

}  // namespace weir
