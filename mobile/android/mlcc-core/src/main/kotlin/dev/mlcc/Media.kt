package dev.mlcc

import kotlinx.serialization.json.JsonPrimitive
import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.nio.file.Files
import java.nio.file.Path
import java.util.Base64

/** Files as parts of messages, for a model that sees or hears. */
public object Media {
    /** A sound in the bytes of a WAV or FLAC file. */
    @JvmStatic
    public fun sound(file: ByteArray): AudioPart = AudioPart(inputAudio = InputAudio(base64(file)))

    /** A sound in a WAV or FLAC file. Throws IOException. */
    @JvmStatic
    public fun sound(file: Path): AudioPart = sound(Files.readAllBytes(file))

    /** A sound in [samples] of one channel, [rate] a second, as Android's AudioRecord gives them. */
    @JvmStatic
    public fun sound(samples: ShortArray, rate: Int): AudioPart = sound(wav(samples, rate))

    /** The bytes of a WAV file with [samples] of one channel, [rate] a second. */
    @JvmStatic
    public fun wav(samples: ShortArray, rate: Int): ByteArray {
        val size = Short.SIZE_BYTES * samples.size
        val file = ByteBuffer.allocate(HEAD + size).order(ByteOrder.LITTLE_ENDIAN)
        file.put("RIFF".toByteArray()).putInt(HEAD - 8 + size).put("WAVEfmt ".toByteArray()).putInt(16)
        file.putShort(1).putShort(1).putInt(rate).putInt(Short.SIZE_BYTES * rate)
        file.putShort(Short.SIZE_BYTES.toShort()).putShort(Short.SIZE_BITS.toShort())
        file.put("data".toByteArray()).putInt(size).asShortBuffer().put(samples)
        return file.array()
    }

    /** An image in the bytes of a PNG, JPEG, WebP or GIF file. */
    @JvmStatic
    public fun image(file: ByteArray): ImagePart =
        ImagePart(imageUrl = JsonPrimitive("data:image/*;base64," + base64(file)))

    /** An image in a PNG, JPEG, WebP or GIF file. Throws IOException. */
    @JvmStatic
    public fun image(file: Path): ImagePart = image(Files.readAllBytes(file))

    private const val HEAD = 44

    private fun base64(file: ByteArray): String = Base64.getEncoder().encodeToString(file)
}
