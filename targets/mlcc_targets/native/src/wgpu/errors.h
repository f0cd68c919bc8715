// Errors: what went wrong, in a form that Python recognizes by its first words.
#pragma once

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>

#include "wgpu/wgpu_api.h"

namespace mlcc::webgpu {

enum class Fault {
  kUnavailable,  // no library, driver or device
  kDeviceLost,   // the device is gone; nothing on it can be used again
  kOutOfMemory,  // an allocation that did not fit
  kKernel,       // a kernel that does not compile, or arguments it cannot be given
  kDevice,       // anything else the device reports
};

// "mlcc.webgpu.DeviceLost" and so on: the prefix of an error's text. mlcc.device.compiled.webgpu maps these
// to its own exceptions, so they are part of the interface.
std::string_view fault_name(Fault fault);

class Error : public std::runtime_error {
 public:
  Error(Fault fault, const std::string& message);
  [[nodiscard]] Fault fault() const { return fault_; }

 private:
  Fault fault_;
};

std::string to_string(WGPUStringView view);
WGPUStringView to_view(std::string_view text);

// What a device reported since the last check. Callbacks write it, from any thread.
class ErrorLog {
 public:
  void report(WGPUErrorType type, const std::string& message);
  void report_lost(const std::string& message);
  [[nodiscard]] bool is_lost() const { return lost_.load(); }
  [[nodiscard]] bool any() const { return pending_.load(); }

  // Throws what was reported, saying what was being done: "compiling" "kernel matmul".
  void check(std::string_view doing, std::string_view what = {},
             Fault otherwise = Fault::kDevice) {
    if (pending_.load()) raise(doing, what, otherwise);
  }

 private:
  [[noreturn]] void raise(std::string_view doing, std::string_view what, Fault otherwise);

  std::mutex mutex_;
  std::atomic<bool> pending_ = false;
  std::atomic<bool> lost_ = false;
  WGPUErrorType type_ = WGPUErrorType_NoError;
  std::string message_;
  std::string lost_message_;
};

}  // namespace mlcc::webgpu
