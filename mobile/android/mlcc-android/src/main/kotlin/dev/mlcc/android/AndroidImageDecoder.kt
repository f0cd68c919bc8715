package dev.mlcc.android

import android.graphics.Bitmap
import android.graphics.BitmapFactory
import android.graphics.Color
import android.media.ExifInterface
import dev.mlcc.DecodedImage
import dev.mlcc.ImageDecoder
import java.nio.ByteBuffer

/** Decodes images as Android does. JPEG and lossy WebP may differ by a level from those of a server. */
public object AndroidImageDecoder : ImageDecoder {
    override fun decode(file: ByteArray, type: String): DecodedImage {
        val options = BitmapFactory.Options().apply {
            inPreferredConfig = Bitmap.Config.ARGB_8888
            inPremultiplied = false
            inScaled = false
        }
        val bitmap = BitmapFactory.decodeByteArray(file, 0, file.size, options)
        requireNotNull(bitmap) { "Android cannot read this $type" }
        try {
            return turned(onWhite(bitmap), orientation(file))
        } finally {
            bitmap.recycle()
        }
    }

    private fun orientation(file: ByteArray): Int =
        runCatching { ExifInterface(file.inputStream()).getAttributeInt(ExifInterface.TAG_ORIENTATION, 1) }
            .getOrDefault(1) // unreadable data say nothing
}

/**
 * The place of red, green and blue in a bitmap's memory: RGBA on phones, BGRA on Robolectric's Android.
 * Memory is read as it was decoded, because `getPixels` applies colour profiles.
 */
private val places: IntArray by lazy {
    val red = Bitmap.createBitmap(intArrayOf(Color.RED), 1, 1, Bitmap.Config.ARGB_8888)
    val bytes = ByteArray(RGBA).also { red.copyPixelsToBuffer(ByteBuffer.wrap(it)) }
    if (bytes[0] != 0.toByte()) intArrayOf(0, 1, 2) else intArrayOf(2, 1, 0)
}

/** Pixels over white, in the whole numbers of Pillow's alpha_composite. */
private fun onWhite(bitmap: Bitmap): DecodedImage {
    check(bitmap.config == Bitmap.Config.ARGB_8888) { "Android decodes this image to ${bitmap.config}" }
    val (width, height) = bitmap.width to bitmap.height
    val rgba = ByteArray(width * height * RGBA)
    bitmap.copyPixelsToBuffer(ByteBuffer.wrap(rgba))
    val rgb = ByteArray(width * height * RGB)
    for (pixel in 0 until width * height) {
        val alpha = rgba[RGBA * pixel + RGB].toInt() and WHITE
        for (channel in 0 until RGB) {
            val level = rgba[RGBA * pixel + places[channel]].toInt() and WHITE
            val sum = (level * alpha + WHITE * (WHITE - alpha) + 128) shl 7
            rgb[RGB * pixel + channel] = (((sum shr 8) + sum) shr 15).toByte()
        }
    }
    return DecodedImage(width, height, rgb)
}

/** The image turned by EXIF's [orientation], 1 to 8. */
internal fun turned(image: DecodedImage, orientation: Int): DecodedImage {
    if (orientation !in 2..8) return image
    val (right, bottom) = image.width - 1 to image.height - 1
    val (width, height) =
        if (orientation < 5) image.width to image.height else image.height to image.width
    val rgb = ByteArray(image.rgb.size)
    var out = 0
    for (y in 0 until height) for (x in 0 until width) {
        val (column, row) = when (orientation) {
            2 -> right - x to y
            3 -> right - x to bottom - y
            4 -> x to bottom - y
            5 -> y to x
            6 -> y to bottom - x
            7 -> right - y to bottom - x
            else -> right - y to x
        }
        image.rgb.copyInto(rgb, out, RGB * (row * image.width + column), RGB * (row * image.width + column + 1))
        out += RGB
    }
    return DecodedImage(width, height, rgb)
}

private const val RGB = 3
private const val RGBA = 4
private const val WHITE = 255
