// The two functions by which a library's ranks exchange results, as a module that the library imports.
#include "ranks/ranks.h"

namespace mlcc {
namespace {

class Collectives final : public ffi::ModuleObj {
 public:
  explicit Collectives(Ranks* ranks) : ranks_(ranks) {}

  const char* kind() const final { return "mlcc.collectives"; }

  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    if (name == "mlcc.all_reduce") return function(&Ranks::all_reduce);
    if (name == "mlcc.all_gather") return function(&Ranks::all_gather);
    return std::nullopt;
  }

 private:
  ffi::Function function(void (Ranks::*collective)(const DLTensor&, const DLTensor&)) const {
    return ffi::Function::FromTyped([ranks = ranks_, collective](ffi::Tensor from, ffi::Tensor to) {
      (ranks->*collective)(*from.GetDLTensorPtr(), *to.GetDLTensorPtr());
    });
  }

  Ranks* ranks_;
};

}  // namespace

ffi::Module Ranks::collectives() { return ffi::Module(ffi::make_object<Collectives>(this)); }

}  // namespace mlcc
