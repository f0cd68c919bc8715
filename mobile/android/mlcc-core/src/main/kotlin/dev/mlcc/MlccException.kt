package dev.mlcc

/**
 * An expected error: its message says what happened, why, and what to do next.
 *
 * Any other exception is a bug, except `CancellationException` of a cancelled coroutine.
 *
 * @property code stable, for programs: `context_length_exceeded`, `queue_full`, `low_memory`, ...
 */
public sealed class MlccException(
    override val message: String,
    public val code: String?,
    cause: Throwable? = null,
) : RuntimeException(message, cause)

/**
 * A request was refused, or its answer broke off.
 *
 * @property status HTTP's: 400 for a request that can never be honoured, 503 for one that may be
 * later, 500 for a failure on the way.
 * @property error the error object of the API.
 */
public class ApiException(public val status: Int, public val error: ErrorObject) :
    MlccException(error.message, error.code)

/** A compiled model that is damaged, incomplete, unsafe, or made for another machine or version. */
public class ArtifactException(message: String, code: String? = "artifact", cause: Throwable? = null) :
    MlccException(message, code, cause)

/** Not enough memory or disk space. */
public class CapacityException(message: String, code: String? = "capacity", cause: Throwable? = null) :
    MlccException(message, code, cause)

/** The device failed, or lacks something that the model needs. */
public class DeviceException(message: String, code: String? = "device_error") :
    MlccException(message, code)

/** A file could not be fetched: no network, a refusal, or the connection broke off. */
public class DownloadException(message: String, code: String? = "download", cause: Throwable? = null) :
    MlccException(message, code, cause)

/** A feature that is not available. */
public class UnsupportedException(message: String, code: String? = "unsupported") :
    MlccException(message, code)

/** The engine was closed before or while it answered; [Mlcc.load] starts another. */
public class ClosedException(message: String, code: String? = "closed") : MlccException(message, code)

/** mlcc's native parts are missing or do not match each other: see [NativeFiles]. */
public class SetupException(message: String, code: String? = "setup", cause: Throwable? = null) :
    MlccException(message, code, cause)

/** A bug in mlcc: please report it, with what was logged. */
public class InternalException(message: String, code: String? = "bug") : MlccException(message, code)
