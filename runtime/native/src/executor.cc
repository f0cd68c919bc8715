// The C API over a model: a lock for each executor, and no exceptions.
#include "executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "error.h"
#include "model/model.h"
#include "multimodal/flac.h"
#include "multimodal/log_mel.h"
#include "multimodal/resample.h"
#include "multimodal/resize.h"
#include "multimodal/resize_rows.h"
#include "multimodal/token_rows.h"
#include "multimodal/usm_log_mel.h"

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

constexpr char kNoWebGpu[] = R"({"devices": [], "reason": "the executor was built without WebGPU: install mlcc )"
                             R"(again where the Python package `wgpu` is"})";

// Keep a text, valid until this thread keeps the next one.
const char* keep_text(std::string text) {
  thread_local std::string kept;
  kept = std::move(text);
  return kept.c_str();
}

// Run `body`; its exceptions become a status and the text of mlcc_executor_error.
template <typename Body>
mlcc_executor_status guarded(Body body) noexcept {
  try {
    body();
    return MLCC_OK;
  } catch (const mlcc::Error& error) {
    return failed(error.status, error.what());
  } catch (const ffi::Error& error) {
    mlcc::Error converted = mlcc::device_error(error);
    return failed(converted.status, converted.what());
  } catch (const std::bad_alloc&) {
    return failed(MLCC_MEMORY, "no memory");
  } catch (const std::exception& error) {
    return failed(MLCC_DEVICE, error.what());
  } catch (...) {
    return failed(MLCC_DEVICE, "an unknown error");
  }
}

// The status of `body`, run on the model of an executor that is locked meanwhile.
template <typename Body>
mlcc_executor_status with(mlcc_executor* executor, Body body) noexcept {
  return guarded([&] {
    mlcc::require(executor != nullptr, MLCC_ARGUMENT, "there is no executor");
    std::lock_guard<std::mutex> lock(executor->lock);
    body(executor->model);
  });
}

// The log-probability of a token, in double precision.
void copy_out(const ffi::Tensor& computed, float* out, size_t capacity) {
  mlcc::require(computed.numel() <= static_cast<int64_t>(capacity), MLCC_ARGUMENT, "no room for the rows");
  std::memcpy(out, computed.data_ptr(), mlcc::bytes_of(computed));
}

double log_probability(const float* logits, int64_t count, int32_t token) {
  double peak = *std::max_element(logits, logits + count), total = 0;
  for (int64_t i = 0; i < count; ++i) total += std::exp(logits[i] - peak);
  return logits[token] - peak - std::log(total);
}

}  // namespace

int32_t mlcc_executor_abi(void) { return MLCC_EXECUTOR_ABI; }

const char* mlcc_executor_error(void) { return last_error().c_str(); }

mlcc_executor_status mlcc_executor_webgpu(const char* path, const char* why_absent) {
  return guarded([=] {
    mlcc::require(path != nullptr && why_absent != nullptr, MLCC_ARGUMENT, "no path, and no reason");
    if (auto set = ffi::Function::GetGlobal("mlcc.webgpu.set_library")) (*set)(path, why_absent);
  });
}

mlcc_executor_status mlcc_executor_webgpu_devices(const char** json) {
  return guarded([=] {
    auto devices = ffi::Function::GetGlobal("mlcc.webgpu.devices");
    *json = keep_text(devices ? std::string((*devices)().cast<ffi::String>()) : kNoWebGpu);
  });
}

mlcc_executor_status mlcc_executor_webgpu_close(int32_t device_index) {
  return guarded([=] { ffi::Function::GetGlobalRequired("mlcc.webgpu.close")(device_index); });
}

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

mlcc_executor_status mlcc_executor_adapter(mlcc_executor* executor, int32_t slot,
                                           const mlcc_adapter_matrix* matrices, int32_t count) {
  return with(executor, [=](mlcc::Model& model) { model.write_adapter(slot, matrices, count); });
}

mlcc_executor_status mlcc_executor_submit(mlcc_executor* executor, int32_t adjusted, int64_t* ticket) {
  return with(executor, [=](mlcc::Model& model) { *ticket = model.submit(adjusted != 0); });
}

mlcc_executor_status mlcc_executor_collect(mlcc_executor* executor, int64_t ticket, int32_t* tokens, float* logprobs,
                                           int32_t* rows, int32_t* top_tokens, float* top_logprobs, int32_t* top) {
  return with(executor, [=](mlcc::Model& model) {
    mlcc::Results results = model.take(ticket);
    std::string values = results.reading.wait();
    size_t entries = static_cast<size_t>(results.rows) * results.top, at = 0;
    auto next = [&](void* to, size_t count) {
      at += values.copy(static_cast<char*>(to), count * sizeof(int32_t), at);
    };
    next(tokens, results.rows);
    next(logprobs, results.rows);
    next(top_tokens, entries);
    next(top_logprobs, entries);
    *rows = results.rows;
    *top = results.top;
  });
}

mlcc_executor_status mlcc_executor_follow(mlcc_executor* executor) {
  return with(executor, [=](mlcc::Model& model) { model.follow(); });
}

void mlcc_executor_forget(mlcc_executor* executor, int64_t ticket) {
  with(executor, [=](mlcc::Model& model) { model.forget(ticket); });
}

mlcc_executor_status mlcc_executor_logits(mlcc_executor* executor, float* logits, size_t capacity) {
  return with(executor, [=](mlcc::Model& model) { copy_out(model.logits(), logits, capacity); });
}

mlcc_executor_status mlcc_executor_alignment(mlcc_executor* executor, float* weights, size_t capacity) {
  return with(executor, [=](mlcc::Model& model) { copy_out(model.alignment(), weights, capacity); });
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

mlcc_executor_status mlcc_executor_read_pages(mlcc_executor* executor, int32_t group, const int32_t* ids,
                                              int32_t count, void* bytes, size_t size) {
  return with(executor, [=](mlcc::Model& model) {
    model.read_pages({group, ids, count}, static_cast<char*>(bytes), size);
  });
}

mlcc_executor_status mlcc_executor_write_pages(mlcc_executor* executor, int32_t group, const int32_t* ids,
                                               int32_t count, const void* bytes, size_t size) {
  return with(executor, [=](mlcc::Model& model) {
    model.write_pages({group, ids, count}, static_cast<const char*>(bytes), size);
  });
}

mlcc_executor_status mlcc_executor_use(mlcc_executor* executor, mlcc_use* use) {
  return with(executor, [=](mlcc::Model& model) { *use = model.use(); });
}

mlcc_executor_status mlcc_executor_watch(mlcc_executor* executor, int32_t on) {
  return with(executor, [=](mlcc::Model& model) { model.watch(on != 0); });
}

mlcc_executor_status mlcc_executor_kernels(mlcc_executor* executor, mlcc_kernel* kernels, int32_t capacity,
                                           int32_t* count) {
  return with(executor, [=](mlcc::Model& model) {
    int32_t found = 0;
    for (const auto& [name, kernel] : model.kernels().kernels()) {
      if (found < capacity) kernels[found] = kernel;
      ++found;
    }
    *count = found;
  });
}

mlcc_executor_status mlcc_executor_copy(mlcc_executor* executor, int64_t bytes, int64_t* nanoseconds) {
  return with(executor, [=](mlcc::Model& model) { *nanoseconds = model.device().copy_time(bytes); });
}

mlcc_executor_status mlcc_executor_counts(mlcc_executor* executor, const char** json) {
  return with(executor, [=](mlcc::Model& model) { *json = keep_text(model.device().counts()); });
}

mlcc_executor_status mlcc_executor_resize(const uint8_t* pixels, int32_t width, int32_t height, int32_t filter,
                                          uint8_t* resized, int32_t to_width, int32_t to_height) {
  return guarded([=] {
    mlcc::require(width > 0 && height > 0, MLCC_ARGUMENT, "a picture of no size");
    mlcc::Picture picture{width, height, {pixels, pixels + size_t{3} * width * height}};
    picture = mlcc::resize(picture, to_width, to_height, static_cast<mlcc::Filter>(filter));
    std::copy(picture.pixels.begin(), picture.pixels.end(), resized);
  });
}

mlcc_executor_status mlcc_executor_resize_rows(const float* rows, int32_t lines, int32_t columns, int32_t width,
                                               float* resized, int32_t to_lines, int32_t to_columns) {
  return guarded([=] { mlcc::resize_rows(rows, lines, columns, width, resized, to_lines, to_columns); });
}

mlcc_executor_status mlcc_executor_log_mel(const float* samples, int32_t frames, int32_t bins, double* largest,
                                           float* features) {
  return guarded([=] { mlcc::log_mel(samples, frames, bins, largest, features); });
}

mlcc_executor_status mlcc_executor_usm_log_mel(const float* samples, int32_t frames, int32_t bins, float* features) {
  return guarded([=] { mlcc::usm_log_mel(mlcc::kGemma4Frames, samples, frames, bins, features); });
}

mlcc_executor_status mlcc_executor_gemma3n_log_mel(const float* samples, int32_t frames, int32_t bins,
                                                   float* features) {
  return guarded([=] { mlcc::usm_log_mel(mlcc::kGemma3nFrames, samples, frames, bins, features); });
}

mlcc_executor_status mlcc_executor_token_rows(const float* weights, int32_t tokens, int32_t heads, int32_t rows,
                                              int32_t used, int32_t* begins) {
  return guarded([=] { mlcc::token_rows(weights, {tokens, heads, rows, used}, begins); });
}

mlcc_executor_status mlcc_executor_resample(const float* samples, int64_t count, int32_t from, int32_t to, float* out,
                                            int64_t made) {
  return guarded([=] {
    mlcc::require(from > 0 && mlcc::resampled_count(count, from, to) == made, MLCC_ARGUMENT, "room for other samples");
    mlcc::resample(samples, count, from, to, out);
  });
}

mlcc_executor_status mlcc_executor_flac_stream(const uint8_t* data, int64_t size, mlcc_flac* stream) {
  return guarded([=] { *stream = mlcc::flac_stream(data, size); });
}

mlcc_executor_status mlcc_executor_flac(const uint8_t* data, int64_t size, int64_t* place, int64_t most, float* out,
                                        int64_t* made) {
  return guarded([=] {
    const mlcc_flac stream = mlcc::flac_stream(data, size);
    for (*made = 0; *made < most && *place < size;) {
      *made += mlcc::flac_frame(data, size, stream, place, out + *made);
    }
  });
}

void mlcc_executor_close(mlcc_executor* executor) {
  guarded([=] { delete executor; });
}
