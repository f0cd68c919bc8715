package dev.mlcc

import dev.mlcc.calls.Calls
import dev.mlcc.calls.callJson
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.future.future
import java.util.concurrent.CompletableFuture

/** The models API; an engine has one model and its LoRA adapters. */
public class Models internal constructor(
    private val calls: Calls,
    private val scope: CoroutineScope,
) {
    /** All models. */
    public suspend fun list(): ModelList =
        calls.callJson("GET", PATH, ByteArray(0), ModelList.serializer())

    /** The model of this name. Throws [ApiException] with status 404 if there is none. */
    public suspend fun retrieve(name: String): Model =
        calls.callJson("GET", "$PATH/$name", ByteArray(0), Model.serializer())

    /** [list] for Java. */
    public fun listAsync(): CompletableFuture<ModelList> = scope.future { list() }

    private companion object {
        const val PATH = "/v1/models"
    }
}
