package dev.mlcc.model

import dev.mlcc.CapacityException
import dev.mlcc.DownloadException
import dev.mlcc.MlccException
import dev.mlcc.ProgressListener
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.future.future
import kotlinx.coroutines.sync.Mutex
import kotlinx.coroutines.sync.withLock
import kotlinx.coroutines.withContext
import java.io.IOException
import java.nio.file.Files
import java.nio.file.Path
import java.nio.file.StandardCopyOption.ATOMIC_MOVE
import java.util.concurrent.CompletableFuture
import java.util.concurrent.ConcurrentHashMap
import kotlin.streams.toList

/**
 * A folder of models that were downloaded from web servers.
 *
 * A download resumes where it stopped, also in a later process. Each chunk of 8 MiB is checked against
 * the manifest's sha256 as it arrives. A model is moved to its final path when it is complete. One
 * process at a time may fetch into a store.
 *
 * @property root the folder; created when needed.
 * @property maxBytes limit for all models of the store together; null: the free disk space.
 */
public class ModelStore internal constructor(
    public val root: Path,
    public val maxBytes: Long?,
    private val fetcher: HttpFetcher,
    private val free: (Path) -> Long,
) {
    /** A store in the folder [root]. */
    @JvmOverloads
    public constructor(root: Path, maxBytes: Long? = null) :
        this(root, maxBytes, HttpFetcher(), { Files.getFileStore(it).usableSpace })

    private val locks = ConcurrentHashMap<StorePath, Mutex>()

    /**
     * The folder of the model at [url]; chunks that are missing are fetched. A stored model is used as
     * it is if the server cannot be reached, and fetched again if the server has another version.
     *
     * @throws MlccException [DownloadException], `ArtifactException` if what arrives is damaged or
     * unsafe, [CapacityException] if there is no room for it.
     */
    @JvmOverloads
    public suspend fun fetch(
        url: String,
        onProgress: ProgressListener = ProgressListener { },
    ): Path {
        val entry = StorePath(root, url)
        return locks.computeIfAbsent(entry) { Mutex() }.withLock { fetch(entry, onProgress) }
    }

    /** [fetch] for Java. Cancelling the future ends the download; what has arrived is kept. */
    @JvmOverloads
    public fun fetchAsync(
        url: String,
        onProgress: ProgressListener = ProgressListener { },
    ): CompletableFuture<Path> =
        CoroutineScope(Dispatchers.Default).future { fetch(url, onProgress) }

    /** All models of the store, the largest first, with partial downloads. */
    public fun models(): List<StoredModel> {
        if (!Files.isDirectory(root)) return emptyList()
        return Files.list(root).use { it.toList() }.mapNotNull(::stored).sortedByDescending { it.bytes }
    }

    /** Delete a model or its partial download. Not while it is being fetched or loaded. */
    public fun delete(url: String) {
        val entry = StorePath(root, url)
        entry.path.toFile().deleteRecursively()
        entry.partialPath.toFile().deleteRecursively()
    }

    private suspend fun fetch(entry: StorePath, onProgress: ProgressListener): Path {
        val known = entry.path.resolve(MANIFEST).takeIf(Files::exists)?.let(Files::readAllBytes)
        val sent = try {
            val url = entry.url(MANIFEST)
            fetcher.get(url, MANIFEST) { it.readAll(MAX_MANIFEST_BYTES, MANIFEST) }
        } catch (unreachable: DownloadException) {
            return if (known != null) entry.path else throw unreachable
        }
        if (known.contentEquals(sent)) return entry.path
        val manifest = Manifest.parse(sent, entry.url(MANIFEST))
        download(entry, manifest, sent, onProgress)
        return entry.path
    }

    private suspend fun download(
        entry: StorePath,
        manifest: Manifest,
        bytes: ByteArray,
        onProgress: ProgressListener,
    ) = withContext(Dispatchers.IO) {
        Files.createDirectories(entry.partialPath)
        Files.write(entry.partialPath.resolve(SOURCE), entry.folderUrl.encodeToByteArray())
        entry.removeAllBut(manifest.files)
        val download = Download(entry::url, entry.partialPath, fetcher, manifest.bytes, onProgress)
        val missing = download.missing(manifest.files)
        checkFreeSpace(entry, manifest, missing.sumOf { it.size })
        download.fetch(missing)
        Files.write(entry.partialPath.resolve(MANIFEST), bytes)
        entry.path.toFile().deleteRecursively()
        Files.move(entry.partialPath, entry.path, ATOMIC_MOVE)
    }

    private fun checkFreeSpace(entry: StorePath, manifest: Manifest, wanted: Long) {
        val kept = models().filter { it.url != entry.folderUrl }.sumOf { it.bytes }
        val allowed = maxBytes?.let { it - kept - (manifest.bytes - wanted) }
        val room = minOf(free(entry.partialPath), allowed ?: Long.MAX_VALUE)
        if (wanted <= room) return
        throw CapacityException(
            "the model needs $wanted bytes more, and there is room for ${maxOf(room, 0)} in $root; " +
                "delete other models (ModelStore.delete) or allow the store more",
            code = "disk_full",
        )
    }

    private fun stored(folder: Path): StoredModel? = try {
        val whole = !folder.fileName.toString().endsWith(PART)
        val url = Files.readAllBytes(folder.resolve(SOURCE)).decodeToString()
        val size = Files.walk(folder).use { files -> files.mapToLong(::sizeOf).sum() }
        StoredModel(url, folder, size, whole)
    } catch (_: IOException) {
        null // not ours, or it is just being deleted
    }

    private fun sizeOf(file: Path): Long = if (Files.isRegularFile(file)) Files.size(file) else 0
}

/**
 * A model in a store.
 *
 * @property url the URL of its folder.
 * @property folder its folder on this machine.
 * @property bytes its size on disk.
 * @property whole whether it is complete.
 */
public data class StoredModel(
    val url: String,
    val folder: Path,
    val bytes: Long,
    val whole: Boolean,
)
