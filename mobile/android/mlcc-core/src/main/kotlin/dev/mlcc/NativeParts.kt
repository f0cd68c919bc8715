package dev.mlcc

import dev.mlcc.jni.PartsList
import java.io.IOException
import java.io.InputStream
import java.nio.file.FileSystemException
import java.nio.file.Files
import java.nio.file.Path
import java.nio.file.StandardCopyOption.ATOMIC_MOVE

/**
 * mlcc's own parts as `mobile/android/package.py` packs them: into a JAR, or into an app's assets. They
 * are unpacked once, because neither the system's loader nor Python reads libraries out of a zip.
 *
 * @property source says in errors where they are packed.
 */
public class NativeParts(
    public val source: String,
    private val open: (String) -> InputStream?,
) {
    private val list: PartsList by lazy { PartsList.parse(bytes(PartsList.NAME), source) }

    /**
     * Where they lie in [folder], unpacked if need be: below it in a folder named after what is in
     * them, which appears whole or not at all. Any number of processes may do it at once; folders of
     * other versions are left alone.
     *
     * @throws SetupException what is packed is truncated or foreign, or the folder cannot be written.
     */
    public fun unpacked(folder: Path): NativeFiles {
        val place = folder.resolve(list.key)
        try {
            if (!list.isIn(place)) unpack(place)
        } catch (error: IOException) {
            throw SetupException(
                "mlcc's parts cannot be unpacked to $folder ($error); name another folder that can be " +
                    "written, as NativeFiles.cache or -Dmlcc.cache",
                code = "cache",
                cause = error,
            )
        }
        return list.files(place)
    }

    private fun unpack(place: Path) {
        Files.createDirectories(place.parent)
        val part = Files.createTempDirectory(place.parent, ".part-")
        try {
            for (file in list.files) {
                val path = part.resolve(file.path)
                Files.createDirectories(path.parent)
                Files.write(path, bytes(file.path).also { file.check(it, source) })
            }
            publish(part, place)
        } finally {
            part.toFile().deleteRecursively()
        }
    }

    /** Another process may have been faster; then its folder is the same. What is in it was lost else. */
    private fun publish(part: Path, place: Path) {
        try {
            Files.move(part, place, ATOMIC_MOVE)
        } catch (_: FileSystemException) {
            if (list.isIn(place)) return
            val aside = Files.createTempDirectory(place.parent, ".lost-")
            Files.move(place, aside, ATOMIC_MOVE)
            aside.toFile().deleteRecursively()
            Files.move(part, place, ATOMIC_MOVE)
        }
    }

    private fun bytes(path: String): ByteArray = open(path)?.use(InputStream::readBytes)
        ?: throw SetupException("$source has no $path: it is damaged; $AGAIN", code = "damaged_parts")

    internal companion object {
        const val AGAIN = "make it again (python mobile/android/package.py), or fetch it again"
    }
}
