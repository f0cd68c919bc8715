/* The functions of TVM's runtime that generated code of a static library calls by their names, by way of
   libmlcc_executor, which has them under names of its own: so a program may hold TVM's package as well.
   Weak, since each static library brings them. */

#define WEAK __attribute__((weak, visibility("hidden")))

typedef int (*Task)(int task, void* group, void* data);

int mlcc_executor_linked_symbol(const char* name, void* address);
void mlcc_executor_linked_raise(const char* kind, const char** parts, int count);
int mlcc_executor_linked_launch(Task task, void* data, int tasks);
int mlcc_executor_linked_barrier(int task, void* group);
void* mlcc_executor_linked_allocate(int device, int index, unsigned long long bytes, int code, int bits);
int mlcc_executor_linked_free(int device, int index, void* address);

WEAK int TVMFFIEnvModRegisterSystemLibSymbol(const char* name, void* address) {
  return mlcc_executor_linked_symbol(name, address);
}

WEAK void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** parts, int count) {
  mlcc_executor_linked_raise(kind, parts, count);
}

WEAK int TVMBackendParallelLaunch(Task task, void* data, int tasks) {
  return mlcc_executor_linked_launch(task, data, tasks);
}

WEAK int TVMBackendParallelBarrier(int task, void* group) { return mlcc_executor_linked_barrier(task, group); }

WEAK void* TVMBackendAllocWorkspace(int device, int index, unsigned long long bytes, int code, int bits) {
  return mlcc_executor_linked_allocate(device, index, bytes, code, bits);
}

WEAK int TVMBackendFreeWorkspace(int device, int index, void* address) {
  return mlcc_executor_linked_free(device, index, address);
}
