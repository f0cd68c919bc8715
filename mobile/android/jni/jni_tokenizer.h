// A Java tokenizer as the callbacks of mlcc.h.
#pragma once

#include <jni.h>
#include <mlcc.h>

namespace mlcc_jni {

// Look up the methods of TokenizerCalls once. False: exception pending.
bool load_tokenizers(JNIEnv* env);

// Set the callbacks of a host to those of a TokenizerCalls; null: none. The global reference is freed
// by `released`, which the library calls last, or by `release_tokenizer` if no engine was created.
void set_tokenizer(JNIEnv* env, jobject tokenizer, mlcc_host* host);
void release_tokenizer(mlcc_host* host);

}  // namespace mlcc_jni
