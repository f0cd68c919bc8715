package dev.mlcc.jvm

import dev.mlcc.DecodedImage
import dev.mlcc.Engine
import dev.mlcc.EngineOptions
import dev.mlcc.Mlcc
import dev.mlcc.MlccException
import dev.mlcc.ModelSource
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.Job
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import java.io.EOFException
import java.io.FileDescriptor
import java.io.FileOutputStream
import java.nio.file.Paths
import java.util.concurrent.ConcurrentHashMap
import javax.imageio.ImageIO
import kotlin.system.exitProcess

/** A program that tests drive over standard input and output, like tests/e2e/mobile/host.cc. */
fun main() {
    val out = FileOutputStream(FileDescriptor.out)
    System.setOut(System.err) // standard output has frames only
    val relay = Relay(Pipe(System.`in`, out))
    try {
        relay.run()
    } catch (_: EOFException) {
        exitProcess(0) // the test is over
    }
}

/** An image without transparency, by Java's own decoders. */
private fun decoded(file: ByteArray, type: String): DecodedImage {
    val image = requireNotNull(ImageIO.read(file.inputStream())) { "Java reads no $type" }
    val pixels = image.getRGB(0, 0, image.width, image.height, null, 0, image.width)
    val rgb = ByteArray(3 * pixels.size) { (pixels[it / 3] shr (16 - 8 * (it % 3))).toByte() }
    return DecodedImage(image.width, image.height, rgb)
}

/** An engine, and requests by [Engine.request]: uses only the public API. */
private class Relay(private val pipe: Pipe) {
    private val scope = CoroutineScope(Dispatchers.Default)
    private val running = ConcurrentHashMap<Long, Job>()
    private var calls = 0L
    private lateinit var engine: Engine

    fun run(): Nothing {
        while (true) {
            val order = pipe.read()
            when (order.name) {
                Frame.START -> done(order) // with the first engine
                Frame.CREATE -> create(order)
                Frame.REQUEST -> request(order)
                Frame.CANCEL -> done(order).also { running[order.b]?.cancel() }
                Frame.CLOSE -> engine.close().also { done(order) }
                else -> error("an order that this program does not know: ${order.name}")
            }
        }
    }

    private fun create(order: Frame) {
        val options = Json.parseToJsonElement(order.texts[0].decodeToString()).jsonObject
        val model = Paths.get(options.getValue("model").jsonPrimitive.content)
        done(order)
        engine = runBlocking { Mlcc.load(ModelSource.Folder(model), EngineOptions(images = ::decoded)) }
        event(0, READY, 0, Json.encodeToString(engine.info).encodeToByteArray())
    }

    private fun request(order: Frame) {
        val call = ++calls
        pipe.write(Frame(order.name, order.id, b = call, texts = NOTHING_SAID))
        val job = scope.launch(start = kotlinx.coroutines.CoroutineStart.LAZY) { answer(call, order.texts) }
        running[call] = job
        job.invokeOnCompletion { running.remove(call) }
        job.start()
    }

    private suspend fun answer(call: Long, asked: List<ByteArray>) {
        val (method, path, headers) = asked.map(ByteArray::decodeToString)
        val status = try {
            engine.request(method, path, Json.decodeFromString(headers), asked[3]).use {
                event(call, HEAD, it.status, Json.encodeToString(it.headers).encodeToByteArray())
                it.body.collect { piece -> event(call, BODY, 0, piece) }
            }
            0
        } catch (_: CancellationException) {
            CANCELLED
        } catch (error: MlccException) {
            System.err.println(error)
            FAILED
        }
        event(call, END, status, ByteArray(0))
    }

    private fun done(order: Frame) = pipe.write(Frame(order.name, order.id, a = 1, texts = NOTHING_SAID))

    private fun event(call: Long, kind: Int, status: Int, data: ByteArray) =
        pipe.write(Frame(Frame.EVENT, 0, a = 1, b = call, c = kind, d = status, texts = listOf(data)))

    private companion object {
        // As in mlcc.h.
        const val READY = 2
        const val HEAD = 4
        const val BODY = 5
        const val END = 6
        const val CANCELLED = 2
        const val FAILED = 99

        /** No error, and no counters. */
        val NOTHING_SAID = listOf(ByteArray(0), ByteArray(0))
    }
}
