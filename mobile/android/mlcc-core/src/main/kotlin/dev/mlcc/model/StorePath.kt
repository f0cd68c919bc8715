package dev.mlcc.model

import dev.mlcc.DownloadException
import java.net.URI
import java.net.URISyntaxException
import java.nio.file.Files
import java.nio.file.Path
import kotlin.streams.toList

/** The location in a store of the model at a URL: that of its folder or of its manifest. */
internal class StorePath(root: Path, given: String) {
    private val address = parsed(given)

    /** The URL of the folder, with a trailing slash and without the query. */
    val folderUrl: String = address.run { "$scheme://$rawAuthority$directory" }

    private val name = sha256(folderUrl.encodeToByteArray()).take(KEY_DIGITS)

    /** The complete model. */
    val path: Path = root.resolve(name)

    /** The download in progress. */
    val partialPath: Path = root.resolve(name + PART)

    /** The URL of a file. The query of the model's URL, for example a token, is added to each. */
    fun url(path: String): String {
        val query = address.rawQuery?.let { "?$it" }.orEmpty()
        return folderUrl + path.split('/').joinToString("/", transform = ::escaped) + query
    }

    /** Delete the files of another version of the model. */
    fun removeAllBut(entries: List<FileEntry>) {
        // Not `+`: a Path is a list of its names, too.
        val wanted = entries.map { partialPath.resolve(it.path) }.toSet().plusElement(partialPath.resolve(SOURCE))
        val here = Files.walk(partialPath).use { it.toList() }
        here.filter { Files.isRegularFile(it) && it !in wanted }.forEach(Files::delete)
    }

    override fun equals(other: Any?): Boolean = other is StorePath && other.path == path

    override fun hashCode(): Int = path.hashCode()

    private val URI.directory: String
        get() = rawPath.removeSuffix(MANIFEST).trimEnd('/') + "/"

    private fun escaped(segment: String) = segment.encodeToByteArray().joinToString("") {
        val letter = (it.toInt() and 0xff).toChar()
        if (letter in PLAIN) "$letter" else "%%%02X".format(letter.code)
    }

    private fun parsed(given: String): URI {
        val uri = try {
            URI(given)
        } catch (_: URISyntaxException) {
            null
        }
        if (uri?.scheme in setOf("http", "https") && uri?.host != null) return uri
        throw DownloadException(
            "'$given' is no web address; give that of a folder made by `mlcc compile`, such as " +
                "https://example.org/my-model/",
        )
    }

    private companion object {
        const val KEY_DIGITS = 32
        val PLAIN = ('a'..'z') + ('A'..'Z') + ('0'..'9') + "-._~".toList()
    }
}

/** In a model's folder: the address from which it came. */
internal const val SOURCE = ".mlcc-source"

/** At the end of a folder's name: not all of it is there. */
internal const val PART = ".part"
