package dev.mlcc.model

import dev.mlcc.DownloadException
import java.net.URI
import java.net.URISyntaxException
import java.nio.file.Files
import java.nio.file.Path
import kotlin.streams.toList

/** Where the model at an address is kept. The address is a folder's or its manifest's. */
internal class Place(root: Path, given: String) {
    private val address = parsed(given)

    /** The address of the folder, with a slash at its end and without a query. */
    val folder: String = address.run { "$scheme://$rawAuthority$directory" }

    private val name = sha256(folder.encodeToByteArray()).take(KEY_DIGITS)
    val whole: Path = root.resolve(name)
    val part: Path = root.resolve(name + PART)

    /** The address of a file; the given one's query (a token) goes with each. */
    fun url(path: String): String {
        val query = address.rawQuery?.let { "?$it" }.orEmpty()
        return folder + path.split('/').joinToString("/", transform = ::escaped) + query
    }

    /** What another version of the model left. */
    fun removeAllBut(entries: List<FileEntry>) {
        // Not `+`: a Path is a list of its names, too.
        val wanted = entries.map { part.resolve(it.path) }.toSet().plusElement(part.resolve(SOURCE))
        val here = Files.walk(part).use { it.toList() }
        here.filter { Files.isRegularFile(it) && it !in wanted }.forEach(Files::delete)
    }

    override fun equals(other: Any?): Boolean = other is Place && other.whole == whole

    override fun hashCode(): Int = whole.hashCode()

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
