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
 * Models of web servers, kept in a folder of this machine.
 *
 * A download goes on where it stopped, in this process or a later one. Every 8 MiB are checked against
 * the manifest's sha256 as they arrive. A model is moved to its place when all of it is there, so what
 * is found there is whole. One process at a time may fetch into a store.
 *
 * @property root the folder; made when it is needed.
 * @property maxBytes what all models of the store may take; null: what the disk has free.
 */
public class ModelStore internal constructor(
    public val root: Path,
    public val maxBytes: Long?,
    private val access: Access,
    private val free: (Path) -> Long,
) {
    /** Models in a folder. */
    @JvmOverloads
    public constructor(root: Path, maxBytes: Long? = null) :
        this(root, maxBytes, Access(), { Files.getFileStore(it).usableSpace })

    private val locks = ConcurrentHashMap<Place, Mutex>()

    /**
     * The folder of the model at [url], fetched as far as it is not here. A model that is here is used
     * as it is if the server cannot be reached, and fetched again if the server has another one.
     *
     * @throws MlccException [DownloadException], `ArtifactException` if what arrives is damaged or
     * unsafe, [CapacityException] if there is no room for it.
     */
    @JvmOverloads
    public suspend fun fetch(
        url: String,
        onProgress: ProgressListener = ProgressListener { },
    ): Path {
        val place = Place(root, url)
        return locks.computeIfAbsent(place) { Mutex() }.withLock { fetch(place, onProgress) }
    }

    /** [fetch] for Java. Cancelling the future ends the download; what has arrived is kept. */
    @JvmOverloads
    public fun fetchAsync(
        url: String,
        onProgress: ProgressListener = ProgressListener { },
    ): CompletableFuture<Path> =
        CoroutineScope(Dispatchers.Default).future { fetch(url, onProgress) }

    /** What is here of models, the largest first; of those that did not arrive wholly, too. */
    public fun models(): List<StoredModel> {
        if (!Files.isDirectory(root)) return emptyList()
        return Files.list(root).use { it.toList() }.mapNotNull(::stored).sortedByDescending { it.bytes }
    }

    /** Delete a model, whether all of it is here or not. Not while it is fetched or loaded. */
    public fun delete(url: String) {
        val place = Place(root, url)
        place.whole.toFile().deleteRecursively()
        place.part.toFile().deleteRecursively()
    }

    private suspend fun fetch(place: Place, onProgress: ProgressListener): Path {
        val known = place.whole.resolve(MANIFEST).takeIf(Files::exists)?.let(Files::readAllBytes)
        val sent = try {
            val url = place.url(MANIFEST)
            access.get(url, MANIFEST) { it.readAll(MAX_MANIFEST_BYTES, MANIFEST) }
        } catch (unreachable: DownloadException) {
            return if (known != null) place.whole else throw unreachable
        }
        if (known.contentEquals(sent)) return place.whole
        val manifest = Manifest.parse(sent, place.url(MANIFEST))
        arrive(place, manifest, sent, onProgress)
        return place.whole
    }

    private suspend fun arrive(
        place: Place,
        manifest: Manifest,
        bytes: ByteArray,
        onProgress: ProgressListener,
    ) = withContext(Dispatchers.IO) {
        Files.createDirectories(place.part)
        Files.write(place.part.resolve(SOURCE), place.folder.encodeToByteArray())
        place.removeAllBut(manifest.files)
        val download = Download(place::url, place.part, access, manifest.bytes, onProgress)
        val missing = download.missing(manifest.files)
        checkRoom(place, manifest, missing.sumOf { it.size })
        download.fetch(missing)
        Files.write(place.part.resolve(MANIFEST), bytes)
        place.whole.toFile().deleteRecursively()
        Files.move(place.part, place.whole, ATOMIC_MOVE)
    }

    private fun checkRoom(place: Place, manifest: Manifest, wanted: Long) {
        val kept = models().filter { it.url != place.folder }.sumOf { it.bytes }
        val allowed = maxBytes?.let { it - kept - (manifest.bytes - wanted) }
        val room = minOf(free(place.part), allowed ?: Long.MAX_VALUE)
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
 * @property url the address of its folder.
 * @property folder where it is.
 * @property bytes what is here of it.
 * @property whole whether that is all.
 */
public data class StoredModel(
    val url: String,
    val folder: Path,
    val bytes: Long,
    val whole: Boolean,
)
