#include "wgpu/errors.h"

#include <cstring>

namespace mlcc::webgpu {
namespace {

Fault fault_of(WGPUErrorType type, Fault otherwise) {
  return type == WGPUErrorType_OutOfMemory ? Fault::kOutOfMemory : otherwise;
}

}  // namespace

std::string_view fault_name(Fault fault) {
  switch (fault) {
    case Fault::kUnavailable:
      return "mlcc.webgpu.Unavailable";
    case Fault::kDeviceLost:
      return "mlcc.webgpu.DeviceLost";
    case Fault::kOutOfMemory:
      return "mlcc.webgpu.OutOfMemory";
    case Fault::kKernel:
      return "mlcc.webgpu.KernelError";
    case Fault::kDevice:
      break;
  }
  return "mlcc.webgpu.DeviceError";
}

Error::Error(Fault fault, const std::string& message)
    : std::runtime_error(std::string(fault_name(fault)) + ": " + message), fault_(fault) {}

std::string to_string(WGPUStringView view) {
  if (view.data == nullptr) return {};
  return {view.data, view.length == WGPU_STRLEN ? std::strlen(view.data) : view.length};
}

WGPUStringView to_view(std::string_view text) { return {text.data(), text.size()}; }

void ErrorLog::report(WGPUErrorType type, const std::string& message) {
  const std::lock_guard lock(mutex_);
  // The first error is the cause; those after it are mostly its consequences.
  if (type_ == WGPUErrorType_NoError) {
    type_ = type;
    message_ = message;
  }
  pending_ = true;
}

void ErrorLog::report_lost(const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (!lost_) lost_message_ = message;
  lost_ = true;
  pending_ = true;  // and stays so: each later check throws
}

void ErrorLog::raise(std::string_view doing, std::string_view what, Fault otherwise) {
  const std::lock_guard lock(mutex_);
  std::string text(doing);
  if (!what.empty()) text.append(" ").append(what);
  if (lost_) {
    throw Error(Fault::kDeviceLost, text + ": the device was lost (" + lost_message_ +
                                        "); restart the process");
  }
  const Fault fault = fault_of(type_, otherwise);
  text += ": " + message_;
  type_ = WGPUErrorType_NoError;
  message_.clear();
  pending_ = false;
  throw Error(fault, text);
}

}  // namespace mlcc::webgpu
