package dev.mlcc.android

import java.nio.file.Files
import java.nio.file.Path
import java.nio.file.Paths
import java.security.MessageDigest

/** The assets of the tests' app: a folder that Robolectric mounts. */
internal object Assets {
    private val folder: Path = Paths.get("target", "test-assets")

    fun write(path: String, data: ByteArray) {
        val file = folder.resolve(path)
        Files.createDirectories(file.parent)
        Files.write(file, data)
    }

    fun delete(path: String) {
        folder.resolve(path).toFile().deleteRecursively()
    }

    fun sha256(data: ByteArray): String = MessageDigest.getInstance("SHA-256").digest(data)
        .joinToString("") { "%02x".format(it) }

    /** parts.json as package.py writes it for an ABI. */
    fun parts(abi: String, files: Map<String, ByteArray>) {
        val entries = files.map { (path, data) ->
            """{"path":"$path","bytes":${data.size},"sha256":"${sha256(data)}"}"""
        }
        val list = """{"platform":"$abi","python":"3","libraries":null,"modules":["python.zip","modules"],"files":$entries}"""
        write("mlcc/$abi/parts.json", list.encodeToByteArray())
    }

    /** mlcc.json of a model with one file, sealed as the compiler seals it. */
    fun manifest(name: String, file: String, data: ByteArray): ByteArray {
        val files = """[{"path":"$file","bytes":${data.size},"chunks":["${sha256(data)}"]}]"""
        val blank = """{"model":{"name":"$name"},"files":$files,"checksum":"${"0".repeat(64)}"}"""
        return blank.replace("0".repeat(64), sha256(blank.encodeToByteArray())).encodeToByteArray()
    }
}
