package dev.mlcc.android

import android.graphics.Bitmap
import android.graphics.Color
import dev.mlcc.DecodedImage
import org.junit.Assert.assertArrayEquals
import org.junit.Assert.assertEquals
import org.junit.Assert.assertThrows
import org.junit.Test
import org.junit.runner.RunWith
import org.robolectric.RobolectricTestRunner
import org.robolectric.annotation.GraphicsMode
import java.io.ByteArrayOutputStream

/** Android's own decoders, in Robolectric's Android 14. */
@RunWith(RobolectricTestRunner::class)
@GraphicsMode(GraphicsMode.Mode.NATIVE)
class AndroidImageDecoderTest {
    @Test
    fun `a PNG, with what is transparent on white`() {
        val colours = intArrayOf(Color.RED, Color.GREEN, Color.BLUE, Color.BLACK, 0, Color.argb(51, 0, 0, 0))
        val bitmap = Bitmap.createBitmap(colours, 3, 2, Bitmap.Config.ARGB_8888)
        val file = ByteArrayOutputStream().also { bitmap.compress(Bitmap.CompressFormat.PNG, 100, it) }
        val image = AndroidImageDecoder.decode(file.toByteArray(), "image/png")
        assertEquals(listOf(3, 2), listOf(image.width, image.height))
        val wanted = listOf(255, 0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 204, 204, 204)
        assertEquals(wanted, image.rgb.map { it.toInt() and 255 })
    }

    @Test
    fun `a damaged file is refused`() {
        val error = assertThrows(IllegalArgumentException::class.java) {
            AndroidImageDecoder.decode(byteArrayOf(1, 2, 3), "image/png")
        }
        assertEquals("Android cannot read this image/png", error.message)
    }

    @Test
    fun `EXIF turns an image`() {
        val image = DecodedImage(3, 2, ByteArray(18) { (it / 3).toByte() }) // 0 1 2, 3 4 5
        val wanted = mapOf(
            1 to "012345", 2 to "210543", 3 to "543210", 4 to "345012",
            5 to "031425", 6 to "304152", 7 to "524130", 8 to "251403",
        )
        for ((orientation, pixels) in wanted) {
            val made = turned(image, orientation)
            assertEquals(if (orientation < 5) 3 else 2, made.width)
            assertArrayEquals(pixels.flatMap { List(3) { _ -> (it - '0').toByte() } }.toByteArray(), made.rgb)
        }
    }
}
