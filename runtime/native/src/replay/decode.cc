#include "replay/decode.h"

#include <algorithm>

namespace mlcc {
namespace {

constexpr size_t kMost = 4;
constexpr int64_t kFewestPages = 8;  // the minimum: a range of keys in the attention of GPUs

int64_t rounded(int64_t count) {
  int64_t power = kFewestPages;
  while (power < count) power *= 2;
  return power;
}

}  // namespace

DecodeKind kind_of(const Step& step) {
  bool decodes = step.tokens == step.sequences && step.rows == step.sequences;
  return {decodes ? step.sequences : 0, step.adapted > 0, step.mtp};
}

std::vector<int64_t> Decodes::pages_of(const Step& step) const {
  std::vector<int64_t> pages;
  for (size_t g = 0; g < layout_.groups.size(); ++g) {
    int64_t most = layout_.groups[g].most_pages;
    pages.push_back(on_host_ ? most : std::min(most, rounded(step.pages[g])));
  }
  return pages;
}

Held::Held(const Decode& decode, Workspace& workspace) : workspace_(workspace) {
  for (const auto* result : {&decode.logits, &decode.tokens, &decode.logprobs}) workspace.hold(**result);
}

Decode* Decodes::find(const Step& step) {
  DecodeKind kind = kind_of(step);
  if (kept_.empty() || kind.sequences == 0) return nullptr;
  std::vector<int64_t> pages = pages_of(step);
  auto found = std::find_if(kept_.begin(), kept_.end(),
                            [&](const Decode& decode) { return decode.kind == kind && decode.pages == pages; });
  if (found == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found);
  before_ = kind;
  pages_before_ = std::move(pages);
  return &kept_.front();
}

bool Decodes::wanted(const Step& step) {
  DecodeKind kind = kind_of(step);
  std::vector<int64_t> pages = pages_of(step);
  bool again = possible_ && kind.sequences > 0 && kind == before_ && pages == pages_before_;
  before_ = kind;
  pages_before_ = std::move(pages);
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
