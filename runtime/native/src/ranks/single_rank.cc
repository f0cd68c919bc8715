// Where processes cannot share memory by a descriptor (Windows), a model is computed by one.
#include "error.h"
#include "ranks/ranks.h"

namespace mlcc {

std::unique_ptr<Ranks> Ranks::of(const mlcc_executor_options& options) {
  require(options.ranks.count <= 1, MLCC_UNSUPPORTED, "several processes cannot share a model on Windows");
  return nullptr;
}

// Never reached: there is no object.
Ranks::~Ranks() = default;
void Ranks::join() {}
void Ranks::send(Command) {}
Command Ranks::next() { return Command::kStop; }
void Ranks::meet() {}
void Ranks::give_up() noexcept {}
void Ranks::all_reduce(const DLTensor&, const DLTensor&) {}
void Ranks::all_gather(const DLTensor&, const DLTensor&) {}

}  // namespace mlcc
