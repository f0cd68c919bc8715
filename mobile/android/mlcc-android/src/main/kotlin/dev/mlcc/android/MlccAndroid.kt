package dev.mlcc.android

import android.content.Context
import android.content.res.AssetManager
import android.os.Build
import dev.mlcc.Engine
import dev.mlcc.EngineOptions
import dev.mlcc.Mlcc
import dev.mlcc.ModelSource
import dev.mlcc.NativeFiles
import dev.mlcc.NativeParts
import dev.mlcc.ProgressListener
import dev.mlcc.SetupException
import dev.mlcc.model.ModelStore
import dev.mlcc.model.PackedModel
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.withContext
import java.io.FileNotFoundException
import java.io.InputStream
import java.nio.file.Path

/** mlcc in an Android app: finds its native parts and models. */
public object MlccAndroid {
    /**
     * [Mlcc.load] with the app's native parts: libraries from the APK, Python modules from the assets. Images
     * of requests are decoded by [AndroidImageDecoder], unless the options have another decoder.
     *
     * @throws dev.mlcc.MlccException as [Mlcc.load], and [files]'.
     */
    public suspend fun load(
        context: Context,
        source: ModelSource,
        options: EngineOptions = EngineOptions(),
    ): Engine {
        options.files = files(context)
        options.images = options.images ?: AndroidImageDecoder
        return Mlcc.load(source, options)
    }

    /**
     * Location of mlcc's native parts. Python's modules are unpacked once, to the app's files that are
     * excluded from backups.
     *
     * @throws SetupException the app has none for this phone's CPU, or damaged ones.
     */
    public suspend fun files(context: Context): NativeFiles = withContext(Dispatchers.IO) {
        val assets = context.assets
        val abi = abi(assets)
        NativeParts("the app's assets") { opened(assets, "$PARTS/$abi/$it") ?: opened(assets, "$PARTS/$it") }
            .unpacked(folder(context, "parts"))
    }

    /**
     * A model in the app's assets, or in an install-time asset pack. [path]: the folder made by
     * `mlcc compile`. It is copied once to the app's files, where it can be memory-mapped.
     *
     * @throws dev.mlcc.MlccException it is damaged or no model, or there is too little space.
     */
    public suspend fun asset(
        context: Context,
        path: String,
        onProgress: ProgressListener = ProgressListener { },
    ): ModelSource {
        val model = PackedModel("the app's asset $path") { opened(context.assets, "$path/$it") }
        val name = path.trim('/').replace('/', '_')
        return ModelSource.Folder(model.unpacked(folder(context, "assets").resolve(name), onProgress))
    }

    /** The app's store of downloaded models. */
    public fun store(context: Context, maxBytes: Long? = null): ModelStore =
        ModelStore(folder(context, "models"), maxBytes)

    private fun folder(context: Context, name: String): Path =
        context.noBackupFilesDir.toPath().resolve("mlcc").resolve(name)

    private fun abi(assets: AssetManager): String {
        val list = opened(assets, "$PARTS/platforms")?.use { it.readBytes().decodeToString() }
        val there = list.orEmpty().lines().filter(String::isNotEmpty)
        return Build.SUPPORTED_ABIS.firstOrNull { it in there } ?: throw SetupException(
            "the app has no mlcc for this phone's CPU (${Build.SUPPORTED_ABIS.joinToString()}), only: " +
                there.joinToString().ifEmpty { "none" } +
                "; make the AAR with it (mobile/android/package.py aar)",
            code = "no_native_parts",
        )
    }

    private fun opened(assets: AssetManager, path: String): InputStream? = try {
        assets.open(path, AssetManager.ACCESS_STREAMING)
    } catch (_: FileNotFoundException) {
        null
    }

    private const val PARTS = "mlcc"
}
