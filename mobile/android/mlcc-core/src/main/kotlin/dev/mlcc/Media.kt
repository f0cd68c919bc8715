package dev.mlcc

import kotlinx.serialization.json.JsonPrimitive
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

    /** An image in the bytes of a PNG, JPEG, WebP or GIF file. */
    @JvmStatic
    public fun image(file: ByteArray): ImagePart =
        ImagePart(imageUrl = JsonPrimitive("data:image/*;base64," + base64(file)))

    /** An image in a PNG, JPEG, WebP or GIF file. Throws IOException. */
    @JvmStatic
    public fun image(file: Path): ImagePart = image(Files.readAllBytes(file))

    private fun base64(file: ByteArray): String = Base64.getEncoder().encodeToString(file)
}
