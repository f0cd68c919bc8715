package dev.mlcc

import java.nio.file.Path
import java.nio.file.Paths

/**
 * Locations of mlcc's native libraries and Python. Most programs need no settings: the parts of
 * `mlcc-jvm` are unpacked to the user's cache; an Android app uses `MlccAndroid.files`.
 *
 * @property libraries the folder with `libmlcc` and `libmlcc_jni`; null: the system property
 * `mlcc.libraries`, or else those of `mlcc-jvm`, or else where the system looks for libraries.
 * @property zip the zip with mlcc's Python modules; null: `mlcc.zip` beside the libraries.
 * @property pythonHome the folder with `lib/pythonX.Y`; null: found from the path of libpython.
 * @property pythonPath additional entries of Python's module path.
 * @property cache where the parts of `mlcc-jvm` are unpacked; null: the system property `mlcc.cache`, or
 * else `mlcc/native` in the user's cache.
 */
public class NativeFiles(
    public var libraries: Path? = System.getProperty("mlcc.libraries")?.let { Paths.get(it) },
    public var zip: Path? = null,
    public var pythonHome: String? = System.getProperty("mlcc.python.home"),
    public var pythonPath: List<Path> = System.getProperty("mlcc.python.path").orEmpty()
        .split(java.io.File.pathSeparator).filter(String::isNotEmpty).map { Paths.get(it) },
    public var cache: Path? = null,
) {
    /** Dependencies in [libraries] that are loaded before mlcc's own, in this order. */
    internal var first: List<String> = emptyList()
}
