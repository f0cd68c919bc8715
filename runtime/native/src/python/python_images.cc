// Resized pictures and rows for Python.
#include "python/python.h"

namespace mlcc::python {

namespace {

Py_ssize_t product(int a, int b, int c) { return Py_ssize_t{a} * b * c; }

}  // namespace

// (pixels, width, height, Pillow's number of a filter, width, height) -> pixels of that size.
PyObject* resize(PyObject*, PyObject* arguments) {
  return guarded([=] {
    PyObject* pixels = nullptr;
    int width = 0, height = 0, filter = 0, to_width = 0, to_height = 0;
    parse(arguments, "Siiiii", &pixels, &width, &height, &filter, &to_width, &to_height);
    bool some = width > 0 && height > 0 && to_width > 0 && to_height > 0;
    if (!some || PyBytes_Size(pixels) != product(3, width, height)) raise(MLCC_ARGUMENT, "a picture of another size");
    Held made_of(PyByteArray_FromStringAndSize(nullptr, product(3, to_width, to_height)));
    call(mlcc_executor_resize, reinterpret_cast<const uint8_t*>(PyBytes_AsString(pixels)), int32_t{width},
         int32_t{height}, int32_t{filter}, reinterpret_cast<uint8_t*>(PyByteArray_AsString(made_of.get())),
         int32_t{to_width}, int32_t{to_height});
    return made_of.release();
  });
}

// (rows, lines, columns, lines, columns) -> rows of that grid.
PyObject* resize_rows(PyObject*, PyObject* arguments) {
  return guarded([=] {
    PyObject* rows = nullptr;
    int lines = 0, columns = 0, to_lines = 0, to_columns = 0;
    parse(arguments, "Siiii", &rows, &lines, &columns, &to_lines, &to_columns);
    constexpr Py_ssize_t kFloat = sizeof(float);
    if (lines < 1 || columns < 1 || to_lines < 1 || to_columns < 1) raise(MLCC_ARGUMENT, "rows of no size");
    Py_ssize_t width = PyBytes_Size(rows) / product(kFloat, lines, columns);
    if (width < 1 || width * product(kFloat, lines, columns) != PyBytes_Size(rows)) {
      raise(MLCC_ARGUMENT, "rows of another grid");
    }
    Held made_of(PyByteArray_FromStringAndSize(nullptr, width * product(kFloat, to_lines, to_columns)));
    call(mlcc_executor_resize_rows, reinterpret_cast<const float*>(PyBytes_AsString(rows)), int32_t{lines},
         int32_t{columns}, static_cast<int32_t>(width), reinterpret_cast<float*>(PyByteArray_AsString(made_of.get())),
         int32_t{to_lines}, int32_t{to_columns});
    return made_of.release();
  });
}

}  // namespace mlcc::python
