package dev.mlcc.android

import android.content.Context
import android.content.ContextWrapper
import android.content.res.AssetManager
import org.robolectric.util.ReflectionHelpers
import org.robolectric.util.ReflectionHelpers.ClassParameter
import java.nio.file.Files
import java.security.MessageDigest
import java.util.zip.ZipEntry
import java.util.zip.ZipOutputStream

/** The assets of a test app, by path. */
internal class Assets(private val files: Map<String, ByteArray>) {
    /** An app with these assets, in an archive like an APK. */
    fun of(app: Context): Context {
        val apk = Files.createTempFile("assets", ".apk")
        ZipOutputStream(Files.newOutputStream(apk)).use { zip ->
            for ((path, data) in files) {
                zip.putNextEntry(ZipEntry("assets/$path"))
                zip.write(data)
            }
        }
        val manager = ReflectionHelpers.callConstructor(AssetManager::class.java)
        ReflectionHelpers.callInstanceMethod<Int>(
            manager, "addAssetPath", ClassParameter.from(String::class.java, apk.toString()),
        )
        return object : ContextWrapper(app) {
            override fun getAssets(): AssetManager = manager
        }
    }

    companion object {
        fun sha256(data: ByteArray): String = MessageDigest.getInstance("SHA-256").digest(data)
            .joinToString("") { "%02x".format(it) }

        /** parts.json, as written by package.py. */
        fun parts(files: Map<String, ByteArray>): ByteArray {
            val entries = files.map { (path, data) ->
                """{"path":"$path","bytes":${data.size},"sha256":"${sha256(data)}"}"""
            }
            val places = """"libraries":null,"first":[],"modules":["python.zip","modules"]"""
            return """{"platform":"android","python":"3",$places,"files":$entries}""".encodeToByteArray()
        }

        /** mlcc.json of a model with one file, sealed as by the compiler. */
        fun manifest(file: String, data: ByteArray): ByteArray {
            val files = """[{"path":"$file","bytes":${data.size},"chunks":["${sha256(data)}"]}]"""
            val blank = """{"model":{"name":"m"},"files":$files,"checksum":"${"0".repeat(64)}"}"""
            return blank.replace("0".repeat(64), sha256(blank.encodeToByteArray())).encodeToByteArray()
        }
    }
}
