package dev.mlcc.jvm

import dev.mlcc.EngineOptions
import dev.mlcc.Mlcc
import dev.mlcc.ModelSource
import dev.mlcc.NativeFiles
import dev.mlcc.SetupException
import kotlinx.coroutines.test.runTest
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.assertThrows
import org.junit.jupiter.api.io.TempDir
import java.nio.file.Files
import java.nio.file.Path

/** Libraries that this machine cannot load. No other test of this module loads one. */
class ForeignLibraryTest {
    @TempDir
    lateinit var folder: Path

    private fun refused(library: ByteArray?): SetupException {
        val libraries = Files.createDirectories(folder.resolve("lib"))
        Files.createFile(Files.createDirectories(folder.resolve("model")).resolve("none"))
        if (library != null) Files.write(libraries.resolve("libmlcc.so"), library)
        // Without the tokenizer of the class path, which would read the model's folder first.
        val options = EngineOptions(files = NativeFiles(libraries), tokenizer = { NoTokenizer })
        return assertThrows { runTest { Mlcc.load(ModelSource.Folder(folder.resolve("model")), options) } }
    }

    private fun check(error: SetupException) {
        assertEquals("unloadable", error.code)
        assertTrue("NativeFiles.libraries" in error.message && folder.toString() in error.message, error.message)
    }

    @Test
    fun `a missing library`() = check(refused(null))

    @Test
    fun `a file that is no library`() = check(refused("no library".encodeToByteArray()))

    @Test
    fun `a library of another CPU`() {
        val head = byteArrayOf(0x7f, 'E'.code.toByte(), 'L'.code.toByte(), 'F'.code.toByte(), 2, 1, 1)
        val s390 = ByteArray(4096).also { head.copyInto(it) }
        s390[16] = 3
        s390[18] = 22
        check(refused(s390))
    }

    private object NoTokenizer : dev.mlcc.Tokenizer {
        override val specialTokens: List<String> = emptyList()

        override fun encode(text: String, special: Boolean): IntArray = IntArray(0)

        override fun decode(ids: IntArray): String = ""

        override fun close() = Unit
    }
}
