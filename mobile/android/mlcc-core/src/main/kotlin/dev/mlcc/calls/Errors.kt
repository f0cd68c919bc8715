package dev.mlcc.calls

import dev.mlcc.ApiException
import dev.mlcc.ArtifactException
import dev.mlcc.CapacityException
import dev.mlcc.ClosedException
import dev.mlcc.DeviceException
import dev.mlcc.ErrorBody
import dev.mlcc.ErrorObject
import dev.mlcc.InternalException
import dev.mlcc.MlccException
import dev.mlcc.SetupException
import dev.mlcc.UnsupportedException
import kotlinx.coroutines.CancellationException
import kotlinx.serialization.SerializationException
import kotlinx.serialization.json.Json

/** Requests: absent is not null. Answers: a field that this version does not know is left alone. */
internal val json: Json = Json {
    encodeDefaults = true
    explicitNulls = false
    ignoreUnknownKeys = true
}

/** The exception for a code of the library and the error beside it, which may be "". */
internal fun failure(status: Int, body: String): Exception {
    val error = errorOf(body)
    val message = error?.message ?: "mlcc's library answered with code $status and no message"
    val code = error?.code
    return when (status) {
        Code.CANCELLED -> CancellationException(message)
        Code.CLOSED -> ClosedException(error?.message ?: CLOSED)
        Code.STALLED -> CapacityException(message, code)
        in Code.BAD_ABI..Code.BAD_RUNTIME -> SetupException(message, code)
        Code.BAD_MODEL -> ArtifactException(message, code)
        Code.NO_MEMORY -> CapacityException(message, code)
        Code.DEVICE_FAILED -> DeviceException(message, code)
        Code.UNSUPPORTED -> UnsupportedException(message, code)
        else -> InternalException(message, code)
    }
}

/** The exception for an answer that is no success. */
internal fun refusal(status: Int, body: String): MlccException =
    ApiException(status, errorOf(body) ?: ErrorObject("the answer was $status: $body", "server_error"))

/** [action]'s value; what the library refuses is thrown as [failure] says. */
internal inline fun <T> translated(action: () -> T): T = try {
    action()
} catch (refused: NativeFailure) {
    throw failure(refused.status, refused.error)
}

private const val CLOSED = "the engine was closed; Mlcc.load starts another"

private fun errorOf(body: String): ErrorObject? = try {
    json.decodeFromString<ErrorBody>(body).error
} catch (_: SerializationException) {
    null
}
