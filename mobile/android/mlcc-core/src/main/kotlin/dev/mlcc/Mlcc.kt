package dev.mlcc

import dev.mlcc.calls.Calls
import dev.mlcc.calls.Event
import dev.mlcc.calls.Native
import dev.mlcc.calls.libraryError
import dev.mlcc.calls.json
import dev.mlcc.calls.translateErrors
import dev.mlcc.jni.JniNative
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.future.future
import kotlinx.coroutines.withContext
import java.nio.file.Path
import java.util.ServiceLoader
import java.util.concurrent.CompletableFuture

/** Entry point: loads models. */
public object Mlcc {
    /**
     * Load a model, after downloading it if needed. Returns when it is ready. Cancelling stops; what was
     * downloaded is kept.
     *
     * @throws MlccException [DownloadException], [ArtifactException], [CapacityException],
     * [DeviceException] or [SetupException].
     */
    public suspend fun load(source: ModelSource, options: EngineOptions = EngineOptions()): Engine {
        val folder = source.folder(options.onProgress)
        return start(options.onProgress) { open(folder, options) }
    }

    /** [load] for Java. Cancelling the future stops the load. */
    @JvmStatic
    @JvmOverloads
    public fun loadAsync(
        source: ModelSource,
        options: EngineOptions = EngineOptions(),
    ): CompletableFuture<Engine> = CoroutineScope(Dispatchers.Default).future { load(source, options) }

    /** The engine over the native model that [open] returns, once it is ready. */
    internal suspend fun start(onProgress: ProgressListener, open: () -> Native): Engine {
        val ready = CompletableDeferred<EngineInfo>()
        val native = withContext(Dispatchers.IO) { open() }
        val calls = Calls(native) { event ->
            runCatching { handleEvent(event, ready, onProgress) }.onFailure(ready::completeExceptionally)
        }
        calls.start()
        try {
            return Engine(native, calls, ready.await())
        } catch (error: Throwable) {
            withContext(NonCancellable + Dispatchers.IO) { calls.close() }
            throw error
        }
    }

    private fun handleEvent(
        event: Event,
        ready: CompletableDeferred<EngineInfo>,
        onProgress: ProgressListener,
    ) {
        when (event.kind) {
            Event.PROGRESS -> onProgress.onProgress(json.decodeFromString<Progress.Load>(event.text))
            Event.READY -> ready.complete(json.decodeFromString(event.text))
            Event.FAILED -> ready.completeExceptionally(libraryError(event.status, event.text))
        }
    }

    private fun onClassPath(): TokenizerFactory? =
        ServiceLoader.load(TokenizerFactory::class.java, Mlcc::class.java.classLoader).firstOrNull()

    private fun open(folder: Path, options: EngineOptions): Native = translateErrors {
        val tokenizer = (options.tokenizer ?: onClassPath())?.open(folder)
        try {
            val createOptions = json.encodeToString(options.forModel(folder))
            JniNative.open(options.files, createOptions, tokenizer, options.images)
        } catch (error: Throwable) {
            tokenizer?.close()
            throw error
        }
    }
}
