#include "jni_host.h"

#include <cstring>
#include <string>

#include "jni_text.h"

namespace mlcc_jni {
namespace {

JavaVM* vm = nullptr;
jmethodID encode_method = nullptr;
jmethodID decode_method = nullptr;
jmethodID special_tokens_method = nullptr;
jmethodID decode_image_method = nullptr;
jmethodID has_tokenizer_method = nullptr;
jmethodID has_images_method = nullptr;
jmethodID close_method = nullptr;
jmethodID reason_method = nullptr;

// The JNI environment of this thread. Threads of the library are attached as daemons until they end,
// so that Java does not wait for them.
JNIEnv* attached() {
  void* env = nullptr;
  if (vm->GetEnv(&env, JNI_VERSION_1_6) == JNI_OK) return static_cast<JNIEnv*>(env);
  JavaVMAttachArgs arguments{JNI_VERSION_1_6, const_cast<char*>("mlcc"), nullptr};
#ifdef __ANDROID__
  JNIEnv* made = nullptr;
  vm->AttachCurrentThreadAsDaemon(&made, &arguments);
  return made;
#else
  vm->AttachCurrentThreadAsDaemon(&env, &arguments);
  return static_cast<JNIEnv*>(env);
#endif
}

// Frees a callback's local references at its end: its thread never returns to Java.
class Frame {
 public:
  Frame() : env_(attached()) {
    if (env_ != nullptr && env_->PushLocalFrame(8) != 0) env_ = nullptr;
  }
  ~Frame() {
    if (env_ != nullptr) env_->PopLocalFrame(nullptr);
  }
  JNIEnv* operator->() const { return env_; }
  explicit operator bool() const { return env_ != nullptr; }
  JNIEnv* get() const { return env_; }

 private:
  JNIEnv* env_;
};

// Pass the text of the pending exception to the library; the callback fails.
int32_t failed(JNIEnv* env, void* context, mlcc_answer* answer) {
  jthrowable thrown = env->ExceptionOccurred();
  env->ExceptionClear();
  std::string why = "a callback returned null";
  if (thrown != nullptr) {
    jobject bytes = env->CallObjectMethod(static_cast<jobject>(context), reason_method, thrown);
    if (env->ExceptionCheck()) {
      env->ExceptionClear();
    } else {
      why = text_of(env, static_cast<jbyteArray>(bytes));
    }
  }
  mlcc_give(answer, why.data(), why.size());
  return 1;
}

int32_t give_bytes(JNIEnv* env, void* context, jobject bytes, mlcc_answer* answer) {
  if (env->ExceptionCheck() || bytes == nullptr) return failed(env, context, answer);
  const std::string text = text_of(env, static_cast<jbyteArray>(bytes));
  mlcc_give(answer, text.data(), text.size());
  return 0;
}

int32_t encode(void* context, const char* text, size_t size, int32_t special, mlcc_answer* answer) {
  Frame env;
  if (!env) return 1;
  jbyteArray bytes = bytes_of(env.get(), text, size);
  if (bytes == nullptr) return failed(env.get(), context, answer);
  auto ids = static_cast<jintArray>(env->CallObjectMethod(
      static_cast<jobject>(context), encode_method, bytes, static_cast<jboolean>(special != 0)));
  if (env->ExceptionCheck() || ids == nullptr) return failed(env.get(), context, answer);
  jint* numbers = env->GetIntArrayElements(ids, nullptr);
  if (numbers == nullptr) return failed(env.get(), context, answer);
  mlcc_give(answer, numbers, static_cast<size_t>(env->GetArrayLength(ids)) * sizeof *numbers);
  env->ReleaseIntArrayElements(ids, numbers, JNI_ABORT);
  return 0;
}

int32_t decode(void* context, const int32_t* ids, size_t count, mlcc_answer* answer) {
  Frame env;
  if (!env) return 1;
  jintArray numbers = env->NewIntArray(static_cast<jsize>(count));
  if (numbers == nullptr) return failed(env.get(), context, answer);
  env->SetIntArrayRegion(numbers, 0, static_cast<jsize>(count), ids);
  jobject text = env->CallObjectMethod(static_cast<jobject>(context), decode_method, numbers);
  return give_bytes(env.get(), context, text, answer);
}

int32_t special_tokens(void* context, mlcc_answer* answer) {
  Frame env;
  if (!env) return 1;
  jobject tokens = env->CallObjectMethod(static_cast<jobject>(context), special_tokens_method);
  return give_bytes(env.get(), context, tokens, answer);
}

int32_t decode_image(void* context, const void* data, size_t size, const char* type,
                     mlcc_answer* answer) {
  Frame env;
  if (!env) return 1;
  jbyteArray file = bytes_of(env.get(), static_cast<const char*>(data), size);
  jbyteArray kind = file != nullptr ? bytes_of(env.get(), type, std::strlen(type)) : nullptr;
  if (kind == nullptr) return failed(env.get(), context, answer);
  jobject pixels =
      env->CallObjectMethod(static_cast<jobject>(context), decode_image_method, file, kind);
  return give_bytes(env.get(), context, pixels, answer);
}

bool has(JNIEnv* env, jobject calls, jmethodID method) {
  const bool found = env->CallBooleanMethod(calls, method) == JNI_TRUE;
  return !env->ExceptionCheck() && found;
}

void released(void* context) {
  Frame env;
  if (!env) return;
  auto calls = static_cast<jobject>(context);
  env->CallVoidMethod(calls, close_method);
  env->ExceptionClear();
  env->DeleteGlobalRef(calls);
}

}  // namespace

bool load_host(JNIEnv* env) {
  env->GetJavaVM(&vm);
  jclass calls = env->FindClass("dev/mlcc/jni/HostCalls");
  if (calls == nullptr) return false;
  encode_method = env->GetMethodID(calls, "encode", "([BZ)[I");
  decode_method = env->GetMethodID(calls, "decode", "([I)[B");
  special_tokens_method = env->GetMethodID(calls, "specialTokens", "()[B");
  decode_image_method = env->GetMethodID(calls, "decodeImage", "([B[B)[B");
  has_tokenizer_method = env->GetMethodID(calls, "hasTokenizer", "()Z");
  has_images_method = env->GetMethodID(calls, "hasImages", "()Z");
  close_method = env->GetMethodID(calls, "close", "()V");
  reason_method = env->GetMethodID(calls, "reason", "(Ljava/lang/Throwable;)[B");
  return !env->ExceptionCheck();
}

void set_host(JNIEnv* env, jobject calls, mlcc_host* host) {
  host->context = env->NewGlobalRef(calls);
  if (has(env, calls, has_tokenizer_method)) {
    host->encode = encode;
    host->decode = decode;
    host->special_tokens = special_tokens;
  }
  if (has(env, calls, has_images_method)) host->decode_image = decode_image;
  host->released = released;
}

void release_host(mlcc_host* host) {
  if (host->context != nullptr) released(host->context);
}

}  // namespace mlcc_jni
