package dev.mlcc.model

import dev.mlcc.ArtifactException
import dev.mlcc.calls.json
import kotlinx.serialization.Serializable
import kotlinx.serialization.SerializationException
import java.security.MessageDigest

internal const val MANIFEST = "mlcc.json"
internal const val CHUNK_BYTES = 8L shl 20
internal const val MAX_MANIFEST_BYTES = 64 shl 20

/** The fields of `mlcc.json` that a download needs (docs/internals/artifact.md). The engine checks all of it again. */
@Serializable
internal class Manifest(val model: Named, val files: List<FileEntry>) {
    @Serializable
    class Named(val name: String)

    /** Total size of all files. */
    val bytes: Long get() = files.sumOf { it.bytes }

    companion object {
        /** Checks the checksum, paths and sizes. Throws ArtifactException. */
        fun parse(bytes: ByteArray, from: String): Manifest {
            val text = bytes.decodeToString()
            checkChecksum(text, bytes.size, from)
            val manifest = try {
                json.decodeFromString<Manifest>(text)
            } catch (error: SerializationException) {
                throw foreign(from, error)
            } catch (error: IllegalArgumentException) {
                throw foreign(from, error)
            }
            manifest.files.forEach(FileEntry::check)
            val names = manifest.files.map { it.path.lowercase() }
            if (names.toSet().size < names.size) {
                throw ArtifactException("the manifest lists a file twice; $ASK_MAKER")
            }
            return manifest
        }

        /** The checksum is of the file's own bytes with 64 zeros in its place. */
        private fun checkChecksum(text: String, size: Int, from: String) {
            val match = CHECKSUM.find(text) ?: throw foreign(from, null)
            val digits = match.groups[1]!!
            val blank = text.replaceRange(digits.range, "0".repeat(digits.value.length))
            val bytes = blank.encodeToByteArray()
            if (bytes.size != size || sha256(bytes) != digits.value) {
                throw ArtifactException("$from is damaged: its checksum differs; copy the model again")
            }
        }

        private fun foreign(from: String, cause: Exception?) = ArtifactException(
            "$from is no manifest of a compiled model; check the address: it is that of a folder made " +
                "by `mlcc compile`",
            cause = cause,
        )

        private val CHECKSUM = Regex(""""checksum":\s*"([0-9a-f]{64})"\s*\}\s*$""")
    }
}

/** A file of the model: its size, and the sha256 of each 8 MiB. */
@Serializable
internal class FileEntry(val path: String, val bytes: Long, val chunks: List<String>) {
    /** The chunks of the file, in order. */
    fun toChunks(): List<Chunk> = chunks.mapIndexed { index, hash ->
        val start = index * CHUNK_BYTES
        Chunk(this, start, minOf(CHUNK_BYTES, bytes - start), hash)
    }

    /** Throws ArtifactException unless it is sound and stays in its folder. */
    fun check() {
        val segments = path.split('/')
        if (segments.any { it in NOWHERE } || UNSAFE.containsMatchIn(path) || path == MANIFEST) {
            val shown = path.replace(Regex("\\p{Cntrl}"), "?").take(LONGEST_PATH)
            throw ArtifactException("the manifest names the unsafe path '$shown'; $ASK_MAKER")
        }
        val count = (bytes + CHUNK_BYTES - 1) / CHUNK_BYTES
        if (bytes < 0 || bytes > MAX_FILE_BYTES || chunks.size.toLong() != count) {
            throw ArtifactException("the manifest describes $path wrongly; $ASK_MAKER")
        }
        if (!chunks.all(HASH::matches)) {
            throw ArtifactException("the manifest has no sound hashes of $path; $ASK_MAKER")
        }
    }

    private companion object {
        val NOWHERE = setOf("", ".", "..")
        val UNSAFE = Regex("""[\\:*?"<>|\u0000-\u001f]""")
        val HASH = Regex("[0-9a-f]{64}")
        const val LONGEST_PATH = 200
        const val MAX_FILE_BYTES = 1L shl 50
    }
}

/** Bytes [start] to [start] + [size] of a file. */
internal class Chunk(val entry: FileEntry, val start: Long, val size: Long, val hash: String)

internal fun sha256(bytes: ByteArray): String = hex(newDigest().digest(bytes))

internal fun newDigest(): MessageDigest = MessageDigest.getInstance("SHA-256")

internal fun hex(bytes: ByteArray): String =
    bytes.joinToString("") { "%02x".format(it.toInt() and 0xff) }

private const val ASK_MAKER = "get the model from its author"
