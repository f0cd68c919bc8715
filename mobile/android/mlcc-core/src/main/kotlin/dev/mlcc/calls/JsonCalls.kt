package dev.mlcc.calls

import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow
import kotlinx.serialization.DeserializationStrategy
import kotlinx.serialization.SerializationException
import kotlinx.serialization.SerializationStrategy

internal const val JSON_HEADERS = """{"content-type":"application/json"}"""

/** A whole answer to a request. */
internal suspend fun <T> Calls.whole(
    method: String,
    path: String,
    body: ByteArray,
    shape: DeserializationStrategy<T>,
): T = send(method, path, JSON_HEADERS, body).use { reply ->
    val text = reply.text()
    if (reply.status != OK) throw refusal(reply.status, text)
    json.decodeFromString(shape, text)
}

/** The chunks of a streamed answer. The request is sent when somebody collects. */
internal fun <T> Calls.chunks(
    path: String,
    body: ByteArray,
    shape: DeserializationStrategy<T>,
): Flow<T> = flow {
    send("POST", path, JSON_HEADERS, body).use { reply ->
        if (reply.status != OK) throw refusal(reply.status, reply.text())
        reply.body().collect { piece ->
            for (event in events(piece)) emit(chunk(event, shape))
        }
    }
}

/** The bytes of a request. */
internal fun <T> bytes(shape: SerializationStrategy<T>, request: T): ByteArray =
    json.encodeToString(shape, request).encodeToByteArray()

/** The data of the server-sent events that a piece holds: whole ones, as mlcc.h promises. */
private fun events(piece: ByteArray): Sequence<String> = piece.decodeToString().lineSequence()
    .filter { it.startsWith(DATA) }
    .map { it.removePrefix(DATA) }
    .filter { it != DONE }

/** A chunk. What is none says that the stream broke. */
private fun <T> chunk(text: String, shape: DeserializationStrategy<T>): T = try {
    json.decodeFromString(shape, text)
} catch (_: SerializationException) {
    throw refusal(FAILED, text)
}

private const val OK = 200
private const val FAILED = 500
private const val DATA = "data: "
private const val DONE = "[DONE]"
