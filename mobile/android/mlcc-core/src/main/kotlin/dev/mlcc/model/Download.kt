package dev.mlcc.model

import dev.mlcc.ArtifactException
import dev.mlcc.CapacityException
import dev.mlcc.Progress
import dev.mlcc.ProgressListener
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.ensureActive
import kotlinx.coroutines.sync.Semaphore
import kotlinx.coroutines.sync.withPermit
import kotlinx.coroutines.withContext
import java.io.IOException
import java.io.InputStream
import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.nio.file.Files
import java.nio.file.InvalidPathException
import java.nio.file.Path
import java.nio.file.StandardOpenOption.CREATE
import java.nio.file.StandardOpenOption.READ
import java.nio.file.StandardOpenOption.WRITE
import java.security.MessageDigest

/**
 * Downloads one model into a folder. Chunks on disk with the right hash are kept; the others are
 * fetched, a few in parallel. Chunks are not buffered in memory: they are hashed while written.
 */
internal class Download(
    private val url: (path: String) -> String,
    private val folder: Path,
    private val fetcher: HttpFetcher,
    private val total: Long,
    private val onProgress: ProgressListener,
) {
    private var done = 0L
    private val atOnce = Semaphore(AT_ONCE)

    /** The chunks of [entries] that are not in the folder. */
    suspend fun missing(entries: List<FileEntry>): List<Chunk> = withContext(Dispatchers.IO) {
        entries.flatMap { entry ->
            opened(entry) { file -> entry.toChunks().filterNot { isPresent(file, it) } }
        }
    }

    /** Fetch chunks. Throws DownloadException, ArtifactException, CapacityException. */
    suspend fun fetch(chunks: List<Chunk>) = coroutineScope {
        for ((entry, wanted) in chunks.groupBy { it.entry }) fetchFile(entry, wanted)
    }

    /** The first chunk shows whether the server supports ranges; if not, one response has all chunks. */
    private suspend fun fetchFile(entry: FileEntry, wanted: List<Chunk>) {
        val first = wanted.first()
        val ranged = get(first) { response ->
            store(response, if (response.ranged) listOf(first) else wanted)
            response.ranged
        }
        if (!ranged) return
        coroutineScope {
            wanted.drop(1).map { chunk ->
                async { atOnce.withPermit { get(chunk) { store(it, listOf(chunk)) } } }
            }.awaitAll()
        }
    }

    /** A chunk with a wrong hash is fetched once more: a proxy may have sent a stale copy. */
    private suspend fun <T> get(chunk: Chunk, use: CoroutineScope.(HttpResponse) -> T): T {
        val (path, size) = chunk.entry.path to chunk.entry.bytes
        val stop = (chunk.start + chunk.size).takeIf { chunk.size < size }
        val fetch = suspend { fetcher.get(url(path), path, chunk.start, stop, use) }
        return try {
            fetch()
        } catch (_: Damaged) {
            try {
                fetch()
            } catch (damaged: Damaged) {
                throw ArtifactException(damaged.message!!)
            }
        }
    }

    /** Write these chunks, in order, from a response that contains them. */
    private fun CoroutineScope.store(response: HttpResponse, chunks: List<Chunk>) = opened(chunks[0].entry) {
        var position = response.start
        for (chunk in chunks) {
            position += readBytes(response.stream, chunk.start - position) { _ -> }
            val digest = newDigest()
            var at = chunk.start
            position += readBytes(response.stream, chunk.size) { piece ->
                digest.update(piece.duplicate())
                at += write(it, piece, at)
            }
            if (hex(digest.digest()) != chunk.hash) throw Damaged(chunk)
            report(chunk.size)
        }
    }

    private fun CoroutineScope.readBytes(
        stream: InputStream,
        count: Long,
        use: (ByteBuffer) -> Unit,
    ): Long {
        val buffer = ByteArray(BUFFER_BYTES)
        var left = count
        while (left > 0) {
            ensureActive()
            val size = networkErrors { stream.read(buffer, 0, minOf(left, buffer.size.toLong()).toInt()) }
            if (size < 0) throw BrokenDownload("the server sent $left bytes too few")
            use(ByteBuffer.wrap(buffer, 0, size))
            left -= size
        }
        return count
    }

    private fun isPresent(file: FileChannel, chunk: Chunk): Boolean {
        if (file.size() < chunk.start + chunk.size) return false
        val digest = newDigest()
        digest.update(file, chunk)
        val sound = hex(digest.digest()) == chunk.hash
        if (sound) report(chunk.size)
        return sound
    }

    @Synchronized
    private fun report(bytes: Long) {
        done += bytes
        onProgress.onProgress(Progress.Download(done, total))
    }

    /** Opens a file of the model for reading and writing, creating it if needed. */
    private inline fun <T> opened(entry: FileEntry, use: (FileChannel) -> T): T {
        val path = try {
            folder.resolve(entry.path)
        } catch (invalid: InvalidPathException) {
            throw ArtifactException("this system cannot have a file '${entry.path}'", cause = invalid)
        }
        Files.createDirectories(path.parent)
        return FileChannel.open(path, CREATE, READ, WRITE).use { file ->
            if (file.size() > entry.bytes) file.truncate(entry.bytes)
            use(file)
        }
    }

    private companion object {
        const val AT_ONCE = 4
    }
}

/** The hash of a chunk differs from the manifest's. */
private class Damaged(chunk: Chunk) : Exception(
    "${chunk.entry.path} is damaged in bytes ${chunk.start} to ${chunk.start + chunk.size}: they are " +
        "not the ones that the manifest lists; copy the model to its server again",
)

private fun write(file: FileChannel, piece: ByteBuffer, at: Long): Int = try {
    var written = 0
    while (piece.hasRemaining()) written += file.write(piece, at + written)
    written
} catch (full: IOException) {
    throw CapacityException(
        "the model cannot be written (${full.message}); free some disk and load it again: what has " +
            "arrived is kept",
        cause = full,
    )
}

private fun MessageDigest.update(file: FileChannel, chunk: Chunk) {
    val buffer = ByteArray(BUFFER_BYTES)
    var at = chunk.start
    val end = chunk.start + chunk.size
    while (at < end) {
        val wanted = minOf(BUFFER_BYTES.toLong(), end - at).toInt()
        val size = file.read(ByteBuffer.wrap(buffer, 0, wanted), at)
        if (size < 0) return
        at += size
        update(buffer, 0, size)
    }
}
