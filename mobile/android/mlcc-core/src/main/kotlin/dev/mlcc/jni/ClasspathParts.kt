package dev.mlcc.jni

import dev.mlcc.NativeFiles
import dev.mlcc.NativeParts
import dev.mlcc.SetupException
import java.nio.file.Path
import java.nio.file.Paths

/** The native parts on the class path, from `mlcc-jvm`. */
internal object ClasspathParts {
    private const val FOLDER = "dev/mlcc/native"
    private const val PLATFORMS = "$FOLDER/platforms"

    /** The name of this platform in package.py, such as `linux-x86_64`. */
    val platform: String = platform(System.getProperty("os.name"), System.getProperty("os.arch"))

    fun platform(system: String, cpu: String): String {
        val name = system.lowercase().substringBefore(' ')
        return name + "-" + when (cpu) {
            "amd64" -> "x86_64"
            "arm64" -> "aarch64"
            else -> cpu
        }
    }

    /** null: there are none, so the system must have mlcc's libraries. Throws SetupException. */
    fun files(
        cache: Path,
        loader: ClassLoader = ClasspathParts::class.java.classLoader,
        wanted: String = platform,
    ): NativeFiles? {
        val platforms = loader.getResourceAsStream(PLATFORMS)?.use { it.readBytes().decodeToString() }
            ?.lines()?.filter(String::isNotEmpty) ?: return null
        if (wanted !in platforms) {
            throw SetupException(
                "mlcc-jvm has native parts for ${platforms.joinToString()}, not for this machine " +
                    "($wanted); build them there (mobile/android/README.md), or name a folder that has " +
                    "them as NativeFiles.libraries or -Dmlcc.libraries",
                code = "no_native_parts",
            )
        }
        val parts = NativeParts("mlcc-jvm for $wanted") {
            loader.getResourceAsStream("$FOLDER/$wanted/$it")
        }
        return parts.unpacked(cache)
    }

    /** The folder to unpack to: `mlcc.cache`, else `mlcc/native` in the user's cache. */
    fun cache(): Path {
        val configured = System.getProperty("mlcc.cache")?.let { Paths.get(it) }
        val base = System.getenv("XDG_CACHE_HOME")?.takeIf(String::isNotEmpty)?.let { Paths.get(it) }
            ?: Paths.get(System.getProperty("user.home"), ".cache")
        return configured ?: base.resolve("mlcc").resolve("native")
    }
}
