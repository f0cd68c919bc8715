// The C API over a model: one lock each, and no exception beyond it.
#include "executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "error.h"
#include "model.h"

struct mlcc_executor {
  explicit mlcc_executor(const mlcc_executor_options& options) : model(options) {}
  std::mutex lock;
  mlcc::Model model;
};

namespace {

namespace ffi = tvm::ffi;

std::string& last_error() {
  thread_local std::string text;
  return text;
}

mlcc_executor_status failed(mlcc_executor_status status, const char* text) noexcept {
  try {
    last_error() = text;
    std::replace(last_error().begin(), last_error().end(), '\n', ' ');
  } catch (...) {
  }
  return status;
}

// What `body` does, as a status.
template <typename Body>
mlcc_executor_status guarded(Body body) noexcept {
  try {
    body();
    return MLCC_OK;
  } catch (const mlcc::Error& error) {
    return failed(error.status, error.what());
  } catch (const ffi::Error& error) {
    bool full = error.kind() == "MemoryError" || error.message() == std::bad_alloc().what();
    return failed(full ? MLCC_MEMORY : MLCC_DEVICE, error.message().c_str());
  } catch (const std::bad_alloc&) {
    return failed(MLCC_MEMORY, "no memory");
  } catch (const std::exception& error) {
    return failed(MLCC_DEVICE, error.what());
  } catch (...) {
    return failed(MLCC_DEVICE, "an unknown error");
  }
}

// The same with the lock of an executor.
template <typename Body>
mlcc_executor_status with(mlcc_executor* executor, Body body) noexcept {
  return guarded([&] {
    mlcc::require(executor != nullptr, MLCC_ARGUMENT, "there is no executor");
    std::lock_guard<std::mutex> lock(executor->lock);
    body(executor->model);
  });
}

size_t bytes_of(const ffi::Tensor& tensor) { return ffi::GetDataSize(*tensor.GetDLTensorPtr()); }

// In double precision.
double log_probability(const float* logits, int64_t count, int32_t token) {
  double peak = *std::max_element(logits, logits + count), total = 0;
  for (int64_t i = 0; i < count; ++i) total += std::exp(logits[i] - peak);
  return logits[token] - peak - std::log(total);
}

}  // namespace

int32_t mlcc_executor_abi(void) { return MLCC_EXECUTOR_ABI; }

const char* mlcc_executor_error(void) { return last_error().c_str(); }

mlcc_executor_status mlcc_executor_open(const mlcc_executor_options* options, mlcc_executor** executor) {
  return guarded([&] {
    mlcc::require(executor != nullptr && options != nullptr, MLCC_ARGUMENT, "nothing is to be opened");
    *executor = nullptr;
    mlcc::require(options->abi == MLCC_EXECUTOR_ABI, MLCC_ARGUMENT, "the caller has another version of executor.h");
    *executor = new mlcc_executor(*options);
  });
}

mlcc_executor_status mlcc_executor_step(mlcc_executor* executor, int32_t** words) {
  return with(executor, [=](mlcc::Model& model) { *words = model.step_words(); });
}

mlcc_executor_status mlcc_executor_adjustments(mlcc_executor* executor, int32_t** words) {
  return with(executor, [=](mlcc::Model& model) { *words = model.adjustment_words(); });
}

mlcc_executor_status mlcc_executor_submit(mlcc_executor* executor, int32_t adjusted, int64_t* ticket) {
  return with(executor, [=](mlcc::Model& model) { *ticket = model.submit(adjusted != 0); });
}

mlcc_executor_status mlcc_executor_collect(mlcc_executor* executor, int64_t ticket, int32_t* tokens, float* logprobs,
                                           int32_t* rows, int32_t* top_tokens, float* top_logprobs, int32_t* top) {
  return with(executor, [=](mlcc::Model& model) {
    const mlcc::Results& results = model.results(ticket);
    std::copy(results.tokens.begin(), results.tokens.end(), tokens);
    std::copy(results.logprobs.begin(), results.logprobs.end(), logprobs);
    std::copy(results.top_tokens.begin(), results.top_tokens.end(), top_tokens);
    std::copy(results.top_logprobs.begin(), results.top_logprobs.end(), top_logprobs);
    *rows = static_cast<int32_t>(results.tokens.size());
    *top = results.top;
    model.forget(ticket);
  });
}

void mlcc_executor_forget(mlcc_executor* executor, int64_t ticket) {
  with(executor, [=](mlcc::Model& model) { model.forget(ticket); });
}

mlcc_executor_status mlcc_executor_logits(mlcc_executor* executor, float* logits, size_t room) {
  return with(executor, [=](mlcc::Model& model) {
    ffi::Tensor computed = model.logits();
    mlcc::require(bytes_of(computed) <= room * sizeof(float), MLCC_ARGUMENT, "no room for the logits");
    std::memcpy(logits, computed.data_ptr(), bytes_of(computed));
  });
}

mlcc_executor_status mlcc_executor_likelihood(mlcc_executor* executor, const int32_t* targets, int32_t count,
                                              double* sum) {
  return with(executor, [=](mlcc::Model& model) {
    ffi::Tensor computed = model.logits();
    int64_t vocabulary = computed.size(1);
    mlcc::require(computed.size(0) == count, MLCC_ARGUMENT, "not a target for each row");
    *sum = 0;
    for (int32_t r = 0; r < count; ++r) {
      mlcc::require(targets[r] >= 0 && targets[r] < vocabulary, MLCC_ARGUMENT, "a target out of range");
      *sum += log_probability(static_cast<const float*>(computed.data_ptr()) + r * vocabulary, vocabulary, targets[r]);
    }
  });
}

mlcc_executor_status mlcc_executor_use(mlcc_executor* executor, mlcc_use* use) {
  return with(executor, [=](mlcc::Model& model) { *use = model.use(); });
}

mlcc_executor_status mlcc_executor_watch(mlcc_executor* executor, int32_t on) {
  return with(executor, [=](mlcc::Model& model) { model.watch(on != 0); });
}

mlcc_executor_status mlcc_executor_kernels(mlcc_executor* executor, mlcc_kernel* kernels, int32_t room,
                                           int32_t* count) {
  return with(executor, [=](mlcc::Model& model) {
    int32_t found = 0;
    for (const auto& [name, kernel] : model.kernels().kernels()) {
      if (found < room) kernels[found] = kernel;
      ++found;
    }
    *count = found;
  });
}

void mlcc_executor_close(mlcc_executor* executor) {
  guarded([=] { delete executor; });
}
