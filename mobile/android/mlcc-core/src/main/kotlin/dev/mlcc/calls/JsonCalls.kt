package dev.mlcc.calls

import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow
import kotlinx.serialization.DeserializationStrategy
import kotlinx.serialization.SerializationException
import kotlinx.serialization.SerializationStrategy

internal const val JSON_HEADERS = """{"content-type":"application/json"}"""

/** Send a request and decode its whole answer. Throws ApiException for any status but 200. */
internal suspend fun <T> Calls.callJson(
    method: String,
    path: String,
    body: ByteArray,
    serializer: DeserializationStrategy<T>,
    headers: String = JSON_HEADERS,
): T = send(method, path, headers, body).use { reply ->
    val text = reply.text()
    if (reply.status != OK) throw apiError(reply.status, text)
    json.decodeFromString(serializer, text)
}

/** The chunks of a streamed answer. The request is sent when the flow is collected. */
internal fun <T> Calls.streamChunks(
    path: String,
    body: ByteArray,
    serializer: DeserializationStrategy<T>,
    headers: String = JSON_HEADERS,
): Flow<T> = flow {
    send("POST", path, headers, body).use { reply ->
        if (reply.status != OK) throw apiError(reply.status, reply.text())
        reply.body().collect { piece ->
            for (event in events(piece)) emit(chunk(event, serializer))
        }
    }
}

/** A request as JSON bytes. */
internal fun <T> bytes(serializer: SerializationStrategy<T>, request: T): ByteArray =
    json.encodeToString(serializer, request).encodeToByteArray()

/** The data of the server-sent events of one BODY event: mlcc.h guarantees whole events. */
private fun events(piece: ByteArray): Sequence<String> = piece.decodeToString().lineSequence()
    .filter { it.startsWith(DATA) }
    .map { it.removePrefix(DATA) }
    .filter { it != DONE }

/** Decode a chunk. Other JSON is the error with which the stream ended. */
private fun <T> chunk(text: String, serializer: DeserializationStrategy<T>): T = try {
    json.decodeFromString(serializer, text)
} catch (_: SerializationException) {
    throw apiError(FAILED, text)
}

private const val OK = 200
private const val FAILED = 500
private const val DATA = "data: "
private const val DONE = "[DONE]"
