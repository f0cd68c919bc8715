package dev.mlcc.android

import android.content.Context
import dev.mlcc.ArtifactException
import dev.mlcc.ModelSource
import dev.mlcc.Progress
import dev.mlcc.SetupException
import kotlinx.coroutines.runBlocking
import org.junit.After
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

/** An app's assets, on Robolectric's Android 8. */
@RunWith(RobolectricTestRunner::class)
class MlccAndroidTest {
    private val context: Context = RuntimeEnvironment.getApplication()
    private val weights = ByteArray(1000) { it.toByte() }

    @After
    fun clean() {
        Assets.delete("mlcc")
        Assets.delete("models")
    }

    private fun supported(vararg abis: String) = ShadowBuild.setSupportedAbis(abis)

    private fun folder(source: ModelSource): Path = (source as ModelSource.Folder).path

    @Test
    fun `parts of the phone's CPU are unpacked to the app's files`() {
        supported("arm64-v8a", "armeabi-v7a")
        val zip = "zip".encodeToByteArray()
        val module = "module".encodeToByteArray()
        Assets.write("mlcc/mlcc.zip", zip)
        Assets.write("mlcc/arm64-v8a/modules/math.so", module)
        Assets.parts("arm64-v8a", mapOf("mlcc.zip" to zip, "modules/math.so" to module))
        Assets.parts("x86_64", mapOf())
        val files = runBlocking { MlccAndroid.files(context) }
        assertTrue(files.zip!!.startsWith(context.noBackupFilesDir.toPath()))
        assertArrayEquals(zip, Files.readAllBytes(files.zip!!))
        assertArrayEquals(module, Files.readAllBytes(files.pythonPath[1].resolve("math.so")))
        assertNull(files.libraries) // those of the APK
        assertEquals("", files.pythonHome)
    }

    @Test
    fun `an app without the phone's CPU says which it has`() {
        supported("riscv64")
        Assets.parts("x86_64", mapOf())
        val error = assertThrows(SetupException::class.java) { runBlocking { MlccAndroid.files(context) } }
        assertEquals("no_native_parts", error.code)
        assertTrue(error.message, "riscv64" in error.message && "x86_64" in error.message)
    }

    @Test
    fun `a model is copied out of the assets once, whole or in pieces`() {
        val manifest = Assets.manifest("small", "weights.bin", weights)
        Assets.write("models/small/mlcc.json", manifest)
        Assets.write("models/small/weights.bin.000", weights.copyOf(600))
        Assets.write("models/small/weights.bin.001", weights.copyOfRange(600, 1000))
        val heard = mutableListOf<Progress>()
        val source = runBlocking { MlccAndroid.asset(context, "models/small", heard::add) }
        assertArrayEquals(weights, Files.readAllBytes(folder(source).resolve("weights.bin")))
        assertEquals(listOf<Progress>(Progress.Download(1000, 1000)), heard)
        Assets.delete("models/small/weights.bin.000")
        val again = runBlocking { MlccAndroid.asset(context, "models/small", heard::add) }
        assertEquals(folder(source), folder(again))
        assertEquals(1, heard.size)
    }

    @Test
    fun `a model that is damaged, incomplete or none is refused`() {
        Assets.write("models/bad/mlcc.json", Assets.manifest("bad", "weights.bin", weights))
        fun refused(path: String) {
            val error = assertThrows(ArtifactException::class.java) {
                runBlocking { MlccAndroid.asset(context, path) }
            }
            assertTrue(error.message, path in error.message)
        }
        refused("models/none")
        refused("models/bad")
        Assets.write("models/bad/weights.bin", weights.copyOf(999))
        refused("models/bad")
        Assets.write("models/bad/weights.bin", weights + 1)
        refused("models/bad")
        Assets.write("models/bad/mlcc.json", "{}".encodeToByteArray())
        refused("models/bad")
    }
}
