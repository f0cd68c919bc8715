package dev.mlcc.model

import com.sun.net.httpserver.HttpExchange
import com.sun.net.httpserver.HttpServer
import java.net.InetAddress
import java.net.InetSocketAddress
import java.util.concurrent.ConcurrentLinkedQueue
import java.util.concurrent.Executors

/** A web server with the files of a model, with configurable faults. */
internal class ModelServer(val files: MutableMap<String, ByteArray>) : AutoCloseable {
    private val server = HttpServer.create(InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0)
    private val threads = Executors.newCachedThreadPool()

    /** Every request: the path, and the range or null. */
    val asked = ConcurrentLinkedQueue<Pair<String, String?>>()

    /** Whether ranges are given. */
    @Volatile
    var ranges = true

    /** Called before an answer; what it returns is the status to refuse with, or null. */
    @Volatile
    var refuse: (path: String) -> Int? = { null }

    /** How many of the bytes are sent before the connection breaks. */
    @Volatile
    var cut: (path: String, size: Int) -> Int = { _, size -> size }

    val url get() = "http://127.0.0.1:${server.address.port}/model/"

    init {
        server.executor = threads
        server.createContext("/model/") { exchange -> exchange.use { answer(it) } }
        server.start()
    }

    override fun close() {
        server.stop(0)
        threads.shutdownNow()
    }

    private fun answer(exchange: HttpExchange) {
        val path = exchange.requestURI.path.removePrefix("/model/")
        val range = exchange.requestHeaders.getFirst("Range")
        asked += path to range
        val bytes = files[path]
        val refusal = if (bytes == null) 404 else refuse(path)
        if (refusal != null) return exchange.sendResponseHeaders(refusal, -1)
        if (range == null || !ranges) return send(exchange, 200, path, bytes!!)
        val (start, last) = range.removePrefix("bytes=").split('-').map(String::toInt)
        exchange.responseHeaders.set("Content-Range", "bytes $start-$last/${bytes!!.size}")
        send(exchange, 206, path, bytes.copyOfRange(start, last + 1))
    }

    private fun send(exchange: HttpExchange, status: Int, path: String, bytes: ByteArray) {
        exchange.sendResponseHeaders(status, if (bytes.isEmpty()) -1 else bytes.size.toLong())
        exchange.responseBody.write(bytes, 0, cut(path, bytes.size))
    }

    private inline fun HttpExchange.use(action: (HttpExchange) -> Unit) = try {
        action(this)
    } finally {
        close()
    }
}

/** `mlcc.json` of files, sealed. [listed] says what it lists of them; else the truth. */
internal fun manifestOf(
    files: Map<String, ByteArray>,
    listed: (String, ByteArray) -> String = { path, bytes -> entry(path, bytes) },
): ByteArray {
    val entries = files.map { (path, bytes) -> listed(path, bytes) }.joinToString(",")
    val zeros = "0".repeat(64)
    val text = """{"schema_version": 4, "model": {"name": "m", "more": 1}, "files": [$entries],
        "checksum": "$zeros"}
    """.trimEnd() + "\n"
    return text.replace(zeros, sha256(text.encodeToByteArray())).encodeToByteArray()
}

internal fun entry(path: String, bytes: ByteArray, size: Long = bytes.size.toLong()): String {
    val size8 = CHUNK_BYTES.toInt()
    val chunks = (bytes.indices step size8).joinToString(",") { start ->
        "\"${sha256(bytes.copyOfRange(start, minOf(start + size8, bytes.size)))}\""
    }
    return """{"path": "$path", "bytes": $size, "sha256": "${sha256(bytes)}", "chunks": [$chunks]}"""
}
