// A tokenizer of Java's as the callbacks of mlcc.h.
#pragma once

#include <jni.h>
#include <mlcc.h>

namespace mlcc_jni {

// Finds TokenizerCalls' methods once. False: an exception is set.
bool load_tokenizers(JNIEnv* env);

// Set the callbacks of a host to those of a TokenizerCalls, or none for null. What it holds is given
// back by `released`, which the library calls last; if the engine is not made: by `forget`.
void bring(JNIEnv* env, jobject tokenizer, mlcc_host* host);
void forget(mlcc_host* host);

}  // namespace mlcc_jni
