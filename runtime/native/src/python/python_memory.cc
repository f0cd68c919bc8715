// Access to device memory from Python: pages, and adapter slots.
#include "python/python.h"

namespace mlcc::python {

namespace {

std::vector<int32_t> ids_of(PyObject* tuple) {
  return items<int32_t>(tuple, [](PyObject* item) { return static_cast<int32_t>(integer(item)); });
}

}  // namespace

// (slot, matrices), each matrix (tensor, transposed, row, column, rows, columns, dtype, data, scale).
PyObject* adapter(PyObject* self, PyObject* arguments) {
  return guarded([=] {
    int slot = 0;
    PyObject* given = nullptr;
    parse(arguments, "iO", &slot, &given);
    auto matrices = items<mlcc_adapter_matrix>(given, [](PyObject* item) {
      mlcc_adapter_matrix matrix{};
      PyObject* data = nullptr;
      long long row = 0, column = 0, rows = 0, columns = 0;
      parse(item, "iiLLLLyOf", &matrix.tensor, &matrix.transposed, &row, &column, &rows, &columns, &matrix.dtype,
            &data, &matrix.scale);
      matrix.row = row, matrix.column = column, matrix.rows = rows, matrix.columns = columns;
      matrix.data = made(PyBytes_AsString(data));
      matrix.bytes = static_cast<uint64_t>(PyBytes_Size(data));
      return matrix;
    });
    call(mlcc_executor_adapter, handle_of(self), int32_t{slot}, matrices.data(), static_cast<int32_t>(matrices.size()));
    return none();
  });
}

// (group, ids, their bytes) -> a bytearray.
PyObject* read_pages(PyObject* self, PyObject* arguments) {
  return guarded([=] {
    int group = 0;
    PyObject* tuple = nullptr;
    long long size = 0;
    parse(arguments, "iOL", &group, &tuple, &size);
    auto ids = ids_of(tuple);
    Held values(PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
    call(mlcc_executor_read_pages, handle_of(self), group, ids.data(), static_cast<int32_t>(ids.size()),
         static_cast<void*>(PyByteArray_AsString(values.get())), static_cast<size_t>(size));
    return values.release();
  });
}

// (group, ids, contents)
PyObject* write_pages(PyObject* self, PyObject* arguments) {
  return guarded([=] {
    int group = 0;
    PyObject *tuple = nullptr, *bytes = nullptr;
    parse(arguments, "iOS", &group, &tuple, &bytes);
    auto ids = ids_of(tuple);
    call(mlcc_executor_write_pages, handle_of(self), group, ids.data(), static_cast<int32_t>(ids.size()),
         static_cast<const void*>(PyBytes_AsString(bytes)), static_cast<size_t>(PyBytes_Size(bytes)));
    return none();
  });
}

}  // namespace mlcc::python
