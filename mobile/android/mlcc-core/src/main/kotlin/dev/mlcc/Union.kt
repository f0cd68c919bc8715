package dev.mlcc

import dev.mlcc.calls.json
import kotlinx.serialization.KSerializer
import kotlinx.serialization.SerializationException
import kotlinx.serialization.descriptors.SerialDescriptor
import kotlinx.serialization.encoding.Decoder
import kotlinx.serialization.encoding.Encoder
import kotlinx.serialization.json.JsonDecoder
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonEncoder
import kotlinx.serialization.json.decodeFromJsonElement
import kotlinx.serialization.json.encodeToJsonElement

/** One type of a union: [write] returns null for values of another type. */
internal class Variant<T : Any>(
    val write: (T) -> JsonElement?,
    val read: (JsonElement) -> T,
)

/** The variant [K] of [T], which is a [V] in JSON. */
internal inline fun <T : Any, reified K : T, reified V> variant(
    crossinline wrap: (V) -> K,
    crossinline value: (K) -> V,
): Variant<T> = Variant(
    write = { whole -> (whole as? K)?.let { json.encodeToJsonElement(value(it)) } },
    read = { wrap(json.decodeFromJsonElement<V>(it)) },
)

/** JSON of one of several types: the first variant that parses. */
internal abstract class UnionSerializer<T : Any>(
    private val name: String,
    private vararg val variants: Variant<T>,
) : KSerializer<T> {
    override val descriptor: SerialDescriptor = JsonElement.serializer().descriptor

    override fun serialize(encoder: Encoder, value: T) {
        val written = variants.firstNotNullOf { it.write(value) }
        (encoder as JsonEncoder).encodeJsonElement(written)
    }

    override fun deserialize(decoder: Decoder): T {
        val element = (decoder as JsonDecoder).decodeJsonElement()
        return variants.firstNotNullOfOrNull { variant ->
            runCatching { variant.read(element) }.getOrNull()
        } ?: throw SerializationException("no type of $name fits the JSON")
    }
}
