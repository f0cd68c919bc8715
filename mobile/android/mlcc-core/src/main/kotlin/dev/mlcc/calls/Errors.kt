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

/** Requests omit null fields. Unknown fields of answers are ignored. */
internal val json: Json = Json {
    encodeDefaults = true
    explicitNulls = false
    ignoreUnknownKeys = true
}

/** The exception for a code of the library and the JSON of its error, which may be "". */
internal fun libraryError(status: Int, body: String): Exception {
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

/** The exception for an answer whose status is not 200. */
internal fun apiError(status: Int, body: String): MlccException =
    ApiException(status, errorOf(body) ?: ErrorObject("the answer was $status: $body", "server_error"))

/** The value of [action]; a NativeFailure is thrown as the exception of [libraryError]. */
internal inline fun <T> translateErrors(action: () -> T): T = try {
    action()
} catch (refused: NativeFailure) {
    throw libraryError(refused.status, refused.error)
}

private const val CLOSED = "the engine was closed; Mlcc.load starts another"

private fun errorOf(body: String): ErrorObject? = try {
    json.decodeFromString<ErrorBody>(body).error
} catch (_: SerializationException) {
    null
}
