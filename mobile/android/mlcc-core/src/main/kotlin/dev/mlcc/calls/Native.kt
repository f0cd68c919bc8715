package dev.mlcc.calls

/**
 * One loaded model behind the C ABI (`mobile/c/include/mlcc.h`, which defines these terms).
 *
 * Thread-safe. Invalid arguments, and calls after [close], throw [NativeFailure].
 */
internal interface Native : AutoCloseable {
    /** Start a request and return its number, which its events carry. [headers] is a JSON object. */
    fun request(method: String, path: String, headers: String, body: ByteArray): Long

    /**
     * Wait at most [timeoutMs] milliseconds (< 0: without limit) for events. Returns all that are queued,
     * in order, or none after the timeout. NativeFailure with [Code.CLOSED]: no more will follow.
     */
    fun poll(timeoutMs: Int): List<Event>

    /** Stop working for a call; it ends with [Code.CANCELLED] unless it has ended before. */
    fun cancel(call: Long)

    /** The counters, as JSON. */
    fun stats(): String

    /** Give back memory; the levels are those of mlcc_trim. */
    fun trim(level: Int)

    /** The app moved to the background, or back. */
    fun background(hidden: Boolean)

    /** Unload the model: all calls end. May be called again. */
    override fun close()
}

/** An event of a call, or of the engine itself ([call] is 0 then). */
internal class Event(val call: Long, val kind: Int, val status: Int, val data: ByteArray) {
    /** [data] as text. */
    val text: String get() = data.decodeToString()

    companion object {
        const val PROGRESS = 1
        const val READY = 2
        const val FAILED = 3
        const val HEAD = 4
        const val BODY = 5
        const val END = 6
    }
}

/** An error of the library: its code, and its JSON in the shape of the API's errors, or "". */
internal class NativeFailure(val status: Int, val error: String) : Exception("mlcc_code $status") {
    /** Called by JNI. */
    constructor(status: Int, error: ByteArray) : this(status, error.decodeToString())
}

/** The values of mlcc_code. */
internal object Code {
    const val OK = 0
    const val CANCELLED = 2
    const val CLOSED = 3
    const val STALLED = 4
    const val BAD_ABI = 11
    const val NO_CALLBACK = 12
    const val NO_PYTHON = 13
    const val OTHER_PYTHON = 14
    const val BAD_RUNTIME = 15
    const val BAD_MODEL = 20
    const val NO_MEMORY = 21
    const val DEVICE_FAILED = 22
    const val UNSUPPORTED = 23
}
