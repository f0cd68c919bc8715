// The border to TVM: our errors become TVM's, which reach Python with their text.
#pragma once

#include <tvm/ffi/error.h>

#include <utility>

#include "wgpu/errors.h"

namespace mlcc::webgpu {

// Calls `body`; TVM's allocators and its FFI know no exception but their own.
template <typename Body>
decltype(auto) guarded(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const Error& error) {
    throw tvm::ffi::Error("RuntimeError", error.what(), "");
  }
}

}  // namespace mlcc::webgpu
