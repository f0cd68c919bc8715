package dev.mlcc.jni

import dev.mlcc.Tokenizer
import dev.mlcc.calls.json

/** A tokenizer as C++ calls it, one call at a time. An exception fails the request, with its text. */
internal class TokenizerCalls(private val tokenizer: Tokenizer) : AutoCloseable {
    fun encode(text: ByteArray, special: Boolean): IntArray =
        tokenizer.encode(text.decodeToString(), special)

    fun decode(ids: IntArray): ByteArray = tokenizer.decode(ids).encodeToByteArray()

    /** A JSON array. */
    fun specialTokens(): ByteArray = json.encodeToString(tokenizer.specialTokens).encodeToByteArray()

    /** The text of an exception of these functions. */
    fun reason(thrown: Throwable): ByteArray = thrown.toString().encodeToByteArray()

    override fun close() = tokenizer.close()
}
