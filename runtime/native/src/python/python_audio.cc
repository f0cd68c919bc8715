// Spectrograms and sample rates for Python.
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

}  // namespace mlcc::python
