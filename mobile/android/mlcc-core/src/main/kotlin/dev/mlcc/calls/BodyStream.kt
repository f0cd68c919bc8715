package dev.mlcc.calls

import kotlinx.coroutines.channels.ReceiveChannel
import kotlinx.coroutines.runBlocking
import java.io.IOException
import java.io.InputStream

/** The body of an answer as a blocking stream. Closing it cancels the call. */
internal class BodyStream(
    private val events: ReceiveChannel<Event>,
    private val reply: AutoCloseable,
) : InputStream() {
    private var piece = ByteArray(0)
    private var at = 0
    private var ended = false

    override fun read(): Int {
        val one = ByteArray(1)
        return if (read(one, 0, 1) < 0) -1 else one[0].toInt() and 0xff
    }

    override fun read(into: ByteArray, offset: Int, length: Int): Int {
        if (length == 0) return 0
        while (at == piece.size) if (!next()) return -1
        val count = minOf(length, piece.size - at)
        piece.copyInto(into, offset, at, at + count)
        at += count
        return count
    }

    override fun available(): Int = piece.size - at

    override fun close() = reply.close()

    /** Load the next part of the body; false at its end. */
    private fun next(): Boolean {
        if (ended) return false
        val event = runBlocking { events.receiveCatching() }.getOrNull() ?: throw IOException("closed")
        if (event.kind == Event.BODY) {
            piece = event.data
            at = 0
            return true
        }
        ended = true
        if (event.status == Code.OK) return false
        val broken = libraryError(event.status, event.text)
        throw IOException(broken.message, broken)
    }
}
