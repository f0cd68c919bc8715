package dev.mlcc.jni

/**
 * The functions of `libmlcc_jni` (mobile/android/jni). Strings are passed as UTF-8 bytes, because JNI's
 * own strings are not UTF-8. Errors of the library are thrown as NativeFailure.
 */
internal object Jni {
    @JvmStatic
    external fun start(zip: ByteArray?, home: ByteArray?, path: ByteArray?)

    /** [host] is referenced until the engine is released, and then closed. */
    @JvmStatic
    external fun create(options: ByteArray, host: HostCalls): Long

    @JvmStatic
    external fun request(
        engine: Long,
        method: ByteArray,
        path: ByteArray,
        headers: ByteArray,
        body: ByteArray,
    ): Long

    /** All queued events in one array ([JniNative] decodes it); null after the timeout. */
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
