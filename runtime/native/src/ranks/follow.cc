// The work of ranks above 0: run rank 0's commands on their part of the model.
#include "error.h"
#include "model/model.h"

namespace mlcc {

void Model::follow() {
  require(ranks_ && !ranks_->leads(), MLCC_ARGUMENT, "only ranks behind 0 follow it");
  for (Command command; (command = ranks_->next()) != Command::kStop;) {
    try {
      follow(command);
    } catch (...) {
      ranks_->give_up();
      throw;
    }
  }
}

void Model::follow(Command command) {
  if (command == Command::kLogits) {
    logits();
  } else {
    forget(submit(command == Command::kAdjustedStep));
  }
}

void Model::require_alone(const char* does) const {
  if (!ranks_) return;
  throw Error(MLCC_UNSUPPORTED, "a model of several ranks " + std::string(does) + ", one without --tp does");
}

}  // namespace mlcc
