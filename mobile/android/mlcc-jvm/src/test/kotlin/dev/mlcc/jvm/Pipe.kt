package dev.mlcc.jvm

import java.io.EOFException
import java.io.InputStream
import java.io.OutputStream
import java.nio.ByteBuffer
import java.nio.ByteOrder

/** A command or its result; tests/e2e/mobile/host.cc documents the fields. */
internal class Frame(
    val name: Int,
    val id: Int,
    val a: Long = 0,
    val b: Long = 0,
    val c: Int = 0,
    val d: Int = 0,
    val texts: List<ByteArray> = emptyList(),
) {
    companion object {
        const val START = 1
        const val CREATE = 2
        const val REQUEST = 3
        const val CANCEL = 4
        const val CLOSE = 9
        const val EVENT = 100
    }
}

/** Frames over two streams, in the machine's byte order. Any thread may write. */
internal class Pipe(private val input: InputStream, private val output: OutputStream) {
    /** The next frame. Throws EOFException when the other end is closed. */
    fun read(): Frame {
        val head = buffer(taken(HEAD_BYTES))
        val (name, id) = head.int to head.int
        val (a, b) = head.long to head.long
        val (c, d) = head.int to head.int
        val texts = List(head.int) { taken(buffer(taken(Int.SIZE_BYTES)).int) }
        return Frame(name, id, a, b, c, d, texts)
    }

    fun write(frame: Frame) {
        val bytes = buffer(ByteArray(HEAD_BYTES + frame.texts.sumOf { Int.SIZE_BYTES + it.size }))
        bytes.putInt(frame.name).putInt(frame.id).putLong(frame.a).putLong(frame.b)
        bytes.putInt(frame.c).putInt(frame.d).putInt(frame.texts.size)
        for (text in frame.texts) bytes.putInt(text.size).put(text)
        synchronized(output) {
            output.write(bytes.array())
            output.flush()
        }
    }

    private fun taken(size: Int): ByteArray = input.readNBytes(size).also {
        if (it.size < size) throw EOFException()
    }

    private fun buffer(bytes: ByteArray) = ByteBuffer.wrap(bytes).order(ByteOrder.nativeOrder())

    private companion object {
        const val HEAD_BYTES = 36
    }
}
