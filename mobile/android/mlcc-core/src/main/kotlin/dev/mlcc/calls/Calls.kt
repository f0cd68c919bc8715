package dev.mlcc.calls

import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.channels.Channel
import kotlinx.coroutines.channels.ReceiveChannel
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow
import java.io.InputStream

/**
 * The calls of one engine: a thread that polls hands events to whoever waits for them.
 *
 * Knows nothing of what is asked. [ofEngine] hears the engine's own events, in that thread.
 */
internal class Calls(
    private val native: Native,
    private val ofEngine: (Event) -> Unit = {},
) : AutoCloseable {
    private val waiting = HashMap<Long, Channel<Event>>()
    private var ended: NativeFailure? = null
    private val poller = Thread(::poll, "mlcc-events").apply { isDaemon = true }

    /** Begin to take events. */
    fun start() = poller.start()

    /**
     * Send a request. Returns with the head of the answer; whoever is cancelled before cancels the call.
     * Throws what [failure] makes of a call that ends without a head.
     */
    suspend fun send(method: String, path: String, headers: String, body: ByteArray): Reply {
        val (call, events) = begin(method, path, headers, body)
        try {
            val first = events.receive()
            if (first.kind == Event.END) throw failure(first.status, first.text)
            return Reply(first.status, first.text, events) { native.cancel(call) }
        } catch (error: Throwable) {
            native.cancel(call)
            throw error
        }
    }

    /** Ends all calls, and the thread. */
    override fun close() {
        native.close()
        if (Thread.currentThread() !== poller) poller.join()
    }

    /** Under the lock, so that no event of the call is looked at before it is known. */
    private fun begin(
        method: String,
        path: String,
        headers: String,
        body: ByteArray,
    ): Pair<Long, ReceiveChannel<Event>> = synchronized(waiting) {
        ended?.let { throw failure(it.status, it.error) }
        // Unlimited: an answer is no longer than the context, and its reader may not hold up others.
        val events = Channel<Event>(Channel.UNLIMITED)
        val call = translated { native.request(method, path, headers, body) }
        waiting[call] = events
        call to events
    }

    private fun poll() {
        try {
            while (true) native.poll(FOREVER).forEach(::deliver)
        } catch (closed: NativeFailure) {
            end(closed)
        } catch (bug: Throwable) {
            end(NativeFailure(BUG, ""))
            throw bug
        }
    }

    private fun deliver(event: Event) {
        if (event.call == 0L) return ofEngine(event)
        val last = event.kind == Event.END
        val events = synchronized(waiting) {
            if (last) waiting.remove(event.call) else waiting[event.call]
        }
        events?.trySend(event)
        if (last) events?.close()
    }

    private fun end(reason: NativeFailure) = synchronized(waiting) {
        ended = reason
        val last = reason.error.encodeToByteArray()
        for ((call, events) in waiting) {
            events.trySend(Event(call, Event.END, reason.status, last))
            events.close()
        }
        waiting.clear()
        ofEngine(Event(0, Event.FAILED, reason.status, last))
    }

    private companion object {
        const val FOREVER = -1
        const val BUG = 99
    }
}

/** An answer whose head is known. [close] must be called, or the body read; then it may be. */
internal class Reply(
    val status: Int,
    /** A JSON object. */
    val headers: String,
    private val events: ReceiveChannel<Event>,
    private val cancel: () -> Unit,
) : AutoCloseable {
    /** The pieces of the body, once. Throws what [failure] says if it breaks off. */
    fun body(): Flow<ByteArray> = flow {
        use {
            for (event in events) {
                if (event.kind == Event.BODY) emit(event.data)
                else if (event.status != Code.OK) throw failure(event.status, event.text)
            }
        }
    }

    /** The same for a thread that waits; an IOException has what [body] would throw as its cause. */
    fun stream(): InputStream = BodyStream(events, this)

    /** The whole body as text. */
    suspend fun text(): String {
        val whole = java.io.ByteArrayOutputStream()
        body().collect(whole::write)
        return whole.toByteArray().decodeToString()
    }

    /** Nobody reads any more. */
    override fun close() {
        cancel()
        events.cancel(CancellationException("nobody reads the answer any more"))
    }
}
