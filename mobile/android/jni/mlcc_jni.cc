// The functions of dev.mlcc.jni.Jni over mlcc.h: conversions only.
//
// A Java thread polls for events: one JNI call returns all that are queued. Strings are passed as
// byte[], because JNI's own strings are not UTF-8.
#include <jni.h>
#include <mlcc.h>

#include <cstring>
#include <string>

#include "jni_host.h"
#include "jni_text.h"

namespace {

using mlcc_jni::bytes_of;
using mlcc_jni::check;
using mlcc_jni::text_of;

mlcc_engine engine_of(jlong number) { return static_cast<mlcc_engine>(number); }

void start(JNIEnv* env, jclass, jbyteArray zip, jbyteArray home, jbyteArray path) {
  const std::string texts[] = {text_of(env, zip), text_of(env, home), text_of(env, path)};
  mlcc_python python{};
  python.size = sizeof python;
  python.abi = MLCC_ABI_VERSION;
  if (zip != nullptr) python.zip = texts[0].c_str();
  if (home != nullptr) python.home = texts[1].c_str();
  if (path != nullptr) python.path = texts[2].c_str();
  char* error = nullptr;
  const mlcc_code code = mlcc_start(&python, &error);  // a statement of its own: it sets `error`
  check(env, code, error);
}

jlong create(JNIEnv* env, jclass, jbyteArray options, jobject calls) {
  mlcc_host host{};
  host.size = sizeof host;
  host.abi = MLCC_ABI_VERSION;
  mlcc_jni::set_host(env, calls, &host);
  mlcc_engine engine = 0;
  char* error = nullptr;
  const mlcc_code code = mlcc_create(text_of(env, options).c_str(), &host, &engine, &error);
  if (code != MLCC_OK) mlcc_jni::release_host(&host);
  check(env, code, error);
  return static_cast<jlong>(engine);
}

jlong request(JNIEnv* env, jclass, jlong engine, jbyteArray method, jbyteArray path,
              jbyteArray headers, jbyteArray body) {
  const std::string bytes = text_of(env, body);
  mlcc_call call = 0;
  char* error = nullptr;
  const mlcc_code code = mlcc_request(
      engine_of(engine), text_of(env, method).c_str(), text_of(env, path).c_str(),
      text_of(env, headers).c_str(), bytes.data(), bytes.size(), &call, &error);
  check(env, code, error);
  return static_cast<jlong>(call);
}

// Each event: its call (8 bytes), kind, status and size (4 each), then its data.
size_t packed_size(const mlcc_batch* batch) {
  size_t size = 0;
  for (size_t i = 0; i < batch->count; ++i) size += 20 + batch->events[i].size;
  return size;
}

void pack(const mlcc_batch* batch, char* out) {
  const auto put = [&out](const void* data, size_t size) {
    if (size != 0) std::memcpy(out, data, size);
    out += size;
  };
  for (size_t i = 0; i < batch->count; ++i) {
    const mlcc_event& event = batch->events[i];
    const auto size = static_cast<int32_t>(event.size);
    put(&event.call, 8);
    put(&event.kind, 4);
    put(&event.status, 4);
    put(&size, 4);
    put(event.data, event.size);
  }
}

jbyteArray poll(JNIEnv* env, jclass, jlong engine, jint timeout_ms) {
  const mlcc_batch* batch = nullptr;
  const mlcc_code code = mlcc_poll(engine_of(engine), timeout_ms, &batch);
  if (code == MLCC_TIMEOUT || !check(env, code)) return nullptr;
  std::string packed(packed_size(batch), '\0');
  pack(batch, packed.data());
  mlcc_batch_free(batch);
  return bytes_of(env, packed.data(), packed.size());
}

void cancel(JNIEnv*, jclass, jlong engine, jlong call) {
  mlcc_cancel(engine_of(engine), static_cast<mlcc_call>(call));
}

jbyteArray stats(JNIEnv* env, jclass, jlong engine) {
  char *text = nullptr, *error = nullptr;
  const mlcc_code code = mlcc_stats(engine_of(engine), &text, &error);
  if (!check(env, code, error)) return nullptr;
  jbyteArray bytes = bytes_of(env, text, std::strlen(text));
  mlcc_free(text);
  return bytes;
}

void trim(JNIEnv* env, jclass, jlong engine, jint level) {
  check(env, mlcc_trim(engine_of(engine), static_cast<mlcc_trim_level>(level)));
}

void background(JNIEnv* env, jclass, jlong engine, jboolean hidden) {
  check(env, mlcc_background(engine_of(engine), hidden == JNI_TRUE));
}

void close(JNIEnv*, jclass, jlong engine) { mlcc_close(engine_of(engine)); }

template <typename F>
JNINativeMethod row(const char* name, const char* signature, F* function) {
  return {const_cast<char*>(name), const_cast<char*>(signature),
          reinterpret_cast<void*>(function)};
}

}  // namespace

extern "C" JNIEXPORT jint JNI_OnLoad(JavaVM* vm, void*) {
  void* found = nullptr;
  if (vm->GetEnv(&found, JNI_VERSION_1_6) != JNI_OK) return JNI_ERR;
  auto* env = static_cast<JNIEnv*>(found);
  if (!mlcc_jni::load_failures(env) || !mlcc_jni::load_host(env)) return JNI_ERR;
  const JNINativeMethod methods[] = {
      row("start", "([B[B[B)V", start),
      row("create", "([BLdev/mlcc/jni/HostCalls;)J", create),
      row("request", "(J[B[B[B[B)J", request),
      row("poll", "(JI)[B", poll),
      row("cancel", "(JJ)V", cancel),
      row("stats", "(J)[B", stats),
      row("trim", "(JI)V", trim),
      row("background", "(JZ)V", background),
      row("close", "(J)V", close),
  };
  jclass jni = env->FindClass("dev/mlcc/jni/Jni");
  if (jni == nullptr) return JNI_ERR;
  const int count = sizeof methods / sizeof *methods;
  return env->RegisterNatives(jni, methods, count) == 0 ? JNI_VERSION_1_6 : JNI_ERR;
}
