package dev.mlcc

import dev.mlcc.model.ModelStore
import java.net.URI
import java.nio.file.Path
import java.nio.file.Paths

/** The location of a model: a folder that `mlcc compile` made, on this machine or on a web server. */
public sealed class ModelSource {
    /** The folder on this machine, downloaded if needed. */
    internal abstract suspend fun folder(onProgress: ProgressListener): Path

    /**
     * A folder on this machine.
     *
     * @property path the folder.
     */
    public class Folder(public val path: Path) : ModelSource() {
        override suspend fun folder(onProgress: ProgressListener): Path = path
    }

    /**
     * A folder on a web server, downloaded once into [store].
     *
     * @property url of the folder, or of its `mlcc.json`.
     * @property store where it is stored.
     */
    public class Remote(public val url: String, public val store: ModelStore) : ModelSource() {
        override suspend fun folder(onProgress: ProgressListener): Path =
            store.fetch(url, onProgress)
    }

    public companion object {
        /** The source for `https://...`, `file:///...` or a path; [store] is used by the first. */
        @JvmStatic
        public fun of(text: String, store: ModelStore): ModelSource = when {
            text.startsWith("http://") || text.startsWith("https://") -> Remote(text, store)
            text.startsWith("file:") -> Folder(Paths.get(URI(text)))
            else -> Folder(Paths.get(text))
        }
    }
}
