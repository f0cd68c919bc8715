package dev.mlcc.calls

import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.channels.Channel
import kotlinx.coroutines.channels.ReceiveChannel
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow
import java.io.InputStream

/**
 * The calls of one engine: a polling thread routes events to the coroutines that wait for them.
 *
 * Independent of what requests contain. [onEngineEvent] receives the engine's own events, on that
 * thread.
 */
internal class Calls(
    private val native: Native,
    private val onEngineEvent: (Event) -> Unit = {},
) : AutoCloseable {
    private val waiting = HashMap<Long, Channel<Event>>()
    private var ended: NativeFailure? = null
    private val poller = Thread(::poll, "mlcc-events").apply { isDaemon = true }

    /** Start the polling thread. */
    fun start() = poller.start()

    /**
     * Send a request. Returns with the head of the answer; cancelling before that cancels the call.
     * Throws the exception of [libraryError] if the call ends without a head.
     */
    suspend fun send(method: String, path: String, headers: String, body: ByteArray): Reply {
        val (call, events) = begin(method, path, headers, body)
        try {
            val first = events.receive()
            if (first.kind == Event.END) throw libraryError(first.status, first.text)
            return Reply(first.status, first.text, events) { native.cancel(call) }
        } catch (error: Throwable) {
            native.cancel(call)
            throw error
        }
    }

    /** Ends all calls and the polling thread. */
    override fun close() {
        native.close()
        if (Thread.currentThread() !== poller) poller.join()
    }

    /** Under the lock, so that no event of the call is delivered before the call is registered. */
    private fun begin(
        method: String,
        path: String,
        headers: String,
        body: ByteArray,
    ): Pair<Long, ReceiveChannel<Event>> = synchronized(waiting) {
        ended?.let { throw libraryError(it.status, it.error) }
        // Unlimited: an answer is bounded by the context, and a slow reader must not block others.
        val events = Channel<Event>(Channel.UNLIMITED)
        val call = translateErrors { native.request(method, path, headers, body) }
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
        if (event.call == 0L) return onEngineEvent(event)
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
        onEngineEvent(Event(0, Event.FAILED, reason.status, last))
    }

    private companion object {
        const val FOREVER = -1
        const val BUG = 99
    }
}

/** An answer after its head. Read the body or call [close]; both is fine. */
internal class Reply(
    val status: Int,
    /** A JSON object. */
    val headers: String,
    private val events: ReceiveChannel<Event>,
    private val cancel: () -> Unit,
) : AutoCloseable {
    /** The body in parts; readable once. Throws the exception of [libraryError] if it breaks off. */
    fun body(): Flow<ByteArray> = flow {
        use {
            for (event in events) {
                if (event.kind == Event.BODY) emit(event.data)
                else if (event.status != Code.OK) throw libraryError(event.status, event.text)
            }
        }
    }

    /** The body as a blocking stream; the cause of an IOException is what [body] would throw. */
    fun stream(): InputStream = BodyStream(events, this)

    /** The whole body as text. */
    suspend fun text(): String {
        val whole = java.io.ByteArrayOutputStream()
        body().collect(whole::write)
        return whole.toByteArray().decodeToString()
    }

    /** Cancel the call and stop reading. */
    override fun close() {
        cancel()
        events.cancel(CancellationException("the answer was closed"))
    }
}
