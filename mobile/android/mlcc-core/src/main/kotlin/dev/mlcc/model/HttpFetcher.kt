package dev.mlcc.model

import dev.mlcc.ArtifactException
import dev.mlcc.DownloadException
import dev.mlcc.MlccException
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.delay
import kotlinx.coroutines.ensureActive
import kotlinx.coroutines.launch
import kotlinx.coroutines.withContext
import java.io.ByteArrayOutputStream
import java.io.IOException
import java.io.InputStream
import java.net.HttpURLConnection
import java.net.URL

/** HTTP requests with retries. [delays]: milliseconds before each retry. */
internal class HttpFetcher(val delays: List<Long> = DELAYS, val idleMs: Int = IDLE_MS) {
    private companion object {
        val DELAYS = listOf(250L, 750L, 2000L, 5000L, 8000L)
        const val IDLE_MS = 30_000
    }
}

/** The connection was lost, or the server answers later: a retry may succeed. */
internal class BrokenDownload(message: String, cause: Throwable? = null) : IOException(message, cause)

/**
 * One HTTP response. [start]: offset of its bytes in the file. [ranged]: it is the requested range, not
 * the whole file, which a server may send instead.
 */
internal class HttpResponse(val start: Long, val ranged: Boolean, val stream: InputStream) {
    /** The whole body. Throws DownloadException if it has more than [limit] bytes. */
    fun readAll(limit: Int, path: String): ByteArray {
        val (whole, buffer) = ByteArrayOutputStream() to ByteArray(BUFFER_BYTES)
        while (true) {
            val size = networkErrors { stream.read(buffer) }
            if (size < 0) return whole.toByteArray()
            whole.write(buffer, 0, size)
            if (whole.size() > limit) {
                throw DownloadException("$path is larger than ${limit shr 20} MiB; check the address")
            }
        }
    }
}

/** Turns an IOException of [action] into a BrokenDownload. */
internal inline fun <T> networkErrors(action: () -> T): T = try {
    action()
} catch (broken: IOException) {
    throw BrokenDownload(broken.message ?: broken.javaClass.simpleName, broken)
}

/**
 * Request a file, or its bytes [start] until [stop]; [use] reads the response on an IO thread. A
 * BrokenDownload is retried; after the last retry: DownloadException. Cancelling ends the connection.
 */
internal suspend fun <T> HttpFetcher.get(
    url: String,
    path: String,
    start: Long = 0,
    stop: Long? = null,
    use: CoroutineScope.(HttpResponse) -> T,
): T {
    for ((attempt, pause) in (delays + null).withIndex()) {
        try {
            return fetchOnce(url, path, start, stop, use)
        } catch (broken: BrokenDownload) {
            delay(pause ?: throw retriesExhausted(path, attempt + 1, broken))
        }
    }
    error("the last try returns or throws")
}

private suspend fun <T> HttpFetcher.fetchOnce(
    url: String,
    path: String,
    start: Long,
    stop: Long?,
    use: CoroutineScope.(HttpResponse) -> T,
): T = withContext(Dispatchers.IO) {
    val connection = URL(url).openConnection() as HttpURLConnection
    connection.connectTimeout = idleMs
    connection.readTimeout = idleMs
    connection.setRequestProperty("Accept-Encoding", "identity")
    stop?.let { connection.setRequestProperty("Range", "bytes=$start-${it - 1}") }
    disconnecting(connection) { use(openResponse(connection, path, start)) }
}

/**
 * Runs [action] and disconnects if the coroutine is cancelled: a blocking read is not cancellable, it
 * fails once its connection is closed.
 */
private suspend fun <T> disconnecting(
    connection: HttpURLConnection,
    action: CoroutineScope.() -> T,
): T = coroutineScope {
    val watch = launch(Dispatchers.Default) {
        try {
            awaitCancellation()
        } finally {
            connection.disconnect()
        }
    }
    try {
        action()
    } catch (error: Exception) {
        ensureActive()
        throw error
    } finally {
        watch.cancel()
    }
}

private fun openResponse(connection: HttpURLConnection, path: String, offset: Long): HttpResponse = networkErrors {
    val status = connection.responseCode
    statusError(status, path)?.let { throw it }
    val ranged = status == HttpURLConnection.HTTP_PARTIAL
    if (ranged) {
        val range = connection.getHeaderField("Content-Range").orEmpty()
        if (!range.startsWith("bytes $offset-")) {
            throw BrokenDownload("the server sent another range than requested: '$range'")
        }
    }
    HttpResponse(if (ranged) offset else 0, ranged, connection.inputStream)
}

private fun statusError(status: Int, path: String): Exception? = when (status) {
    HttpURLConnection.HTTP_OK, HttpURLConnection.HTTP_PARTIAL -> null
    in RETRIED -> BrokenDownload("the server answered $status")
    HttpURLConnection.HTTP_NOT_FOUND, HttpURLConnection.HTTP_GONE ->
        DownloadException("the server has no $path ($status); check the address of the model's folder")
    RANGE_REFUSED -> ArtifactException(
        "$path on the server is shorter than its manifest says; copy the model there again",
    )
    else -> DownloadException("the server refused $path ($status); check the address and who may read it")
}

private fun retriesExhausted(path: String, tries: Int, cause: BrokenDownload): MlccException = DownloadException(
    "$path could not be downloaded in $tries tries (${cause.message}); check the connection, then load " +
        "the model again: what has arrived is kept",
    cause = cause,
)

private val RETRIED = setOf(408, 425, 429, 500, 502, 503, 504)
private const val RANGE_REFUSED = 416

/** Buffer size of reads. */
internal const val BUFFER_BYTES = 1 shl 16
