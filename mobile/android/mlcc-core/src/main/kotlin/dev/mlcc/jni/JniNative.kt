package dev.mlcc.jni

import dev.mlcc.ImageDecoder
import dev.mlcc.NativeFiles
import dev.mlcc.SetupException
import dev.mlcc.Tokenizer
import dev.mlcc.calls.Event
import dev.mlcc.calls.Native
import java.io.File
import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.nio.file.Path

/** [Native] over JNI: converts arguments and results, no logic. */
internal class JniNative private constructor(private val engine: Long) : Native {
    override fun request(method: String, path: String, headers: String, body: ByteArray): Long =
        Jni.request(engine, method.utf8(), path.utf8(), headers.utf8(), body)

    override fun poll(timeoutMs: Int): List<Event> =
        Jni.poll(engine, timeoutMs)?.let(::decodeEvents).orEmpty()

    override fun cancel(call: Long) = Jni.cancel(engine, call)

    override fun stats(): String = Jni.stats(engine).decodeToString()

    override fun trim(level: Int) = Jni.trim(engine, level)

    override fun background(hidden: Boolean) = Jni.background(engine, hidden)

    override fun close() = Jni.close(engine)

    companion object {
        private var loaded = false

        /** Start loading a model; [options] are mlcc_create's. Throws NativeFailure, SetupException. */
        fun open(
            files: NativeFiles,
            options: String,
            tokenizer: Tokenizer?,
            images: ImageDecoder?,
        ): Native {
            val resolved = resolve(files)
            loadLibraries(resolved)
            val path = resolved.pythonPath.joinToString(File.pathSeparator).ifEmpty { null }
            Jni.start(resolved.zip?.toString()?.utf8(), resolved.pythonHome?.utf8(), path?.utf8())
            return JniNative(Jni.create(options.utf8(), HostCalls(tokenizer, images)))
        }

        /** The given files, else those on the class path with the given module paths added. */
        private fun resolve(files: NativeFiles): NativeFiles {
            if (files.libraries != null || files.zip != null) return files
            val packed = ClasspathParts.files(files.cache ?: ClasspathParts.cache()) ?: return files
            packed.pythonPath += files.pythonPath
            return packed
        }

        @Synchronized
        private fun loadLibraries(files: NativeFiles) {
            if (loaded) return
            val folder = files.libraries
            try {
                for (name in files.first + listOf("mlcc", "mlcc_jni").map(System::mapLibraryName)) {
                    if (folder != null) System.load(folder.resolve(name).toAbsolutePath().toString())
                    else System.loadLibrary(name.removePrefix("lib").removeSuffix(".so"))
                }
            } catch (error: UnsatisfiedLinkError) {
                throw SetupException(unloadable(folder, error), code = "unloadable", cause = error)
            }
            loaded = true
        }

        private fun unloadable(folder: Path?, error: UnsatisfiedLinkError): String {
            val place = folder ?: "java.library.path"
            return "mlcc's native libraries cannot be loaded from $place (${error.message}); give the " +
                "folder with those of this machine (${System.getProperty("os.arch")}) as " +
                "NativeFiles.libraries or -Dmlcc.libraries"
        }

        /** Each event: its call (8 bytes), kind, status and size (4 each), then its data. */
        private fun decodeEvents(batch: ByteArray): List<Event> = buildList {
            val buffer = ByteBuffer.wrap(batch).order(ByteOrder.nativeOrder())
            while (buffer.hasRemaining()) {
                val (call, kind, status) = Triple(buffer.long, buffer.int, buffer.int)
                add(Event(call, kind, status, ByteArray(buffer.int).also(buffer::get)))
            }
        }

        private fun String.utf8() = encodeToByteArray()
    }
}
