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

/** How to reach a web server, and how patiently. [delays]: milliseconds before each further try. */
internal class Access(val delays: List<Long> = DELAYS, val idleMs: Int = IDLE_MS) {
    private companion object {
        val DELAYS = listOf(250L, 750L, 2000L, 5000L, 8000L)
        const val IDLE_MS = 30_000
    }
}

/** The connection was lost, or the server cannot answer now: another try may mend it. */
internal class BrokenDownload(message: String, cause: Throwable? = null) : IOException(message, cause)

/**
 * One answer of a web server. [start]: where in the file its bytes begin. [ranged]: it is what was asked
 * for; else the whole file, which a server may send instead.
 */
internal class Answer(val start: Long, val ranged: Boolean, val stream: InputStream) {
    /** All of the answer, or DownloadException if that is more than [limit] bytes. */
    fun readAll(limit: Int, path: String): ByteArray {
        val (whole, buffer) = ByteArrayOutputStream() to ByteArray(PIECE_BYTES)
        while (true) {
            val size = reading { stream.read(buffer) }
            if (size < 0) return whole.toByteArray()
            whole.write(buffer, 0, size)
            if (whole.size() > limit) {
                throw DownloadException("$path is larger than ${limit shr 20} MiB; check the address")
            }
        }
    }
}

/** What goes wrong with the network in [action] is a BrokenDownload. */
internal inline fun <T> reading(action: () -> T): T = try {
    action()
} catch (broken: IOException) {
    throw BrokenDownload(broken.message ?: broken.javaClass.simpleName, broken)
}

/**
 * Ask for a file, or for its bytes [start] until [stop], and let [use] read the answer in a thread for
 * waiting. A broken download is tried again; then DownloadException. Cancelling ends the connection.
 */
internal suspend fun <T> Access.get(
    url: String,
    path: String,
    start: Long = 0,
    stop: Long? = null,
    use: CoroutineScope.(Answer) -> T,
): T {
    for ((attempt, pause) in (delays + null).withIndex()) {
        try {
            return once(url, path, start, stop, use)
        } catch (broken: BrokenDownload) {
            delay(pause ?: throw gaveUp(path, attempt + 1, broken))
        }
    }
    error("the last try returns or throws")
}

private suspend fun <T> Access.once(
    url: String,
    path: String,
    start: Long,
    stop: Long?,
    use: CoroutineScope.(Answer) -> T,
): T = withContext(Dispatchers.IO) {
    val connection = URL(url).openConnection() as HttpURLConnection
    connection.connectTimeout = idleMs
    connection.readTimeout = idleMs
    connection.setRequestProperty("Accept-Encoding", "identity")
    stop?.let { connection.setRequestProperty("Range", "bytes=$start-${it - 1}") }
    disconnecting(connection) { use(answered(connection, path, start)) }
}

/**
 * A read that waits for the server knows nothing of cancelling: it ends with its connection, and then
 * fails in some way or other.
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

private fun answered(connection: HttpURLConnection, path: String, asked: Long): Answer = reading {
    val status = connection.responseCode
    refusal(status, path)?.let { throw it }
    val ranged = status == HttpURLConnection.HTTP_PARTIAL
    if (ranged) {
        val range = connection.getHeaderField("Content-Range").orEmpty()
        if (!range.startsWith("bytes $asked-")) {
            throw BrokenDownload("the server sent other bytes than it was asked for: '$range'")
        }
    }
    Answer(if (ranged) asked else 0, ranged, connection.inputStream)
}

private fun refusal(status: Int, path: String): Exception? = when (status) {
    HttpURLConnection.HTTP_OK, HttpURLConnection.HTTP_PARTIAL -> null
    in LATER -> BrokenDownload("the server answered $status")
    HttpURLConnection.HTTP_NOT_FOUND, HttpURLConnection.HTTP_GONE ->
        DownloadException("the server has no $path ($status); check the address of the model's folder")
    RANGE_REFUSED -> ArtifactException(
        "$path on the server is shorter than its manifest says; copy the model there again",
    )
    else -> DownloadException("the server refused $path ($status); check the address and who may read it")
}

private fun gaveUp(path: String, tries: Int, cause: BrokenDownload): MlccException = DownloadException(
    "$path could not be downloaded in $tries tries (${cause.message}); check the connection, then load " +
        "the model again: what has arrived is kept",
    cause = cause,
)

private val LATER = setOf(408, 425, 429, 500, 502, 503, 504)
private const val RANGE_REFUSED = 416

/** Read at once. */
internal const val PIECE_BYTES = 1 shl 16
