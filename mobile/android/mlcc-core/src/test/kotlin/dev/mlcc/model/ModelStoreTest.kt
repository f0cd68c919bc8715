package dev.mlcc.model

import dev.mlcc.ArtifactException
import dev.mlcc.CapacityException
import dev.mlcc.DownloadException
import dev.mlcc.MlccException
import dev.mlcc.ModelSource
import dev.mlcc.Progress
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.delay
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.AfterEach
import org.junit.jupiter.api.Assertions.assertArrayEquals
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.Timeout
import org.junit.jupiter.api.io.TempDir
import org.junit.jupiter.params.ParameterizedTest
import org.junit.jupiter.params.provider.ValueSource
import java.nio.file.Files
import java.nio.file.Path
import java.util.concurrent.CountDownLatch
import kotlin.random.Random

/** Downloads from a server in this process, which does what servers and networks do. */
@Timeout(120)
class ModelStoreTest {
    @TempDir
    lateinit var folder: Path

    private val server = ModelServer(files.toMutableMap().apply { put(MANIFEST, manifest) })

    @AfterEach
    fun stop() = server.close()

    private fun store(maxBytes: Long? = null, free: Long = Long.MAX_VALUE, tries: Int = 1) =
        ModelStore(folder, maxBytes, HttpFetcher(List(tries - 1) { 1L }, 10_000)) { free }

    private inline fun <reified E : MlccException> refused(store: ModelStore = store()): E =
        assertThrows(E::class.java) { runBlocking { store.fetch(server.url) } }

    private fun assertWhole(place: Path) {
        for ((path, bytes) in files) {
            assertArrayEquals(bytes, Files.readAllBytes(place.resolve(path)), path)
        }
        assertTrue(Files.exists(place.resolve(MANIFEST)))
    }

    private fun chunksAsked() = server.asked.count { (path, _) -> path == "weights.safetensors" }

    @Test
    fun `a model arrives, and is not fetched again`() = runBlocking {
        val events = mutableListOf<Progress>()
        val place = store().fetch(server.url) { synchronized(events) { events += it } }
        assertWhole(place)
        val size = files.values.sumOf { it.size }.toLong()
        assertEquals(Progress.Download(size, size), events.last())
        assertEquals(3, chunksAsked())
        assertEquals(place, store().fetch(server.url.trimEnd('/')))
        assertEquals(place, store().fetch(server.url + MANIFEST))
        assertEquals(3, chunksAsked())
        server.close()
        assertEquals(place, store().fetch(server.url), "without a network it is used as it is")
    }

    @Test
    fun `a server without ranges sends each file once`() = runBlocking {
        server.ranges = false
        assertWhole(store().fetch(server.url))
        assertEquals(1, chunksAsked())
    }

    @ParameterizedTest
    @ValueSource(booleans = [true, false])
    fun `a connection that breaks is mended, and a later process goes on`(ranges: Boolean) {
        server.ranges = ranges
        server.cut = { path, size -> if (path == "weights.safetensors") size / 2 else size }
        val failed = refused<DownloadException>()
        assertTrue("what has arrived is kept" in failed.message, failed.message)
        val before = chunksAsked()
        var left = 1
        server.cut = { path, size -> if (path == "model.so" && left-- > 0) 1 else size }
        runBlocking { assertWhole(store(tries = 2).fetch(server.url)) }
        assertTrue(chunksAsked() - before <= 3)
    }

    @Test
    fun `a damaged chunk is asked for once more, then refused`() {
        server.files["weights.safetensors"] = weights.copyOf().also { it[CHUNK_BYTES.toInt() + 3]++ }
        val refused = refused<ArtifactException>()
        val range = "$CHUNK_BYTES to ${2 * CHUNK_BYTES}"
        assertTrue("weights.safetensors is damaged in bytes $range" in refused.message, refused.message)
        server.files["weights.safetensors"] = weights
        val before = chunksAsked()
        runBlocking { assertWhole(store().fetch(server.url)) }
        assertEquals(before + 1, chunksAsked(), "the sound chunks were kept")
    }

    @Test
    fun `a file that is damaged on disk while it arrives is mended`() = runBlocking {
        server.refuse = { path -> if (path.startsWith("add")) 403 else null }
        refused<DownloadException>()
        val part = folder.resolve(Files.list(folder).use { it.findFirst().get() })
        Files.write(part.resolve("model.so"), ByteArray(2000))
        server.refuse = { null }
        assertWhole(store().fetch(server.url))
    }

    @Test
    fun `there is no room`() {
        val full = refused<CapacityException>(store(free = 1000))
        assertEquals("disk_full", full.code)
        assertEquals(0, chunksAsked(), "nothing large was fetched")
        assertEquals("disk_full", refused<CapacityException>(store(maxBytes = weights.size.toLong())).code)
        runBlocking { assertWhole(store(maxBytes = 2L * weights.size).fetch(server.url)) }
    }

    @Test
    fun `what others take of a bounded store counts, until it is deleted`() = runBlocking {
        val store = store(maxBytes = 1_500L + weights.size)
        store.fetch(server.url)
        val other = ModelServer(server.files)
        other.use {
            assertThrows(CapacityException::class.java) { runBlocking { store.fetch(other.url) } }
            assertEquals(listOf(true, false), store.models().map { it.whole })
            store.delete(server.url)
            store.fetch(other.url)
            assertEquals(listOf(other.url), store.models().map { it.url })
        }
    }

    @ParameterizedTest
    @ValueSource(
        strings = [
            "../out", "/etc/x", "a/../b", "a//b", "a\\\\b", "C:x", "", ".", "mlcc.json", "a\\u0000b", "a/",
        ],
    )
    fun `a manifest that leaves the folder is refused before anything is written`(path: String) {
        server.files[MANIFEST] = manifestOf(mapOf(path to weights.copyOf(5)))
        refused<ArtifactException>()
        assertFalse(Files.exists(folder) && Files.walk(folder).use { it.anyMatch(Files::isRegularFile) })
    }

    @Test
    fun `a manifest that is none, or unsound, is refused`() {
        val sound = manifest.decodeToString()
        val wrong = listOf(
            "<html>Log in to the hotel's network</html>",
            sound.replace("\"name\": \"m\"", "\"name\": \"n\""),
            sound.dropLast(10),
            manifestOf(files) { path, bytes -> entry(path, bytes, bytes.size + CHUNK_BYTES) }.decodeToString(),
            manifestOf(files) { path, bytes -> entry(path, bytes, -1) }.decodeToString(),
            manifestOf(mapOf("a" to weights.copyOf(5), "A" to weights.copyOf(5))).decodeToString(),
            manifestOf(mapOf("a" to weights.copyOf(5))) { path, bytes ->
                entry(path, bytes).replace(Regex("[0-9a-f]{64}"), "../../../out")
            }.decodeToString(),
        )
        for (text in wrong) {
            server.files[MANIFEST] = text.encodeToByteArray()
            refused<ArtifactException>()
        }
    }

    @Test
    fun `another model at the address takes the place of the first`() = runBlocking {
        val place = store().fetch(server.url)
        val other = mapOf("model.so" to Random(3).nextBytes(500))
        server.files += other + (MANIFEST to manifestOf(other))
        assertEquals(place, store().fetch(server.url))
        assertArrayEquals(other["model.so"], Files.readAllBytes(place.resolve("model.so")))
        assertFalse(Files.exists(place.resolve("weights.safetensors")))
    }

    @Test
    fun `a download that is cancelled ends at once and goes on later`() = runBlocking {
        val (asked, never) = CountDownLatch(1) to CountDownLatch(1)
        server.refuse = { path ->
            if (path == "weights.safetensors") {
                asked.countDown()
                never.await()
            }
            null
        }
        val download = async(Dispatchers.Default) { store().fetch(server.url) }
        while (asked.count > 0) delay(1)
        download.cancelAndJoin() // would take the 10 s of the access if reads were not ended
        never.countDown()
        server.refuse = { null }
        assertWhole(store().fetch(server.url))
    }

    @Test
    fun `two who ask for a model at once fetch it once`() = runBlocking {
        val store = store()
        val both = List(2) { async(Dispatchers.Default) { store.fetch(server.url) } }
        assertEquals(1, both.map { it.await() }.toSet().size)
        assertEquals(3, chunksAsked())
    }

    @Test
    fun `what is missing or refused says which file`() {
        server.files.remove("model.so")
        assertTrue("model.so" in refused<DownloadException>().message)
        assertThrows(DownloadException::class.java) { runBlocking { store().fetch("ftp://x/y") } }
        assertThrows(DownloadException::class.java) { runBlocking { store().fetch("no address") } }
    }

    @Test
    fun `an address is escaped, and its query goes with every file`() {
        val entry = StorePath(folder, "https://example.org/a%20b/mlcc.json?token=1")
        assertEquals("https://example.org/a%20b/c/%C3%A4%25.x?token=1", entry.url("c/ä%.x"))
        assertEquals("https://example.org/a%20b/", entry.folderUrl)
    }

    @Test
    fun `a source is an address, a file's URI or a path`() = runBlocking {
        val store = store()
        assertTrue(ModelSource.of(server.url, store) is ModelSource.Remote)
        for (text in listOf(folder.toUri().toString(), folder.toString())) {
            assertEquals(folder, (ModelSource.of(text, store) as ModelSource.Folder).path)
        }
    }

    /** The files of all tests: hashing them takes half a second. */
    private companion object {
        val weights = Random(1).nextBytes((2 * CHUNK_BYTES + 5).toInt())
        val files = mapOf(
            "model.so" to Random(2).nextBytes(1000),
            "additional chat/a%20b+c.jinja" to "hi".encodeToByteArray(),
            "empty" to ByteArray(0),
            "weights.safetensors" to weights,
        )
        val manifest = manifestOf(files)
    }
}
