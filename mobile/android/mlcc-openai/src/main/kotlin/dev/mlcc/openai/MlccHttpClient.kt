package dev.mlcc.openai

import com.openai.core.RequestOptions
import com.openai.core.http.Headers
import com.openai.core.http.HttpClient
import com.openai.core.http.HttpRequest
import com.openai.core.http.HttpResponse
import dev.mlcc.Engine
import dev.mlcc.Response
import java.io.ByteArrayOutputStream
import java.io.InputStream
import java.net.URLEncoder
import java.util.concurrent.CompletableFuture
import java.util.concurrent.ExecutionException

/**
 * The transport of OpenAI's Java SDK without a network: requests go to an engine in this process.
 *
 *     val options = ClientOptions.builder().httpClient(MlccHttpClient(engine)).apiKey("none").build()
 *     val client = OpenAIClientImpl(options)
 *
 * The address and the key do not matter. Closing the client does not close the engine.
 */
public class MlccHttpClient(private val engine: Engine) : HttpClient {
    override fun execute(request: HttpRequest, requestOptions: RequestOptions): HttpResponse = try {
        executeAsync(request, requestOptions).get()
    } catch (failed: ExecutionException) {
        throw failed.cause ?: failed
    }

    override fun executeAsync(
        request: HttpRequest,
        requestOptions: RequestOptions,
    ): CompletableFuture<HttpResponse> = engine
        .requestAsync(request.method.name, pathOf(request), headersOf(request), bodyOf(request))
        .thenApply(::Answer)

    override fun close(): Unit = Unit

    /** The path of the base URL is `/v1`, whatever its host. */
    private fun pathOf(request: HttpRequest): String {
        val segments = listOf("v1") + request.pathSegments.map(::escaped)
        val query = request.queryParams.keys().flatMap { key ->
            request.queryParams.values(key).map { "${escaped(key)}=${escaped(it)}" }
        }
        val mark = if (query.isEmpty()) "" else "?"
        return segments.joinToString("/", prefix = "/") + query.joinToString("&", prefix = mark)
    }

    private fun headersOf(request: HttpRequest): Map<String, String> {
        val given = request.headers.names().associate { name ->
            name.lowercase() to request.headers.values(name).joinToString(", ")
        }
        val type = request.body?.contentType() ?: return given
        return given + ("content-type" to type)
    }

    private fun bodyOf(request: HttpRequest): ByteArray = ByteArrayOutputStream().also { bytes ->
        request.body?.use { it.writeTo(bytes) }
    }.toByteArray()

    private fun escaped(text: String) = URLEncoder.encode(text, "UTF-8").replace("+", "%20")

    private class Answer(private val response: Response) : HttpResponse {
        private val body = response.stream()

        override fun statusCode(): Int = response.status

        override fun headers(): Headers = Headers.builder()
            .also { made -> response.headers.forEach { (name, value) -> made.put(name, value) } }
            .build()

        override fun body(): InputStream = body

        override fun close(): Unit = response.close()
    }
}
