package dev.mlcc.jni

/**
 * The functions of `libmlcc_jni` (mobile/android/jni). Texts cross as bytes of UTF-8, because Java's own
 * way of passing them is not UTF-8. What the library refuses is thrown as a NativeFailure.
 */
internal object Jni {
    @JvmStatic
    external fun start(zip: ByteArray?, home: ByteArray?, path: ByteArray?)

    /** [tokenizer] is held until the engine has no more use for it, and then closed. */
    @JvmStatic
    external fun create(options: ByteArray, tokenizer: TokenizerCalls?): Long

    @JvmStatic
    external fun request(
        engine: Long,
        method: ByteArray,
        path: ByteArray,
        headers: ByteArray,
        body: ByteArray,
    ): Long

    /** All events that are there in one array ([JniNative] unpacks it); null after the time. */
    @JvmStatic
    external fun poll(engine: Long, timeoutMs: Int): ByteArray?

    @JvmStatic
    external fun cancel(engine: Long, call: Long)

    @JvmStatic
    external fun stats(engine: Long): ByteArray

    @JvmStatic
    external fun trim(engine: Long, level: Int)

    @JvmStatic
    external fun background(engine: Long, hidden: Boolean)

    @JvmStatic
    external fun close(engine: Long)
}
