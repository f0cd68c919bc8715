package dev.mlcc

import dev.mlcc.jni.ClasspathParts
import dev.mlcc.model.sha256
import org.junit.jupiter.api.Assertions.assertArrayEquals
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.assertThrows
import org.junit.jupiter.api.io.TempDir
import java.net.URLClassLoader
import java.nio.file.Files
import java.nio.file.Path
import java.util.concurrent.CountDownLatch
import java.util.concurrent.Executors
import java.util.concurrent.atomic.AtomicInteger
import kotlin.streams.toList

/** Parts that are packed, and what can be wrong with them. */
class NativePartsTest {
    @TempDir
    lateinit var folder: Path

    private val contents = mapOf("lib/libmlcc.so" to "code", "mlcc.zip" to "modules", "modules/math.so" to "m")

    private fun list(files: Map<String, String> = contents): ByteArray {
        val entries = files.map { (path, text) ->
            """{"path":"$path","bytes":${text.length},"sha256":"${sha256(text.encodeToByteArray())}"}"""
        }
        val places = """"libraries":"lib","first":["libz.so.1"],"modules":["python.zip","modules"]"""
        return """{"platform":"p","python":"3","glibc":"2",$places,"files":$entries}""".encodeToByteArray()
    }

    private fun packed(files: Map<String, String> = contents, list: ByteArray = list()) = NativeParts("a JAR") {
        if (it == "parts.json") list.inputStream() else files[it]?.encodeToByteArray()?.inputStream()
    }

    private fun below(folder: Path): List<String> = Files.walk(folder).use { walk ->
        walk.toList().filter(Files::isRegularFile).map { folder.relativize(it).toString() }.sorted()
    }

    private fun refused(parts: NativeParts, into: Path = folder): SetupException =
        assertThrows { parts.unpacked(into) }

    @Test
    fun `they are unpacked as they were packed`() {
        val files = packed().unpacked(folder)
        val place = files.zip!!.parent
        assertEquals(contents.keys.sorted(), below(place))
        assertArrayEquals("code".encodeToByteArray(), Files.readAllBytes(files.libraries!!.resolve("libmlcc.so")))
        assertEquals(listOf(place.resolve("python.zip"), place.resolve("modules")), files.pythonPath)
        assertEquals("", files.pythonHome)
    }

    @Test
    fun `they are unpacked once, and again where a file was lost`() {
        val read = AtomicInteger()
        val parts = {
            NativeParts("a JAR") {
                read.incrementAndGet()
                if (it == "parts.json") list().inputStream() else contents[it]!!.encodeToByteArray().inputStream()
            }
        }
        val place = parts().unpacked(folder).zip!!.parent
        assertEquals(1 + contents.size, read.getAndSet(0))
        assertEquals(place, parts().unpacked(folder).zip!!.parent)
        assertEquals(1, read.get())
        Files.delete(place.resolve("lib/libmlcc.so"))
        Files.write(place.resolve("mlcc.zip"), ByteArray(2))
        parts().unpacked(folder)
        assertEquals(contents.keys.sorted(), below(place))
        assertEquals(7, Files.size(place.resolve("mlcc.zip")))
        assertEquals(listOf(place), Files.list(folder).use { it.toList() })
    }

    @Test
    fun `another version has a folder of its own`() {
        val old = packed().unpacked(folder).zip!!.parent
        val changed = contents + ("mlcc.zip" to "MODULES")
        val new = packed(changed, list(changed)).unpacked(folder).zip!!.parent
        assertTrue(old != new && Files.exists(old.resolve("mlcc.zip")))
    }

    @Test
    fun `many may unpack at once`() {
        val threads = Executors.newFixedThreadPool(8)
        val go = CountDownLatch(1)
        val done = List(8) {
            threads.submit<Path> {
                go.await()
                packed().unpacked(folder).zip!!.parent
            }
        }
        go.countDown()
        assertEquals(1, done.map { it.get() }.toSet().size)
        threads.shutdown()
        assertEquals(contents.size, below(folder).size)
    }

    @Test
    fun `what is truncated, missing or foreign is refused, and nothing stays`() {
        val cases = listOf(
            packed(contents + ("mlcc.zip" to "mod")),
            packed(contents + ("mlcc.zip" to "MODULES")),
            packed(contents - "mlcc.zip"),
            packed(list = "PK".encodeToByteArray()),
            NativeParts("a JAR") { null },
        )
        for (parts in cases) {
            val error = refused(parts)
            assertEquals("damaged_parts", error.code)
            assertTrue("a JAR" in error.message && "package.py" in error.message, error.message)
            assertEquals(emptyList<String>(), below(folder))
        }
    }

    @Test
    fun `a cache that cannot be written is named`() {
        val file = Files.write(folder.resolve("file"), ByteArray(1))
        val error = refused(packed(), file)
        assertEquals("cache", error.code)
        assertTrue("mlcc.cache" in error.message)
    }

    @Test
    fun `a class path without this platform says which it has`() {
        val native = Files.createDirectories(folder.resolve("dev/mlcc/native"))
        URLClassLoader(arrayOf(folder.toUri().toURL()), null).use { loader ->
            assertNull(ClasspathParts.files(folder, loader, "linux-x86_64"))
            Files.write(native.resolve("platforms"), "linux-x86_64\nlinux-aarch64".encodeToByteArray())
            val error = assertThrows<SetupException> { ClasspathParts.files(folder, loader, "windows-x86_64") }
            assertEquals("no_native_parts", error.code)
            assertTrue("linux-aarch64" in error.message && "windows-x86_64" in error.message)
            assertEquals("damaged_parts", assertThrows<SetupException> {
                ClasspathParts.files(folder, loader, "linux-x86_64")
            }.code)
        }
    }

    @Test
    fun `platforms are named as the packer names them`() {
        assertEquals("linux-x86_64", ClasspathParts.platform("Linux", "amd64"))
        assertEquals("linux-aarch64", ClasspathParts.platform("Linux", "aarch64"))
        assertEquals("mac-aarch64", ClasspathParts.platform("Mac OS X", "arm64"))
        assertEquals("windows-x86_64", ClasspathParts.platform("Windows 11", "amd64"))
    }
}
