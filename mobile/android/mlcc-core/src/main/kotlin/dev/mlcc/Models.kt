package dev.mlcc

import dev.mlcc.calls.Calls
import dev.mlcc.calls.whole
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.future.future
import java.util.concurrent.CompletableFuture

/** What can be asked: an engine has one model. */
public class Models internal constructor(
    private val calls: Calls,
    private val scope: CoroutineScope,
) {
    /** All of them. */
    public suspend fun list(): ModelList =
        calls.whole("GET", PATH, ByteArray(0), ModelList.serializer())

    /** The one of this name. Throws [ApiException] with status 404 if it is not here. */
    public suspend fun retrieve(name: String): Model =
        calls.whole("GET", "$PATH/$name", ByteArray(0), Model.serializer())

    /** [list] for Java. */
    public fun listAsync(): CompletableFuture<ModelList> = scope.future { list() }

    private companion object {
        const val PATH = "/v1/models"
    }
}
