// Spectrograms and sample rates for Python.
#include <vector>

#include "python/python.h"

namespace mlcc::python {

// (samples, frames, bins, largest so far, whether frames are wanted) -> (their frames, if wanted, largest).
PyObject* log_mel(PyObject*, PyObject* arguments) {
  return guarded([=] {
    PyObject* samples = nullptr;
    int frames = 0, bins = 0, wanted = 0;
    double largest = 0;
    parse(arguments, "Siidp", &samples, &frames, &bins, &largest, &wanted);
    constexpr Py_ssize_t kFloat = sizeof(float);
    Py_ssize_t needed = kFloat * (Py_ssize_t{160} * (frames - 1) + 400);
    if (frames < 1 || bins < 1 || PyBytes_Size(samples) < needed) raise(MLCC_ARGUMENT, "too few samples");
    Py_ssize_t size = wanted != 0 ? kFloat * frames * bins : 0;
    Held made_of(PyByteArray_FromStringAndSize(nullptr, size));
    auto* out = reinterpret_cast<float*>(PyByteArray_AsString(made_of.get()));
    call(mlcc_executor_log_mel, reinterpret_cast<const float*>(PyBytes_AsString(samples)), int32_t{frames},
         int32_t{bins}, &largest, wanted != 0 ? out : static_cast<float*>(nullptr));
    return Py_BuildValue("(Nd)", made_of.release(), largest);
  });
}

namespace {

using UsmLogMel = mlcc_executor_status (*)(const float*, int32_t, int32_t, float*);

// window: samples of a frame.
PyObject* frames_of(PyObject* arguments, int window, UsmLogMel made) {
  return guarded([=] {
    PyObject* samples = nullptr;
    int frames = 0, bins = 0;
    parse(arguments, "Sii", &samples, &frames, &bins);
    constexpr Py_ssize_t kFloat = sizeof(float);
    Py_ssize_t needed = kFloat * (Py_ssize_t{160} * (frames - 1) + window);
    if (frames < 1 || bins < 1 || PyBytes_Size(samples) < needed) raise(MLCC_ARGUMENT, "too few samples");
    Held made_of(PyByteArray_FromStringAndSize(nullptr, kFloat * frames * bins));
    call(made, reinterpret_cast<const float*>(PyBytes_AsString(samples)), int32_t{frames}, int32_t{bins},
         reinterpret_cast<float*>(PyByteArray_AsString(made_of.get())));
    return made_of.release();
  });
}

}  // namespace

// (samples, frames, bins) -> their frames, as a bytearray.
PyObject* usm_log_mel(PyObject*, PyObject* arguments) {
  return frames_of(arguments, 320, mlcc_executor_usm_log_mel);
}

// The same.
PyObject* gemma3n_log_mel(PyObject*, PyObject* arguments) {
  return frames_of(arguments, 512, mlcc_executor_gemma3n_log_mel);
}

// (weights, tokens, heads, rows, rows with sound) -> the row at which each token begins.
PyObject* token_rows(PyObject*, PyObject* arguments) {
  return guarded([=] {
    PyObject* weights = nullptr;
    int tokens = 0, heads = 0, rows = 0, used = 0;
    parse(arguments, "Siiii", &weights, &tokens, &heads, &rows, &used);
    constexpr Py_ssize_t kFloat = sizeof(float);
    bool sizes = tokens > 0 && heads > 0 && used > 0 && used <= rows;
    if (!sizes || PyBytes_Size(weights) < kFloat * tokens * heads * rows) raise(MLCC_ARGUMENT, "too few weights");
    std::vector<int32_t> begins(static_cast<size_t>(tokens));
    call(mlcc_executor_token_rows, reinterpret_cast<const float*>(PyBytes_AsString(weights)), int32_t{tokens},
         int32_t{heads}, int32_t{rows}, int32_t{used}, begins.data());
    return list_of(begins.data(), tokens, [](int32_t row) { return PyLong_FromLongLong(row); });
  });
}

// (samples, from, to) -> samples at another rate, as a bytearray.
PyObject* resample(PyObject*, PyObject* arguments) {
  return guarded([=] {
    PyObject* samples = nullptr;
    int from = 0, to = 0;
    parse(arguments, "Sii", &samples, &from, &to);
    if (from < 1 || to < 1) raise(MLCC_ARGUMENT, "a sample rate of nothing");
    constexpr int64_t kFloat = sizeof(float);
    int64_t count = PyBytes_Size(samples) / kFloat;
    int64_t size = (count * to + from - 1) / from;
    Held made_of(PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(kFloat * size)));
    call(mlcc_executor_resample, reinterpret_cast<const float*>(PyBytes_AsString(samples)), count, int32_t{from},
         int32_t{to}, reinterpret_cast<float*>(PyByteArray_AsString(made_of.get())), size);
    return made_of.release();
  });
}

// A file -> (samples a second, channels, samples of each channel or 0, byte of the first frame).
PyObject* flac_stream(PyObject*, PyObject* data) {
  return guarded([=] {
    if (PyBytes_Size(data) < 0) throw Raised{};
    mlcc_flac stream{};
    call(mlcc_executor_flac_stream, reinterpret_cast<const uint8_t*>(PyBytes_AsString(data)),
         int64_t{PyBytes_Size(data)}, &stream);
    return Py_BuildValue("(iiLL)", int{stream.rate}, int{stream.channels}, static_cast<long long>(stream.samples),
                         static_cast<long long>(stream.first));
  });
}

// (file, byte of a frame, most) -> (mono samples of whole frames, as a bytearray; the byte behind them).
PyObject* flac(PyObject*, PyObject* arguments) {
  return guarded([=] {
    PyObject* data = nullptr;
    long long first = 0;
    int most = 0;
    parse(arguments, "SLi", &data, &first, &most);
    if (most < 1) raise(MLCC_ARGUMENT, "no samples");
    constexpr Py_ssize_t kFloat = sizeof(float);
    Held made_of(PyByteArray_FromStringAndSize(nullptr, kFloat * (Py_ssize_t{most} + 65536)));
    int64_t place = first, made = 0;
    call(mlcc_executor_flac, reinterpret_cast<const uint8_t*>(PyBytes_AsString(data)), int64_t{PyBytes_Size(data)},
         &place, int64_t{most}, reinterpret_cast<float*>(PyByteArray_AsString(made_of.get())), &made);
    Held samples(PyByteArray_FromStringAndSize(PyByteArray_AsString(made_of.get()),
                                               static_cast<Py_ssize_t>(kFloat * made)));
    return Py_BuildValue("(NL)", samples.release(), static_cast<long long>(place));
  });
}

}  // namespace mlcc::python
