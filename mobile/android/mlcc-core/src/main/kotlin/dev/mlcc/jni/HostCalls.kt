package dev.mlcc.jni

import dev.mlcc.ImageDecoder
import dev.mlcc.Tokenizer
import dev.mlcc.calls.json
import java.nio.ByteBuffer
import java.nio.ByteOrder

/**
 * The app's tokenizer and decoder of images as C++ calls them, one call at a time. An exception fails
 * the request, with its text.
 */
internal class HostCalls(
    private val tokenizer: Tokenizer?,
    private val images: ImageDecoder?,
) : AutoCloseable {
    fun hasTokenizer(): Boolean = tokenizer != null

    fun hasImages(): Boolean = images != null

    fun encode(text: ByteArray, special: Boolean): IntArray =
        tokenizer!!.encode(text.decodeToString(), special)

    fun decode(ids: IntArray): ByteArray = tokenizer!!.decode(ids).encodeToByteArray()

    /** A JSON array. */
    fun specialTokens(): ByteArray = json.encodeToString(tokenizer!!.specialTokens).encodeToByteArray()

    /** Width and height (4 bytes each), then RGB. */
    fun decodeImage(file: ByteArray, type: ByteArray): ByteArray {
        val image = images!!.decode(file, type.decodeToString())
        val bytes = ByteBuffer.allocate(2 * Int.SIZE_BYTES + image.rgb.size).order(ByteOrder.nativeOrder())
        return bytes.putInt(image.width).putInt(image.height).put(image.rgb).array()
    }

    /** The text of an exception of these functions. */
    fun reason(thrown: Throwable): ByteArray = thrown.toString().encodeToByteArray()

    override fun close() {
        tokenizer?.close()
    }
}
