// What the JavaScript side, npm's @mlc-ai/web-runtime, calls in a library, and what it is called
// for: memory for arguments, functions that JavaScript implements, errors as text, tensors as bytes.

#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/runtime/tensor.h>

#include <cstdlib>
#include <string>

// -- implemented in JavaScript ---------------------------------------------------------------------

#define FROM_PAGE(name) __attribute__((import_module("env"), import_name(name)))

extern "C" {
FROM_PAGE("TVMFFIWasmSafeCall")
int page_call(void* function, const TVMFFIAny* arguments, int32_t count, TVMFFIAny* result);
FROM_PAGE("TVMFFIWasmFunctionDeleter") void page_forget(void* function);
}

// -- called from JavaScript ------------------------------------------------------------------------

extern "C" {

void* TVMWasmAllocSpace(int bytes) { return std::malloc(static_cast<size_t>(bytes)); }

void TVMWasmFreeSpace(void* space) { std::free(space); }

int TVMFFIWasmFunctionCreate(void* function, TVMFFIObjectHandle* out) {
  return TVMFFIFunctionCreate(function, page_call, page_forget, out);
}

// Text of the error that the last call ended with; it stays until the next one is asked for.
const char* TVMFFIWasmGetLastError() {
  static std::string text;
  text = tvm::ffi::details::MoveFromSafeCallRaised().what();
  return text.c_str();
}

}  // extern "C"

namespace mlcc::wasm {
namespace {

using tvm::ffi::Any;
using tvm::ffi::Bytes;
using tvm::ffi::PackedArgs;
using tvm::runtime::Tensor;

void copy_from_bytes(Tensor tensor, TVMFFIByteArray* bytes) {
  tensor.CopyFromBytes(bytes->data, bytes->size);
}

Bytes copy_to_bytes(Tensor tensor) {
  std::string bytes(tvm::ffi::GetDataSize(*tensor.operator->()), '\0');
  tensor.CopyToBytes(bytes.data(), bytes.size());
  return Bytes(std::move(bytes));
}

// Functions that the JavaScript side looks up when it starts and mlcc never calls.
constexpr const char* kLeftOut[] = {
    "tvmjs.array.decode_storage",
    "tvmjs.runtime.ArrayConcat",
    "tvmjs.runtime.ConcatEmbeddings",
    "vm.builtin.apply_presence_and_frequency_penalty",
    "vm.builtin.apply_repetition_penalty",
    "vm.builtin.apply_softmax_with_temperature",
    "vm.builtin.param_module_from_cache",
    "vm.builtin.param_module_from_cache_by_name",
    "vm.builtin.sample_top_p_from_logits",
    "vm.builtin.sample_top_p_from_prob",
    "vm.builtin.tensor_cache.clear",
    "vm.builtin.tensor_cache.get",
    "vm.builtin.tensor_cache.remove",
    "vm.builtin.tensor_cache.update",
};

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef functions;
  functions.def("tvmjs.runtime.TensorCopyFromBytes", copy_from_bytes);
  functions.def("tvmjs.runtime.TensorCopyToBytes", copy_to_bytes);
  for (const char* name : kLeftOut) {
    functions.def_packed(name, [name](PackedArgs, Any*) {
      TVM_FFI_THROW(RuntimeError) << "'" << name << "' is left out of mlcc's wasm runtime";
    });
  }
}

}  // namespace
}  // namespace mlcc::wasm
