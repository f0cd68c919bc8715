package dev.mlcc.calls

/**
 * One loaded model behind the C ABI (`mobile/c/include/mlcc.h`, whose words these are).
 *
 * Any thread may call any function at any time. What is said wrongly, or too late, is thrown as a
 * [NativeFailure].
 */
internal interface Native : AutoCloseable {
    /** Begin a request and return its number, which its events carry. [headers] is a JSON object. */
    fun request(method: String, path: String, headers: String, body: ByteArray): Long

    /**
     * Wait for events, at most [timeoutMs] milliseconds (< 0: as long as it takes): all that are there,
     * in order, none after the time. NativeFailure with [Code.CLOSED]: no more will come.
     */
    fun poll(timeoutMs: Int): List<Event>

    /** Stop working for a call; it ends with [Code.CANCELLED] unless it has ended before. */
    fun cancel(call: Long)

    /** The counters, as JSON. */
    fun stats(): String

    /** Memory is short, or is not any more. */
    fun trim(level: Int)

    /** The app is out of sight, or back. */
    fun background(hidden: Boolean)

    /** Give the model back: all calls end. May be called again. */
    override fun close()
}

/** What happened to a call, or to the engine itself ([call] is 0 then). */
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

/** What the library refused: its code, and the error in the shape of the API, if it gave one. */
internal class NativeFailure(val status: Int, val error: String) : Exception("mlcc_code $status") {
    /** As JNI has it. */
    constructor(status: Int, error: ByteArray) : this(status, error.decodeToString())
}

/** mlcc_code. */
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
