// What crosses between Java and C: bytes of UTF-8, and errors as exceptions.
#pragma once

#include <jni.h>
#include <mlcc.h>

#include <string>

namespace mlcc_jni {

// A NativeFailure with the code and the error, which is freed. After it C++ must return to Java.
void raise(JNIEnv* env, mlcc_code code, char* error);

// Raise unless the code is MLCC_OK. Returns whether it is.
bool check(JNIEnv* env, mlcc_code code, char* error = nullptr);

// The bytes of a byte[]; "" for null.
std::string text_of(JNIEnv* env, jbyteArray bytes);

// A new byte[]; null if Java has no memory for it, and then an OutOfMemoryError is on its way.
jbyteArray bytes_of(JNIEnv* env, const void* data, size_t size);

// Finds NativeFailure once, in a thread that has the app's class loader. False: an exception is set.
bool load_failures(JNIEnv* env);

}  // namespace mlcc_jni
