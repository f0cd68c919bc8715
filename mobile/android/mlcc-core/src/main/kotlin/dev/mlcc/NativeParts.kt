package dev.mlcc

import dev.mlcc.jni.PartsList
import java.io.IOException
import java.io.InputStream
import java.nio.file.FileSystemException
import java.nio.file.Files
import java.nio.file.Path
import java.nio.file.StandardCopyOption.ATOMIC_MOVE

/**
 * mlcc's native libraries and Python, packed by `mobile/android/package.py` into a JAR or an app's
 * assets. They are unpacked once: neither the system's loader nor Python loads libraries from a zip.
 *
 * @property source the name of the container, for error messages.
 */
public class NativeParts(
    public val source: String,
    private val open: (String) -> InputStream?,
) {
    private val list: PartsList by lazy { PartsList.parse(bytes(PartsList.NAME), source) }

    /**
     * Unpack them below [folder] if needed, into a subfolder named by the hash of the contents, which is
     * created atomically. Safe for several processes at once; other versions' folders are kept.
     *
     * @throws SetupException what is packed is truncated or foreign, or the folder cannot be written.
     */
    public fun unpacked(folder: Path): NativeFiles {
        val target = folder.resolve(list.key)
        try {
            if (!list.isIn(target)) unpack(target)
        } catch (error: IOException) {
            throw SetupException(
                "mlcc's parts cannot be unpacked to $folder ($error); name another folder that can be " +
                    "written, as NativeFiles.cache or -Dmlcc.cache",
                code = "cache",
                cause = error,
            )
        }
        return list.files(target)
    }

    private fun unpack(target: Path) {
        Files.createDirectories(target.parent)
        val part = Files.createTempDirectory(target.parent, ".part-")
        try {
            for (file in list.files) {
                val path = part.resolve(file.path)
                Files.createDirectories(path.parent)
                Files.write(path, bytes(file.path).also { file.check(it, source) })
            }
            publish(part, target)
        } finally {
            part.toFile().deleteRecursively()
        }
    }

    /** Another process may have published the same folder. An incomplete one is moved away first. */
    private fun publish(part: Path, target: Path) {
        try {
            Files.move(part, target, ATOMIC_MOVE)
        } catch (_: FileSystemException) {
            if (list.isIn(target)) return
            val aside = Files.createTempDirectory(target.parent, ".lost-")
            Files.move(target, aside, ATOMIC_MOVE)
            aside.toFile().deleteRecursively()
            Files.move(part, target, ATOMIC_MOVE)
        }
    }

    private fun bytes(path: String): ByteArray = open(path)?.use(InputStream::readBytes)
        ?: throw SetupException("$source has no $path: it is damaged; $AGAIN", code = "damaged_parts")

    internal companion object {
        const val AGAIN = "make it again (python mobile/android/package.py), or fetch it again"
    }
}
