package dev.mlcc.model

import dev.mlcc.ArtifactException
import dev.mlcc.CapacityException
import dev.mlcc.Progress
import dev.mlcc.ProgressListener
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.ensureActive
import kotlinx.coroutines.withContext
import java.io.InputStream
import java.io.SequenceInputStream
import java.nio.file.Files
import java.nio.file.Path
import java.nio.file.StandardCopyOption.ATOMIC_MOVE
import java.util.Collections

/**
 * A compiled model packed in an app's assets or in another container that is not a folder. It is copied
 * to a folder once, because weights are memory-mapped.
 *
 * @property source the name of the container, for error messages.
 */
public class PackedModel internal constructor(
    public val source: String,
    private val open: (String) -> InputStream?,
    private val free: (Path) -> Long,
) {
    /**
     * [open] returns a file by its path in the model's folder, or null if there is none. A file that is
     * too large may be split into parts: `NAME.000`, `NAME.001`, ...
     */
    public constructor(source: String, open: (String) -> InputStream?) :
        this(source, open, { Files.getFileStore(it).usableSpace })

    /**
     * Copy it to [folder], unless the same model is there already; each 8 MiB are checked. [folder] is
     * created atomically, and returned.
     *
     * @throws dev.mlcc.MlccException [ArtifactException] what is packed is damaged or no model,
     * [CapacityException] no room on the disk.
     */
    public suspend fun unpacked(
        folder: Path,
        onProgress: ProgressListener = ProgressListener { },
    ): Path = withContext(Dispatchers.IO) {
        val packed = stream(MANIFEST)?.use(InputStream::readBytes) ?: throw missing(MANIFEST)
        val here = folder.resolve(MANIFEST).takeIf(Files::exists)?.let(Files::readAllBytes)
        if (packed.contentEquals(here)) return@withContext folder
        val manifest = Manifest.parse(packed, "$MANIFEST of $source")
        Files.createDirectories(folder.toAbsolutePath().parent)
        val part = Files.createTempDirectory(folder.toAbsolutePath().parent, ".part-")
        try {
            checkFreeSpace(part, manifest)
            var done = 0L
            for (entry in manifest.files) {
                copy(entry, part) {
                    ensureActive()
                    done += it
                    onProgress.onProgress(Progress.Download(done, manifest.bytes))
                }
            }
            Files.write(part.resolve(MANIFEST), packed)
            folder.toFile().deleteRecursively()
            Files.move(part, folder, ATOMIC_MOVE)
        } finally {
            part.toFile().deleteRecursively()
        }
        folder
    }

    private fun checkFreeSpace(folder: Path, manifest: Manifest) {
        val room = free(folder)
        if (manifest.bytes <= room) return
        throw CapacityException(
            "the model of $source needs ${manifest.bytes} bytes, and the disk has $room; make room",
            code = "disk_full",
        )
    }

    private fun copy(entry: FileEntry, into: Path, copied: (Long) -> Unit) {
        val path = into.resolve(entry.path)
        Files.createDirectories(path.parent)
        val input = stream(entry.path) ?: throw missing(entry.path)
        input.use {
            Files.newOutputStream(path).use { output ->
                for (chunk in entry.toChunks()) {
                    val bytes = read(input, chunk.size.toInt())
                    if (sha256(bytes) != chunk.hash) throw damaged(entry.path)
                    output.write(bytes)
                    copied(chunk.size)
                }
            }
            if (input.read() >= 0) throw damaged(entry.path)
        }
    }

    /** InputStream.readNBytes, which Android 8 lacks. */
    private fun read(input: InputStream, size: Int): ByteArray {
        val bytes = ByteArray(size)
        var at = 0
        while (at < size) {
            val count = input.read(bytes, at, size - at)
            if (count < 0) break
            at += count
        }
        return bytes.copyOf(at)
    }

    /** A file, or the concatenation of its parts. */
    private fun stream(path: String): InputStream? {
        open(path)?.let { return it }
        val pieces = generateSequence(0) { it + 1 }.map { open("$path.%03d".format(it)) }
        val found = pieces.takeWhile { it != null }.filterNotNull().toList()
        return if (found.isEmpty()) null else SequenceInputStream(Collections.enumeration(found))
    }

    private fun missing(path: String) =
        ArtifactException("$source has no $path; pack the folder that `mlcc compile` made, all of it")

    private fun damaged(path: String) =
        ArtifactException("$path of $source is damaged: its checksum differs; pack the model again")
}
