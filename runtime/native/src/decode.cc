#include "decode.h"

#include <algorithm>

namespace mlcc {
namespace {

constexpr size_t kMost = 4;

bool is_decode(const Step& step) { return step.tokens == step.sequences && step.rows == step.sequences; }

}  // namespace

Held::Held(const Decode& decode, Workspace& workspace) : workspace_(workspace) {
  for (const auto* result : {&decode.logits, &decode.tokens, &decode.logprobs}) workspace.hold(**result);
}

Decode* Decodes::find(const Step& step) {
  if (!is_decode(step)) return nullptr;
  auto found = std::find_if(kept_.begin(), kept_.end(),
                            [&](const Decode& decode) { return decode.sequences == step.sequences; });
  if (found == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found);
  before_ = step.sequences;
  return &kept_.front();
}

bool Decodes::wanted(const Step& step) {
  int32_t sequences = is_decode(step) ? step.sequences : 0;
  bool again = possible_ && sequences > 0 && sequences == before_;
  before_ = sequences;
  return again;
}

void Decodes::keep(Decode made, const Workspace& workspace) {
  possible_ = made.usable();
  if (!possible_) return;
  for (auto* result : {&made.logits, &made.tokens, &made.logprobs}) *result = workspace.lent(**result);
  if (kept_.size() == kMost) kept_.pop_back();
  kept_.push_front(std::move(made));
}

}  // namespace mlcc
