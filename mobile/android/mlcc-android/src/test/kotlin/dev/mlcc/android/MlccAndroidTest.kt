package dev.mlcc.android

import android.content.Context
import dev.mlcc.ArtifactException
import dev.mlcc.ModelSource
import dev.mlcc.Progress
import dev.mlcc.SetupException
import kotlinx.coroutines.runBlocking
import org.junit.Assert.assertArrayEquals
import org.junit.Assert.assertEquals
import org.junit.Assert.assertNull
import org.junit.Assert.assertThrows
import org.junit.Assert.assertTrue
import org.junit.Test
import org.junit.runner.RunWith
import org.robolectric.RobolectricTestRunner
import org.robolectric.RuntimeEnvironment
import org.robolectric.shadows.ShadowBuild
import java.nio.file.Files
import java.nio.file.Path

/** An app's assets, on Robolectric's Android 14. */
@RunWith(RobolectricTestRunner::class)
class MlccAndroidTest {
    private val app: Context = RuntimeEnvironment.getApplication()
    private val weights = ByteArray(1000) { it.toByte() }
    private val manifest = Assets.manifest("weights.bin", weights)

    private fun with(vararg files: Pair<String, ByteArray>): Context = Assets(mapOf(*files)).of(app)

    private fun supported(vararg abis: String) = ShadowBuild.setSupportedAbis(abis)

    private fun folder(source: ModelSource): Path = (source as ModelSource.Folder).path

    @Test
    fun `parts of the phone's CPU are unpacked to the app's files`() {
        supported("arm64-v8a", "armeabi-v7a")
        val zip = "zip".encodeToByteArray()
        val module = "module".encodeToByteArray()
        val context = with(
            "mlcc/platforms" to "arm64-v8a\nx86_64".encodeToByteArray(),
            "mlcc/mlcc.zip" to zip,
            "mlcc/arm64-v8a/modules/math.so" to module,
            "mlcc/arm64-v8a/parts.json" to Assets.parts(mapOf("mlcc.zip" to zip, "modules/math.so" to module)),
        )
        val files = runBlocking { MlccAndroid.files(context) }
        assertTrue(files.zip!!.startsWith(app.noBackupFilesDir.toPath()))
        assertArrayEquals(zip, Files.readAllBytes(files.zip!!))
        assertArrayEquals(module, Files.readAllBytes(files.pythonPath[1].resolve("math.so")))
        assertNull(files.libraries) // those of the APK
        assertEquals("", files.pythonHome)
    }

    @Test
    fun `an app without the phone's CPU names the CPUs that it has`() {
        supported("riscv64")
        fun refused(context: Context) =
            assertThrows(SetupException::class.java) { runBlocking { MlccAndroid.files(context) } }
        val error = refused(with("mlcc/platforms" to "x86_64".encodeToByteArray()))
        assertEquals("no_native_parts", error.code)
        assertTrue(error.message, "riscv64" in error.message && "x86_64" in error.message)
        assertTrue("none" in refused(with()).message) // an AAR without native parts
    }

    @Test
    fun `a model is copied from the assets once, whole or in pieces`() {
        val context = with(
            "models/small/mlcc.json" to manifest,
            "models/small/weights.bin.000" to weights.copyOf(600),
            "models/small/weights.bin.001" to weights.copyOfRange(600, 1000),
        )
        val events = mutableListOf<Progress>()
        val source = runBlocking { MlccAndroid.asset(context, "models/small", events::add) }
        assertArrayEquals(weights, Files.readAllBytes(folder(source).resolve("weights.bin")))
        assertEquals(listOf<Progress>(Progress.Download(1000, 1000)), events)
        val without = with("models/small/mlcc.json" to manifest)
        val again = runBlocking { MlccAndroid.asset(without, "models/small", events::add) }
        assertEquals(folder(source), folder(again))
        assertEquals(1, events.size)
    }

    @Test
    fun `a model that is damaged, incomplete or none is refused`() {
        val cases = listOf(
            with(),
            with("models/bad/mlcc.json" to manifest),
            with("models/bad/mlcc.json" to manifest, "models/bad/weights.bin" to weights.copyOf(999)),
            with("models/bad/mlcc.json" to manifest, "models/bad/weights.bin" to weights + 1),
            with("models/bad/mlcc.json" to "{}".encodeToByteArray()),
        )
        for (context in cases) {
            val error = assertThrows(ArtifactException::class.java) {
                runBlocking { MlccAndroid.asset(context, "models/bad") }
            }
            assertTrue(error.message, "models/bad" in error.message)
        }
        val left = app.noBackupFilesDir.resolve("mlcc/assets").listFiles().orEmpty()
        assertEquals(emptyList<String>(), left.map { it.name })
    }
}
