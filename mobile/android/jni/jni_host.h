// A Java tokenizer and decoder of images as the callbacks of mlcc.h.
#pragma once

#include <jni.h>
#include <mlcc.h>

namespace mlcc_jni {

// Look up the methods of HostCalls once. False: exception pending.
bool load_host(JNIEnv* env);

// Set the callbacks of a host to those that a HostCalls has. The global reference is freed by
// `released`, which the library calls last, or by `release_host` if no engine was created.
void set_host(JNIEnv* env, jobject calls, mlcc_host* host);
void release_host(mlcc_host* host);

}  // namespace mlcc_jni
