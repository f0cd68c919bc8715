package dev.mlcc.calls

import java.util.concurrent.LinkedBlockingQueue
import java.util.concurrent.atomic.AtomicLong

/**
 * An engine in memory that answers by a script: for the order of events, which a real model does not let
 * a test choose. [answer] gets the number of a call and its body.
 */
internal class ScriptedNative(
    private val answer: ScriptedNative.(call: Long, path: String, body: String) -> Unit = { _, _, _ -> },
) : Native {
    private val batches = LinkedBlockingQueue<List<Event>>()
    private val numbers = AtomicLong()
    val cancelled = LinkedBlockingQueue<Long>()
    val begun = LinkedBlockingQueue<Long>()

    fun batch(vararg events: Event) = batches.put(events.toList())

    fun head(call: Long, status: Int = 200) = Event(call, Event.HEAD, status, "{}".encodeToByteArray())

    fun body(call: Long, text: String) = Event(call, Event.BODY, 0, text.encodeToByteArray())

    fun end(call: Long, code: Int = Code.OK, error: String = "") =
        Event(call, Event.END, code, error.encodeToByteArray())

    fun onEngineEvent(kind: Int, status: Int = 0, text: String = "") =
        batch(Event(0, kind, status, text.encodeToByteArray()))

    override fun request(method: String, path: String, headers: String, body: ByteArray): Long {
        val call = numbers.incrementAndGet()
        answer(call, path, body.decodeToString())
        begun.put(call)
        return call
    }

    override fun poll(timeoutMs: Int): List<Event> {
        val batch = batches.take()
        if (batch === CLOSED) throw NativeFailure(Code.CLOSED, "")
        return batch
    }

    override fun cancel(call: Long) = cancelled.put(call)

    override fun stats(): String = """{"state":"ready"}"""

    override fun trim(level: Int) = Unit

    override fun background(hidden: Boolean) = Unit

    override fun close() = batches.put(CLOSED)

    private companion object {
        val CLOSED = listOf<Event>(Event(-1, -1, -1, ByteArray(0)))
    }
}
