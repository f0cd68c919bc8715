#include "model/low_rank.h"

#include <cmath>
#include <cstring>
#include <string>

#include "error.h"

namespace mlcc {
namespace {

constexpr DLDataType kFloat32{kDLFloat, 32, 1};
constexpr int64_t kFloatBytes = sizeof(float);

float float_of_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// IEEE 754: five bits of exponent, ten of mantissa.
float float_of_half(uint16_t half) {
  uint32_t sign = (half & 0x8000u) << 16, exponent = (half >> 10) & 0x1f, mantissa = half & 0x3ff;
  if (exponent == 0x1f) return float_of_bits(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
  float small = std::ldexp(static_cast<float>(mantissa), -24);
  return sign != 0 ? -small : small;
}

template <typename Stored, typename Read>
void put(const mlcc_adapter_matrix& matrix, float* to, int64_t width, Read read) {
  const char* from = static_cast<const char*>(matrix.data);
  for (int64_t row = 0; row < matrix.rows; ++row) {
    float* line = to + (matrix.row + row) * width + matrix.column;
    for (int64_t column = 0; column < matrix.columns; ++column) {
      int64_t at = matrix.transposed ? column * matrix.rows + row : row * matrix.columns + column;
      Stored stored;
      std::memcpy(&stored, from + at * static_cast<int64_t>(sizeof stored), sizeof stored);
      line[column] = matrix.scale * read(stored);
    }
  }
}

void put(const mlcc_adapter_matrix& matrix, float* to, int64_t width) {
  std::string dtype = matrix.dtype;
  if (dtype == "float32") {
    put<float>(matrix, to, width, [](float value) { return value; });
  } else if (dtype == "float16") {
    put<uint16_t>(matrix, to, width, float_of_half);
  } else {
    put<uint16_t>(matrix, to, width, [](uint16_t value) { return float_of_bits(uint32_t{value} << 16); });
  }
}

bool within(int64_t begin, int64_t count, int64_t size) {
  return begin >= 0 && count > 0 && begin <= size && count <= size - begin;
}

void check(const mlcc_adapter_matrix& matrix, const ffi::Array<ffi::Tensor>& tensors) {
  bool known = matrix.tensor >= 0 && matrix.tensor < static_cast<int64_t>(tensors.size());
  require(known, MLCC_ARGUMENT, "a matrix of an adapter that goes nowhere");
  const ffi::Tensor& tensor = tensors[matrix.tensor];
  bool fits = within(matrix.row, matrix.rows, tensor.size(1)) && within(matrix.column, matrix.columns, tensor.size(2));
  require(fits, MLCC_ARGUMENT, "a matrix of an adapter beyond its slot");
  require(matrix.dtype != nullptr && matrix.data != nullptr, MLCC_ARGUMENT, "a matrix of an adapter without data");
  std::string dtype = matrix.dtype;
  bool whole = dtype == "float32", half = dtype == "float16" || dtype == "bfloat16";
  require(whole || half, MLCC_ARGUMENT, "a matrix of an adapter of an unknown dtype");
  uint64_t bytes = static_cast<uint64_t>(matrix.rows * matrix.columns) * (whole ? 4 : 2);
  require(matrix.bytes == bytes, MLCC_ARGUMENT, "a matrix of an adapter that is not as large as it says");
}

}  // namespace

LowRank::LowRank(const mlcc_executor_options& options, const Device& device) : slots_(options.adapter_slots) {
  for (int32_t i = 0; i < options.num_adapters; ++i) {
    const mlcc_adapter_tensor& record = options.adapters[i];
    int64_t sizes[] = {slots_, record.rows, record.columns};
    for (int64_t size : sizes) require(size > 0, MLCC_ARGUMENT, "an adapter's tensor without entries");
    tensors_.push_back(device.empty(shape_of(sizes, 3, kFloat32), kFloat32, "adapters"));
  }
  require((slots_ > 0) == !tensors_.empty(), MLCC_ARGUMENT, "slots for adapters without tensors");
}

void LowRank::write(const Device& device, int32_t slot, const mlcc_adapter_matrix* matrices, int32_t count) {
  require(!empty(), MLCC_UNSUPPORTED, "the library has no room for adapters");
  require(slot >= 0 && slot < slots_, MLCC_ARGUMENT, "a slot for adapters that is not there");
  for (int32_t i = 0; i < count; ++i) check(matrices[i], tensors_);
  for (int64_t t = 0; t < static_cast<int64_t>(tensors_.size()); ++t) {
    const ffi::Tensor& tensor = tensors_[t];
    int64_t width = tensor.size(2);
    ffi::Tensor staged = zeros(ffi::Shape{tensor.size(1), width}, kFloat32, "an adapter");
    for (int32_t i = 0; i < count; ++i) {
      if (matrices[i].tensor == t) put(matrices[i], static_cast<float*>(staged.data_ptr()), width);
    }
    device.copy(staged, tensor, slot * tensor.size(1) * width * kFloatBytes);
  }
}

}  // namespace mlcc
