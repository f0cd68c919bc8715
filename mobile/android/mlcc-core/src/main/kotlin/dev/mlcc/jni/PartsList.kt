package dev.mlcc.jni

import dev.mlcc.NativeFiles
import dev.mlcc.NativeParts
import dev.mlcc.SetupException
import dev.mlcc.calls.json
import dev.mlcc.model.sha256
import kotlinx.serialization.Serializable
import java.nio.file.Files
import java.nio.file.Path

/**
 * `parts.json`: what is packed for one platform.
 *
 * @property libraries their folder; null: the system's loader finds them, in an APK.
 * @property first dependencies to load before mlcc's own libraries, in this order.
 * @property modules entries of Python's module path.
 */
@Serializable
internal class PartsList(
    val platform: String,
    val python: String,
    val libraries: String? = null,
    val first: List<String> = emptyList(),
    val modules: List<String>,
    val files: List<Part>,
) {
    /** The name of the folder, a hash of all contents. */
    val key: String by lazy {
        sha256(files.joinToString("\n") { "${it.path} ${it.sha256}" }.encodeToByteArray()).take(DIGITS)
    }

    /** Whether all files are in [folder], by their sizes: hashes were checked when they were written. */
    fun isIn(folder: Path): Boolean = files.all {
        val path = folder.resolve(it.path)
        Files.isRegularFile(path) && Files.size(path) == it.bytes
    }

    /** The parts in [folder]. */
    fun files(folder: Path): NativeFiles = NativeFiles(
        libraries = libraries?.let(folder::resolve),
        zip = folder.resolve("mlcc.zip"),
        pythonHome = "",
        pythonPath = modules.map(folder::resolve),
    ).also { it.first = first }

    companion object {
        const val NAME = "parts.json"
        private const val DIGITS = 16

        /** [source]: says where it is. Throws SetupException. */
        fun parse(bytes: ByteArray, source: String): PartsList = try {
            json.decodeFromString<PartsList>(bytes.decodeToString())
        } catch (error: IllegalArgumentException) {
            throw SetupException(
                "$NAME of $source is no list of mlcc's parts; ${NativeParts.AGAIN}",
                code = "damaged_parts",
                cause = error,
            )
        }
    }
}

/** One packed file. */
@Serializable
internal class Part(val path: String, val bytes: Long, val sha256: String) {
    /** Throws SetupException unless the bytes are those that were packed. */
    fun check(found: ByteArray, source: String) {
        if (found.size.toLong() == bytes && sha256(found) == sha256) return
        throw SetupException(
            "$path of $source is not what was packed (${found.size} bytes of $bytes): it is damaged; " +
                NativeParts.AGAIN,
            code = "damaged_parts",
        )
    }
}
