// Conversions between Java and C: UTF-8 byte arrays, and errors as exceptions.
#pragma once

#include <jni.h>
#include <mlcc.h>

#include <string>

namespace mlcc_jni {

// Throw a NativeFailure with the code and the error, which is freed. C++ must return to Java next.
void raise(JNIEnv* env, mlcc_code code, char* error);

// Throw unless the code is MLCC_OK. Returns whether it is.
bool check(JNIEnv* env, mlcc_code code, char* error = nullptr);

// The bytes of a byte[]; "" for null.
std::string text_of(JNIEnv* env, jbyteArray bytes);

// A new byte[]; null, with a pending OutOfMemoryError, if Java has no memory for it.
jbyteArray bytes_of(JNIEnv* env, const void* data, size_t size);

// Look up NativeFailure once, on a thread that has the app's class loader. False: exception pending.
bool load_failures(JNIEnv* env);

}  // namespace mlcc_jni
