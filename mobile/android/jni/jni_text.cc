#include "jni_text.h"

namespace mlcc_jni {
namespace {

jclass failure_class = nullptr;
jmethodID failure_init = nullptr;

}  // namespace

bool load_failures(JNIEnv* env) {
  jclass found = env->FindClass("dev/mlcc/calls/NativeFailure");
  if (found == nullptr) return false;
  failure_class = static_cast<jclass>(env->NewGlobalRef(found));
  failure_init = env->GetMethodID(failure_class, "<init>", "(I[B)V");
  return failure_init != nullptr;
}

void raise(JNIEnv* env, mlcc_code code, char* error) {
  const std::string text = error == nullptr ? "" : error;
  mlcc_free(error);
  jbyteArray bytes = bytes_of(env, text.data(), text.size());
  if (bytes == nullptr) return;
  jobject failure = env->NewObject(failure_class, failure_init, static_cast<jint>(code), bytes);
  if (failure != nullptr) env->Throw(static_cast<jthrowable>(failure));
}

bool check(JNIEnv* env, mlcc_code code, char* error) {
  if (code == MLCC_OK) return true;
  raise(env, code, error);
  return false;
}

std::string text_of(JNIEnv* env, jbyteArray bytes) {
  if (bytes == nullptr) return "";
  std::string text(static_cast<size_t>(env->GetArrayLength(bytes)), '\0');
  env->GetByteArrayRegion(bytes, 0, static_cast<jsize>(text.size()),
                          reinterpret_cast<jbyte*>(text.data()));
  return text;
}

jbyteArray bytes_of(JNIEnv* env, const void* data, size_t size) {
  jbyteArray bytes = env->NewByteArray(static_cast<jsize>(size));
  if (bytes != nullptr) {
    env->SetByteArrayRegion(bytes, 0, static_cast<jsize>(size), static_cast<const jbyte*>(data));
  }
  return bytes;
}

}  // namespace mlcc_jni
