package dev.mlcc

/** Decodes the images of requests. One thread calls it at a time. */
public fun interface ImageDecoder {
    /**
     * The first frame of a [file]: upright by its EXIF data, colour profiles ignored, what is transparent
     * on white. [type]: `image/png`, `image/jpeg`, `image/webp` or `image/gif`. An exception refuses the
     * request, with its text.
     */
    public fun decode(file: ByteArray, type: String): DecodedImage
}

/**
 * An image in 8-bit RGB.
 *
 * @property width in pixels.
 * @property height in pixels.
 * @property rgb three bytes a pixel, row by row.
 */
public class DecodedImage(public val width: Int, public val height: Int, public val rgb: ByteArray)
